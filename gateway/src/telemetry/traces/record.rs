//! What is kept of a request and of its tries until it is known whether their spans are sent.
//!
//! Owns: these records and their bounds. Most requests are not sampled and end well, so nearly all records are thrown away: they hold
//! plain fields and few allocations, and no attribute. Must not: hold text of prompts or completions. Next step: `translate` makes spans
//! of those that are sent.

use std::sync::Arc;
use std::time::SystemTime;

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

/// Some texts in one allocation.
#[derive(Debug)]
struct Texts<const N: usize> {
    all: Box<str>,
    ends: [usize; N],
}

impl<const N: usize> Texts<N> {
    fn new(parts: [&str; N]) -> Self {
        let mut all = String::with_capacity(parts.iter().map(|part| part.len()).sum());
        let ends = parts.map(|part| {
            all.push_str(part);
            all.len()
        });
        Self { all: all.into_boxed_str(), ends }
    }

    /// The text at this place; empty behind the last.
    fn get(&self, at: usize) -> &str {
        let begin = at.checked_sub(1).map_or(0, |before| self.ends[before.min(N - 1)]);
        self.ends.get(at).and_then(|end| self.all.get(begin..*end)).unwrap_or_default()
    }
}

/// What is kept of a request's head.
#[derive(Debug)]
pub(super) struct Head {
    /// Method, path.
    texts: Texts<2>,
    pub(super) protocol: &'static str,
    pub(super) started: SystemTime,
}

impl Head {
    pub(super) fn new(begin: &RequestBegin<'_>) -> Self {
        Self { texts: Texts::new([begin.method, cut(begin.path)]), protocol: begin.protocol, started: begin.started }
    }

    pub(super) fn method(&self) -> &str {
        self.texts.get(0)
    }

    pub(super) fn path(&self) -> &str {
        self.texts.get(1)
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
    /// Model, host, group, the leader's UID.
    texts: Texts<4>,
    pub(super) port: u16,
    pub(super) stream: bool,
    pub(super) slot: Option<u32>,
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
    pub(super) fn new(span: SpanId, begin: &AttemptBegin<'_>, read: bool, started: SystemTime) -> Self {
        Self {
            span,
            started,
            texts: Texts::new([begin.model, begin.host, begin.group, begin.leader_uid]),
            port: begin.port,
            stream: begin.stream,
            slot: begin.slot,
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

    pub(super) fn model(&self) -> &str {
        self.texts.get(0)
    }

    pub(super) fn host(&self) -> &str {
        self.texts.get(1)
    }

    pub(super) fn group(&self) -> &str {
        self.texts.get(2)
    }

    pub(super) fn leader_uid(&self) -> &str {
        self.texts.get(3)
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
    fn texts_come_back_as_they_were() {
        let texts = Texts::new(["qwen", "", "é/ü", "z"]);
        assert_eq!([0, 1, 2, 3, 4, 9].map(|at| texts.get(at)), ["qwen", "", "é/ü", "z", "", ""]);
    }

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
