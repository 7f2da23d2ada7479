//! Chooses how a broken stream is carried on, and builds the request for it.
//!
//! Pure: all it knows is the request, the journal, what was tried and what `/tokenize` answered. It asks one question at
//! a time; the relay plans again with each answer. The order of ways is `ways`', the bodies are `body`'s.

mod by_ids;
mod by_text;
mod counting;
mod ending;
mod replay;

use super::carry::Broken;
use super::facts::Facts;
use super::json::Object;
use super::plan::{Ask, Attempt, Plan};
use super::refusal::Refusal;
use super::sent::Sent;
use super::text::Written;
use super::tokens::Answers;
use super::tried::Tried;
use super::ways::{self, SentKind};

/// A text so short that a sample of it may be tried again.
const FEW_BYTES: usize = 16;

/// Everything that a plan depends on.
pub(super) struct Planner<'a> {
    /// The broken stream.
    pub(super) now: &'a Broken<'a>,
    /// The client's body.
    pub(super) body: &'a Object<'a>,
    /// What it asks for.
    pub(super) facts: &'a Facts,
    /// What failed at this break.
    pub(super) tried: &'a Tried,
    /// What was asked at this break.
    pub(super) answers: &'a Answers,
}

/// Why there is no value now.
pub(super) enum Stop {
    /// It has to be asked for.
    Ask(Ask),
    /// It cannot be had.
    No(Refusal),
}

impl Planner<'_> {
    /// The next step.
    pub(super) fn plan(&self) -> Plan {
        if self.facts.echo {
            return Plan::Refuse(Refusal::Echo);
        }
        if self.facts.multimodal {
            return Plan::Refuse(Refusal::Multimodal);
        }
        if self.now.journal.complete() {
            return self.finish_complete();
        }
        let written = self.written();
        let mut why = None;
        for attempt in ways::order(self.now.route, self.facts, self.kind(written.as_ref()), self.now.token_ids) {
            if self.tried.exhausted(attempt, self.samples_anew(attempt, written.as_ref())) {
                continue;
            }
            match self.attempt(attempt, written.as_ref()) {
                Ok(plan) => return plan,
                Err(Stop::Ask(ask)) => return Plan::Ask(ask),
                Err(Stop::No(refusal)) => why = why.or(Some(refusal)),
            }
        }
        Plan::Refuse(self.tried.reason().or(why).unwrap_or(Refusal::UnsafeText))
    }

    fn attempt(&self, attempt: Attempt, written: Option<&Written>) -> Result<Plan, Stop> {
        let written = || written.ok_or(Stop::No(Refusal::UnsafeText));
        let unsafe_text = Stop::No(Refusal::UnsafeText);
        match attempt {
            Attempt::Cut => self.continue_text(attempt, written()?, written()?.letter_space().ok_or(unsafe_text)?),
            Attempt::All => self.continue_text(attempt, written()?, written()?.end()),
            Attempt::Space if written()?.ends_with_space() => {
                self.continue_text(attempt, written()?, written()?.before_space().ok_or(unsafe_text)?)
            }
            Attempt::Space => Err(unsafe_text),
            Attempt::Replay => Ok(self.replay()),
            Attempt::TokenIds => self.continue_ids(),
            Attempt::Rendered => self.continue_rendered(written()?),
        }
    }

    /// Whether another try may well give what was sent, and costs little: a sample of a few characters.
    fn samples_anew(&self, attempt: Attempt, written: Option<&Written>) -> bool {
        let few = written.is_some_and(|written| written.reasoning.len() + written.content.len() <= FEW_BYTES);
        attempt == Attempt::Space || (attempt == Attempt::Replay && few && !self.facts.repeatable())
    }

    fn written(&self) -> Option<Written> {
        match &self.now.journal.choices[..] {
            [sent] if sent.tools.is_empty() => Written::of(sent),
            _ => None,
        }
    }

    fn kind(&self, written: Option<&Written>) -> SentKind {
        SentKind {
            plain: written.is_some(),
            empty: !self.now.journal.choices.iter().any(Sent::any),
            broken: written.is_some_and(Written::is_broken),
            reasoning: written.is_some_and(|written| !written.reasoning.is_empty()),
            indented: written.is_some_and(Written::ends_in_indentation),
        }
    }
}

fn len(ids: &[u32]) -> u64 {
    u64::try_from(ids.len()).unwrap_or(u64::MAX)
}
