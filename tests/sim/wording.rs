//! The bytes of a simulated engine's stream, event by event.
//!
//! Owns: their order (engine facts, section 2) on the texts of `loadtest::engine`. Pure; `leader` writes them when it is time.

use loadtest::engine::choice::{Choice, Chunk};
use loadtest::engine::decode::Finish;
use loadtest::engine::errors::ApiError;
use loadtest::engine::events::{DONE, Events, Usage, chunked};
use loadtest::engine::job::Job;
use loadtest::engine::parser::Piece;

/// The head of every stream.
pub(crate) const STREAM_HEAD: &[u8] =
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n";

/// See the module.
pub(crate) struct Wording<'a> {
    job: &'a Job,
    events: Events,
    choices: Vec<Choice>,
    turn: usize,
}

impl<'a> Wording<'a> {
    /// The stream of `job` under this id.
    pub(crate) fn new(job: &'a Job, id: &str, created: u64) -> Self {
        Self { job, events: Events::new(job, id, created, "sim"), choices: job.choices(), turn: 0 }
    }

    /// The events before the first token.
    pub(crate) fn open(&mut self) -> Vec<u8> {
        let (mut out, usage) = (Vec::new(), self.usage());
        for index in 0..self.choices.len() {
            self.events.role(&mut out, index, usage);
        }
        out
    }

    /// The next event; `None` when every choice is over.
    pub(crate) fn next(&mut self) -> Option<Vec<u8>> {
        let chunk = self.advance()?;
        let (mut out, usage) = (Vec::new(), self.usage());
        let last = !self.job.ask.include_usage && self.choices.iter().all(Choice::is_over);
        self.events.chunk(&mut out, &chunk, usage, last);
        Some(out)
    }

    /// Everything behind the last event.
    pub(crate) fn close(&mut self) -> Vec<u8> {
        let mut out = Vec::new();
        if self.job.ask.include_usage {
            let usage = self.usage();
            self.events.usage(&mut out, usage);
        }
        out.extend_from_slice(DONE);
        out
    }

    /// The end of an aborted stream: text in the last event of each choice, under `abort`.
    pub(crate) fn abort(&mut self) -> Vec<u8> {
        let (mut out, usage) = (Vec::new(), self.usage());
        for at in 0..self.choices.len() {
            if self.choices[at].is_over() {
                continue;
            }
            let empty = Chunk { index: at, piece: Some(Piece::Content(String::new())), ids: Vec::new(), finish: None, stop: None };
            let chunk = self.choices[at].advance().unwrap_or(empty);
            self.events.chunk(&mut out, &Chunk { finish: Some(Finish::Abort), ..chunk }, usage, false);
        }
        out.extend_from_slice(DONE);
        out
    }

    /// The end of a stream whose engine process died.
    pub(crate) fn error() -> Vec<u8> {
        let mut out = Vec::new();
        chunked(&mut out, ApiError::core_dead().event().as_bytes());
        out.extend_from_slice(DONE);
        out
    }

    /// One token of the choice whose turn it is that has an event.
    fn advance(&mut self) -> Option<Chunk> {
        while !self.choices.iter().all(Choice::is_over) {
            let at = self.turn % self.choices.len();
            self.turn += 1;
            if let Some(chunk) = self.choices[at].advance() {
                return Some(chunk);
            }
        }
        None
    }

    fn usage(&self) -> Usage {
        Usage { prompt: self.job.prompt_tokens, completion: self.choices.iter().map(Choice::made).sum(), reasoning: None }
    }
}

/// An answer with a length.
pub(crate) fn whole(status: u16, body: &str) -> Vec<u8> {
    let reason = if status == 200 { "OK" } else { "No" };
    format!("HTTP/1.1 {status} {reason}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}", body.len()).into_bytes()
}
