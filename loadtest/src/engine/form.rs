//! What kind of text an answer is: sentences, a record, a tool call.
//!
//! Read from the request and from markers in the prompt. Pure; `job` decides where in the text an answer begins.

use super::ask::Ask;
use super::persona::Persona;
use super::template::Split;
use crate::text::{Kind, Script, arguments, mix, record, thought};

/// How far from the end of the prompt markers are looked for.
const MARKERS_WITHIN: usize = 4096;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Form {
    Sentences { kind: Kind, count: Option<usize>, lead: Lead },
    Record,
    ToolCall { name: String },
}

/// What comes before the sentences.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lead {
    Nothing,
    Thought,
    /// White space, which a trimming template takes from the beginning of a prefix too.
    Blank,
}

impl Form {
    /// What the request, the model and the markers in the prompt ask for.
    pub(crate) fn of(ask: &Ask, persona: &Persona, split: &Split) -> Self {
        if ask.grammar {
            return Form::Record;
        }
        let tail = tail_of(&split.conversation);
        if let Some(tools) = &ask.tools
            && (tools.required || tail.to_lowercase().contains("tool"))
        {
            return Form::ToolCall { name: tools.name.clone() };
        }
        let kind = marker(tail, "#kind=").and_then(Kind::by_name).unwrap_or(persona.kind);
        let count = marker(tail, "#sentences=").and_then(|count| count.parse().ok());
        let lead = match persona.thinking && !tail.contains("#nothink") {
            true => Lead::Thought,
            false if tail.contains("#blank") => Lead::Blank,
            false => Lead::Nothing,
        };
        Form::Sentences { kind, count, lead }
    }

    /// What stray sentences look like.
    pub(crate) fn kind(&self) -> Kind {
        match self {
            Form::Sentences { kind, .. } => *kind,
            Form::Record | Form::ToolCall { .. } => Kind::Prose,
        }
    }

    /// The whole text that belongs to `key`.
    pub(crate) fn script(&self, key: u64) -> Script {
        match self {
            Form::Record => Script::fixed(key, record(key)),
            Form::ToolCall { name } => {
                let call = format!("<tool_call>\n{{\"name\": \"{name}\", \"arguments\": {}}}\n</tool_call>", arguments(key));
                Script::fixed(key, call)
            }
            Form::Sentences { kind, count, lead } => {
                let script = Script::new(key, *kind, *count);
                match lead {
                    Lead::Nothing => script,
                    Lead::Thought => script.in_front(thought(mix(key, 1))),
                    Lead::Blank => script.in_front("\n".to_owned()),
                }
            }
        }
    }
}

fn tail_of(conversation: &str) -> &str {
    let mut from = conversation.len().saturating_sub(MARKERS_WITHIN);
    while !conversation.is_char_boundary(from) {
        from += 1;
    }
    &conversation[from..]
}

fn marker<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let value = &text[text.rfind(name)? + name.len()..];
    let end = value.find(|letter: char| !letter.is_ascii_alphanumeric()).unwrap_or(value.len());
    Some(&value[..end])
}
