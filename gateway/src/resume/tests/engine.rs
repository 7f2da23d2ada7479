//! A simulated engine that is exact: what it writes depends on the prompt and on the text so far, token by token.
//!
//! It writes vLLM's wire form and follows the engine facts: held-back characters, a second role event in a resumed
//! answer, templates that trim, prompts and limits counted in tokens, `/tokenize`.

use std::cell::RefCell;

use serde_json::{Value, json};

/// How chat templates treat the message that is continued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Template {
    Plain,
    Trim,
    /// Drops everything up to `</think>` from old turns, and refuses to continue it.
    Strip,
}

/// An engine whose answer to every prompt is `script`, in tokens, if what was written so far is a start of it.
#[derive(Debug, Clone)]
pub(super) struct Engine {
    pub(super) tokens: Vec<Vec<u8>>,
    pub(super) template: Template,
    /// Reasoning is parsed out.
    pub(super) reasoning: bool,
    pub(super) id: String,
    /// Changes the text from this token on: another machine's numbers.
    pub(super) drift: Option<usize>,
}

pub(super) const PROMPT_TOKENS: u64 = 7;

/// Splits a text the way byte-level tokenisers do: blanks belong to the next word, other characters fall into bytes.
pub(super) fn tokenize(text: &str) -> Vec<Vec<u8>> {
    let mut tokens: Vec<Vec<u8>> = Vec::new();
    let mut word: Vec<u8> = Vec::new();
    for character in text.chars() {
        let ascii_letter = character.is_ascii_alphabetic();
        let joins = ascii_letter && word.len() < 5 && (word == b" " || word.last().is_some_and(u8::is_ascii_alphabetic));
        if !joins && !word.is_empty() {
            tokens.push(std::mem::take(&mut word));
        }
        let mut buffer = [0; 4];
        let bytes = character.encode_utf8(&mut buffer).as_bytes();
        if character.is_ascii() {
            word.extend_from_slice(bytes);
        } else {
            tokens.extend(bytes.iter().map(|byte| vec![*byte]));
        }
    }
    if !word.is_empty() {
        tokens.push(word);
    }
    tokens
}

thread_local! {
    static VOCABULARY: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

const FIRST_ID: usize = 1000;

fn id_of(token: &[u8]) -> usize {
    VOCABULARY.with_borrow_mut(|words| {
        let place = words.iter().position(|word| word == token).unwrap_or_else(|| {
            words.push(token.to_vec());
            words.len() - 1
        });
        FIRST_ID + place
    })
}

fn token_of(id: usize) -> Vec<u8> {
    VOCABULARY.with_borrow(|words| words[id - FIRST_ID].clone())
}

impl Engine {
    pub(super) fn new(text: &str, template: Template) -> Self {
        Self { tokens: tokenize(text), template, reasoning: false, id: "first".into(), drift: None }
    }

    fn text(&self) -> Vec<u8> {
        self.tokens.concat()
    }

    /// Answers a chat or completion request with a status and, for 200, with its events.
    pub(super) fn answer(&self, path: &str, body: &[u8]) -> Result<Vec<String>, (u16, String)> {
        let body: Value = serde_json::from_slice(body).unwrap();
        let chat = path == "/v1/chat/completions";
        let prefix = if chat { self.chat_prefix(&body)? } else { self.completion_prefix(&body) };
        let max = body["max_completion_tokens"].as_u64().or(body["max_tokens"].as_u64()).unwrap_or(if chat { 1000 } else { 16 });
        assert!(max > 0, "max_tokens: 0 is a 400");
        Ok(self.events(&body, chat, &prefix, usize::try_from(max).unwrap()))
    }

    fn chat_prefix(&self, body: &Value) -> Result<Vec<u8>, (u16, String)> {
        if body["continue_final_message"] != true {
            return Ok(Vec::new());
        }
        assert_eq!(body["add_generation_prompt"], false, "the default is a 400");
        let last = body["messages"].as_array().unwrap().last().unwrap();
        assert_eq!(last["role"], "assistant");
        let content = last["content"].as_str().unwrap();
        match self.template {
            Template::Plain => Ok(content.as_bytes().to_vec()),
            Template::Trim => Ok(content.trim().as_bytes().to_vec()),
            Template::Strip if content.contains("</think>") => Err((
                400,
                json!({"error":{"message":"continue_final_message is set but the final message does not appear in the chat after applying the chat template! ...","type":"BadRequestError","param":null,"code":400}}).to_string(),
            )),
            Template::Strip => Ok(content.as_bytes().to_vec()),
        }
    }

    fn completion_prefix(&self, body: &Value) -> Vec<u8> {
        if let Some(prompt) = body["prompt"].as_str() {
            return prompt.strip_prefix("PROMPT").unwrap().as_bytes().to_vec();
        }
        let ids: Vec<usize> = body["prompt"].as_array().unwrap().iter().map(|id| usize::try_from(id.as_u64().unwrap()).unwrap()).collect();
        ids[usize::try_from(PROMPT_TOKENS).unwrap()..].iter().flat_map(|id| token_of(*id)).collect()
    }

    /// The events of an answer that goes on behind `prefix`.
    fn events(&self, body: &Value, chat: bool, prefix: &[u8], max: usize) -> Vec<String> {
        let text = self.text();
        let common = text.starts_with(prefix);
        // A prefix that is no start of the text, such as one that lost its last line break, goes on otherwise.
        let tokens: Vec<Vec<u8>> = if common { retokenize(&self.tokens, prefix.len()) } else { vec![b"?".to_vec(); 3] };
        let mut writer = Writer::new(self, body, chat, prefix);
        let mut sent = tokens.len().min(max);
        for (place, token) in tokens.iter().take(max).enumerate() {
            let drifted = self.drift.is_some_and(|from| self.tokens.len() - tokens.len() + place >= from);
            let token = if drifted { b"#" } else { token.as_slice() };
            let last = place + 1 == max;
            if writer.token(token, last.then_some("length")) {
                let prompt = PROMPT_TOKENS + u64::try_from(tokenize(std::str::from_utf8(prefix).unwrap()).len()).unwrap();
                return writer.end(prompt, u64::try_from(place + 1).unwrap());
            }
        }
        if tokens.len() < max {
            writer.token(b"", Some("stop"));
            sent += 1;
        }
        let prompt = PROMPT_TOKENS + u64::try_from(tokenize(std::str::from_utf8(prefix).unwrap()).len()).unwrap();
        writer.end(prompt, u64::try_from(sent).unwrap())
    }

    /// The answer of `/tokenize`.
    pub(super) fn count(&self, body: &[u8]) -> String {
        let body: Value = serde_json::from_slice(body).unwrap();
        let ids = |text: &str| tokenize(text).iter().map(|token| id_of(token)).collect::<Vec<_>>();
        let prompt: Vec<usize> = (0..usize::try_from(PROMPT_TOKENS).unwrap()).collect();
        let tokens = match body["prompt"].as_str() {
            Some("PROMPT") => prompt,
            Some(text) => ids(text),
            None if body["continue_final_message"] == true => {
                let kept = self.chat_prefix(&body).unwrap_or_default();
                [prompt, ids(std::str::from_utf8(&kept).unwrap())].concat()
            }
            None => prompt,
        };
        json!({"count": tokens.len(), "max_model_len": 2048, "tokens": tokens, "token_strs": null}).to_string()
    }
}

/// The tokens behind the first `at` bytes; a token cut in two gives its rest.
fn retokenize(tokens: &[Vec<u8>], at: usize) -> Vec<Vec<u8>> {
    let mut left = at;
    let mut rest = Vec::new();
    for token in tokens {
        let skip = left.min(token.len());
        left -= skip;
        if skip < token.len() {
            rest.push(token[skip..].to_vec());
        }
    }
    rest
}

/// Writes vLLM's events.
struct Writer<'a> {
    engine: &'a Engine,
    chat: bool,
    usage: bool,
    ids: bool,
    stop: String,
    /// Bytes of a character that is not whole.
    held: Vec<u8>,
    /// Text that may be the start of the stop string.
    lag: String,
    /// All that the model has written, prefix included.
    written: Vec<u8>,
    events: Vec<String>,
}

impl<'a> Writer<'a> {
    fn new(engine: &'a Engine, body: &Value, chat: bool, prefix: &[u8]) -> Self {
        let ids = body["return_token_ids"] == true;
        let usage = body["stream_options"]["include_usage"] == true;
        let stop = body["stop"][0].as_str().unwrap_or_default().to_owned();
        let mut writer =
            Self { engine, chat, usage, ids, stop, held: Vec::new(), lag: String::new(), written: prefix.to_vec(), events: Vec::new() };
        let prompt_ids = if ids { json!((0..PROMPT_TOKENS).collect::<Vec<_>>()) } else { Value::Null };
        if chat {
            let choice = json!([{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]);
            writer.push(choice, json!({"prompt_token_ids": prompt_ids, "prompt_text": null}));
        }
        writer
    }

    fn push(&mut self, choices: Value, more: Value) {
        let object = if self.chat { "chat.completion.chunk" } else { "text_completion" };
        let id = &self.engine.id;
        let mut event = json!({"id": id, "object": object, "created": id.len(), "model": "tiny", "choices": choices});
        event.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        self.events.push(format!("data: {event}\n\n"));
    }

    /// `true`: the stop string was found and the answer has ended.
    fn token(&mut self, token: &[u8], mut finish: Option<&str>) -> bool {
        self.held.extend_from_slice(token);
        let text = match std::str::from_utf8(&self.held) {
            Ok(text) => text.to_owned(),
            Err(_) => String::new(),
        };
        if !text.is_empty() {
            self.held.clear();
        }
        self.lag.push_str(&text);
        let stopped = !self.stop.is_empty() && self.lag.contains(&self.stop);
        let text = if stopped {
            finish = Some("stop");
            self.lag.split(&self.stop).next().unwrap_or_default().to_owned()
        } else {
            let held = if finish.is_some() { 0 } else { self.stop.chars().count().saturating_sub(1) };
            let shown = self.lag.chars().count().saturating_sub(held);
            self.lag.chars().take(shown).collect()
        };
        self.lag.drain(..text.len());
        let ids = if self.ids && !token.is_empty() { json!([id_of(token)]) } else { Value::Null };
        let mut choice = json!({"index":0,"logprobs":null,"finish_reason":finish,"token_ids":ids});
        let delta = self.delta(&text);
        let fields = choice.as_object_mut().unwrap();
        if self.chat {
            fields.insert("delta".into(), delta);
        } else {
            fields.insert("text".into(), json!(text));
            let first = self.events.is_empty() && self.ids;
            let prompt = if first { json!((0..PROMPT_TOKENS).collect::<Vec<_>>()) } else { Value::Null };
            fields.insert("prompt_token_ids".into(), prompt);
        }
        self.written.extend_from_slice(text.as_bytes());
        let fingerprint = finish.is_some() && !self.usage;
        self.push(json!([choice]), if fingerprint { json!({"system_fingerprint": "fp"}) } else { json!({}) });
        stopped
    }

    /// Files text under `reasoning` or `content` as the parser does; marks are never shown.
    fn delta(&self, text: &str) -> Value {
        if !self.engine.reasoning {
            return json!({"content": text});
        }
        let all = String::from_utf8_lossy(&self.written).into_owned() + text;
        let (before, now) = (split_reasoning(std::str::from_utf8(&self.written).unwrap()), split_reasoning(&all));
        match (&now.0[before.0.len()..], &now.1[before.1.len()..]) {
            (reasoning, "") => json!({"reasoning": reasoning}),
            ("", content) => json!({"content": content}),
            (reasoning, content) => json!({"reasoning": reasoning, "content": content}),
        }
    }

    fn end(mut self, prompt: u64, completion: u64) -> Vec<String> {
        if self.usage {
            let usage = json!({"prompt_tokens": prompt, "total_tokens": prompt + completion, "completion_tokens": completion});
            self.push(json!([]), json!({"usage": usage, "system_fingerprint": "fp"}));
        }
        self.events.push("data: [DONE]\n\n".into());
        self.events
    }
}

/// What a reasoning parser shows of a text; half marks are held back.
pub(super) fn split_reasoning(text: &str) -> (String, String) {
    let shown = |text: &str, mark: &str| {
        let held = (1..mark.len()).rev().find(|len| text.ends_with(&mark[..*len])).unwrap_or(0);
        text[..text.len() - held].to_owned()
    };
    match text.split_once("</think>") {
        Some((reasoning, content)) => (reasoning.trim_start_matches("<think>").to_owned(), content.to_owned()),
        None => {
            (shown(text.strip_prefix("<think>").unwrap_or(if "<think>".starts_with(text) { "" } else { text }), "</think>"), String::new())
        }
    }
}
