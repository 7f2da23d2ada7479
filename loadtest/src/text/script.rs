//! Endless seeded text, one sentence at a time.
//!
//! A script is a queue of fixed parts (a thought, a record, a tool call) followed by sentences of one kind. It ends after
//! a number of sentences drawn from its key, unless it is made endless. Pure; the caller cuts it by tokens.

use std::collections::VecDeque;

use super::rng::Rng;
use super::words::{CITIES, CJK, COMMON, EMOJI, LONGER, NAMES, WORLD};

/// What the sentences look like.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, clap::ValueEnum, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// English only, with paragraphs.
    Prose,
    /// Chinese, Japanese and Korean: hardly a blank anywhere.
    Cjk,
    /// Indented code.
    Code,
    /// All of it, with emoji and scripts that use combining marks.
    #[default]
    Mixed,
}

impl Kind {
    /// The kind that a marker in a prompt names.
    pub fn by_name(name: &str) -> Option<Self> {
        match name {
            "prose" => Some(Self::Prose),
            "cjk" => Some(Self::Cjk),
            "code" => Some(Self::Code),
            "mixed" => Some(Self::Mixed),
            _ => None,
        }
    }
}

/// A text that is written as it is read.
#[derive(Debug, Clone)]
pub struct Script {
    rng: Rng,
    kind: Kind,
    fixed: VecDeque<String>,
    sentences: usize,
    endless: bool,
    begun: bool,
}

impl Script {
    /// The text that belongs to `key`; `sentences` of `None` draws 4 to 12 of them.
    pub fn new(key: u64, kind: Kind, sentences: Option<usize>) -> Self {
        let mut rng = Rng::new(key);
        let drawn = 4 + rng.below(9);
        Self { rng, kind, fixed: VecDeque::new(), sentences: sentences.unwrap_or(drawn), endless: false, begun: false }
    }

    /// The same script with no sentences: only what is put in front.
    pub fn fixed(key: u64, text: String) -> Self {
        let mut script = Self::new(key, Kind::Prose, Some(0));
        script.fixed.push_back(text);
        script
    }

    /// Puts a part in front of all that is still to come.
    pub fn in_front(mut self, text: String) -> Self {
        self.fixed.push_front(text);
        self
    }

    /// Never ends from now on, as `ignore_eos` asks.
    pub fn go_on_for_ever(&mut self) {
        self.endless = true;
    }

    /// One sentence more than planned, as `min_tokens` asks at the end of a text.
    pub fn one_more(&mut self) {
        self.sentences = self.sentences.saturating_add(1);
    }

    /// Appends the next part to `out`; false at the end.
    pub fn write_next(&mut self, out: &mut String) -> bool {
        let begun = std::mem::replace(&mut self.begun, true);
        if let Some(part) = self.fixed.pop_front() {
            out.push_str(&part);
            return true;
        }
        if self.sentences == 0 && !self.endless {
            return false;
        }
        self.sentences = self.sentences.saturating_sub(1);
        let from = out.len();
        match self.kind {
            Kind::Prose => self.prose(out),
            Kind::Cjk => self.cjk(out),
            Kind::Code => self.code(out),
            Kind::Mixed => self.mixed(out),
        }
        if !begun {
            // Models do not begin with white space behind a header that ends in some.
            let blanks = out[from..].len() - out[from..].trim_start().len();
            out.replace_range(from..from + blanks, "");
        }
        true
    }

    fn mixed(&mut self, out: &mut String) {
        match self.rng.below(10) {
            0..4 => self.prose(out),
            4 => self.cjk(out),
            5 | 6 => self.code(out),
            7 | 8 => self.world(out),
            _ => {
                out.push_str("- ");
                out.push_str(self.rng.pick(EMOJI));
                out.push_str(self.rng.pick(EMOJI));
                out.push(' ');
                self.prose(out);
            }
        }
    }

    fn prose(&mut self, out: &mut String) {
        let words = 5 + self.rng.below(9);
        for at in 0..words {
            let word = if self.rng.chance(60) { self.rng.pick(COMMON) } else { self.rng.pick(LONGER) };
            if at == 0 {
                let mut letters = word.chars();
                out.extend(letters.next().map(|first| first.to_ascii_uppercase()));
                out.push_str(letters.as_str());
                continue;
            }
            out.push_str(if self.rng.chance(8) { ", " } else { " " });
            out.push_str(word);
        }
        out.push_str(match self.rng.below(8) {
            0 => ".\n\n",
            1 => "!\n",
            _ => ". ",
        });
    }

    fn cjk(&mut self, out: &mut String) {
        for _ in 0..4 + self.rng.below(7) {
            out.push_str(self.rng.pick(CJK));
        }
        out.push_str(if self.rng.chance(25) { "。\n" } else { "。" });
    }

    fn world(&mut self, out: &mut String) {
        out.push_str(&self.rng.below(100).to_string());
        out.push_str(". ");
        for _ in 0..3 + self.rng.below(5) {
            let word = if self.rng.chance(30) { self.rng.pick(COMMON) } else { self.rng.pick(WORLD) };
            out.push_str(word);
            out.push(' ');
        }
        out.push_str(self.rng.pick(EMOJI));
        out.push('\n');
    }

    fn code(&mut self, out: &mut String) {
        let (name, argument) = (self.rng.pick(NAMES), self.rng.pick(NAMES));
        out.push_str(&format!("\ndef {name}({argument}):\n"));
        for _ in 0..1 + self.rng.below(3) {
            let (left, number) = (self.rng.pick(NAMES), self.rng.below(1000));
            out.push_str(&format!("    if {argument} == {number}:\n        {left} = \"{}\"\n", self.rng.pick(CITIES)));
        }
        out.push_str(&format!("    return {argument}\n\n"));
    }
}

/// A JSON record for requests with a grammar.
pub(crate) fn record(key: u64) -> String {
    let mut rng = Rng::new(key);
    let mut out = String::from("{\n  \"rows\": [\n");
    let rows = 2 + rng.below(4);
    for row in 0..rows {
        let comma = if row + 1 == rows { "" } else { "," };
        out.push_str(&format!("    {{\"id\": {}, \"city\": \"{}\"}}{comma}\n", rng.below(1000), rng.pick(CITIES)));
    }
    out.push_str("  ]\n}");
    out
}

/// The arguments of a tool call, as JSON text.
pub(crate) fn arguments(key: u64) -> String {
    let mut rng = Rng::new(key);
    let mut note = String::new();
    for _ in 0..3 + rng.below(6) {
        note.push_str(rng.pick(LONGER));
        note.push(' ');
    }
    format!("{{\"city\": \"{}\", \"days\": {}, \"note\": \"{}\"}}", rng.pick(CITIES), 1 + rng.below(9), note.trim_end())
}

/// A thought in its marks, with the line breaks that models put around them.
pub(crate) fn thought(key: u64) -> String {
    let mut script = Script::new(key, Kind::Prose, Some(2));
    let mut text = String::from("<think>\n");
    while script.write_next(&mut text) {}
    let len = text.trim_end().len();
    text.truncate(len);
    text.push_str("\n</think>\n\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(key: u64, kind: Kind) -> String {
        let mut script = Script::new(key, kind, None);
        let mut out = String::new();
        while script.write_next(&mut out) {}
        out
    }

    #[test]
    fn text_depends_on_key_and_kind_only() {
        assert_eq!(whole(1, Kind::Mixed), whole(1, Kind::Mixed));
        assert_ne!(whole(1, Kind::Mixed), whole(2, Kind::Mixed));
        assert_ne!(whole(1, Kind::Prose), whole(1, Kind::Cjk));
    }

    #[test]
    fn kinds_look_as_they_say() {
        assert!(whole(3, Kind::Prose).is_ascii());
        assert!(whole(3, Kind::Code).contains("\n        "));
        let cjk = whole(3, Kind::Cjk);
        assert!(!cjk.chars().any(|letter| letter.is_ascii_alphabetic()), "{cjk}");
    }

    #[test]
    fn records_and_arguments_are_json() {
        for key in 0..50 {
            assert!(serde_json::from_str::<serde_json::Value>(&record(key)).is_ok());
            assert!(serde_json::from_str::<serde_json::Value>(&arguments(key)).is_ok());
        }
    }
}
