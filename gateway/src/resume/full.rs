//! The verdict on an answer that was not streamed: status 200 proves nothing.
//!
//! A leader that is told to stop answers 200 with half the text and `finish_reason: "abort"`. Owns that check only; to
//! ask another leader is the relay's step.

use std::sync::LazyLock;

use memchr::memmem::Finder;

use super::chunk::Chunk;

static ABORT: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"\"abort\""));

/// Whether a 200 body is an engine's half answer, or an error under a wrong status: nothing of it may reach the client
/// and another leader may be asked. `body` is the whole body. Costs one search when there is nothing to find.
pub fn is_broken_answer(body: &[u8]) -> bool {
    let suspicious = ABORT.find(body).is_some() || body.trim_ascii_start().starts_with(b"{\"error\"");
    suspicious && Chunk::parse(body).is_some_and(|chunk| chunk.aborted() || (chunk.choices.is_empty() && chunk.error().is_some()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tells_half_answers_from_whole_ones() {
        assert!(is_broken_answer(br#"{"id":"x","choices":[{"index":0,"message":{"content":"half"},"finish_reason":"abort"}]}"#));
        assert!(is_broken_answer(br#"{"choices":[{"finish_reason":"stop"},{"index":1,"finish_reason" : "abort"}]}"#));
        assert!(is_broken_answer(br#"{"error":{"message":"EngineCore encountered an issue.","code":500}}"#));
        assert!(!is_broken_answer(br#"{"choices":[{"message":{"content":"say \"abort\""},"finish_reason":"stop"}]}"#));
        assert!(!is_broken_answer(br#"{"choices":[{"message":{"content":"x"},"finish_reason":"length"}]}"#));
        assert!(!is_broken_answer(b""));
    }
}
