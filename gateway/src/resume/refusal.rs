//! Why a broken stream is not carried on: a closed set of reasons.
//!
//! `reject` words the client's error event from it; docs/resume.md explains each to operators.

use std::fmt;

/// Why a stream cannot be carried on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// Switched off for the pool.
    Disabled,
    /// The path's stream is not one that can be put together (`/v1/responses`, `/v1/messages`, …).
    Route,
    /// The request has been moved as often as allowed.
    Moves,
    /// More text than is kept for a stream.
    TextTooLong,
    /// A request body longer than is kept for a stream.
    RequestTooLong,
    /// All memory for resumes is in use.
    Memory,
    /// The stream had an event that could not be read.
    Unreadable,
    /// The request body could not be read.
    Request,
    /// Messages with parts other than text, or an answer that is not text.
    Multimodal,
    /// The answer repeats the prompt.
    Echo,
    /// The same request gave another text, tool call or structure, and nothing else carries it exactly.
    ReplayDiffered,
    /// The rest did not agree with the text already sent.
    TextDiffered,
    /// A chat template that drops the reasoning, which the rest depends on.
    ReasoningStripped,
    /// The leader did not accept any way of carrying on.
    LeaderRefused,
    /// Tokens must be counted and no leader could count them.
    TokensUnknown,
    /// The text ends or begins in a place from which it is not sure to go on exactly.
    UnsafeText,
}

impl Refusal {
    /// Those that a setting of `resume` draws, not the request's kind.
    pub const BOUNDS: &'static [Self] = &[Self::Moves, Self::TextTooLong, Self::RequestTooLong, Self::Memory];

    /// A word for metrics, logs and the client, from a closed set.
    pub fn word(self) -> &'static str {
        match self {
            Self::Disabled => "disabled",
            Self::Route => "route",
            Self::Moves => "moves",
            Self::TextTooLong => "text_too_long",
            Self::RequestTooLong => "request_too_long",
            Self::Memory => "memory",
            Self::Unreadable => "unreadable",
            Self::Request => "request",
            Self::Multimodal => "multimodal",
            Self::Echo => "echo",
            Self::ReplayDiffered => "replay_differed",
            Self::TextDiffered => "text_differed",
            Self::ReasoningStripped => "reasoning_stripped",
            Self::LeaderRefused => "leader_refused",
            Self::TokensUnknown => "tokens_unknown",
            Self::UnsafeText => "unsafe_text",
        }
    }

    /// One sentence for the client.
    pub fn message(self) -> &'static str {
        match self {
            Self::Disabled => "The leader was lost and carrying streams on is switched off for this model.",
            Self::Route => "The leader was lost and a stream of this path cannot be carried on.",
            Self::Moves => "The leader was lost and this request has been moved as often as allowed.",
            Self::TextTooLong => "The leader was lost and more text had been sent than is kept to carry a stream on.",
            Self::RequestTooLong => "The leader was lost and the request is longer than is kept to carry a stream on.",
            Self::Memory => "The leader was lost and no memory was left to carry this stream on.",
            Self::Unreadable => "The leader was lost and its stream had an event that could not be read.",
            Self::Request => "The leader was lost and the request could not be read again.",
            Self::Multimodal => "The leader was lost and requests with parts other than text are not carried on.",
            Self::Echo => "The leader was lost and answers that echo the prompt are not carried on.",
            Self::ReplayDiffered => "The leader was lost and another leader's answer to the same request differed from what was sent.",
            Self::TextDiffered => "The leader was lost and another leader's rest did not agree with what was sent.",
            Self::ReasoningStripped => "The leader was lost and the model's chat template drops the reasoning that was sent.",
            Self::LeaderRefused => "The leader was lost and another leader did not accept the rest of this request.",
            Self::TokensUnknown => "The leader was lost and the tokens already sent could not be counted.",
            Self::UnsafeText => "The leader was lost at a place from which the text cannot be carried on exactly.",
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.message())
    }
}
