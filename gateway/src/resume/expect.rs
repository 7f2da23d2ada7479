//! What another leader will say again of one choice, and the comparison with it.
//!
//! Text that the client already has is swallowed only if it comes again exactly; at the first difference the rest is
//! useless. Texts are compared decoded, so that engines may escape differently. Owns no events; `splice` does.

use super::text::{Cut, Written};

/// A text that comes again.
#[derive(Debug, Default)]
pub(super) struct Again {
    text: String,
    at: usize,
}

/// The rest is not the one that belongs to what was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Differs;

impl Again {
    /// Expects exactly `text`.
    pub(super) fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), at: 0 }
    }

    /// All of it has come.
    pub(super) fn done(&self) -> bool {
        self.at == self.text.len()
    }

    /// Takes the next piece; gives as much of it as is new.
    pub(super) fn take<'t>(&mut self, piece: &'t str) -> Result<&'t str, Differs> {
        let rest = self.text.get(self.at..).unwrap_or_default();
        if rest.len() > piece.len() {
            self.at += if rest.starts_with(piece) { piece.len() } else { return Err(Differs) };
            return Ok("");
        }
        let new = piece.strip_prefix(rest).ok_or(Differs)?;
        // Not needed any more; the stream may go on for long.
        *self = Self::default();
        Ok(new)
    }
}

/// What comes again of one choice.
#[derive(Debug, Default)]
pub(super) struct Expect {
    /// Its `index`.
    pub(super) index: u32,
    /// Reasoning.
    pub(super) reasoning: Again,
    /// Answer.
    pub(super) content: Again,
    /// Answer text has begun: reasoning must not come any more.
    pub(super) content_begun: bool,
    /// Tool calls by their index: name and arguments.
    pub(super) tools: Vec<(u32, Again, Again)>,
    /// Why the choice ended, if that was sent.
    pub(super) finish: Option<String>,
    /// Entries of `logprobs` that were sent already.
    pub(super) logprobs: usize,
    /// Token ids that were sent already.
    pub(super) ids: usize,
}

impl Expect {
    /// The text behind `cut` comes again.
    pub(super) fn behind(written: &Written, cut: Cut) -> Self {
        let (reasoning, content) = written.behind(cut);
        let content_begun = cut.content.is_some() && !written.is_empty() && !written.content.is_empty();
        Self { reasoning: Again::new(reasoning), content: Again::new(content), content_begun, ..Self::default() }
    }

    /// All texts that were sent have come again.
    pub(super) fn done(&self) -> bool {
        self.reasoning.done() && self.content.done() && self.tools.iter().all(|(_, name, arguments)| name.done() && arguments.done())
    }

    /// Takes reasoning; gives what is new.
    pub(super) fn take_reasoning<'t>(&mut self, piece: &'t str) -> Result<&'t str, Differs> {
        if !piece.is_empty() && self.content_begun {
            return Err(Differs);
        }
        let new = self.reasoning.take(piece)?;
        // New reasoning although the answer had begun before: another text.
        if !new.is_empty() && !self.content.done() { Err(Differs) } else { Ok(new) }
    }

    /// Takes answer text; gives what is new.
    pub(super) fn take_content<'t>(&mut self, piece: &'t str) -> Result<&'t str, Differs> {
        if piece.is_empty() {
            return Ok(piece);
        }
        if !self.reasoning.done() {
            return Err(Differs);
        }
        self.content_begun = true;
        self.content.take(piece)
    }

    /// Takes a piece of a call's name and arguments; gives what is new of both. A call that was not sent is all new.
    pub(super) fn take_tool<'t>(&mut self, index: u32, name: &'t str, arguments: &'t str) -> Result<(&'t str, &'t str), Differs> {
        let done = self.done();
        match self.tools.iter_mut().find(|(call, ..)| *call == index) {
            Some((_, sent_name, sent)) => Ok((sent_name.take(name)?, sent.take(arguments)?)),
            None if done => Ok((name, arguments)),
            None => Err(Differs),
        }
    }

    /// The choice ends. `true`: the client knows already.
    pub(super) fn take_finish(&mut self, reason: &str) -> Result<bool, Differs> {
        if !self.done() {
            return Err(Differs);
        }
        match &self.finish {
            Some(sent) if sent == reason => Ok(true),
            Some(_) => Err(Differs),
            None => Ok(false),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn swallows_what_was_sent_and_gives_the_rest() {
        let mut again = Again::new("हिन्दी x");
        assert_eq!(again.take("हि"), Ok(""));
        assert_eq!(again.take(""), Ok(""));
        assert_eq!(again.take("न्दी x und"), Ok(" und"));
        assert!(again.done());
        assert_eq!(again.take("new"), Ok("new"));
    }

    #[test]
    fn notices_the_first_difference() {
        assert_eq!(Again::new("abc").take("abd"), Err(Differs));
        assert_eq!(Again::new("abc").take("x"), Err(Differs));
        assert_eq!(Again::new("abc").take("abcd"), Ok("d"));
    }

    #[test]
    fn a_choice_must_not_change_its_field() {
        let written = Written { reasoning: String::new(), content: "The sum".into() };
        let mut expect = Expect::behind(&written, written.end());
        assert_eq!(expect.take_reasoning(" of"), Err(Differs));
        let written = Written { reasoning: "\nabc".into(), content: String::new() };
        let mut expect = Expect::behind(&written, Cut { reasoning: 2, content: None });
        assert_eq!(expect.take_content("x"), Err(Differs));
        assert_eq!(expect.take_reasoning("bcd"), Ok("d"));
        assert_eq!(expect.take_content("x"), Ok("x"));
    }

    #[test]
    fn an_end_before_all_was_said_again_differs() {
        let mut expect = Expect { content: Again::new("ab"), ..Expect::default() };
        assert_eq!(expect.take_content("a"), Ok(""));
        assert_eq!(expect.take_finish("stop"), Err(Differs));
        assert_eq!(expect.take_content("b"), Ok(""));
        assert_eq!(expect.take_finish("stop"), Ok(false));
    }

    #[test]
    fn a_finish_that_was_sent_must_be_the_same() {
        let mut expect = Expect { finish: Some("stop".into()), ..Expect::default() };
        assert_eq!(expect.take_finish("length"), Err(Differs));
        assert_eq!(expect.take_finish("stop"), Ok(true));
    }
}
