//! What is kept of a request and of its tries until it is known whether their spans are sent.
//!
//! Owns: these records and their bounds. Most requests are not sampled and end well, so nearly all records are thrown away: they hold
//! plain fields and few allocations, and no attribute. Must not: hold text of prompts or completions. Next step: `translate` makes spans
//! of those that are sent.

use std::sync::Arc;
use std::time::SystemTime;

use discovery::snapshot::ReplicaGroup;
use opentelemetry::trace::SpanId;
use smallvec::SmallVec;

use super::answer::GenAiResponse;
use super::asked::GenAiRequest;
use super::told::{AttemptBegin, AttemptEvent, AttemptRef, QueueWait, RequestBegin, Usage};
use crate::telemetry::labels::AttemptOutcome;

/// Events of one span at most; the rest is counted.
const EVENTS: usize = 64;
/// Bytes of a client's text that are kept.
const TEXT_BYTES: usize = 256;

/// What is kept of a request's head.
#[derive(Debug)]
pub(super) struct Head {
    /// In one allocation.
    method_and_path: Box<str>,
    path_from: usize,
    pub(super) protocol: &'static str,
    pub(super) started: SystemTime,
}

impl Head {
    pub(super) fn new(begin: &RequestBegin<'_>) -> Self {
        let method_and_path = [begin.method, cut(begin.path)].concat().into_boxed_str();
        Self { method_and_path, path_from: begin.method.len(), protocol: begin.protocol, started: begin.started }
    }

    pub(super) fn method(&self) -> &str {
        &self.method_and_path[..self.path_from]
    }

    pub(super) fn path(&self) -> &str {
        &self.method_and_path[self.path_from..]
    }
}

/// Something that happened, when, and a word about it, which may be empty.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mark {
    pub(super) event: AttemptEvent,
    pub(super) at: SystemTime,
    pub(super) detail: &'static str,
}

/// What is kept of a try at one leader.
#[derive(Debug)]
pub(super) struct Try {
    pub(super) span: SpanId,
    pub(super) started: SystemTime,
    pub(super) model: Arc<str>,
    pub(super) group: Arc<ReplicaGroup>,
    pub(super) stream: bool,
    pub(super) resend: u32,
    pub(super) status: Option<u16>,
    pub(super) replaces: Option<AttemptRef>,
    pub(super) usage: Usage,
    /// `None`: not read.
    pub(super) asked: Option<Arc<GenAiRequest>>,
    /// `None`: not read.
    pub(super) answer: Option<Box<GenAiResponse>>,
    /// Nearly every try has two: its first byte and its first token.
    pub(super) marks: SmallVec<[Mark; 2]>,
    pub(super) marks_lost: u32,
    pub(super) ended: SystemTime,
    pub(super) outcome: AttemptOutcome,
    pub(super) reason: &'static str,
}

impl Try {
    /// A try that ends as cancelled unless it is told otherwise. `read`: what its answer says of itself will be read.
    pub(super) fn new(span: SpanId, begin: AttemptBegin<'_>, read: bool, started: SystemTime) -> Self {
        Self {
            span,
            started,
            model: begin.model,
            group: begin.group,
            stream: begin.stream,
            resend: begin.resend,
            status: None,
            replaces: begin.replaces,
            usage: Usage::default(),
            asked: begin.request.cloned(),
            answer: read.then(Box::default),
            marks: SmallVec::new(),
            marks_lost: 0,
            ended: started,
            outcome: AttemptOutcome::Cancelled,
            reason: "",
        }
    }

    pub(super) fn mark(&mut self, mark: Mark) {
        if self.marks.len() == EVENTS {
            self.marks_lost += 1;
        } else {
            self.marks.push(mark);
        }
    }
}

/// What has ended before its request.
#[derive(Debug)]
pub(super) enum Done {
    /// A wait.
    Wait(QueueWait),
    /// A try.
    Try(Box<Try>),
}

/// The begin of a text that a client sent.
pub(super) fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(TEXT_BYTES)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clients_text_is_cut_between_characters() {
        assert_eq!(cut("short"), "short");
        assert_eq!(cut(&"é".repeat(200)).len(), TEXT_BYTES);
        assert_eq!(cut(&format!("x{}", "é".repeat(200))).len(), TEXT_BYTES - 1);
    }

    /// Each running stream holds these, sampled or not.
    #[test]
    fn records_stay_small() {
        let sizes = [size_of::<Head>(), size_of::<Try>(), size_of::<Done>(), size_of::<Mark>()];
        assert!(sizes.iter().zip([64, 336, 56, 40]).all(|(is, most)| *is <= most), "{sizes:?}");
    }
}
