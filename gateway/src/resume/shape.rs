//! The build of a stream's usual event, learned from one event and compared by bytes with the next ones.
//!
//! Events of one stream differ in nothing but a piece of text. Once one has been parsed, the bytes before and behind that
//! text are kept; an event that begins and ends with the same bytes and has a whole JSON string between them says the
//! same thing with another text. So the normal event costs two comparisons and one search, whatever engine wrote it.
//!
//! Owns that comparison only. What the text means for the stream is the journal's.

use memchr::{memchr, memchr2};

/// Where an event's text belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Field {
    /// The answer.
    Content,
    /// The reasoning before it.
    Reasoning,
    /// The arguments of this tool call.
    Arguments(u32),
}

/// One learned build.
#[derive(Debug)]
pub(super) struct Shape {
    head: Box<[u8]>,
    tail: Box<[u8]>,
    /// Where the text belongs.
    pub(super) field: Field,
    /// Which choice, by its place in the journal.
    pub(super) slot: usize,
}

impl Shape {
    /// Learns from `data`, of which `text` must be a part (a slice into it). `None` if it is not.
    pub(super) fn learn(data: &[u8], text: &str, field: Field, slot: usize) -> Option<Self> {
        let start = (text.as_ptr() as usize).checked_sub(data.as_ptr() as usize)?;
        let head = data.get(..start)?.into();
        let tail = data.get(start + text.len()..)?.into();
        Some(Self { head, tail, field, slot })
    }

    /// The text of an event of this build, escaped; `None` for any other event.
    pub(super) fn read<'a>(&self, data: &'a [u8]) -> Option<&'a [u8]> {
        let text = data.strip_prefix(&*self.head)?.strip_suffix(&*self.tail)?;
        is_inside_string(text).then_some(text)
    }

    /// An event of this build with another text, escaped.
    pub(super) fn write(&self, text: &[u8]) -> Vec<u8> {
        [&self.head, text, &self.tail].concat()
    }
}

/// Whether `text` contains no quote that would end the string, and no backslash that would escape the quote behind it.
fn is_inside_string(text: &[u8]) -> bool {
    if memchr2(b'"', b'\\', text).is_none() {
        return true;
    }
    let mut rest = text;
    while let Some(at) = memchr(b'\\', rest) {
        if memchr(b'"', &rest[..at]).is_some() || at + 2 > rest.len() {
            return false;
        }
        rest = &rest[at + 2..];
    }
    memchr(b'"', rest).is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATA: &str = r#"{"id":"x","choices":[{"delta":{"content":"AB"},"finish_reason":null}]}"#;

    fn shape() -> Shape {
        let at = DATA.find("AB").unwrap();
        Shape::learn(DATA.as_bytes(), &DATA[at..at + 2], Field::Content, 0).unwrap()
    }

    #[track_caller]
    fn check(text: &str, matches: bool) {
        let data = DATA.replace("AB", text);
        assert_eq!(shape().read(data.as_bytes()), matches.then_some(text.as_bytes()), "{text}");
    }

    #[test]
    fn reads_texts_of_the_same_build() {
        for text in ["", "x", "हि🚒", r"\n", r#"\""#, r"\\", r#"a\\\"b\u00e9"#] {
            check(text, true);
        }
    }

    #[test]
    fn refuses_what_is_not_one_string() {
        for text in [r#"""#, r"\", r#"a","role":"b"#, r#"\\""#, r"\\\"] {
            check(text, false);
        }
    }

    #[test]
    fn refuses_other_builds() {
        assert!(shape().read(DATA.replace("null", "\"stop\"").as_bytes()).is_none());
        assert!(shape().read(b"{}").is_none());
    }

    #[test]
    fn learns_only_from_its_own_bytes() {
        assert!(Shape::learn(b"abc", "elsewhere", Field::Content, 0).is_none_or(|shape| shape.read(b"abc").is_none()));
    }
}
