//! A request that the engine accepts: its prompt, its limits and the key of its text.
//!
//! Owns the rules by which a continuation is exact or goes wrong (engine facts 5.3). `limits` refuses values, `form` knows
//! what kind of text it is. Next step: [`Job::choices`] gives the decoders.

use super::ask::{Ask, Endpoint, Prompt};
use super::choice::Choice;
use super::decode::{Decoder, Limits};
use super::errors::ApiError;
use super::form::Form;
use super::limits;
use super::parser::Parser;
use super::persona::{Persona, Template, Unseeded};
use super::source::{Fit, Source};
use super::template::{self, Split};
use crate::text::{Script, hash, mix, token};

/// Prompts beyond this many bytes are counted as one token for four bytes: tokenising megabytes would cost more than
/// anything that is measured with them.
const COUNT_EXACTLY: usize = 256 * 1024;

/// A checked request.
#[derive(Debug, Clone)]
pub struct Job {
    /// The request.
    pub ask: Ask,
    /// The served name that answers.
    pub model: String,
    /// The prompt.
    pub split: Split,
    /// Its length in tokens.
    pub prompt_tokens: usize,
    /// Upper bound of generated tokens for each choice.
    pub max_tokens: usize,
    key: u64,
    form: Form,
    persona: FormOptions,
}

#[derive(Debug, Clone, Copy)]
struct FormOptions {
    reasoning_parser: bool,
    tool_parser: bool,
    trim: bool,
    random: bool,
}

impl Job {
    /// Checks a request; `nonce` is what makes one sampled text differ from the next.
    ///
    /// # Errors
    ///
    /// The engine's refusals: 404 for the model, 400 for values.
    pub fn new(ask: Ask, persona: &Persona, nonce: u64) -> Result<Self, ApiError> {
        let model = ask.model.clone().unwrap_or_else(|| persona.base().to_owned());
        if !persona.serves(&model) {
            let served = persona.models.iter().map(|model| model.id.as_str()).collect::<Vec<_>>().join(", ");
            return Err(ApiError::unknown_model(&model, &served));
        }
        limits::values(&ask, persona)?;
        let split = split(&ask, persona.template)?;
        let prompt_tokens = count_prompt(&ask.prompt, &split);
        let max_tokens = limits::length(&ask, prompt_tokens, persona.max_model_len)?;
        let random = ask.sampled() && ask.seed.is_none() && persona.unseeded == Unseeded::Random;
        let form = Form::of(&ask, persona, &split);
        let mut key = key(&ask, &model, &split, persona.weights);
        if random {
            key = mix(key, nonce);
        }
        let trim = persona.template == Template::Trim;
        let options = FormOptions { reasoning_parser: persona.reasoning_parser, tool_parser: persona.tool_parser, trim, random };
        Ok(Self { ask, model, split, prompt_tokens, max_tokens, key, form, persona: options })
    }

    /// One decoder with its output parser for each of the `n` choices.
    pub fn choices(&self) -> Vec<Choice> {
        (0..self.ask.n).map(|index| self.choice(index, self.max_tokens)).collect()
    }

    /// One choice, with its own limit of tokens.
    pub fn choice(&self, index: usize, max_tokens: usize) -> Choice {
        let key = if index == 0 { self.key } else { mix(self.key, index as u64) };
        let limits = Limits {
            max: max_tokens,
            min: self.ask.min_tokens,
            stop: self.ask.stop.clone(),
            ignore_eos: self.ask.ignore_eos,
            nothing: self.ask.endpoint == Endpoint::Chat && self.split.role != "assistant",
        };
        let (source, held) = self.source(key);
        let mut decoder = Decoder::new(source, limits);
        if !held.is_empty() {
            decoder.leak(self.shown_prompt(held.len()), held);
        }
        Choice::new(index, decoder, self.parser(key), self.ask.interval)
    }

    /// Ids of the prompt, for `return_token_ids` and `/tokenize`.
    pub fn prompt_ids(&self) -> Vec<u32> {
        prompt_ids(&self.ask.prompt, &self.split)
    }

    /// The text of this choice behind the prefix, and the bytes of a character that the prefix ends inside.
    fn source(&self, key: u64) -> (Source, Vec<u8>) {
        let prefix = &self.split.prefix;
        let held = incomplete_tail(prefix).to_vec();
        if prefix.is_empty() {
            let mut script = self.form.script(key);
            // The trimmed header has lost its newline, so the model writes it first.
            if self.persona.trim && !self.split.conversation.ends_with('\n') {
                script = script.in_front("\n".to_owned());
            }
            return (Source::new(script), held);
        }
        if let Some(reason) = self.starts_anew() {
            return (Source::new(self.diverged(key, reason)), held);
        }
        if matches!(self.form, Form::Record) {
            // The grammar knows nothing of the prefix and begins again in the middle of it.
            return (Source::new(self.form.script(key)), Vec::new());
        }
        let mut source = Source::new(self.form.script(key));
        if self.ask.ignore_eos {
            // The prefix may go on behind the end that the text would otherwise have.
            source.go_on_for_ever();
        }
        match source.skip(prefix) {
            Fit::Exact => (source, held),
            Fit::InsideWhiteSpace => (Source::new(self.diverged(key, "other white space")), held),
            Fit::Differs => (Source::new(self.diverged(key, "unknown prefix")), held),
        }
    }

    fn starts_anew(&self) -> Option<&'static str> {
        let ask = &self.ask;
        if ask.sampled() && ask.seed.is_some() {
            return Some("seed anew");
        }
        (ask.penalties[0] != 0.0 || ask.penalties[1] != 0.0).then_some("penalties anew")
    }

    /// A text that no uninterrupted answer has, marked so that a failing test says what went wrong.
    fn diverged(&self, key: u64, reason: &str) -> Script {
        let script = Script::new(mix(key, hash(&self.split.prefix)), self.form.kind(), None);
        if self.persona.random { script } else { script.in_front(format!("[{reason}] ")) }
    }

    fn parser(&self, key: u64) -> Parser {
        let prefix = String::from_utf8_lossy(&self.split.prefix);
        if self.ask.endpoint == Endpoint::Completion {
            return Parser::plain();
        }
        if self.persona.reasoning_parser {
            return Parser::reasoning(prefix.contains("</think>"));
        }
        if self.persona.tool_parser && self.ask.tools.is_some() && !prefix.contains("<tool_call>") {
            return Parser::tool(key);
        }
        Parser::plain()
    }

    fn shown_prompt(&self, held: usize) -> String {
        let mut ids = self.prompt_ids();
        ids.truncate(ids.len().saturating_sub(held));
        String::from_utf8_lossy(&token::decode(&ids, false)).into_owned()
    }
}

/// The prompt of a request that is only tokenised.
///
/// # Errors
///
/// As [`Job::new`], for the chat template only.
pub(crate) fn tokenize(ask: &Ask, template: Template) -> Result<Vec<u32>, ApiError> {
    Ok(prompt_ids(&ask.prompt, &split(ask, template)?))
}

fn prompt_ids(prompt: &Prompt, split: &Split) -> Vec<u32> {
    if let Prompt::Ids(ids) = prompt {
        return ids.clone();
    }
    // Apart, so that no token spans the place where the answer begins.
    let mut ids = token::encode(&split.conversation);
    ids.extend(token::encode(&String::from_utf8_lossy(&split.prefix)));
    ids
}

fn count_prompt(prompt: &Prompt, split: &Split) -> usize {
    match prompt {
        Prompt::Ids(ids) => ids.len(),
        _ if split.conversation.len() > COUNT_EXACTLY => (split.conversation.len() + split.prefix.len()) / 4,
        Prompt::Messages(_) | Prompt::Text(_) => token::count(&split.conversation) + token::count(&String::from_utf8_lossy(&split.prefix)),
    }
}

fn split(ask: &Ask, template: Template) -> Result<Split, ApiError> {
    match &ask.prompt {
        Prompt::Messages(messages) => template::render(messages, template, limits::mode(ask)?),
        Prompt::Text(text) => Ok(template::divide(text.as_bytes())),
        Prompt::Ids(ids) => Ok(template::divide(&token::decode(ids, true))),
    }
}

fn key(ask: &Ask, model: &str, split: &Split, weights: u64) -> u64 {
    let mut key = mix(hash(model.as_bytes()), weights);
    // Without the white space at its end, which a trimming template loses.
    key = mix(key, hash(split.conversation.trim_end().as_bytes()));
    for penalty in ask.penalties {
        key = mix(key, penalty.to_bits());
    }
    if ask.sampled()
        && let Some(seed) = ask.seed
    {
        key = mix(mix(key, seed.unsigned_abs()), mix(ask.temperature.to_bits(), ask.top_p));
    }
    key
}

/// The bytes of a character that `bytes` ends inside.
fn incomplete_tail(bytes: &[u8]) -> &[u8] {
    match std::str::from_utf8(bytes) {
        Ok(_) => &[],
        Err(error) if error.error_len().is_none() => &bytes[error.valid_up_to()..],
        Err(_) => &[],
    }
}
