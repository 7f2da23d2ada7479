//! What a request asks for, as far as carrying its answer on depends on it.
//!
//! Read from the body at a break only: while a stream runs well its request is never parsed for this. Owns the names of
//! request fields; which way follows from them is `ways`' decision.

use super::json::{self, Object};
use super::route::Route;
use serde_json::value::RawValue;

/// How the next token is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sampling {
    /// `temperature: 0` or `top_k: 1`.
    Greedy,
    /// Sampled with a seed: the same request gives the same text.
    Seeded,
    /// Sampled. No `temperature` is not greedy.
    Free,
}

/// The prompt of a completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Prompt {
    /// One text.
    Text,
    /// One list of token ids.
    Ids,
    /// Several prompts, embeddings, or something unknown.
    Other,
}

/// What a request asks for.
#[derive(Debug, Clone)]
pub(super) struct Facts {
    /// How tokens are chosen.
    pub(super) sampling: Sampling,
    /// Something that only the whole request again carries exactly: a grammar, penalties, several choices, …
    pub(super) replay_only: bool,
    /// Stop strings: text is held back behind the tokens.
    pub(super) stop: bool,
    /// Tools that the model may call.
    pub(super) tools: bool,
    /// `logprobs` were asked for.
    pub(super) logprobs: bool,
    /// The answer repeats the prompt.
    pub(super) echo: bool,
    /// Parts other than text, in or out.
    pub(super) multimodal: bool,
    /// Tokens to generate at most, if given; completions have a default.
    pub(super) max_tokens: Option<u64>,
    /// Tokens to generate at least.
    pub(super) min_tokens: u64,
    /// The client wants a usage event at the end.
    pub(super) include_usage: bool,
    /// The client wants usage in some event.
    pub(super) usage: bool,
    /// The client continues a message of its own.
    pub(super) continues: bool,
    /// The form of a completion's prompt.
    pub(super) prompt: Prompt,
    /// Options for the chat template: it may treat a continued message in its own way.
    pub(super) template_options: bool,
}

impl Facts {
    /// `None` if the body is no JSON object, or has not what its route needs.
    pub(super) fn read(route: Route, body: &Object<'_>) -> Option<Self> {
        let options = body.object("stream_options").unwrap_or_default();
        let continues = body.flag("continue_final_message");
        if route == Route::Chat {
            body.get("messages")?;
        }
        Some(Self {
            sampling: sampling(body),
            replay_only: replay_only(body, route),
            stop: is_set(body, "stop"),
            tools: is_set(body, "tools") && body.text("tool_choice").as_deref() != Some("none"),
            logprobs: body.get("logprobs").is_some_and(|raw| raw.get() != "false"),
            echo: body.flag("echo"),
            multimodal: multimodal(body),
            max_tokens: max_tokens(body, route),
            min_tokens: body.number("min_tokens").unwrap_or(0),
            include_usage: options.flag("include_usage"),
            usage: options.flag("include_usage") || options.flag("continuous_usage_stats"),
            continues,
            prompt: prompt(body),
            template_options: is_set(body, "chat_template_kwargs") || is_set(body, "reasoning_effort"),
        })
    }

    /// Whether the same request must give the same text again.
    pub(super) fn repeatable(&self) -> bool {
        self.sampling != Sampling::Free
    }

    /// Whether the tokens already sent must be counted to carry the answer on within another request.
    pub(super) fn counts_tokens(&self) -> bool {
        self.max_tokens.is_some() || self.min_tokens > 0 || self.usage || self.logprobs
    }
}

/// The limit of completions that name none, in the API and in its engines.
const COMPLETION_DEFAULT: u64 = 16;

fn max_tokens(body: &Object<'_>, route: Route) -> Option<u64> {
    let default = (route == Route::Completions && !body.has("max_tokens")).then_some(COMPLETION_DEFAULT);
    body.number("max_completion_tokens").or_else(|| body.number("max_tokens")).or(default)
}

fn sampling(body: &Object<'_>) -> Sampling {
    // The engine takes temperatures below 1e-5 for greedy.
    let cold = body.float("temperature").is_some_and(|temperature| temperature < 1e-5);
    if cold || body.number("top_k") == Some(1) {
        Sampling::Greedy
    } else if body.get("seed").is_some() {
        Sampling::Seeded
    } else {
        Sampling::Free
    }
}

/// Fields under which an engine's state depends on what it generated itself, so that a rest in another request differs.
const STATEFUL: [&str; 16] = [
    "guided_json",
    "guided_regex",
    "guided_choice",
    "guided_grammar",
    "structured_outputs",
    "structural_tag",
    "regex",
    "ebnf",
    "json_schema",
    "logits_processors",
    "custom_logit_processor",
    "thinking_token_budget",
    "truncate_prompt_tokens",
    "prompt_logprobs",
    "suffix",
    "prompt_embeds",
];

fn replay_only(body: &Object<'_>, route: Route) -> bool {
    let nonzero = |key| body.float(key).is_some_and(|value| value != 0.0);
    let several = |key| body.number(key).is_some_and(|value| value > 1);
    let format = body.object("response_format").is_some_and(|format| format.text("type").as_deref() != Some("text"));
    let forced = body.get("tool_choice").is_some_and(|raw| !matches!(raw.get(), "\"auto\"" | "\"none\""));
    let hidden = body.get("include_reasoning").is_some_and(|raw| raw.get() == "false");
    let own_prompt = body.get("add_generation_prompt").is_some_and(|raw| raw.get() == "false") && !body.flag("continue_final_message");
    let completion = route == Route::Completions && (body.get("logprobs").is_some() || prompt(body) == Prompt::Other);
    STATEFUL.iter().any(|key| is_set(body, key))
        || nonzero("presence_penalty")
        || nonzero("frequency_penalty")
        || several("n")
        || several("best_of")
        || body.flag("use_beam_search")
        || body.flag("return_token_ids")
        || is_set(body, "functions")
        || format
        || forced
        || hidden
        || own_prompt
        || completion
}

fn is_set(body: &Object<'_>, key: &str) -> bool {
    body.get(key).is_some_and(|raw| !matches!(raw.get(), "false" | "[]" | "{}" | "\"\"" | "-1"))
}

fn prompt(body: &Object<'_>) -> Prompt {
    match body.get("prompt").map(RawValue::get) {
        Some(raw) if raw.starts_with('"') => Prompt::Text,
        Some(raw) if raw.starts_with('[') && serde_json::from_str::<Vec<u32>>(raw).is_ok_and(|ids| !ids.is_empty()) => Prompt::Ids,
        _ => Prompt::Other,
    }
}

/// A message part other than text, or an answer that is not only text.
fn multimodal(body: &Object<'_>) -> bool {
    let spoken = is_set(body, "audio")
        || body.get("modalities").and_then(json::list).is_some_and(|list| list.iter().any(|kind| kind.get() != "\"text\""));
    let messages = body.get("messages").and_then(json::list).unwrap_or_default();
    spoken || messages.iter().filter_map(|raw| Object::of(raw)).any(|message| has_other_parts(&message))
}

fn has_other_parts(message: &Object<'_>) -> bool {
    let Some(parts) = message.get("content").filter(|raw| raw.get().starts_with('[')) else { return false };
    json::list(parts).unwrap_or_default().iter().any(|part| match Object::of(part) {
        Some(part) => part.text("type").is_none_or(|kind| !matches!(kind.as_ref(), "text" | "input_text" | "output_text" | "refusal")),
        None => !part.get().starts_with('"'),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(fields: &str) -> Facts {
        let body = format!(r#"{{"model":"tiny","messages":[{{"role":"user","content":"x"}}],"stream":true{fields}}}"#);
        Facts::read(Route::Chat, &Object::parse(body.as_bytes()).unwrap()).unwrap()
    }

    #[test]
    fn no_temperature_is_not_greedy() {
        for (fields, sampling) in [
            ("", Sampling::Free),
            (r#","temperature":1"#, Sampling::Free),
            (r#","temperature":0.7,"seed":5"#, Sampling::Seeded),
            (r#","seed":null"#, Sampling::Free),
            (r#","temperature":0"#, Sampling::Greedy),
            (r#","temperature":0.0,"seed":5"#, Sampling::Greedy),
            (r#","temperature":1e-9"#, Sampling::Greedy),
            (r#","top_k":1"#, Sampling::Greedy),
            (r#","temperature":null"#, Sampling::Free),
        ] {
            assert_eq!(facts(fields).sampling, sampling, "{fields}");
        }
    }

    #[test]
    fn what_only_a_replay_carries() {
        for fields in [
            r#","n":2"#,
            r#","presence_penalty":0.5"#,
            r#","frequency_penalty":-0.5"#,
            r#","response_format":{"type":"json_object"}"#,
            r#","guided_regex":"a+""#,
            r#","tool_choice":"required","tools":[{}]"#,
            r#","tool_choice":{"type":"function","function":{"name":"f"}}"#,
            r#","include_reasoning":false"#,
            r#","add_generation_prompt":false"#,
            r#","use_beam_search":true"#,
            r#","return_token_ids":true"#,
        ] {
            assert!(facts(fields).replay_only, "{fields}");
        }
        for fields in [
            r#","n":1"#,
            r#","presence_penalty":0"#,
            r#","response_format":{"type":"text"}"#,
            r#","repetition_penalty":1.3"#,
            r#","bad_words":["x"],"logit_bias":{"5":1}"#,
            r#","tools":[{"type":"function"}],"tool_choice":"auto""#,
            r#","continue_final_message":true,"add_generation_prompt":false"#,
        ] {
            assert!(!facts(fields).replay_only, "{fields}");
        }
    }

    #[test]
    fn the_last_of_duplicate_keys_counts() {
        assert_eq!(facts(r#","max_tokens":5,"max_tokens":7"#).max_tokens, Some(7));
        assert_eq!(facts(r#","max_tokens":5,"max_completion_tokens":7"#).max_tokens, Some(7));
    }

    #[test]
    fn parts_other_than_text_are_seen() {
        let read = |content: &str| {
            let body = format!(r#"{{"messages":[{{"role":"user","content":{content}}}]}}"#);
            Facts::read(Route::Chat, &Object::parse(body.as_bytes()).unwrap()).unwrap().multimodal
        };
        assert!(!read(r#""x""#));
        assert!(!read(r#"[{"type":"text","text":"x"}]"#));
        assert!(read(r#"[{"type":"text","text":"x"},{"type":"image_url","image_url":{"url":"data:"}}]"#));
        assert!(read(r#"[{"type":"input_audio"}]"#));
    }
}
