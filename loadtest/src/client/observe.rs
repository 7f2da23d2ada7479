//! One request from its sending to its last byte, as its client sees it.
//!
//! Owns the clocks: time to the head, to the first text, between events. Never fails: what goes wrong is part of the
//! observation.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use tokio::time::{Instant, timeout};

use crate::engine::whole::Answer;
use crate::plan::Arrival;
use crate::sse::{Item, SseReader};

use super::check::{Problem, check};
use super::connect::Client;
use super::expectation::Expectation;
use super::transcript::Transcript;

/// How a request ended.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[serde(tag = "end", rename_all = "snake_case")]
pub enum End {
    /// A finish for every choice, and `[DONE]` if streamed.
    Complete,
    /// The client went away as planned.
    Cancelled,
    /// An answer with a status of 400 or more.
    Refused {
        /// The status.
        status: u16,
        /// `x-leadgate-reason`, else the first bytes of the body.
        reason: String,
    },
    /// An error event in the stream.
    ErrorEvent {
        /// Its message.
        message: String,
    },
    /// A clean end without a finish or without `[DONE]`, or with `abort`.
    Unfinished,
    /// The connection broke off.
    Cut {
        /// What the HTTP library said.
        error: String,
    },
    /// No answer at all.
    Unanswered {
        /// What the HTTP library said.
        error: String,
    },
    /// Silent for longer than the client waits.
    TimedOut,
}

impl End {
    /// The word in counters.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::Cancelled => "cancelled",
            Self::Refused { .. } => "refused",
            Self::ErrorEvent { .. } => "error event",
            Self::Unfinished => "unfinished",
            Self::Cut { .. } => "cut",
            Self::Unanswered { .. } => "unanswered",
            Self::TimedOut => "timed out",
        }
    }
}

/// What came of one request. Times count from the moment at which it was due, so that a late client does not flatter.
#[derive(Debug, Clone, serde::Serialize)]
pub struct Observation {
    /// Position in the plan.
    pub number: usize,
    /// `X-Request-Id`.
    pub id: String,
    /// It was a stream.
    pub streamed: bool,
    /// When it was due, from the start of the plan.
    pub due: Duration,
    /// How late it was sent.
    pub lag: Duration,
    /// Until the head.
    pub head: Option<Duration>,
    /// Until the first text.
    pub first_text: Option<Duration>,
    /// Until the end.
    pub total: Duration,
    /// Microseconds between events with text, the first 8192 of them.
    #[serde(skip)]
    pub gaps: Vec<u32>,
    /// The longest of them.
    pub longest_gap: Duration,
    /// Events, `[DONE]` not counted.
    pub events: u64,
    /// Comments.
    pub comments: u64,
    /// `x-leadgate-group` of the answer.
    pub group: Option<String>,
    /// How it ended.
    pub end: End,
    /// What was wrong with it.
    pub problems: Vec<Problem>,
    /// The text that came and the text that was due, if they differ.
    pub differs: Option<(String, String)>,
}

/// Gaps that one observation keeps.
const MAX_GAPS: usize = 8192;

impl Observation {
    /// True if a user would have nothing to complain about.
    pub fn is_good(&self) -> bool {
        matches!(self.end, End::Complete | End::Cancelled) && self.problems.is_empty()
    }

    /// One line for a report.
    pub fn story(&self) -> String {
        let problems: Vec<_> = self.problems.iter().map(|problem| format!("{problem:?}")).collect();
        format!("{} ({:?} after {:.3?}, {} events) {}", self.id, self.end, self.total, self.events, problems.join(", "))
    }
}

impl Client {
    /// Sends one request of a plan whose clock began at `start`, and watches it to its end. With an expectation, every
    /// character is checked. `patience` bounds each silence.
    pub async fn observe(&self, arrival: &Arrival, start: Instant, due: Option<&Expectation>, patience: Duration) -> Observation {
        let due_at = start + arrival.at;
        let mut watch = Watch::new(arrival, due_at);
        let end = self.exchange(arrival, &mut watch, patience).await;
        watch.seen.total = due_at.elapsed();
        if let Some(due) = due {
            watch.judge(&end, due.answer(&arrival.request), arrival);
        } else {
            watch.seen.problems.clone_from(&watch.transcript.problems);
        }
        watch.seen.end = end;
        watch.seen
    }

    async fn exchange(&self, arrival: &Arrival, watch: &mut Watch, patience: Duration) -> End {
        let body = Bytes::from(arrival.request.to_string());
        let sent = timeout(patience, self.post("/v1/chat/completions", &arrival.id, body));
        if arrival.cancel_after.is_some() && !arrival.streamed() {
            // Dropped in the middle, if it takes long enough to have one.
            let _ = timeout(Duration::from_millis(50), sent).await;
            return End::Cancelled;
        }
        let (response, lease) = match sent.await {
            Err(_) => return End::TimedOut,
            Ok(Err(error)) => return End::Unanswered { error: error.to_string() },
            Ok(Ok(answered)) => answered,
        };
        watch.seen.head = Some(watch.due_at.elapsed());
        let text = |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
        watch.seen.group = text("x-leadgate-group");
        let (status, reason) = (response.status().as_u16(), text("x-leadgate-reason"));
        let mut body = response.into_body();
        let end = if status >= 400 {
            watch.refused(&mut body, status, reason, patience).await
        } else if arrival.streamed() {
            watch.stream(&mut body, arrival.cancel_after, patience).await
        } else {
            watch.whole(&mut body, patience).await
        };
        if matches!(end, End::Complete | End::Refused { .. }) {
            self.done(lease);
        }
        end
    }
}

/// Longest body of an answer that is not streamed.
const MAX_BODY: usize = 64 << 20;

/// An observation while it is made.
struct Watch {
    seen: Observation,
    transcript: Transcript,
    due_at: Instant,
    last_text: Option<Instant>,
}

impl Watch {
    fn new(arrival: &Arrival, due_at: Instant) -> Self {
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

    async fn stream(&mut self, body: &mut Incoming, cancel_after: Option<u64>, patience: Duration) -> End {
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

    async fn whole(&mut self, body: &mut Incoming, patience: Duration) -> End {
        match collect(body, patience).await {
            Err(end) => end,
            Ok(bytes) => {
                self.transcript.object(&bytes);
                self.ended()
            }
        }
    }

    async fn refused(&mut self, body: &mut Incoming, status: u16, reason: Option<String>, patience: Duration) -> End {
        let bytes = collect(body, patience).await.unwrap_or_default();
        let start = || String::from_utf8_lossy(&bytes[..bytes.len().min(200)]).into_owned();
        End::Refused { status, reason: reason.unwrap_or_else(start) }
    }

    /// Compares what came with what was due.
    fn judge(&mut self, end: &End, due: Option<Answer>, arrival: &Arrival) {
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
