//! What the path of a request tells its spans.
//!
//! Owns: these types. All of it is borrowed or small: telling costs nothing when nothing is recorded. Next step: `span` takes it.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use discovery::snapshot::ReplicaGroup;
use http::HeaderMap;
use opentelemetry::trace::{SpanContext, SpanId, TraceId};

use super::asked::GenAiRequest;
use super::translate::context;
use crate::telemetry::labels::{Outcome, Route};

/// Something that happened to an attempt or to its request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttemptEvent {
    /// First byte of the leader's answer.
    FirstByte,
    /// First `data:` event.
    FirstToken,
    /// The group began to leave.
    DrainStarted,
    /// The answer broke.
    Broken,
    /// The answer goes on at another leader.
    Resumed,
    /// The request waits because nothing serves.
    Held,
    /// The wait is over.
    Released,
}

impl AttemptEvent {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::FirstByte => "first_byte",
            Self::FirstToken => "first_token",
            Self::DrainStarted => "drain_started",
            Self::Broken => "broken",
            Self::Resumed => "resumed",
            Self::Held => "held",
            Self::Released => "released",
        }
    }
}

/// Tokens of a request, from the answer's `usage`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// `prompt_tokens`.
    pub prompt: Option<u64>,
    /// `completion_tokens`.
    pub completion: Option<u64>,
    /// `prompt_tokens_details.cached_tokens`, or `cache_read_input_tokens`.
    pub cached: Option<u64>,
    /// `completion_tokens_details.reasoning_tokens`.
    pub reasoning: Option<u64>,
}

impl Usage {
    /// What is known once `later` was told too: it replaces what it tells of, no more. Messages tell the prompt at the start of a stream and the
    /// completion at its end.
    pub fn then(self, later: Self) -> Self {
        Self {
            prompt: later.prompt.or(self.prompt),
            completion: later.completion.or(self.completion),
            cached: later.cached.or(self.cached),
            reasoning: later.reasoning.or(self.reasoning),
        }
    }
}

/// What is known of a request when its head has arrived.
#[derive(Debug, Clone, Copy)]
pub struct RequestBegin<'a> {
    /// Its headers, for the trace context.
    pub headers: &'a HeaderMap,
    /// HTTP method.
    pub method: &'a str,
    /// Path without its query.
    pub path: &'a str,
    /// Which routed path.
    pub route: Route,
    /// `1.0`, `1.1` or `2`.
    pub protocol: &'static str,
    /// When the head had arrived.
    pub started: SystemTime,
}

/// What is known of a request at its end. Empty texts are left out.
#[derive(Debug, Clone, Copy, Default)]
pub struct RequestEnd<'a> {
    /// HTTP status that the client got; `None` when it left before.
    pub status: Option<u16>,
    /// How it ended; `None` counts as cancelled.
    pub outcome: Option<Outcome>,
    /// Code of a refusal, or why a stream ended in an error event.
    pub reason: &'a str,
    /// `x-request-id`.
    pub request_id: &'a str,
    /// Model name of the pool.
    pub pool: &'a str,
    /// Key of the last group that was tried.
    pub group: &'a str,
    /// Tries at leaders.
    pub attempts: u32,
    /// Times that the answer moved.
    pub resumes: u32,
    /// To the first `data:` event.
    pub first_token: Option<Duration>,
    /// Tokens of the whole request.
    pub usage: Usage,
}

/// What is known of an attempt when it begins.
#[derive(Debug)]
pub struct AttemptBegin<'a> {
    /// Served model name that the leader is asked for.
    pub model: Arc<str>,
    /// The group at which the attempt is made.
    pub group: Arc<ReplicaGroup>,
    /// 0 for the first try; the number of tries before this one.
    pub resend: u32,
    /// The client asked for a stream.
    pub stream: bool,
    /// What the request asks of the model; `None`: not read.
    pub request: Option<&'a Arc<GenAiRequest>>,
    /// The attempt that this one carries on.
    pub replaces: Option<AttemptRef>,
}

/// Names an attempt's span, so that a later one can link to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttemptRef {
    trace: TraceId,
    span: SpanId,
    sampled: bool,
}

impl AttemptRef {
    pub(super) fn new(trace: TraceId, span: SpanId, sampled: bool) -> Self {
        Self { trace, span, sampled }
    }

    pub(super) fn context(self) -> SpanContext {
        context(self.trace, self.span, self.sampled)
    }
}

/// A wait for a leader.
#[derive(Debug, Clone, Copy)]
pub struct QueueWait {
    /// From the request's head, or from the break of its stream.
    pub from: SystemTime,
    /// When no leader was free for it and it joined the pool's queue; `None`: it went on at once.
    pub held: Option<SystemTime>,
    /// Until its leader was chosen, or it was given up.
    pub to: SystemTime,
    /// A leader was chosen.
    pub released: bool,
}
