//! What to do next with a broken stream: the planner's answer, and what the relay hands back.

use bytes::Bytes;

use super::refusal::Refusal;
use super::splice::Splice;

/// What a leader can do, as far as it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caps {
    /// It may have `/tokenize`. Assume so until it answered 404.
    pub tokenize: bool,
    /// Its `max_model_len` (from `/v1/models`), tokens.
    pub max_model_len: Option<u64>,
}

impl Default for Caps {
    fn default() -> Self {
        Self { tokenize: true, max_model_len: None }
    }
}

/// A way of carrying on, for metrics and logs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Way {
    /// The text sent is the start of the next answer.
    Continue,
    /// The same request again; what was sent is compared and swallowed.
    Replay,
    /// Token ids of prompt and answer by `/v1/completions`.
    TokenIds,
}

impl Way {
    /// A word for metrics and logs, from a closed set.
    pub fn word(self) -> &'static str {
        match self {
            Self::Continue => "continue",
            Self::Replay => "replay",
            Self::TokenIds => "token_ids",
        }
    }
}

/// The next step for a broken stream.
#[derive(Debug)]
pub enum Plan {
    /// Nothing has been sent yet: the original request goes to another leader, and its events come to the same stream
    /// after `Stream::begin_fresh`.
    Fresh,
    /// Send this; on a 200 hand it to `Stream::begin`, else to `Stream::refused`.
    Send(Resend),
    /// Ask the leader that is to carry on; hand the answer to `Stream::answered` and plan again.
    Ask(Ask),
    /// Nothing is left to generate: pass these events on and end the stream well.
    Finish(Bytes),
    /// Not possible: an error event that says why, then the stream is cut.
    Refuse(Refusal),
}

/// A request to a leader that carries the stream on.
#[derive(Debug)]
pub struct Resend {
    /// How it carries on.
    pub way: Way,
    /// The path to send it to; `None`: that of the client's request.
    pub path: Option<&'static str>,
    /// The body, JSON.
    pub body: Bytes,
    pub(super) attempt: Attempt,
    pub(super) splice: Box<Splice>,
}

/// A question to a leader: `POST` to [`Ask::PATH`].
#[derive(Debug)]
pub struct Ask {
    /// The body, JSON.
    pub body: Bytes,
    pub(super) question: Question,
}

impl Ask {
    /// Where to send it.
    pub const PATH: &'static str = "/tokenize";
}

/// One attempt, finer than a [`Way`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Attempt {
    /// Continue after the last letter-space place, with an overlap.
    Cut,
    /// Continue after all of the text.
    All,
    /// Continue before the white space at the end, with it as overlap.
    Space,
    /// Continue after all of the text behind the prompt as the leader renders it, past the chat template.
    Rendered,
    /// Replay.
    Replay,
    /// Token ids.
    TokenIds,
}

impl Attempt {
    pub(super) fn way(self) -> Way {
        match self {
            Self::Cut | Self::All | Self::Space | Self::Rendered => Way::Continue,
            Self::Replay => Way::Replay,
            Self::TokenIds => Way::TokenIds,
        }
    }
}

/// What is asked of `/tokenize`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Question {
    /// How many tokens is this text by itself?
    Text(String),
    /// What are the tokens of the request's prompt?
    Prompt,
    /// What are the tokens of the prompt of a chat continued after this text?
    Continued(String),
}
