//! An answer as a client saw it: its events put together, and everything odd on the way.
//!
//! Owns: the client's own reading of the protocol. Must not: know what should have come (`judge` does).

use loadtest::sse::{Item, SseReader};
use serde_json::Value;

/// One choice.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Choice {
    /// Content put together.
    pub(crate) content: String,
    /// `finish_reason`.
    pub(crate) finish: Option<String>,
    roles: usize,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    reader: SseReader,
    /// By index.
    pub(crate) choices: Vec<Choice>,
    /// Prompt and completion tokens.
    pub(crate) usage: Option<(u64, u64)>,
    /// `[DONE]` came.
    pub(crate) mark: bool,
    /// `code` or `type` of an error event, or of an error answer.
    pub(crate) error: Option<String>,
    /// What no client should have to see.
    pub(crate) oddities: Vec<String>,
    id: Option<(String, u64)>,
}

impl Heard {
    /// Takes bytes of a stream.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        let mut items = Vec::new();
        if self.reader.push(bytes, &mut items).is_err() {
            self.odd("bytes that are no events");
        }
        for item in items {
            if let Item::Event { data, .. } = item {
                self.event(&data);
            }
        }
    }

    /// Takes a whole answer that is no stream.
    pub(crate) fn object(&mut self, bytes: &[u8]) {
        match serde_json::from_slice::<Value>(bytes) {
            Ok(value) => self.value(&value, "message"),
            Err(_) => self.odd("a body that is no JSON"),
        }
    }

    /// Every choice has a finish, and there is one.
    pub(crate) fn finished(&self) -> bool {
        !self.choices.is_empty() && self.choices.iter().all(|choice| choice.finish.as_deref().is_some_and(|finish| finish != "abort"))
    }

    fn event(&mut self, data: &str) {
        if self.mark || self.error.is_some() {
            self.odd(format!("an event behind the end: {data}"));
        }
        if data == "[DONE]" {
            self.mark = true;
            return;
        }
        match serde_json::from_str::<Value>(data) {
            Ok(value) => self.value(&value, "delta"),
            Err(_) => self.odd(format!("an event that is no JSON: {data}")),
        }
    }

    fn value(&mut self, value: &Value, message: &str) {
        if let Some(error) = value.get("error").filter(|error| !error.is_null()) {
            let word = error.get("code").filter(|code| code.is_string()).or(error.get("type")).and_then(Value::as_str);
            self.error = Some(word.unwrap_or("?").to_owned());
            return;
        }
        self.identity(value);
        let count = |name: &str| value.get("usage").and_then(|usage| usage.get(name)).and_then(Value::as_u64);
        self.usage = count("prompt_tokens").zip(count("completion_tokens")).or(self.usage);
        for choice in value.get("choices").and_then(Value::as_array).into_iter().flatten() {
            self.choice(choice, choice.get(message));
        }
    }

    fn identity(&mut self, value: &Value) {
        let id = value.get("id").and_then(Value::as_str).unwrap_or_default().to_owned();
        let now = (id, value.get("created").and_then(Value::as_u64).unwrap_or(0));
        if self.id.as_ref().is_some_and(|first| *first != now) {
            self.odd(format!("id or created changed to {now:?}"));
        }
        self.id.get_or_insert(now);
    }

    fn choice(&mut self, choice: &Value, message: Option<&Value>) {
        let at = choice.get("index").and_then(Value::as_u64).and_then(|at| usize::try_from(at).ok()).unwrap_or(0).min(16);
        if self.choices.len() <= at {
            self.choices.resize_with(at + 1, Choice::default);
        }
        let content = message.and_then(|message| message.get("content")).or(choice.get("text"));
        let content = content.and_then(Value::as_str).unwrap_or_default();
        let role = message.is_some_and(|message| message.get("role").is_some());
        let heard = &mut self.choices[at];
        let late = heard.finish.is_some() && !content.is_empty();
        heard.content.push_str(content);
        heard.roles += usize::from(role);
        if let Some(finish) = choice.get("finish_reason").and_then(Value::as_str) {
            heard.finish = Some(finish.to_owned());
        }
        let second = role && heard.roles > 1;
        if second {
            self.odd("a second role event");
        }
        if late {
            self.odd("text behind a finish");
        }
    }

    fn odd(&mut self, what: impl Into<String>) {
        if self.oddities.len() < 8 {
            self.oddities.push(what.into());
        }
    }
}
