//! Streams that need no leader any more: nothing is left to generate, or only usage and `[DONE]` are missing.

use super::{Planner, Stop};
use crate::resume::finish;
use crate::resume::plan::{Attempt, Plan, Question};
use crate::resume::usage::Usage;

impl Planner<'_> {
    pub(super) fn finish_by_length(&self, completion: u64) -> Result<Plan, Stop> {
        let usage = self.final_usage(Some(completion))?;
        Ok(Plan::Finish(finish::by_length(self.now.route, self.now.journal, usage)))
    }

    /// Every choice has ended; only the usage event and `[DONE]` are missing. Where usage cannot be counted, the same request
    /// tells it if it must give the same answer; else the event is left out, since the text is whole.
    pub(super) fn finish_complete(&self) -> Plan {
        let usage = match self.complete_count().and_then(|count| self.final_usage(count)) {
            Ok(usage) => usage,
            Err(Stop::Ask(ask)) => return Plan::Ask(ask),
            Err(Stop::No(_)) => None,
        };
        let told_by_replay = self.facts.repeatable() && self.now.journal.lost.is_none() && !self.tried.exhausted(Attempt::Replay, false);
        if usage.is_none() && self.wants_usage_event() && told_by_replay {
            return self.replay();
        }
        Plan::Finish(finish::after_all(self.now.route, self.now.journal, usage))
    }

    /// Tokens of a finished answer: known by its limit, or counted and one more for the end token.
    pub(super) fn complete_count(&self) -> Result<Option<u64>, Stop> {
        let [sent] = &self.now.journal.choices[..] else { return Ok(None) };
        if !self.wants_usage_event() || self.now.journal.lost.is_some() || self.now.journal.usage.is_some() {
            return Ok(None);
        }
        match (sent.finish.as_deref(), self.facts.max_tokens) {
            (Some("length"), max) => Ok(max),
            (Some("stop"), _) if !self.facts.stop && !sent.stop_reason && sent.tools.is_empty() => {
                let Some(written) = self.written() else { return Ok(None) };
                Ok(self.ask(Question::Text(written.generated(written.end())))?.map(|tokens| tokens.count.saturating_add(1)))
            }
            _ => Ok(None),
        }
    }

    pub(super) fn wants_usage_event(&self) -> bool {
        self.facts.include_usage && !self.now.journal.usage_sent
    }

    /// The usage event's content, if the client wants one and it can be counted.
    pub(super) fn final_usage(&self, completion: Option<u64>) -> Result<Option<Usage>, Stop> {
        if !self.wants_usage_event() {
            return Ok(None);
        }
        let one = self.now.journal.choices.len() == 1;
        if one && self.now.journal.complete() && self.now.journal.usage.is_some() {
            return Ok(self.now.journal.usage);
        }
        let Some(completion) = completion else { return Ok(None) };
        let known = self.now.journal.usage.map(|usage| usage.prompt);
        let prompt = match known {
            Some(prompt) => Some(prompt),
            None => self.ask(Question::Prompt)?.map(|tokens| tokens.count),
        };
        let reasoning = match self.written().filter(|written| !written.reasoning.is_empty()) {
            Some(written) => Some(self.reasoning_tokens(&written, written.end(), completion)?),
            None => None,
        };
        Ok(prompt.map(|prompt| Usage { prompt, completion, total: prompt.saturating_add(completion), reasoning }))
    }
}
