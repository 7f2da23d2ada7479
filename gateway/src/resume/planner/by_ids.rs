//! Continuing by token ids at `/v1/completions`: those that the engine said, or those of a leader's `/tokenize`.

use super::{Planner, Stop, len};
use crate::resume::body::{self, Ids};
use crate::resume::expect::{Again, Expect};
use crate::resume::facts::Sampling;
use crate::resume::json;
use crate::resume::plan::{Attempt, Plan, Question, Resend};
use crate::resume::refusal::Refusal;
use crate::resume::route::Route;
use crate::resume::splice::Splice;
use crate::resume::text::Written;
use crate::resume::usage::Moved;

impl Planner<'_> {
    pub(super) fn continue_ids(&self) -> Result<Plan, Stop> {
        let no = Stop::No(Refusal::TokensUnknown);
        let [sent] = &self.now.journal.choices[..] else { return Err(no) };
        let prompt = &self.now.journal.prompt_ids;
        if prompt.is_empty() || sent.ids.is_empty() {
            return Err(no);
        }
        let kept = len(&sent.ids);
        let room = |model: u64| model.saturating_sub(len(prompt) + kept);
        let behind = json::unescape(sent.content.get(sent.ids_text..).unwrap_or_default()).ok_or(Stop::No(Refusal::Unreadable))?;
        if !behind.is_empty() && self.facts.sampling != Sampling::Greedy {
            return Err(Stop::No(Refusal::UnsafeText));
        }
        let max = match self.facts.max_tokens {
            Some(max) if max <= kept && !behind.is_empty() => return Err(no),
            Some(max) if max <= kept => return self.finish_by_length(kept),
            Some(max) => max - kept,
            None => room(self.max_model_len()?.ok_or(no)?),
        };
        let ids = Ids { prompt, generated: &sent.ids, ask: true };
        let mut splice = self.splice_ids(sent.index, ids);
        splice.expects[0].content = Again::new(behind);
        Ok(self.send_ids(Attempt::TokenIds, ids, max, splice))
    }

    /// The prompt and the text as the leader itself tokenizes them: the way past a template that takes something away.
    pub(super) fn continue_rendered(&self, written: &Written) -> Result<Plan, Stop> {
        let no = || Stop::No(Refusal::UnsafeText);
        if written.thinks() {
            return Err(no());
        }
        let text = self.ask(Question::Text(written.generated(written.end())))?.ok_or_else(no)?;
        let prompt = self.ask(Question::Prompt)?.ok_or_else(no)?;
        if text.ids.is_empty() || prompt.ids.is_empty() {
            return Err(no());
        }
        let ids = Ids { prompt: &prompt.ids, generated: &text.ids, ask: self.now.token_ids };
        let used = len(ids.generated);
        let max = match self.facts.max_tokens {
            Some(max) if max <= used => return self.finish_by_length(max),
            Some(max) => max - used,
            None => self.max_model_len()?.ok_or_else(no)?.saturating_sub(len(ids.prompt) + used),
        };
        let index = self.now.journal.choices.first().map_or(0, |sent| sent.index);
        Ok(self.send_ids(Attempt::Rendered, ids, max, self.splice_ids(index, ids)))
    }

    pub(super) fn splice_ids(&self, index: u32, ids: Ids<'_>) -> Splice {
        let part = len(ids.generated);
        Splice {
            expects: vec![Expect { index, content_begun: true, ..Expect::default() }],
            moved: Some(Moved { prompt_part: part, completion_part: part, reasoning: 0, prompt: Some(len(ids.prompt)) }),
            to_chat: self.now.route == Route::Chat,
            usual: None,
        }
    }

    pub(super) fn send_ids(&self, attempt: Attempt, ids: Ids<'_>, max: u64, splice: Splice) -> Plan {
        let min = self.facts.min_tokens.saturating_sub(len(ids.generated));
        let body = body::continue_ids(self.body, ids, max, min).into();
        let path = Some("/v1/completions");
        Plan::Send(Resend { way: attempt.way(), path, body, attempt, splice: Box::new(splice) })
    }

    /// The model's length; a leader that is asked to tokenize says it too.
    pub(super) fn max_model_len(&self) -> Result<Option<u64>, Stop> {
        match self.now.caps.max_model_len.or(self.answers.max_model_len()) {
            Some(known) => Ok(Some(known)),
            None => Ok(self.ask(Question::Prompt)?.and_then(|tokens| tokens.max_model_len)),
        }
    }
}
