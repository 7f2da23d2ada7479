//! One answer while it comes: reading, timing, judging.
//!
//! Fills the observation that `observe` gives out.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use tokio::time::{Instant, timeout};

use crate::engine::whole::Answer;
use crate::plan::Arrival;
use crate::sse::{Item, SseReader};

use super::check::{Problem, check};
use super::observe::{End, Observation};
use super::transcript::Transcript;

/// Gaps that one observation keeps.
const MAX_GAPS: usize = 8192;

/// Longest body of an answer that is not streamed.
const MAX_BODY: usize = 64 << 20;

/// An observation while it is made.
pub(super) struct Watch {
    pub(super) seen: Observation,
    pub(super) transcript: Transcript,
    pub(super) due_at: Instant,
    last_text: Option<Instant>,
}

impl Watch {
    pub(super) fn new(arrival: &Arrival, due_at: Instant) -> Self {
        let seen = Observation {
            number: arrival.number,
            id: arrival.id.clone(),
            streamed: arrival.streamed(),
            due: arrival.at,
            lag: due_at.elapsed(),
            head: None,
            first_text: None,
            total: Duration::ZERO,
            gaps: Vec::new(),
            longest_gap: Duration::ZERO,
            events: 0,
            comments: 0,
            group: None,
            end: End::Complete,
            problems: Vec::new(),
            differs: None,
        };
        Self { seen, transcript: Transcript::default(), due_at, last_text: None }
    }

    pub(super) async fn stream(&mut self, body: &mut Incoming, cancel_after: Option<u64>, patience: Duration) -> End {
        let (mut reader, mut items) = (SseReader::new(), Vec::new());
        loop {
            let bytes = match timeout(patience, next(body)).await {
                Err(_) => return End::TimedOut,
                Ok(Some(Err(error))) => return self.broken(error.to_string()),
                Ok(Some(Ok(bytes))) => bytes,
                Ok(None) => {
                    if reader.has_pending() {
                        self.transcript.note(Problem::EndsInsideEvent);
                    }
                    return self.ended();
                }
            };
            if reader.push(&bytes, &mut items).is_err() {
                self.transcript.note(Problem::NotEvents);
                return End::Unfinished;
            }
            for item in items.drain(..) {
                self.item(item);
            }
            if cancel_after.is_some_and(|events| self.seen.events >= events) {
                return End::Cancelled;
            }
        }
    }

    fn item(&mut self, item: Item) {
        let Item::Event { data, .. } = item else {
            self.seen.comments += 1;
            return;
        };
        self.seen.events += u64::from(data != "[DONE]");
        if !self.transcript.event(&data) {
            return;
        }
        let now = Instant::now();
        match self.last_text.replace(now) {
            None => self.seen.first_text = Some(now - self.due_at),
            Some(last) => {
                let gap = now - last;
                self.seen.longest_gap = self.seen.longest_gap.max(gap);
                if self.seen.gaps.len() < MAX_GAPS {
                    self.seen.gaps.push(u32::try_from(gap.as_micros()).unwrap_or(u32::MAX));
                }
            }
        }
    }

    /// A cut behind an error event is how a gateway ends a stream that it cannot carry on: the event counts.
    fn broken(&mut self, error: String) -> End {
        match self.transcript.error.take() {
            Some(message) => End::ErrorEvent { message },
            None => End::Cut { error },
        }
    }

    fn ended(&mut self) -> End {
        match self.transcript.error.take() {
            Some(message) => End::ErrorEvent { message },
            None if self.transcript.is_finished() && self.transcript.done => End::Complete,
            None => End::Unfinished,
        }
    }

    pub(super) async fn whole(&mut self, body: &mut Incoming, patience: Duration) -> End {
        match collect(body, patience).await {
            Err(end) => end,
            Ok(bytes) => {
                self.transcript.object(&bytes);
                self.ended()
            }
        }
    }

    pub(super) async fn refused(&mut self, body: &mut Incoming, status: u16, reason: Option<String>, patience: Duration) -> End {
        let bytes = collect(body, patience).await.unwrap_or_default();
        let start = || String::from_utf8_lossy(&bytes[..bytes.len().min(200)]).into_owned();
        End::Refused { status, reason: reason.unwrap_or_else(start) }
    }

    /// Compares what came with what was due.
    pub(super) fn judge(&mut self, end: &End, due: Option<Answer>, arrival: &Arrival) {
        let Some(due) = due else {
            if *end == End::Complete {
                self.seen.problems.push(Problem::NotRefused);
            }
            return;
        };
        let partial = *end != End::Complete;
        let usage_due = arrival.request.get("stream_options").is_some() || !arrival.streamed();
        self.seen.problems = check(&due, &self.transcript, partial, usage_due);
        if self.seen.problems.iter().any(|problem| matches!(problem, Problem::Text(_))) {
            let came = self.transcript.choices.first().map(|heard| heard.content.clone()).unwrap_or_default();
            self.seen.differs = due.choices.into_iter().next().map(|said| (came, said.content));
        }
    }
}

async fn next(body: &mut Incoming) -> Option<Result<Bytes, hyper::Error>> {
    loop {
        match body.frame().await? {
            Err(error) => return Some(Err(error)),
            Ok(frame) => {
                if let Ok(bytes) = frame.into_data() {
                    return Some(Ok(bytes));
                }
            }
        }
    }
}

async fn collect(body: &mut Incoming, patience: Duration) -> Result<Vec<u8>, End> {
    let mut all = Vec::new();
    loop {
        match timeout(patience, next(body)).await {
            Err(_) => return Err(End::TimedOut),
            Ok(None) => return Ok(all),
            Ok(Some(Err(error))) => return Err(End::Cut { error: error.to_string() }),
            Ok(Some(Ok(bytes))) if all.len() + bytes.len() <= MAX_BODY => all.extend_from_slice(&bytes),
            Ok(Some(Ok(_))) => return Err(End::Cut { error: "the answer is too long".to_owned() }),
        }
    }
}
