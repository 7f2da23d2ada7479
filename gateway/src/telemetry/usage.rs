//! Token counts from an answer's bytes on their way through.
//!
//! Owns: finding and reading the `usage` object. Must not: change bytes, or take text for it: inside a JSON string the quotes of the key
//! would be escaped, so the pattern below stands only where a key stands.

use std::sync::LazyLock;

use memchr::memmem::Finder;
use serde::Deserialize;

use super::traces::Usage;

// Forward, to the last hit: unlike the search from the end it is vectorised, and it runs over every event.
static KEY: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"\"usage\":"));

/// Longest `usage` object that is read, bytes.
const MOST: usize = 2048;

#[derive(Deserialize)]
struct Wire {
    // Responses and Messages say input and output.
    #[serde(alias = "input_tokens")]
    prompt_tokens: Option<u64>,
    #[serde(alias = "output_tokens")]
    completion_tokens: Option<u64>,
    #[serde(alias = "input_tokens_details")]
    prompt_tokens_details: Option<PromptDetails>,
    #[serde(alias = "output_tokens_details")]
    completion_tokens_details: Option<CompletionDetails>,
}

#[derive(Deserialize)]
struct PromptDetails {
    cached_tokens: Option<u64>,
}

#[derive(Deserialize)]
struct CompletionDetails {
    reasoning_tokens: Option<u64>,
}

/// The last usage that these bytes tell, if any does. Answers that are compressed tell nothing.
pub fn find(bytes: &[u8]) -> Option<Usage> {
    let at = KEY.find_iter(bytes).last()?;
    let rest = &bytes[at + KEY.needle().len()..];
    let rest = &rest[..rest.len().min(MOST)];
    let wire = serde_json::Deserializer::from_slice(rest).into_iter::<Wire>().next()?.ok()?;
    Some(Usage {
        prompt: wire.prompt_tokens,
        completion: wire.completion_tokens,
        cached: wire.prompt_tokens_details.and_then(|d| d.cached_tokens),
        reasoning: wire.completion_tokens_details.and_then(|d| d.reasoning_tokens),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_keys_and_no_text() {
        let check = |bytes: &str, expect: Option<(u64, u64)>| {
            let found = find(bytes.as_bytes()).map(|u| (u.prompt.unwrap_or(0), u.completion.unwrap_or(0)));
            assert_eq!(found, expect, "{bytes}");
        };
        check(r#"data: {"choices":[],"usage":{"prompt_tokens":9,"total_tokens":12,"completion_tokens":3}}"#, Some((9, 3)));
        check(r#"{"usage": {"input_tokens":1,"output_tokens":2}}"#, Some((1, 2)));
        check("data: {\"usage\":{\"prompt_tokens\":1}}\n\ndata: {\"usage\":{\"prompt_tokens\":2}}\n\ndata: [DONE]\n\n", Some((2, 0)));
        check(r#"{"content":"\"usage\":{\"prompt_tokens\":7}"}"#, None);
        check(r#"{"usage":null}"#, None);
        check(r#"{"usage":{"prompt_tokens":"#, None);
        check("", None);
    }

    #[test]
    fn details_are_read() {
        let text = br#"{"usage":{"prompt_tokens":9,"prompt_tokens_details":{"cached_tokens":4},"completion_tokens_details":{"reasoning_tokens":5}}}"#;
        let usage = find(text).unwrap();
        assert_eq!((usage.cached, usage.reasoning), (Some(4), Some(5)));
        assert!(find(br#"{"usage":{"prompt_tokens":9,"prompt_tokens_details":null}}"#).is_some());
    }
}
