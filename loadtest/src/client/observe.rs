//! One request from its sending to its last byte, as its client sees it.
//!
//! Owns the clocks: time to the head, to the first text, between events. Never fails: what goes wrong is part of the
//! observation.

use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, timeout};

use crate::plan::Arrival;

use super::check::Problem;
use super::connect::Client;
use super::expectation::Expectation;
use super::watch::Watch;

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
