//! Answers that are read whole before the client gets their head: non-streamed generations, and short error answers that decide about a retry.
//!
//! Why: a non-streamed answer may be half a text under status 200 (engine fact 0.2), and as long as nothing was sent on, another leader can be
//! asked. It costs no time: an engine sends such an answer only when all of it is there. Bounded: a longer answer is passed on as it comes.

use std::future::poll_fn;

use bytes::{Bytes, BytesMut};
use http::StatusCode;

use crate::proxy::attempt::Started;
use crate::resume;

/// Longest answer read whole, in bytes.
pub const MAX_WHOLE: usize = 4 * 1024 * 1024;

/// What was read.
#[derive(Debug)]
pub enum Gathered {
    /// All of it; the connection is back in the pool.
    Whole(Bytes),
    /// Longer than [`MAX_WHOLE`]: what was read so far; the rest follows.
    Long(Bytes),
    /// The framing ended too early, or the connection broke.
    Cut(String),
}

/// Reads an answer's body. Cancel-safe in that dropping it closes the connection with `started`.
pub async fn gather(started: &mut Started) -> Gathered {
    let mut first = Bytes::new();
    let mut rest = BytesMut::new();
    loop {
        let data = match poll_fn(|cx| started.body.poll(cx)).await {
            None => return Gathered::Whole(joined(first, rest)),
            Some(Err(error)) => return Gathered::Cut(error.to_string()),
            Some(Ok(data)) => data,
        };
        if first.is_empty() {
            first = data;
        } else {
            rest.extend_from_slice(&data);
        }
        if first.len() + rest.len() > MAX_WHOLE {
            return Gathered::Long(joined(first, rest));
        }
    }
}

fn joined(first: Bytes, rest: BytesMut) -> Bytes {
    if rest.is_empty() {
        return first;
    }
    let mut all = BytesMut::with_capacity(first.len() + rest.len());
    all.extend_from_slice(&first);
    all.extend_from_slice(&rest);
    all.freeze()
}

/// What a whole answer says of the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Says {
    /// An answer for the client, whatever its status.
    Answer,
    /// Too busy (503): ask another.
    Busy,
    /// Shutting down and nothing was executed: ask another, and take this one out of the choice.
    Leaving,
    /// The engine ended the work: abort under 200, or its core died.
    Ended,
}

/// Reads an answer's status and body. Error texts are those of engine facts 2 and 4; anything else is an answer.
pub fn judge(status: StatusCode, body: &[u8]) -> Says {
    let contains = |needle: &str| memchr::memmem::find(body, needle.as_bytes()).is_some();
    match status.as_u16() {
        503 => Says::Busy,
        500 if contains("cannot schedule new futures") => Says::Leaving,
        500 if contains("EngineCore") || contains("EngineDead") || contains("engine is dead") => Says::Ended,
        200 if resume::is_broken_answer(body) => Says::Ended,
        _ => Says::Answer,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn judges_what_engines_say() {
        let check = |status: u16, body: &str, want| {
            assert_eq!(judge(StatusCode::from_u16(status).unwrap(), body.as_bytes()), want, "{status} {body}")
        };
        check(200, r#"{"choices":[{"message":{"content":"the word \"abort\""},"finish_reason":"stop"}]}"#, Says::Answer);
        check(200, r#"{"choices":[{"finish_reason":"abort"}]}"#, Says::Ended);
        check(200, r#"{"choices":[{"finish_reason":"stop"},{"finish_reason": "abort"}]}"#, Says::Ended);
        check(500, r#"{"error":{"message":"cannot schedule new futures after shutdown"}}"#, Says::Leaving);
        check(500, r#"{"error":{"message":"EngineCore encountered an issue. See stack trace (above) for the root cause."}}"#, Says::Ended);
        check(500, "boom", Says::Answer);
        check(503, "", Says::Busy);
        check(400, r#"{"error":{"message":"EngineCore"}}"#, Says::Answer);
    }
}
