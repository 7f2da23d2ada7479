//! Chooses how a broken stream is carried on, and builds the request for it.
//!
//! Pure: all it knows is the request, the journal, what was tried and what `/tokenize` answered. It asks one question at
//! a time; the relay plans again with each answer. The order of ways is `ways`', the bodies are `body`'s.

use bytes::Bytes;

use super::body::{self, Lowered};
use super::carry::Broken;
use super::expect::{Again, Expect};
use super::facts::Facts;
use super::finish;
use super::json::{self, Object};
use super::plan::{Ask, Attempt, Plan, Question, Resend};
use super::refusal::Refusal;
use super::route::Route;
use super::sent::Sent;
use super::splice::Splice;
use super::text::{Cut, Written};
use super::tokens::{self, Answers, Known, Tokens};
use super::tried::Tried;
use super::usage::{Moved, Usage};
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
        }
    }

    // ---- continue by text

    fn continue_text(&self, attempt: Attempt, written: &Written, cut: Cut) -> Result<Plan, Stop> {
        let kept = written.kept(cut);
        self.check_safe(written, cut)?;
        let tokens = if self.facts.counts_tokens() { Some(self.count(written, cut)?) } else { None };
        let max = match (self.facts.max_tokens, tokens) {
            (Some(max), Some(tokens)) if max <= tokens && cut == written.end() => return self.finish_by_length(tokens),
            (Some(max), Some(tokens)) if max <= tokens => return Err(Stop::No(Refusal::UnsafeText)),
            (max, tokens) => max.map(|max| max - tokens.unwrap_or(0)),
        };
        let lowered = Lowered { max, min: self.facts.min_tokens.saturating_sub(tokens.unwrap_or(0)) };
        let body = match self.now.route {
            Route::Chat => body::continue_chat(self.body, &kept, lowered),
            Route::Completions | Route::Responses | Route::Messages | Route::Other => body::continue_completion(self.body, &kept, lowered),
        };
        let moved = tokens.filter(|_| self.facts.usage).map(|tokens| self.moved(written, cut, tokens)).transpose()?;
        let splice = Splice { expects: vec![self.expect_behind(written, cut, tokens)], moved, ..Splice::default() };
        Ok(Plan::Send(Resend {
            way: attempt.way(),
            path: None,
            body: body.ok_or(Stop::No(Refusal::Request))?.into(),
            attempt,
            splice: Box::new(splice),
        }))
    }

    fn expect_behind(&self, written: &Written, cut: Cut, tokens: Option<u64>) -> Expect {
        let mut expect = Expect::behind(written, cut);
        if let Some(sent) = self.now.journal.choices.first() {
            let kept = usize::try_from(tokens.unwrap_or(0)).unwrap_or(usize::MAX);
            expect.index = sent.index;
            expect.logprobs = sent.logprobs.saturating_sub(kept);
        }
        expect
    }

    /// Whether going on from `cut` is the same as never having stopped, by the facts or by proof.
    fn check_safe(&self, written: &Written, cut: Cut) -> Result<(), Stop> {
        let kept = written.kept(cut);
        let ends_open = kept.ends_with(char::is_whitespace);
        if self.now.route != Route::Chat {
            let blank = ends_open && !kept.ends_with('\n');
            return if blank { Err(Stop::No(Refusal::UnsafeText)) } else { Ok(()) };
        }
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
    fn proof(&self, written: &Written, cut: Cut) -> Result<Option<bool>, Stop> {
        let text = self.ask(Question::Text(written.generated(cut)))?;
        let continued = self.ask(Question::Continued(written.kept(cut)))?;
        let prompt = self.ask(Question::Prompt)?;
        Ok(match (prompt, continued, text) {
            (Some(prompt), Some(continued), Some(text)) => Some(tokens::proves(prompt, continued, text)),
            _ => None,
        })
    }

    // ---- token ids

    fn continue_ids(&self) -> Result<Plan, Stop> {
        let no = Stop::No(Refusal::TokensUnknown);
        let [sent] = &self.now.journal.choices[..] else { return Err(no) };
        let prompt = &self.now.journal.prompt_ids;
        if prompt.is_empty() || sent.ids.is_empty() {
            return Err(no);
        }
        let kept = len(&sent.ids);
        let room = |model: u64| model.saturating_sub(len(prompt) + kept);
        let max = match self.facts.max_tokens {
            Some(max) if max <= kept => return self.finish_by_length(kept),
            Some(max) => max - kept,
            None => room(self.max_model_len()?.ok_or(no)?),
        };
        let min = self.facts.min_tokens.saturating_sub(kept);
        let body = body::continue_ids(self.body, prompt, &sent.ids, max, min);
        let splice = Splice {
            expects: vec![Expect { index: sent.index, content_begun: true, ..Expect::default() }],
            moved: Some(Moved { tokens: kept, reasoning: 0, prompt: Some(len(prompt)) }),
            to_chat: self.now.route == Route::Chat,
            usual: None,
        };
        let attempt = Attempt::TokenIds;
        let path = Some("/v1/completions");
        Ok(Plan::Send(Resend { way: attempt.way(), path, body: body.into(), attempt, splice: Box::new(splice) }))
    }

    /// The model's length; a leader that is asked to tokenize says it too.
    fn max_model_len(&self) -> Result<Option<u64>, Stop> {
        match self.now.caps.max_model_len.or(self.answers.max_model_len()) {
            Some(known) => Ok(Some(known)),
            None => Ok(self.ask(Question::Prompt)?.and_then(|tokens| tokens.max_model_len)),
        }
    }

    // ---- replay

    fn replay(&self) -> Plan {
        let asked = if self.now.token_ids { body::with_token_ids(self.now.raw) } else { None };
        let body = asked.map_or_else(|| self.now.raw.clone(), Bytes::from);
        let expects = self.now.journal.choices.iter().filter_map(expect_again).collect();
        let splice = Box::new(Splice { expects, ..Splice::default() });
        Plan::Send(Resend { way: Attempt::Replay.way(), path: None, body, attempt: Attempt::Replay, splice })
    }

    // ---- nothing left to generate

    fn finish_by_length(&self, completion: u64) -> Result<Plan, Stop> {
        let usage = self.final_usage(Some(completion))?;
        Ok(Plan::Finish(finish::by_length(self.now.route, self.now.journal, usage)))
    }

    /// Every choice has ended; only the usage event and `[DONE]` are missing.
    fn finish_complete(&self) -> Plan {
        let usage = self.complete_count().and_then(|count| self.final_usage(count));
        match usage {
            Ok(usage) => Plan::Finish(finish::after_all(self.now.route, self.now.journal, usage)),
            Err(Stop::Ask(ask)) => Plan::Ask(ask),
            Err(Stop::No(_)) => Plan::Finish(finish::after_all(self.now.route, self.now.journal, None)),
        }
    }

    /// Tokens of a finished answer: known by its limit, or counted and one more for the end token.
    fn complete_count(&self) -> Result<Option<u64>, Stop> {
        let [sent] = &self.now.journal.choices[..] else { return Ok(None) };
        if !self.wants_usage_event() || self.now.journal.lost.is_some() || self.now.journal.usage.is_some() {
            return Ok(None);
        }
        match (sent.finish.as_deref(), self.facts.max_tokens) {
            (Some("length"), max) => Ok(max),
            (Some("stop"), _) if !sent.stop_reason && sent.tools.is_empty() => {
                let Some(written) = self.written() else { return Ok(None) };
                Ok(self.ask(Question::Text(written.generated(written.end())))?.map(|tokens| tokens.count + 1))
            }
            _ => Ok(None),
        }
    }

    fn wants_usage_event(&self) -> bool {
        self.facts.include_usage && !self.now.journal.usage_sent
    }

    /// The usage event's content, if the client wants one and it can be counted.
    fn final_usage(&self, completion: Option<u64>) -> Result<Option<Usage>, Stop> {
        if !self.wants_usage_event() {
            return Ok(None);
        }
        if self.now.journal.complete() && self.now.journal.usage.is_some() {
            return Ok(self.now.journal.usage);
        }
        let Some(completion) = completion else { return Ok(None) };
        let known = self.now.journal.usage.map(|usage| usage.prompt);
        let prompt = match known {
            Some(prompt) => Some(prompt),
            None => self.ask(Question::Prompt)?.map(|tokens| tokens.count),
        };
        Ok(prompt.map(|prompt| Usage { prompt, completion, total: prompt + completion }))
    }

    // ---- counting

    /// Tokens generated up to `cut`: by usage, by ids, or by the leader.
    fn count(&self, written: &Written, cut: Cut) -> Result<u64, Stop> {
        if cut == written.end() && !self.facts.stop {
            let ids = self.now.journal.choices.first().map(|sent| len(&sent.ids)).filter(|count| *count > 0);
            let usage = self.now.journal.usage_at_text.map(|usage| usage.completion);
            if let Some(count) = ids.or(usage) {
                return Ok(count);
            }
        }
        let tokens = self.ask(Question::Text(written.generated(cut)))?;
        tokens.map(|tokens| tokens.count).ok_or(Stop::No(Refusal::TokensUnknown))
    }

    fn moved(&self, written: &Written, cut: Cut, tokens: u64) -> Result<Moved, Stop> {
        let reasoning = match written.reasoning.get(..cut.reasoning) {
            Some(kept) if !kept.is_empty() => self.ask(Question::Text(kept.to_owned()))?.map_or(0, |tokens| tokens.count),
            _ => 0,
        };
        let seen = self.now.journal.usage.map(|usage| usage.prompt);
        let asked = match self.answers.get(&Question::Prompt) {
            Known::Yes(tokens) => Some(tokens.count),
            Known::No | Known::Unasked => None,
        };
        Ok(Moved { tokens, reasoning, prompt: seen.or(asked) })
    }

    /// The answer to `question`; `None` if the leader has none.
    fn ask(&self, question: Question) -> Result<Option<&Tokens>, Stop> {
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

    // ---- what was sent

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
        }
    }
}

/// All that was sent of a choice comes again. `None` only if it does not decode, and then nothing of it is expected to
/// match: the journal never holds such a text.
fn expect_again(sent: &Sent) -> Option<Expect> {
    let text = |escaped: &[u8]| json::unescape(escaped).map(Again::new);
    let mut tools = Vec::new();
    for call in &sent.tools {
        tools.push((call.index, Again::new(call.name.clone().unwrap_or_default()), text(&call.arguments)?));
    }
    Some(Expect {
        index: sent.index,
        reasoning: text(&sent.reasoning)?,
        content: text(&sent.content)?,
        content_begun: false,
        tools,
        finish: sent.finish.as_deref().map(str::to_owned),
        logprobs: sent.logprobs,
        ids: sent.ids_sent,
    })
}

fn len(ids: &[u32]) -> u64 {
    u64::try_from(ids.len()).unwrap_or(u64::MAX)
}
