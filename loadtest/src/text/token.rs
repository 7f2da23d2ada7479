//! A deterministic tokenizer: greedy longest match over a fixed vocabulary, single bytes for anything else.
//!
//! Two properties matter to everything above it. Greedy matching is canonical at token boundaries: the tokens of a text
//! cut behind a token are the first tokens of the whole text, as with a trained model's own text. And letters beyond
//! ASCII are single bytes, so tokens end inside characters, as the engines' do. No token has a blank behind a letter
//! inside it, so a place between a letter and ` letter` is always a boundary.

use std::collections::HashMap;
use std::sync::OnceLock;

use super::words;

/// The end of the text; counts as one generated token and has no text.
pub const EOS: u32 = 2;

/// Tokens with a meaning of their own: id and the text that the tokenizer finds them by.
pub const SPECIAL: &[(u32, &str)] = &[
    (0, "<|endoftext|>"),
    (1, "<|im_start|>"),
    (EOS, "<|im_end|>"),
    (3, "<think>"),
    (4, "</think>"),
    (5, "<tool_call>"),
    (6, "</tool_call>"),
];

const FIRST_BYTE: u32 = 16;
const FIRST_WORD: u32 = FIRST_BYTE + 256;

struct Vocabulary {
    /// Longest first, by the first two bytes.
    by_start: HashMap<[u8; 2], Vec<(&'static [u8], u32)>>,
    bytes_of: Vec<&'static [u8]>,
}

/// The token at the beginning of `bytes` and how many bytes it takes; `None` at the end.
///
/// `bytes` must reach at least [`LONGEST`] bytes further than the token, or to the end of the text.
pub fn next(bytes: &[u8]) -> Option<(u32, usize)> {
    let first = *bytes.first()?;
    if let Some(second) = bytes.get(1)
        && let Some(candidates) = vocabulary().by_start.get(&[first, *second])
        && let Some((text, id)) = candidates.iter().find(|(text, _)| bytes.starts_with(text))
    {
        return Some((*id, text.len()));
    }
    Some((FIRST_BYTE + u32::from(first), 1))
}

/// Upper bound of a token's length in bytes.
pub const LONGEST: usize = 24;

/// The ids of a whole text.
pub fn encode(text: &str) -> Vec<u32> {
    let mut ids = Vec::with_capacity(text.len() / 3 + 1);
    let mut rest = text.as_bytes();
    while let Some((id, len)) = next(rest) {
        ids.push(id);
        rest = &rest[len..];
    }
    ids
}

/// How many tokens a text has, without keeping them.
pub fn count(text: &str) -> usize {
    let mut rest = text.as_bytes();
    let mut count = 0;
    while let Some((_, len)) = next(rest) {
        count += 1;
        rest = &rest[len..];
    }
    count
}

/// The bytes of one token; special tokens show their mark. Unknown ids have none.
pub fn bytes_of(id: u32) -> &'static [u8] {
    usize::try_from(id).ok().and_then(|at| vocabulary().bytes_of.get(at).copied()).unwrap_or(b"")
}

/// True for the marks of the chat format, which an answer's text never shows.
pub fn is_hidden(id: u32) -> bool {
    id <= EOS
}

/// The bytes of several tokens; `hidden` says whether marks of the chat format are shown.
pub fn decode(ids: &[u32], hidden: bool) -> Vec<u8> {
    ids.iter().filter(|id| hidden || !is_hidden(**id)).flat_map(|id| bytes_of(*id).iter().copied()).collect()
}

fn vocabulary() -> &'static Vocabulary {
    static VOCABULARY: OnceLock<Vocabulary> = OnceLock::new();
    VOCABULARY.get_or_init(build)
}

fn build() -> Vocabulary {
    let mut bytes_of: Vec<&'static [u8]> = vec![b""; FIRST_WORD as usize];
    for (id, text) in SPECIAL {
        bytes_of[*id as usize] = text.as_bytes();
    }
    for (byte, slot) in bytes_of.iter_mut().skip(FIRST_BYTE as usize).enumerate() {
        *slot = single_byte(byte);
    }
    let spaced = words::COMMON.iter().chain(words::PIECES).map(|word| &*Box::leak(format!(" {word}").into_boxed_str()));
    let plain = words::COMMON.iter().chain(words::PIECES).chain(words::MARKS).copied();
    let mut seen = std::collections::HashSet::new();
    let more: Vec<_> = spaced.chain(plain).map(str::as_bytes).filter(|word| word.len() > 1 && seen.insert(*word)).collect();
    bytes_of.extend(more);
    let mut by_start: HashMap<[u8; 2], Vec<(&'static [u8], u32)>> = HashMap::new();
    for (id, text) in bytes_of.iter().enumerate().filter(|(_, text)| text.len() > 1) {
        by_start.entry([text[0], text[1]]).or_default().push((text, u32::try_from(id).unwrap_or(0)));
    }
    for candidates in by_start.values_mut() {
        candidates.sort_by_key(|(text, _)| std::cmp::Reverse(text.len()));
    }
    Vocabulary { by_start, bytes_of }
}

/// All bytes, so that a single one of them can be borrowed for ever.
static BYTES: [u8; 256] = {
    let mut table = [0; 256];
    let mut byte = 0u8;
    loop {
        table[byte as usize] = byte;
        if byte == u8::MAX {
            break;
        }
        byte += 1;
    }
    table
};

fn single_byte(byte: usize) -> &'static [u8] {
    BYTES.get(byte..=byte).unwrap_or(b"")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str) {
        let ids = encode(text);
        assert_eq!(decode(&ids, true), text.as_bytes());
        assert_eq!(ids.len(), count(text));
        // Canonical at every boundary: what a resumed request's prompt is tokenised into.
        for cut in 0..ids.len() {
            let head = decode(&ids[..cut], true);
            if let Ok(head) = String::from_utf8(head) {
                assert_eq!(encode(&head), ids[..cut], "cut behind {cut} tokens of {text:?}");
            }
        }
    }

    #[test]
    fn decoding_gives_the_text_and_boundaries_are_canonical() {
        for text in [
            "",
            "The leader answered.",
            "<|im_start|>user\nहि 🚒<|im_end|>\n",
            "def f(x):\n        return  x\n\n",
            "the replacement, travelled",
        ] {
            check(text);
        }
    }

    #[test]
    fn a_letter_and_a_blank_letter_are_always_a_boundary() {
        let text = "one leader is returning to the orchard because it has travelled";
        let mut at = 0;
        let mut ends = Vec::new();
        for id in encode(text) {
            at += bytes_of(id).len();
            ends.push(at);
        }
        for (blank, _) in text.match_indices(' ') {
            assert!(ends.contains(&blank), "{blank} in {text:?}");
        }
    }

    #[test]
    fn no_token_is_longer_than_the_lookahead() {
        assert!(vocabulary().bytes_of.iter().all(|text| text.len() <= LONGEST));
    }
}
