//! Token counts from an answer's bytes on their way through.
//!
//! Owns: finding and reading the `usage` object. Must not: change bytes, or take text for it: inside a JSON string the quotes of the key
//! would be escaped, so the pattern below stands only where a key stands. Its numbers are picked out by hand: with an engine that tells usage in
//! every event, making values of the whole object would cost more than the rest of the event.

use std::sync::LazyLock;

use memchr::memchr2;
use memchr::memmem::Finder;

use super::traces::Usage;

// Forward: unlike the search from the end it is vectorised, and it runs over every event.
static KEY: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"\"usage\":"));

/// Longest `usage` object that is read, bytes.
const MOST: usize = 2048;
/// Most tokens of one kind that an answer is believed: counters add them up, and wrap around.
const MOST_TOKENS: u64 = 1 << 32;
/// Bytes that are kept of an answer that comes in pieces: a `usage` object with all its details, and some.
const TAIL: usize = 512;

/// Finds the usage of one answer in its bytes as they pass.
#[derive(Debug, Default)]
pub enum Reader {
    /// What passes are whole events, or the whole answer.
    #[default]
    Whole,
    /// The answer comes in pieces, which may part its usage: the end of what has passed.
    Pieces(Box<Vec<u8>>),
    /// The answer is an error: nothing was generated, and what stands in it may be what the client sent.
    Nothing,
}

impl Reader {
    /// What the next bytes tell, with those before them where it began there.
    pub fn feed(&mut self, bytes: &[u8]) -> Option<Usage> {
        match self {
            Self::Whole => find(bytes),
            Self::Pieces(tail) => across(tail, bytes),
            Self::Nothing => None,
        }
    }
}

/// [`find`] in `tail` and `bytes` together; `tail` becomes their end.
fn across(tail: &mut Vec<u8>, bytes: &[u8]) -> Option<Usage> {
    tail.extend_from_slice(&bytes[..bytes.len().min(TAIL)]);
    let parted = find(tail);
    // Of more bytes than that only what begins among them is left to be found.
    let usage = if bytes.len() > TAIL { both(parted, find(bytes)) } else { parted };
    if bytes.len() > TAIL {
        tail.clear();
        tail.extend_from_slice(&bytes[bytes.len() - TAIL..]);
    } else {
        tail.drain(..tail.len().saturating_sub(TAIL));
    }
    usage
}

/// The usage that these bytes tell, if they do: each count as it is told last. Answers that are compressed tell nothing.
pub fn find(bytes: &[u8]) -> Option<Usage> {
    KEY.find_iter(bytes).fold(None, |before, at| {
        let rest = &bytes[at + KEY.needle().len()..];
        both(before, read(&rest[..rest.len().min(MOST)]))
    })
}

/// What was told before and what was told then, as one.
fn both(before: Option<Usage>, then: Option<Usage>) -> Option<Usage> {
    match (before, then) {
        (Some(before), Some(then)) => Some(before.then(then)),
        (before, then) => then.or(before),
    }
}

/// The object at the front of `json`; `None`: there is none, or it does not end. Values that are no counts, or not to be believed, are passed over.
fn read(json: &[u8]) -> Option<Usage> {
    let (mut usage, mut depth, mut at) = (Usage::default(), 0u32, 0);
    let mut key: &[u8] = b"";
    loop {
        match *json.get(at)? {
            byte if depth == 0 && byte != b'{' && !byte.is_ascii_whitespace() => return None,
            b'{' | b'[' => depth += 1,
            b'}' | b']' => {
                depth -= 1;
                if depth == 0 {
                    return Some(usage);
                }
            }
            b'"' => {
                let text = string(&json[at + 1..])?;
                key = text;
                at += text.len() + 1;
            }
            b'0'..=b'9' | b'-' => {
                let length = json[at..].iter().position(|b| !matches!(b, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E'))?;
                let count = std::str::from_utf8(&json[at..at + length]).ok().and_then(|digits| digits.parse().ok());
                let count = count.filter(|count| *count <= MOST_TOKENS);
                if let Some(place) = place(&mut usage, depth, key) {
                    *place = count.or(*place);
                }
                at += length - 1;
            }
            _ => {}
        }
        at += 1;
    }
}

/// Up to the closing quote.
fn string(json: &[u8]) -> Option<&[u8]> {
    let mut at = 0;
    loop {
        at += memchr2(b'"', b'\\', json.get(at..)?)?;
        if json[at] == b'"' {
            return Some(&json[..at]);
        }
        at += 2;
    }
}

/// Where a number belongs; Responses and Messages say input and output.
fn place<'a>(usage: &'a mut Usage, depth: u32, key: &[u8]) -> Option<&'a mut Option<u64>> {
    match (depth, key) {
        (1, b"prompt_tokens" | b"input_tokens") => Some(&mut usage.prompt),
        (1, b"completion_tokens" | b"output_tokens") => Some(&mut usage.completion),
        (1, b"cache_read_input_tokens") | (2, b"cached_tokens") => Some(&mut usage.cached),
        (2, b"reasoning_tokens") => Some(&mut usage.reasoning),
        _ => None,
    }
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
        check("data: {\"usage\":{\"input_tokens\":7,\"output_tokens\":1}}\n\ndata: {\"usage\":{\"output_tokens\":5}}\n\n", Some((7, 5)));
        check("data: {\"usage\":{\"prompt_tokens\":7}}\n\ndata: {\"usage\":null}\n\n", Some((7, 0)));
        check(r#"{"content":"\"usage\":{\"prompt_tokens\":7}"}"#, None);
        check(r#"{"usage":null}"#, None);
        check(r#"{"usage":{"prompt_tokens":"#, None);
        check(r#"{"usage":{"prompt_tokens":-1,"completion_tokens":2.5}}"#, Some((0, 0)));
        check(
            r#"{"usage":{"a":[{"prompt_tokens":1}],"b":"}\"","prompt_tokens" : 5 , "completion_tokens":4294967296}}"#,
            Some((5, 1 << 32)),
        );
        for count in ["4294967297", "18446744073709551615", "18446744073709551616", "1e9"] {
            check(&format!(r#"{{"usage":{{"prompt_tokens":{count},"completion_tokens":1}}}}"#), Some((0, 1)));
        }
        check(r#"{"usage":"{"}"#, None);
        check(r#"{"usage":}}"#, None);
        check(r#"{"usage":[{"prompt_tokens":1}]}"#, None);
        check(r#"{"usage":{"a":"#, None);
        check(r#"{"usage":{"a":"\"#, None);
        check(r#"{"usage":{}}"#, Some((0, 0)));
        check("", None);
    }

    #[test]
    fn pieces_tell_what_the_whole_tells() {
        let filler = "x".repeat(3 * TAIL);
        let usage = r#""usage":{"prompt_tokens":9,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":4}}"#;
        for answer in [format!("{{{usage}}}"), format!(r#"{{"data":"{filler}",{usage}}}"#), format!(r#"{{{usage},"data":"{filler}"}}"#)] {
            let whole = find(answer.as_bytes());
            assert!(whole.is_some());
            let told = |pieces: &mut dyn Iterator<Item = &[u8]>| {
                let mut reader = Reader::Pieces(Box::default());
                let told = pieces.filter_map(|piece| reader.feed(piece)).last();
                assert!(matches!(reader, Reader::Pieces(tail) if tail.len() <= TAIL));
                told
            };
            for at in 0..=answer.len() {
                let (one, two) = answer.as_bytes().split_at(at);
                assert_eq!(told(&mut [one, two].into_iter()), whole, "{at} of {answer}");
            }
            for length in [1, 7, TAIL - 1, TAIL, TAIL + 1] {
                assert_eq!(told(&mut answer.as_bytes().chunks(length)), whole, "{length} each of {answer}");
            }
        }
    }

    #[test]
    fn details_are_read() {
        let text = br#"{"usage":{"prompt_tokens":9,"prompt_tokens_details":{"cached_tokens":4},"completion_tokens_details":{"reasoning_tokens":5}}}"#;
        let usage = find(text).unwrap();
        assert_eq!((usage.cached, usage.reasoning), (Some(4), Some(5)));
        assert!(find(br#"{"usage":{"prompt_tokens":9,"prompt_tokens_details":null}}"#).is_some());
        let messages = br#"{"usage":{"input_tokens":9,"cache_creation_input_tokens":3,"cache_read_input_tokens":4,"cached_tokens":8}}"#;
        assert_eq!(find(messages).and_then(|usage| usage.cached), Some(4));
    }
}
