//! One event's JSON as the chat and completion streams write it: choices with what each adds.
//!
//! Owns the names of fields in an event. It detects by fields and assumes no engine and no version. It keeps nothing;
//! `journal` does.

use std::borrow::Cow;

use serde_json::value::RawValue;
use smallvec::SmallVec;

use super::json::{self, Object};
use super::shape::Field;

/// One event.
#[derive(Debug)]
pub(super) struct Chunk<'a> {
    /// All top-level fields.
    pub(super) top: Object<'a>,
    /// One entry for each element of `choices`.
    pub(super) choices: SmallVec<[Choice<'a>; 1]>,
}

/// What an event says of one choice.
#[derive(Debug)]
pub(super) struct Choice<'a> {
    /// All fields of the choice.
    pub(super) object: Object<'a>,
    /// Its `index`, 0 if it has none.
    pub(super) index: u32,
    /// All fields of its `delta` (empty for completions).
    pub(super) delta: Object<'a>,
    /// New answer text in its escaped form.
    pub(super) content: Option<&'a str>,
    /// New reasoning text in its escaped form, under either of its names.
    pub(super) reasoning: Option<&'a str>,
    /// New pieces of tool calls.
    pub(super) tools: SmallVec<[ToolDelta<'a>; 1]>,
    /// Why it ended, if it did.
    pub(super) finish: Option<Cow<'a, str>>,
    /// It has content that we have no name for: it cannot be carried on.
    pub(super) odd: bool,
}

/// A piece of one tool call.
#[derive(Debug)]
pub(super) struct ToolDelta<'a> {
    /// All its fields.
    pub(super) object: Object<'a>,
    /// Which call of the choice.
    pub(super) index: u32,
    /// The function's name, sent once.
    pub(super) name: Option<Cow<'a, str>>,
    /// A piece of the arguments in its escaped form.
    pub(super) arguments: Option<&'a str>,
}

impl<'a> Chunk<'a> {
    /// `None` if `data` is no object or has an unknown build.
    pub(super) fn parse(data: &'a [u8]) -> Option<Self> {
        let top = Object::parse(data)?;
        let mut choices = SmallVec::new();
        if let Some(list) = top.get("choices") {
            for raw in json::list(list)? {
                choices.push(Choice::parse(raw)?);
            }
        }
        Some(Self { top, choices })
    }

    /// The `error` of an error event, in any of its forms: a truthy `error`, or an object that calls itself an error.
    pub(super) fn error(&self) -> Option<&'a RawValue> {
        let truthy = |raw: &&RawValue| !matches!(raw.get(), "false" | "0" | "\"\"" | "{}" | "[]");
        self.top.get("error").filter(truthy).or_else(|| {
            let word = |key| self.top.text(key).is_some_and(|text| text == "error");
            if self.choices.is_empty() && (word("object") || word("type")) { self.top.get("message") } else { None }
        })
    }

    /// The text of an event that has nothing but it: which choice, where it belongs, its escaped form.
    pub(super) fn only_text(&self) -> Option<(u32, Field, &'a str)> {
        let [choice] = &self.choices[..] else { return None };
        let silent = |key| choice.object.get(key).is_none();
        let twice = REASONING.iter().all(|name| choice.delta.get(name).is_some());
        let usual = silent("logprobs") && silent("token_ids") && choice.finish.is_none();
        if !usual || twice || choice.odd || self.top.get("usage").is_some() {
            return None;
        }
        let (field, text) = match (choice.content, choice.reasoning, &choice.tools[..]) {
            (Some(text), None, []) => (Field::Content, text),
            (None, Some(text), []) => (Field::Reasoning, text),
            (None, None, [tool]) if tool.name.is_none() => (Field::Arguments(tool.index), tool.arguments?),
            _ => return None,
        };
        Some((choice.index, field, text))
    }

    /// Whether some choice says that the engine gave up.
    pub(super) fn aborted(&self) -> bool {
        self.choices.iter().any(|choice| choice.finish.as_deref() == Some("abort"))
    }
}

impl<'a> Choice<'a> {
    fn parse(raw: &'a RawValue) -> Option<Self> {
        let object = Object::of(raw)?;
        let delta = object.object("delta").unwrap_or_default();
        let tools = match delta.get("tool_calls") {
            Some(list) => json::list(list)?.into_iter().map(ToolDelta::parse).collect::<Option<_>>()?,
            None => SmallVec::new(),
        };
        let (content, reasoning) = (string(&delta, "content"), reasoning(&delta));
        let text = string(&object, "text");
        let odd = has_unknown(&delta) || content.is_err() || reasoning.is_err() || text.is_err();
        Some(Self {
            index: u32::try_from(object.number("index").unwrap_or(0)).ok()?,
            content: content.ok().flatten().or(text.ok().flatten()),
            reasoning: reasoning.ok().flatten(),
            finish: object.text("finish_reason"),
            tools,
            odd,
            delta,
            object,
        })
    }

    /// Adds text, reasoning or a piece of a tool call.
    pub(super) fn adds(&self) -> bool {
        let some = |text: Option<&str>| text.is_some_and(|text| !text.is_empty());
        some(self.content) || some(self.reasoning) || !self.tools.is_empty()
    }
}

impl<'a> ToolDelta<'a> {
    fn parse(raw: &'a RawValue) -> Option<Self> {
        let object = Object::of(raw)?;
        let function = object.object("function").unwrap_or_default();
        let arguments = match function.get("arguments") {
            Some(raw) => Some(json::escaped(raw)?),
            None => None,
        };
        let index = u32::try_from(object.number("index").unwrap_or(0)).ok()?;
        Some(Self { index, name: function.text("name"), arguments, object })
    }
}

/// Names under which engines send reasoning.
pub(super) const REASONING: [&str; 2] = ["reasoning", "reasoning_content"];

/// Some engines send both names with the same text: the first counts.
fn reasoning<'a>(delta: &Object<'a>) -> Result<Option<&'a str>, ()> {
    for name in REASONING {
        if let Some(text) = string(delta, name)? {
            return Ok(Some(text));
        }
    }
    Ok(None)
}

fn string<'a>(object: &Object<'a>, name: &str) -> Result<Option<&'a str>, ()> {
    object.get(name).map(|raw| json::escaped(raw).ok_or(())).transpose()
}

fn has_unknown(delta: &Object<'_>) -> bool {
    let known = |name: &str| matches!(name, "role" | "content" | "tool_calls") || REASONING.contains(&name);
    delta.fields().any(|(name, raw)| !known(name) && !matches!(raw.get(), "null" | "[]" | "\"\""))
}
