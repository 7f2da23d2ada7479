//! An answer as the client saw it: events put together, and everything odd on the way.
//!
//! Knows the form of OpenAI's events, not what they should say. A second role event, an id that changes, an event behind
//! the mark are noted here, since they cannot be seen in the text.

use serde_json::Value;

use super::check::Problem;

/// One choice as it came.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Heard {
    pub(crate) content: String,
    pub(crate) reasoning: String,
    pub(crate) arguments: String,
    pub(crate) tool: Option<String>,
    pub(crate) finish: Option<String>,
    roles: usize,
}

/// What came.
#[derive(Debug, Default)]
pub(crate) struct Transcript {
    pub(crate) choices: Vec<Heard>,
    /// Prompt and completion tokens.
    pub(crate) usage: Option<(u64, u64)>,
    pub(crate) done: bool,
    pub(crate) error: Option<String>,
    pub(crate) problems: Vec<Problem>,
    id: Option<String>,
    created: Option<u64>,
}

/// Choices that are kept at most.
const MAX_CHOICES: usize = 64;

impl Transcript {
    /// Takes the data of one event; true if it carried text.
    pub(crate) fn event(&mut self, data: &str) -> bool {
        if self.done {
            self.note(Problem::AfterDone);
        }
        if data == "[DONE]" {
            self.done = true;
            return false;
        }
        let Ok(value) = serde_json::from_str::<Value>(data) else {
            self.note(Problem::NotJson);
            return false;
        };
        if let Some(error) = value.get("error").filter(|error| !error.is_null()) {
            self.error = Some(error.get("message").and_then(Value::as_str).unwrap_or("").to_owned());
            return false;
        }
        self.same(&value);
        self.count(&value);
        let mut text = false;
        for choice in value.get("choices").and_then(Value::as_array).into_iter().flatten() {
            text |= self.choice(choice, choice.get("delta"));
        }
        text
    }

    /// Takes a whole answer.
    pub(crate) fn object(&mut self, body: &[u8]) {
        let Ok(value) = serde_json::from_slice::<Value>(body) else {
            self.note(Problem::NotJson);
            return;
        };
        self.done = true;
        self.count(&value);
        for choice in value.get("choices").and_then(Value::as_array).into_iter().flatten() {
            self.choice(choice, choice.get("message"));
        }
    }

    /// True if every choice that began has a finish other than `abort`.
    pub(crate) fn is_finished(&self) -> bool {
        let finished = |heard: &Heard| heard.finish.as_deref().is_some_and(|finish| finish != "abort");
        !self.choices.is_empty() && self.choices.iter().all(finished)
    }

    fn choice(&mut self, choice: &Value, message: Option<&Value>) -> bool {
        let index = choice.get("index").and_then(Value::as_u64).and_then(|at| usize::try_from(at).ok()).unwrap_or(0);
        if index >= MAX_CHOICES {
            self.note(Problem::NotJson);
            return false;
        }
        if self.choices.len() <= index {
            self.choices.resize_with(index + 1, Heard::default);
        }
        let heard = &mut self.choices[index];
        let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or("").to_owned();
        let content = text(message.and_then(|message| message.get("content")).or(choice.get("text")));
        let reasoning = text(message.and_then(|message| message.get("reasoning")));
        let call =
            message.and_then(|message| message.get("tool_calls")).and_then(|calls| calls.get(0)).and_then(|call| call.get("function"));
        let arguments = text(call.and_then(|call| call.get("arguments")));
        let spoke = !content.is_empty() || !reasoning.is_empty() || call.is_some();
        let late = heard.finish.is_some() && spoke;
        heard.content.push_str(&content);
        heard.reasoning.push_str(&reasoning);
        heard.arguments.push_str(&arguments);
        if let Some(name) = call.and_then(|call| call.get("name")).and_then(Value::as_str) {
            heard.tool = Some(name.to_owned());
        }
        if let Some(finish) = choice.get("finish_reason").and_then(Value::as_str) {
            heard.finish = Some(finish.to_owned());
        }
        heard.roles += usize::from(message.is_some_and(|message| message.get("role").is_some()));
        let roles = heard.roles;
        if roles > 1 {
            self.note(Problem::SecondRole);
        }
        if late {
            self.note(Problem::AfterFinish);
        }
        spoke
    }

    fn same(&mut self, value: &Value) {
        let id = value.get("id").and_then(Value::as_str).unwrap_or("");
        let created = value.get("created").and_then(Value::as_u64).unwrap_or(0);
        let changed = self.id.as_deref().is_some_and(|first| first != id) || self.created.is_some_and(|first| first != created);
        if changed {
            self.note(Problem::IdentityChanged);
        }
        if self.id.is_none() {
            (self.id, self.created) = (Some(id.to_owned()), Some(created));
        }
    }

    fn count(&mut self, value: &Value) {
        let usage = value.get("usage");
        let count = |name: &str| usage.and_then(|usage| usage.get(name)).and_then(Value::as_u64);
        if let (Some(prompt), Some(completion)) = (count("prompt_tokens"), count("completion_tokens")) {
            self.usage = Some((prompt, completion));
        }
    }

    pub(crate) fn note(&mut self, problem: Problem) {
        if !self.problems.contains(&problem) {
            self.problems.push(problem);
        }
    }
}
