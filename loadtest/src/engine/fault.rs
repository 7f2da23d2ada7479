//! Faults on command: what goes wrong with the next requests.
//!
//! A [`Rule`] names a fault, how many requests it takes and which; rules are asked in the order in which they came.
//! Faults of the whole engine (hang, SIGTERM, kill) are moods, not rules.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::config::Ending;
use super::guarded::Guarded;

/// What goes wrong with one request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Fault {
    /// Refused with a status: 503 as a full queue, 500 as a server that stops.
    Status {
        /// 500 or 503, or any other.
        status: u16,
    },
    /// RST behind byte `byte` of the answer, the head counted.
    ResetAt {
        /// Bytes that are still written.
        byte: u64,
    },
    /// FIN behind byte `byte` of the answer.
    FinAt {
        /// Bytes that are still written.
        byte: u64,
    },
    /// RST behind `events` events.
    ResetAfter {
        /// Events that are still written; role events count.
        events: u64,
    },
    /// FIN between two events, as a SIGKILL.
    FinAfter {
        /// Events that are still written.
        events: u64,
    },
    /// The connection stays open and nothing comes any more.
    SilenceAfter {
        /// Events that are still written.
        events: u64,
    },
    /// `finish_reason: "abort"`, the mark and a clean end.
    AbortAfter {
        /// Events that are still written.
        events: u64,
    },
    /// An error event, the mark and a clean end; with 0 the error is the first event.
    ErrorAfter {
        /// Events that are still written.
        events: u64,
    },
    /// A clean end of the chunks without a finish and without the mark.
    EndAfter {
        /// Events that are still written.
        events: u64,
    },
    /// The mark and a clean end, but no finish.
    DoneAfter {
        /// Events that are still written.
        events: u64,
    },
    /// A chunk size that is no number.
    BadChunkAfter {
        /// Events that are still written.
        events: u64,
    },
    /// An event that is no JSON; the stream goes on behind it.
    MalformedAfter {
        /// Events that are still written.
        events: u64,
    },
    /// Everything but the mark.
    NoDone,
    /// Everything but the last chunk; then FIN.
    NoLastChunk,
    /// A `Content-Length` larger than the body by `by`; then FIN. Streams: as `no_last_chunk`.
    LengthLong {
        /// Bytes that never come.
        by: usize,
    },
    /// A `Content-Length` smaller than the body by `by`.
    LengthShort {
        /// Bytes too many.
        by: usize,
    },
    /// A few bytes at a time.
    Loris {
        /// Bytes of each write.
        bytes: usize,
        /// Milliseconds between two writes.
        every_ms: u64,
    },
    /// Bytes that are no HTTP.
    Garbage,
    /// The first token comes later.
    Delay {
        /// Milliseconds more.
        ms: u64,
    },
}

impl Fault {
    /// What happens behind how many events; `None` for faults that wait for something else.
    pub(crate) fn strike(&self) -> Option<(u64, Strike)> {
        match self {
            Self::ResetAfter { events } => Some((*events, Strike::Reset)),
            Self::FinAfter { events } => Some((*events, Strike::Fin)),
            Self::SilenceAfter { events } => Some((*events, Strike::Ending(Ending::Silence))),
            Self::AbortAfter { events } => Some((*events, Strike::Ending(Ending::Abort))),
            Self::ErrorAfter { events } => Some((*events, Strike::Ending(Ending::Error))),
            Self::EndAfter { events } => Some((*events, Strike::End)),
            Self::DoneAfter { events } => Some((*events, Strike::Done)),
            Self::BadChunkAfter { events } => Some((*events, Strike::BadChunk)),
            Self::MalformedAfter { events } => Some((*events, Strike::Malformed)),
            Self::Status { .. }
            | Self::ResetAt { .. }
            | Self::FinAt { .. }
            | Self::NoDone
            | Self::NoLastChunk
            | Self::LengthLong { .. }
            | Self::LengthShort { .. }
            | Self::Loris { .. }
            | Self::Garbage
            | Self::Delay { .. } => None,
        }
    }

    /// The word in counters.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Status { .. } => "status",
            Self::ResetAt { .. } => "reset_at",
            Self::FinAt { .. } => "fin_at",
            Self::ResetAfter { .. } => "reset_after",
            Self::FinAfter { .. } => "fin_after",
            Self::SilenceAfter { .. } => "silence_after",
            Self::AbortAfter { .. } => "abort_after",
            Self::ErrorAfter { .. } => "error_after",
            Self::EndAfter { .. } => "end_after",
            Self::DoneAfter { .. } => "done_after",
            Self::BadChunkAfter { .. } => "bad_chunk_after",
            Self::MalformedAfter { .. } => "malformed_after",
            Self::NoDone => "no_done",
            Self::NoLastChunk => "no_last_chunk",
            Self::LengthLong { .. } => "length_long",
            Self::LengthShort { .. } => "length_short",
            Self::Loris { .. } => "loris",
            Self::Garbage => "garbage",
            Self::Delay { .. } => "delay",
        }
    }
}

/// What happens to an answer at some event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Strike {
    Reset,
    Fin,
    Ending(Ending),
    /// The last chunk, and nothing that should be before it.
    End,
    /// The mark and the last chunk.
    Done,
    BadChunk,
    Malformed,
}

/// A fault and the requests that it takes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rule {
    /// What goes wrong.
    #[serde(flatten)]
    pub fault: Fault,
    /// How many requests; all of them without.
    #[serde(default)]
    pub times: Option<u32>,
    /// Only streamed, or only other requests.
    #[serde(default)]
    pub streamed: Option<bool>,
    /// Only the request with this `X-Request-Id`.
    #[serde(default)]
    pub request_id: Option<String>,
}

impl Rule {
    /// For every request.
    pub fn always(fault: Fault) -> Self {
        Self { fault, times: None, streamed: None, request_id: None }
    }

    /// For the next request only.
    pub fn once(fault: Fault) -> Self {
        Self { times: Some(1), ..Self::always(fault) }
    }
}

/// The rules that are left.
#[derive(Debug, Default)]
pub(crate) struct Rules(Guarded<VecDeque<Rule>>);

/// At most this many rules at a time.
const MAX_RULES: usize = 1024;

impl Rules {
    /// Adds a rule; false if there are too many.
    pub(crate) fn add(&self, rule: Rule) -> bool {
        self.0.with(|rules| {
            let room = rules.len() < MAX_RULES;
            if room {
                rules.push_back(rule);
            }
            room
        })
    }

    pub(crate) fn clear(&self) {
        self.0.with(VecDeque::clear);
    }

    /// The fault of this request, used up by it.
    pub(crate) fn take(&self, streamed: bool, id: Option<&str>) -> Option<Fault> {
        self.0.with(|rules| {
            let fits = |rule: &Rule| {
                rule.streamed.is_none_or(|wanted| wanted == streamed) && rule.request_id.as_deref().is_none_or(|wanted| Some(wanted) == id)
            };
            let at = rules.iter().position(fits)?;
            let rule = rules.get_mut(at)?;
            let fault = rule.fault.clone();
            if let Some(times) = &mut rule.times {
                *times = times.saturating_sub(1);
                if *times == 0 {
                    rules.remove(at);
                }
            }
            Some(fault)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_used_up_in_order_and_by_kind() {
        let rules = Rules::default();
        rules.add(Rule { streamed: Some(true), ..Rule::once(Fault::NoDone) });
        rules.add(Rule { times: Some(2), ..Rule::always(Fault::Garbage) });
        assert_eq!(rules.take(false, None), Some(Fault::Garbage));
        assert_eq!(rules.take(true, None), Some(Fault::NoDone));
        assert_eq!(rules.take(true, None), Some(Fault::Garbage));
        assert_eq!(rules.take(true, None), None);
    }

    #[test]
    fn rules_are_read_from_json() {
        let rule: Rule = serde_json::from_str(r#"{"kind":"reset_at","byte":700,"times":1}"#).unwrap();
        assert_eq!(rule, Rule::once(Fault::ResetAt { byte: 700 }));
    }
}
