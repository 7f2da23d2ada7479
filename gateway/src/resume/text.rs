//! The text that a model wrote, put together again from what was sent, and the places where it may be cut.
//!
//! Owns the cut rules of the engine facts: between a letter and ` letter`; no white space at the end unless proven safe;
//! never after U+FFFD. It knows no requests; `ways` does.

use super::json;
use super::sent::Sent;

/// Marks that reasoning parsers take away.
const THINK: &str = "<think>";
/// The mark as templates put it behind the prompt.
const TEMPLATES_THINK: &str = "<think>\n";
const UNTHINK: &str = "</think>";

/// Longest overlap that is generated again to be compared, bytes. Further back the text counts as having no cut.
const MAX_OVERLAP: usize = 1024;

/// The whole text of one choice as the model wrote it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Written {
    /// Reasoning, without its marks.
    pub(super) reasoning: String,
    /// Answer.
    pub(super) content: String,
}

/// A place in a written text: so much of each part is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cut {
    /// Bytes of the reasoning kept.
    pub(super) reasoning: usize,
    /// Bytes of the answer kept; `None`: the cut lies inside the reasoning.
    pub(super) content: Option<usize>,
}

impl Written {
    /// `None` if what was sent does not decode, or cannot be put into one text.
    pub(super) fn of(sent: &Sent) -> Option<Self> {
        if sent.mixed {
            return None;
        }
        Some(Self { reasoning: json::unescape(&sent.reasoning)?, content: json::unescape(&sent.content)? })
    }

    /// Nothing was written.
    pub(super) fn is_empty(&self) -> bool {
        self.reasoning.is_empty() && self.content.is_empty()
    }

    /// The place behind all of it.
    pub(super) fn end(&self) -> Cut {
        let content = (self.reasoning.is_empty() || !self.content.is_empty()).then_some(self.content.len());
        Cut { reasoning: self.reasoning.len(), content }
    }

    /// The last place between a letter and ` letter`, unless it lies too far back.
    pub(super) fn letter_space(&self) -> Option<Cut> {
        let end = self.end();
        let (part, cut) = match letter_space(&self.content) {
            Some(at) => (self.content.len() - at, Cut { content: Some(at), ..end }),
            None => {
                let at = letter_space(&self.reasoning)?;
                (self.reasoning.len() - at + self.content.len(), Cut { reasoning: at, content: None })
            }
        };
        (part <= MAX_OVERLAP).then_some(cut)
    }

    /// The place before the white space at the end; `None` if nothing is left before it.
    pub(super) fn before_space(&self) -> Option<Cut> {
        let end = self.end();
        let trimmed = |text: &str| Some(text.trim_end().len()).filter(|len| *len > 0);
        match end.content {
            Some(_) => Some(Cut { content: Some(trimmed(&self.content)?), ..end }),
            None => Some(Cut { reasoning: trimmed(&self.reasoning)?, content: None }),
        }
    }

    /// The assistant's message up to `cut`, as a chat must be given it: marks included.
    pub(super) fn kept(&self, cut: Cut) -> String {
        let mark = match (self.reasoning.is_empty(), self.mark_is_the_templates()) {
            (true, _) => "",
            (false, true) => TEMPLATES_THINK,
            (false, false) => THINK,
        };
        [mark, &self.body(cut)].concat()
    }

    /// The text up to `cut` as the model generated it: what its tokens are counted from.
    pub(super) fn generated(&self, cut: Cut) -> String {
        if self.mark_is_the_templates() { self.body(cut) } else { self.kept(cut) }
    }

    fn body(&self, cut: Cut) -> String {
        let mut text = self.reasoning.get(..cut.reasoning).unwrap_or_default().to_owned();
        if let Some(content) = cut.content {
            if !self.reasoning.is_empty() {
                text.push_str(UNTHINK);
            }
            text.push_str(self.content.get(..content).unwrap_or_default());
        }
        text
    }

    /// What the next leader will write again behind `cut`: reasoning, then answer.
    pub(super) fn behind(&self, cut: Cut) -> (&str, &str) {
        let reasoning = self.reasoning.get(cut.reasoning..).unwrap_or_default();
        (reasoning, self.content.get(cut.content.unwrap_or(0)..).unwrap_or_default())
    }

    /// A replacement character was sent: the model's tokens are not those of the text.
    pub(super) fn is_broken(&self) -> bool {
        self.reasoning.contains('\u{fffd}') || self.content.contains('\u{fffd}')
    }

    /// Templates that trim would take something away from the start of the text.
    pub(super) fn starts_with_space(&self) -> bool {
        self.reasoning.is_empty() && self.content.starts_with(char::is_whitespace)
    }

    /// A model that writes the mark itself ends its line; reasoning that begins in the middle of a line stands behind a
    /// mark that the chat template wrote. It must be proven.
    pub(super) fn mark_is_the_templates(&self) -> bool {
        !self.reasoning.is_empty() && !self.reasoning.starts_with('\n')
    }

    /// Has reasoning, parsed or not: chat templates are free in what they make of it.
    pub(super) fn thinks(&self) -> bool {
        !self.reasoning.is_empty() || self.content.contains(THINK)
    }

    /// Templates that trim would take something away from the end of the text.
    pub(super) fn ends_with_space(&self) -> bool {
        self.last().is_some_and(char::is_whitespace)
    }

    /// Ends inside a run of blanks that may be one longer token: the next leader would see other tokens than the model wrote.
    /// One blank, or line breaks alone, are tokens of their own or the end of one.
    pub(super) fn ends_in_indentation(&self) -> bool {
        let part = self.last_part();
        let run = &part[part.trim_end().len()..];
        run.len() > 1 && run.contains(|character| character != '\n')
    }

    fn last_part(&self) -> &str {
        if self.end().content.is_some() { &self.content } else { &self.reasoning }
    }

    fn last(&self) -> Option<char> {
        self.last_part().chars().next_back()
    }
}

/// Byte offset of the last blank that stands between two letters.
fn letter_space(text: &str) -> Option<usize> {
    let mut after: Option<char> = None;
    let mut blank: Option<usize> = None;
    for (at, character) in text.char_indices().rev() {
        if let Some(blank) = blank.take()
            && is_letter(character)
        {
            return Some(blank);
        }
        if character == ' ' && after.is_some_and(is_letter) {
            blank = Some(at);
        }
        after = Some(character);
    }
    None
}

/// `\p{L}`, and besides it the vowel signs and letter numbers of `char::is_alphabetic`: a sign stands behind a letter of
/// its own word, so before a blank it ends a word just as a letter does.
fn is_letter(character: char) -> bool {
    character.is_alphabetic()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(reasoning: &str, content: &str) -> Written {
        Written { reasoning: reasoning.into(), content: content.into() }
    }

    #[track_caller]
    fn check(text: &str, kept: Option<&str>) {
        let written = written("", text);
        assert_eq!(written.letter_space().map(|cut| written.kept(cut)).as_deref(), kept, "{text:?}");
    }

    #[test]
    fn cuts_between_a_letter_and_a_blank_with_a_letter() {
        check("The quick fox", Some("The quick"));
        check("The quick ", Some("The"));
        check("The quick. ", Some("The"));
        check("The quick 9", Some("The"));
        check("a  b", None);
        check("x = 3:\n  y", None);
        check("one two\n", Some("one"));
        check("हिन्दी में एक ", Some("हिन्दी में"));
        check("中文沒有空格", None);
        check("", None);
        check("é ü", Some("é"));
    }

    #[test]
    fn a_cut_too_far_back_is_none() {
        check(&format!("a b{}", "中".repeat(500)), None);
    }

    #[test]
    fn reasoning_is_kept_as_text_with_its_marks() {
        let text = written("\nThe user wants 18", "");
        assert_eq!(text.kept(text.end()), "<think>\nThe user wants 18");
        assert_eq!(text.kept(text.letter_space().unwrap()), "<think>\nThe user");
        let text = written("\nLet me think.\n", "\n\nThe sum");
        assert_eq!(text.kept(text.end()), "<think>\nLet me think.\n</think>\n\nThe sum");
        assert_eq!(text.kept(text.letter_space().unwrap()), "<think>\nLet me think.\n</think>\n\nThe");
        let text = written("\nLet me think.\n", "\n\nThe");
        let cut = text.letter_space().unwrap();
        assert_eq!(text.kept(cut), "<think>\nLet me");
        assert_eq!(text.behind(cut), (" think.\n", "\n\nThe"));
    }

    #[test]
    fn a_mark_of_the_template_was_not_generated() {
        let text = written("Okay, so", "");
        assert_eq!(text.kept(text.end()), "<think>\nOkay, so");
        assert_eq!(text.generated(text.end()), "Okay, so");
        let text = written("\nOkay", "");
        assert_eq!(text.generated(text.end()), "<think>\nOkay");
    }

    #[test]
    fn ends_are_judged_by_their_last_part() {
        assert!(written("\nx ", "").ends_with_space());
        assert!(!written("\nx ", "y").ends_with_space());
        assert!(written("", "y\n").ends_with_space());
        for (text, indented) in [("y", false), ("y ", false), ("y\n\n", false), ("y\n ", true), ("y  ", true), ("y\t", false)] {
            assert_eq!(written("", text).ends_in_indentation(), indented, "{text:?}");
        }
        assert_eq!(written("", "a \n").before_space(), Some(Cut { reasoning: 0, content: Some(1) }));
        assert_eq!(written("", " \n").before_space(), None);
    }
}
