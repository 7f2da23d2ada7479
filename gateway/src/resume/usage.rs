//! Token counts of an answer that came from more than one leader.
//!
//! The client sees the usage of one request: the prompt counted once, the completions summed. Owns that sum and nothing
//! else; where the count of kept tokens comes from is `tokens`' business.

use super::json::{Object, Writer};

/// The counts of a `usage` object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Usage {
    /// `prompt_tokens`.
    pub(super) prompt: u64,
    /// `completion_tokens`.
    pub(super) completion: u64,
    /// `total_tokens`.
    pub(super) total: u64,
    /// `completion_tokens_details.reasoning_tokens`, if there is a reasoning parser.
    pub(super) reasoning: Option<u64>,
}

impl Usage {
    /// The usage of an event, if it has one.
    pub(super) fn read(top: &Object<'_>) -> Option<Self> {
        let usage = top.object("usage")?;
        let prompt = usage.number("prompt_tokens")?;
        let completion = usage.number("completion_tokens").unwrap_or(0);
        let reasoning = usage.object("completion_tokens_details").and_then(|details| details.number("reasoning_tokens"));
        Some(Self { prompt, completion, reasoning, total: usage.number("total_tokens").unwrap_or(prompt.saturating_add(completion)) })
    }

    /// A whole object in the order that vLLM uses.
    pub(super) fn write(self, out: Vec<u8>) -> Vec<u8> {
        let mut writer = Writer::new(out);
        writer.number("prompt_tokens", self.prompt);
        writer.number("total_tokens", self.total);
        writer.number("completion_tokens", self.completion);
        if let Some(reasoning) = self.reasoning {
            writer.raw("completion_tokens_details", &format!(r#"{{"reasoning_tokens":{reasoning}}}"#));
        }
        writer.finish()
    }
}

/// What must be moved from the prompt of a resumed request to its completion.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Moved {
    /// Tokens that the resumed request has in its prompt and the client as completion.
    pub(super) prompt_part: u64,
    /// The same text as tokens of the completion: another number only where tokens were cut apart.
    pub(super) completion_part: u64,
    /// As many of them as were reasoning.
    pub(super) reasoning: u64,
    /// The first request's prompt, if it is known.
    pub(super) prompt: Option<u64>,
}

impl Moved {
    /// The `usage` object of one event, rewritten; other fields stay as they are.
    pub(super) fn rewrite(self, usage: &Object<'_>, out: Vec<u8>) -> Vec<u8> {
        let number = |key| usage.number(key).unwrap_or(0);
        let prompt = self.prompt.unwrap_or_else(|| number("prompt_tokens").saturating_sub(self.prompt_part));
        let completion = number("completion_tokens").saturating_add(self.completion_part);
        let mut writer = Writer::new(out);
        for (name, raw) in usage.fields() {
            match name {
                "prompt_tokens" => writer.number(name, prompt),
                "completion_tokens" => writer.number(name, completion),
                "total_tokens" => writer.number(name, prompt.saturating_add(completion)),
                "completion_tokens_details" => match Object::of(raw) {
                    Some(details) => self.rewrite_details(&details, &mut writer),
                    None => writer.raw(name, raw.get()),
                },
                _ => writer.raw(name, raw.get()),
            }
        }
        writer.finish()
    }

    fn rewrite_details(self, details: &Object<'_>, writer: &mut Writer) {
        let out = writer.name("completion_tokens_details");
        let mut inner = Writer::new(std::mem::take(out));
        for (name, raw) in details.fields() {
            match (name, raw.get().parse::<u64>()) {
                ("reasoning_tokens", Ok(tokens)) => inner.number(name, tokens.saturating_add(self.reasoning)),
                _ => inner.raw(name, raw.get()),
            }
        }
        *out = inner.finish();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(moved: Moved, usage: &str, expect: &str) {
        let object = Object::parse(usage.as_bytes()).unwrap();
        assert_eq!(String::from_utf8(moved.rewrite(&object, Vec::new())).unwrap(), expect);
    }

    #[test]
    fn the_prompt_is_counted_once() {
        // First request 29 + 120; resumed after 40 tokens the engine says 69 + 80.
        check(
            Moved { prompt_part: 40, completion_part: 40, ..Moved::default() },
            r#"{"prompt_tokens":69,"total_tokens":149,"completion_tokens":80}"#,
            r#"{"prompt_tokens":29,"total_tokens":149,"completion_tokens":120}"#,
        );
    }

    #[test]
    fn a_known_prompt_wins() {
        check(
            Moved { prompt_part: 41, completion_part: 40, prompt: Some(29), ..Moved::default() },
            r#"{"prompt_tokens":69,"total_tokens":149,"completion_tokens":80}"#,
            r#"{"prompt_tokens":29,"total_tokens":149,"completion_tokens":120}"#,
        );
    }

    #[test]
    fn reasoning_is_summed_and_other_fields_stay() {
        check(
            Moved { prompt_part: 10, completion_part: 10, reasoning: 7, prompt: None },
            r#"{"prompt_tokens":20,"total_tokens":25,"completion_tokens":5,"completion_tokens_details":{"reasoning_tokens":3},"x":null}"#,
            r#"{"prompt_tokens":10,"total_tokens":25,"completion_tokens":15,"completion_tokens_details":{"reasoning_tokens":10},"x":null}"#,
        );
    }
}
