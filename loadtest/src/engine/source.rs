//! A script as tokens, with a place in it.
//!
//! Owns the lookahead that greedy tokenising needs and the comparison of a prefix with the text. Never keeps more than a
//! sentence or two, so thousands of streams cost little.

use crate::text::{Script, token};

/// How a prefix stands to the text that it is to be a beginning of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fit {
    /// The text goes on behind it.
    Exact,
    /// It ends inside a token of white space: the model sees other tokens than it wrote (engine facts 5.2).
    InsideWhiteSpace,
    /// It is no beginning of the text.
    Differs,
}

/// Tokens of a script, one by one.
#[derive(Debug, Clone)]
pub struct Source {
    script: Script,
    buffer: String,
    /// In bytes; may be inside a character.
    at: usize,
    over: bool,
}

impl Source {
    /// Starts at the beginning of `script`.
    pub fn new(script: Script) -> Self {
        Self { script, buffer: String::new(), at: 0, over: false }
    }

    /// The next token and its bytes; `None` at the end of the text.
    pub fn next_token(&mut self) -> Option<(u32, &[u8])> {
        self.fill();
        let (id, len) = token::next(self.rest())?;
        self.at += len;
        Some((id, token::bytes_of(id)))
    }

    /// Goes on behind the end: one more sentence.
    pub fn one_more(&mut self) {
        self.script.one_more();
        self.over = false;
    }

    /// Never ends.
    pub fn go_on_for_ever(&mut self) {
        self.script.go_on_for_ever();
        self.over = false;
    }

    /// Moves behind `prefix`, if the text begins with it.
    pub fn skip(&mut self, prefix: &[u8]) -> Fit {
        let mut left = prefix;
        while !left.is_empty() {
            self.fill();
            let Some((_, len)) = token::next(self.rest()) else { return Fit::Differs };
            let part = len.min(left.len());
            if self.rest()[..part] != left[..part] {
                return Fit::Differs;
            }
            self.at += part;
            if part < len && prefix.last().is_some_and(u8::is_ascii_whitespace) && self.rest()[0].is_ascii_whitespace() {
                return Fit::InsideWhiteSpace;
            }
            left = &left[part..];
        }
        Fit::Exact
    }

    fn rest(&self) -> &[u8] {
        &self.buffer.as_bytes()[self.at..]
    }

    fn fill(&mut self) {
        while !self.over && self.buffer.len() - self.at < token::LONGEST {
            if self.at > 0 && self.buffer.is_char_boundary(self.at) {
                self.buffer.drain(..self.at);
                self.at = 0;
            }
            self.over = !self.script.write_next(&mut self.buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::Kind;

    fn text_of(mut source: Source) -> Vec<u8> {
        let mut out = Vec::new();
        while let Some((_, bytes)) = source.next_token() {
            out.extend_from_slice(bytes);
        }
        out
    }

    #[test]
    fn every_token_boundary_of_every_kind_is_a_place_to_go_on() {
        for (seed, kind) in [(1, Kind::Mixed), (2, Kind::Code), (3, Kind::Cjk), (4, Kind::Prose)] {
            let source = Source::new(Script::new(seed, kind, None));
            let whole = text_of(source.clone());
            let mut walker = source.clone();
            let mut at = 0;
            while let Some((_, bytes)) = walker.next_token() {
                at += bytes.len();
                let mut resumed = source.clone();
                assert_eq!(resumed.skip(&whole[..at]), Fit::Exact, "{kind:?} at {at}");
                assert_eq!(text_of(resumed), whole[at..]);
            }
        }
    }

    #[test]
    fn prefixes_that_do_not_fit_are_seen() {
        let source = Source::new(Script::fixed(0, "if x:\n        y".to_owned()));
        assert_eq!(source.clone().skip(b"if y"), Fit::Differs);
        assert_eq!(source.clone().skip(b"if x:\n   "), Fit::InsideWhiteSpace);
        assert_eq!(source.clone().skip(b"if x:\n        y and more"), Fit::Differs);
        assert_eq!(source.clone().skip(b"if x:\n        y"), Fit::Exact);
    }
}
