//! What an answer says of itself, read from its bytes on their way through, for the span of its attempt.
//!
//! Owns: where id, model and finish reasons stand in chat and text completions. Must not: change bytes, keep any text of the answer, or
//! run for a request whose spans are not sent. Next step: `record` writes it down.

use std::borrow::Cow;
use std::sync::LazyLock;

use memchr::memmem::Finder;
use serde::Deserialize;

// Inside a JSON string the quotes of the key would be escaped, so this stands only where a key stands.
static KEY: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"\"finish_reason\":"));

/// Longest first event or whole answer that is parsed, bytes.
const MOST: usize = 256 * 1024;
/// Bytes of an id or a model's name that are kept.
const NAME_BYTES: usize = 256;
/// Finish reasons that are kept: one a choice.
const REASONS: usize = 16;
/// Longest word that is taken for a reason.
const REASON_BYTES: usize = 32;

/// Grows as the answer passes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct GenAiResponse {
    /// `id`; empty while unknown.
    pub(super) id: String,
    /// `model`; empty while unknown.
    pub(super) model: String,
    /// `finish_reason` of each choice, in the order in which they came.
    pub(super) finish_reasons: Vec<String>,
    looked: bool,
}

#[derive(Deserialize)]
struct Head<'a> {
    #[serde(borrow, default)]
    id: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    model: Option<Cow<'a, str>>,
}

impl GenAiResponse {
    /// Reads the next bytes: whole events of a stream, or an answer (or its begin).
    pub(super) fn feed(&mut self, bytes: &[u8]) {
        if !self.looked {
            self.head(bytes);
        }
        for at in KEY.find_iter(bytes) {
            if let Some(word) = word(&bytes[at + KEY.needle().len()..]).filter(|_| self.finish_reasons.len() < REASONS) {
                self.finish_reasons.push(word.to_owned());
            }
        }
    }

    /// The first object tells id and model; comments may come before it.
    fn head(&mut self, bytes: &[u8]) {
        let Some(at) = memchr::memchr(b'{', bytes) else { return };
        self.looked = true;
        let rest = &bytes[at..bytes.len().min(at + MOST)];
        let Some(Ok(head)) = serde_json::Deserializer::from_slice(rest).into_iter::<Head<'_>>().next() else { return };
        let short = |text: Option<Cow<'_, str>>| text.map_or_else(String::new, |t| t[..t.floor_char_boundary(NAME_BYTES)].to_owned());
        self.id = short(head.id);
        self.model = short(head.model);
    }
}

/// The word in quotes at the start; `None`: null, or no word.
fn word(bytes: &[u8]) -> Option<&str> {
    let rest = bytes.trim_ascii_start().strip_prefix(b"\"")?;
    let end = memchr::memchr(b'"', &rest[..rest.len().min(REASON_BYTES + 1)])?;
    let word = &rest[..end];
    let plain = word.iter().all(|b| b.is_ascii_alphanumeric() || *b == b'_');
    std::str::from_utf8(word).ok().filter(|_| plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(pieces: &[&str], id: &str, model: &str, reasons: &[&str]) {
        let mut got = GenAiResponse::default();
        pieces.iter().for_each(|piece| got.feed(piece.as_bytes()));
        assert_eq!((got.id.as_str(), got.model.as_str()), (id, model), "{pieces:?}");
        assert_eq!(got.finish_reasons, reasons, "{pieces:?}");
    }

    #[test]
    fn streams_and_whole_answers_tell_the_same() {
        let first = "data: {\"id\":\"c-1\",\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":null}]}\n\n";
        let last = "data: {\"id\":\"c-2\",\"choices\":[{\"index\":0,\"finish_reason\": \"stop\"}]}\n\n";
        check(&[": wait\n\n", first, last, last, "data: [DONE]\n\n"], "c-1", "m", &["stop", "stop"]);
        check(&[r#"{"id":"c","model":"n","choices":[{"text":"x","finish_reason":"length"}]}"#], "c", "n", &["length"]);
    }

    #[test]
    fn text_is_never_taken_for_a_word() {
        check(&[r#"{"choices":[{"text":"\"finish_reason\":\"a\""}]}"#], "", "", &[]);
        check(&[r#"{"finish_reason":"two words"}"#, r#"{"finish_reason":"never ended"#, r#"{"finish_reason":7}"#], "", "", &[]);
        check(&[&format!(r#"{{"finish_reason":"{}"}}"#, "a".repeat(40))], "", "", &[]);
        check(&["not JSON", r#"{"id":7,"model":"m"}"#], "", "", &[]);
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let mut got = GenAiResponse::default();
        for _ in 0..100 {
            got.feed(br#"{"finish_reason":"stop"}"#);
        }
        assert_eq!(got.finish_reasons.len(), REASONS);
    }
}
