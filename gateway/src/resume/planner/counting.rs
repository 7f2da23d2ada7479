//! Counting the tokens that were sent: by ids, by usage fields, or by asking the leader. Never from events.

use super::{Planner, Stop, len};
use crate::resume::body;
use crate::resume::plan::{Ask, Attempt, Question};
use crate::resume::refusal::Refusal;
use crate::resume::sent::Sent;
use crate::resume::text::{Cut, Written};
use crate::resume::tokens::{Known, Tokens};
use crate::resume::usage::Moved;

impl Planner<'_> {
    /// Tokens generated up to `cut`: by usage, by ids, or by the leader.
    pub(super) fn count(&self, attempt: Attempt, written: &Written, cut: Cut) -> Result<Kept, Stop> {
        if cut == written.end() && !self.facts.stop {
            // With a parser, marks have no event and so no ids.
            let parsed = !written.reasoning.is_empty() || self.facts.tools;
            let whole = |sent: &&Sent| !parsed && !sent.ids.is_empty() && sent.ids_text == sent.content.len();
            let ids = self.now.journal.choices.first().filter(whole).map(|sent| len(&sent.ids));
            let usage = self.now.journal.usage_at_text.map(|usage| usage.completion);
            if let Some(count) = ids.or(usage) {
                return Ok(Kept { prompt: count, used: count });
            }
        }
        let prompt = self.count_text(written.generated(cut))?;
        let (reasoning, content) = written.behind(cut);
        let behind = [reasoning, content].concat();
        // One blank comes again with the next word, or as the token that it was.
        if attempt != Attempt::Space || behind == " " {
            return Ok(Kept { prompt, used: prompt });
        }
        // More white space may have been one token with what stands before it and comes again as one of its own.
        let all = self.count_text(written.generated(written.end()))?;
        let space = self.count_text(behind)?;
        Ok(Kept { prompt, used: all.saturating_sub(space) })
    }

    pub(super) fn count_text(&self, text: String) -> Result<u64, Stop> {
        let tokens = self.ask(Question::Text(text))?;
        tokens.map(|tokens| tokens.count).ok_or(Stop::No(Refusal::TokensUnknown))
    }

    /// As many of the `used` tokens as are reasoning; its marks are counted with it.
    pub(super) fn reasoning_tokens(&self, written: &Written, cut: Cut, used: u64) -> Result<u64, Stop> {
        match cut.content {
            None => Ok(used),
            Some(_) if written.reasoning.is_empty() => Ok(0),
            Some(_) => self.count_text(written.generated(Cut { content: Some(0), ..cut })),
        }
    }

    pub(super) fn moved(&self, written: &Written, cut: Cut, tokens: Kept) -> Result<Moved, Stop> {
        let reasoning = self.reasoning_tokens(written, cut, tokens.used)?;
        let seen = self.now.journal.usage.map(|usage| usage.prompt);
        let asked = match self.answers.get(&Question::Prompt) {
            Known::Yes(tokens) => Some(tokens.count),
            Known::No | Known::Unasked => None,
        };
        Ok(Moved { prompt_part: tokens.prompt, completion_part: tokens.used, reasoning, prompt: seen.or(asked) })
    }

    /// The answer to `question`; `None` if the leader has none.
    pub(super) fn ask(&self, question: Question) -> Result<Option<&Tokens>, Stop> {
        match self.answers.get(&question) {
            Known::Yes(tokens) => Ok(Some(tokens)),
            Known::No => Ok(None),
            Known::Unasked if !self.now.caps.tokenize => Ok(None),
            Known::Unasked => {
                let body = match &question {
                    Question::Text(text) => Some(body::tokenize_text(self.body, text)),
                    Question::Prompt => body::tokenize_prompt(self.body),
                    Question::Continued(kept) => body::tokenize_continued(self.body, kept),
                };
                let body = body.ok_or(Stop::No(Refusal::Request))?;
                Err(Stop::Ask(Ask { body: body.into(), question }))
            }
        }
    }
}

/// Tokens of the text that is kept.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kept {
    /// As the prompt of the next request has them.
    pub(super) prompt: u64,
    /// As the model generated them.
    pub(super) used: u64,
}
