//! Continuing by text: the body, what comes again, and whether going on from there is exact.

use super::{Planner, Stop};
use crate::resume::body::{self, Lowered};
use crate::resume::expect::Expect;
use crate::resume::plan::{Attempt, Plan, Question, Resend};
use crate::resume::refusal::Refusal;
use crate::resume::route::Route;
use crate::resume::splice::Splice;
use crate::resume::text::{Cut, Written};
use crate::resume::tokens;

impl Planner<'_> {
    pub(super) fn continue_text(&self, attempt: Attempt, written: &Written, cut: Cut) -> Result<Plan, Stop> {
        let kept = written.kept(cut);
        self.check_safe(written, cut)?;
        let tokens = if self.facts.counts_tokens() { Some(self.count(attempt, written, cut)?) } else { None };
        let used = tokens.map_or(0, |tokens| tokens.used);
        if let Some(max) = self.facts.max_tokens.filter(|max| *max <= used) {
            let at_end = cut == written.end();
            return if at_end { self.finish_by_length(max) } else { Err(Stop::No(Refusal::UnsafeText)) };
        }
        let lowered = Lowered { max: self.facts.max_tokens.map(|max| max - used), min: self.facts.min_tokens.saturating_sub(used) };
        let body = match self.now.route {
            Route::Chat => body::continue_chat(self.body, &kept, lowered),
            Route::Completions | Route::Responses | Route::Messages | Route::Other => body::continue_completion(self.body, &kept, lowered),
        };
        let moved = tokens.filter(|_| self.facts.usage).map(|tokens| self.moved(written, cut, tokens)).transpose()?;
        let splice = Splice { expects: vec![self.expect_behind(written, cut, used)], moved, ..Splice::default() };
        Ok(Plan::Send(Resend {
            way: attempt.way(),
            path: None,
            body: body.ok_or(Stop::No(Refusal::Request))?.into(),
            attempt,
            splice: Box::new(splice),
        }))
    }

    pub(super) fn expect_behind(&self, written: &Written, cut: Cut, used: u64) -> Expect {
        let mut expect = Expect::behind(written, cut);
        if let Some(sent) = self.now.journal.choices.first() {
            let kept = usize::try_from(used).unwrap_or(usize::MAX);
            expect.index = sent.index;
            expect.logprobs = sent.logprobs.saturating_sub(kept);
        }
        expect
    }

    /// Whether going on from `cut` is the same as never having stopped, by the facts or by proof.
    pub(super) fn check_safe(&self, written: &Written, cut: Cut) -> Result<(), Stop> {
        if self.now.route != Route::Chat {
            // No template, so nothing is taken from the text.
            return Ok(());
        }
        let ends_open = written.kept(cut).ends_with(char::is_whitespace);
        let starts_open = written.starts_with_space() && !self.facts.continues;
        let must = ends_open || starts_open || written.mark_is_the_templates();
        // Reasoning is safe by the facts, but templates differ: where a leader can be asked, it is.
        if !must && !written.thinks() && !self.facts.template_options {
            return Ok(());
        }
        match self.proof(written, cut)? {
            Some(true) => Ok(()),
            None if !must => Ok(()),
            Some(false) | None => Err(Stop::No(Refusal::UnsafeText)),
        }
    }

    /// Whether the leader's template takes the text as it is; `None`: the leader cannot say.
    pub(super) fn proof(&self, written: &Written, cut: Cut) -> Result<Option<bool>, Stop> {
        let text = self.ask(Question::Text(written.generated(cut)))?;
        let continued = self.ask(Question::Continued(written.kept(cut)))?;
        let prompt = self.ask(Question::Prompt)?;
        Ok(match (prompt, continued, text) {
            (Some(prompt), Some(continued), Some(text)) => Some(tokens::proves(prompt, continued, text)),
            _ => None,
        })
    }
}
