//! What a job's search for a leader gives: an answer that has begun, or why there is none.
//!
//! Owns: these types. Must not: search (`job` does). Next step: `exchange` passes the answer on.

use std::sync::Arc;

use bytes::Bytes;
use config::PoolSettings;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderValue};
use tokio::time::Instant;

use crate::groups::queue::Grant;
use crate::groups::state::GroupState;
use crate::proxy::attempt::Started;
use crate::reject::Reject;

/// Whether `open` may wait in a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hold {
    /// Come back with [`Stop::MustHold`] instead.
    Refuse,
    /// Wait.
    Wait,
}

/// Why there is no answer.
#[derive(Debug)]
pub enum Stop {
    /// Nothing serves now, and waiting was not allowed.
    MustHold,
    /// Final.
    Reject(Reject),
}

/// An answer that has begun.
#[derive(Debug)]
pub struct Opened {
    /// Who answers.
    pub group: Arc<GroupState>,
    /// How the pool is configured.
    pub settings: Arc<PoolSettings>,
    /// Slot in the release window, if the request waited.
    pub grant: Option<Grant>,
    /// When the request was sent.
    pub sent: Instant,
    /// What it answers.
    pub answer: Answer,
}

impl Opened {
    /// The same for a request that goes on looking for another leader. What it holds of the release window would be missing to those who wait
    /// beside it, for as long as it waits itself.
    pub(super) fn without_grant(mut self) -> Self {
        self.grant = None;
        self
    }
}

/// The answer itself.
#[derive(Debug)]
pub enum Answer {
    /// Read whole already.
    Whole {
        /// Status and fields.
        head: Box<http::response::Parts>,
        /// All of it.
        body: Bytes,
    },
    /// Still running.
    Running {
        /// Head, body, permit.
        started: Box<Started>,
        /// Read already, comes before the rest.
        prefix: Bytes,
    },
}

const EVENT_STREAM: &[u8] = b"text/event-stream";

/// A stream of events that can be told apart.
pub fn is_event_stream(head: &http::response::Parts) -> bool {
    let media =
        |value: &HeaderValue| value.as_bytes().get(..EVENT_STREAM.len()).is_some_and(|start| start.eq_ignore_ascii_case(EVENT_STREAM));
    let event_stream = head.headers.get(CONTENT_TYPE).is_some_and(media);
    event_stream && head.headers.get(CONTENT_ENCODING).is_none_or(|coding| coding == "identity")
}
