//! Request bodies made from the client's: for a rest, and for `/tokenize`.
//!
//! Owns which fields change. All others keep their bytes and their order, so that the engine's prefix cache still hits.

use super::json::{self, Object, Writer};

/// Limits that shrink by what was already generated.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Lowered {
    /// `max_tokens` and `max_completion_tokens`; `None`: as they are.
    pub(super) max: Option<u64>,
    /// `min_tokens`.
    pub(super) min: u64,
}

/// The body with some fields set (in place if they are there, else at the end) and some left out.
struct Edit<'e> {
    set: Vec<(&'e str, String)>,
    leave_out: &'e [&'e str],
}

impl<'e> Edit<'e> {
    fn new(leave_out: &'e [&'e str]) -> Self {
        Self { set: Vec::new(), leave_out }
    }

    fn set(&mut self, name: &'e str, json: impl Into<String>) {
        self.set.push((name, json.into()));
    }

    fn lower(&mut self, body: &Object<'_>, lowered: Lowered) {
        if let Some(max) = lowered.max {
            let chat_name = body.get("max_completion_tokens").is_some();
            if chat_name {
                self.set("max_completion_tokens", max.to_string());
            }
            if !chat_name || body.get("max_tokens").is_some() {
                self.set("max_tokens", max.to_string());
            }
        }
        if body.get("min_tokens").is_some() {
            self.set("min_tokens", lowered.min.to_string());
        }
    }

    fn apply(mut self, body: &Object<'_>) -> Vec<u8> {
        let mut writer = Writer::new(Vec::new());
        let mut written: Vec<&str> = Vec::new();
        for (name, raw) in body.fields() {
            if self.leave_out.contains(&name) || written.contains(&name) {
                continue;
            }
            match self.set.iter().position(|(key, _)| *key == name) {
                Some(place) => {
                    let (key, json) = self.set.remove(place);
                    writer.raw(key, &json);
                    written.push(key);
                }
                None => writer.raw(name, raw.get()),
            }
        }
        for (key, json) in &self.set {
            writer.raw(key, json);
        }
        writer.finish()
    }
}

/// A chat that continues after `kept`. `None` if the messages are of a form that cannot be continued.
pub(super) fn continue_chat(body: &Object<'_>, kept: &str, lowered: Lowered) -> Option<Vec<u8>> {
    let mut edit = Edit::new(&["return_token_ids", "return_prompt_text"]);
    edit.set("messages", messages_with(body, kept)?);
    edit.set("continue_final_message", "true");
    edit.set("add_generation_prompt", "false");
    edit.lower(body, lowered);
    Some(edit.apply(body))
}

/// A completion of prompt and `kept`. `None` if the prompt is not one text.
pub(super) fn continue_completion(body: &Object<'_>, kept: &str, lowered: Lowered) -> Option<Vec<u8>> {
    let mut edit = Edit::new(&["return_token_ids"]);
    edit.set("prompt", quoted(&(body.text("prompt")?.into_owned() + kept)));
    edit.lower(body, lowered);
    Some(edit.apply(body))
}

/// Fields of a chat request that mean nothing, or something else, in a completion.
const CHAT_ONLY: [&str; 17] = [
    "messages",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "response_format",
    "chat_template",
    "chat_template_kwargs",
    "add_generation_prompt",
    "continue_final_message",
    "add_special_tokens",
    "documents",
    "echo",
    "logprobs",
    "top_logprobs",
    "max_completion_tokens",
    "include_reasoning",
    "return_prompt_text",
];

/// What a completion of token ids begins with.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ids<'a> {
    /// The prompt's.
    pub(super) prompt: &'a [u32],
    /// Behind them, the answer's.
    pub(super) generated: &'a [u32],
    /// The events must say the ids of the rest.
    pub(super) ask: bool,
}

/// A completion of token ids; `max` must be given, as the default of completions is small.
pub(super) fn continue_ids(body: &Object<'_>, ids: Ids<'_>, max: u64, min: u64) -> Vec<u8> {
    let mut leave_out = vec!["return_token_ids"];
    if body.has("messages") {
        leave_out.extend(CHAT_ONLY);
    }
    let mut edit = Edit::new(&leave_out);
    let mut prompt = Vec::new();
    json::push_ids(&mut prompt, ids.prompt.iter().chain(ids.generated).copied());
    edit.set("prompt", String::from_utf8(prompt).unwrap_or_default());
    edit.set("max_tokens", max.to_string());
    if ids.ask {
        edit.leave_out = &leave_out[1..];
        edit.set("return_token_ids", "true");
    }
    if body.get("min_tokens").is_some() {
        edit.set("min_tokens", min.to_string());
    }
    edit.apply(body)
}

/// The first request with token ids asked for. `None`: the client asks itself, or the body is no object.
pub(super) fn with_token_ids(body: &[u8]) -> Option<Vec<u8>> {
    let object = Object::parse(body)?;
    if object.get("return_token_ids").is_some() || !object.flag("stream") {
        return None;
    }
    let mut edit = Edit::new(&[]);
    edit.set("return_token_ids", "true");
    Some(edit.apply(&object))
}

/// `/tokenize` of a text by itself.
pub(super) fn tokenize_text(body: &Object<'_>, text: &str) -> Vec<u8> {
    let mut writer = tokenize(body);
    writer.string("prompt", text);
    writer.raw("add_special_tokens", "false");
    writer.finish()
}

/// `/tokenize` of the request's own prompt.
pub(super) fn tokenize_prompt(body: &Object<'_>) -> Option<Vec<u8>> {
    let mut writer = tokenize(body);
    if let Some(prompt) = body.get("prompt") {
        writer.raw("prompt", prompt.get());
        copy(body, &mut writer, &["add_special_tokens"]);
        return Some(writer.finish());
    }
    writer.raw("messages", body.get("messages")?.get());
    copy(body, &mut writer, &["add_generation_prompt", "continue_final_message"]);
    copy(body, &mut writer, &TEMPLATE);
    Some(writer.finish())
}

/// `/tokenize` of the prompt that a chat continued after `kept` would have.
pub(super) fn tokenize_continued(body: &Object<'_>, kept: &str) -> Option<Vec<u8>> {
    let mut writer = tokenize(body);
    writer.raw("messages", &messages_with(body, kept)?);
    writer.raw("continue_final_message", "true");
    writer.raw("add_generation_prompt", "false");
    copy(body, &mut writer, &TEMPLATE);
    Some(writer.finish())
}

/// Fields that change how a template renders.
const TEMPLATE: [&str; 5] = ["tools", "chat_template", "chat_template_kwargs", "add_special_tokens", "mm_processor_kwargs"];

fn tokenize(body: &Object<'_>) -> Writer {
    let mut writer = Writer::new(Vec::new());
    copy(body, &mut writer, &["model"]);
    writer
}

fn copy(body: &Object<'_>, writer: &mut Writer, names: &[&str]) {
    for name in names {
        if let Some(raw) = body.get(name) {
            writer.raw(name, raw.get());
        }
    }
}

/// The messages, and behind them the assistant's `kept`; a message that the client continues itself is made longer.
fn messages_with(body: &Object<'_>, kept: &str) -> Option<String> {
    let raw = body.get("messages")?;
    let messages = json::list(raw)?;
    let (last, before) = messages.split_last()?;
    if !body.flag("continue_final_message") {
        let open = raw.get().trim_end().strip_suffix(']')?;
        return Some(format!(r#"{open},{{"role":"assistant","content":{}}}]"#, quoted(kept)));
    }
    let mut out = String::from("[");
    for message in before {
        out.push_str(message.get());
        out.push(',');
    }
    let last = Object::of(last)?;
    let mut edit = Edit::new(&[]);
    edit.set("content", longer(&last, kept)?);
    out.push_str(std::str::from_utf8(&edit.apply(&last)).ok()?);
    out.push(']');
    Some(out)
}

/// A message's content with `kept` at its end: of a text, or of the last of its text parts.
fn longer(message: &Object<'_>, kept: &str) -> Option<String> {
    let Some(content) = message.get("content") else { return Some(quoted(kept)) };
    if let Some(text) = json::text(content) {
        return Some(quoted(&(text.into_owned() + kept)));
    }
    let parts = json::list(content)?;
    let (last, before) = parts.split_last()?;
    let last = Object::of(last)?;
    let mut edit = Edit::new(&[]);
    edit.set("text", quoted(&(last.text("text")?.into_owned() + kept)));
    let before: String = before.iter().flat_map(|part| [part.get(), ","]).collect();
    Some(format!("[{before}{}]", String::from_utf8(edit.apply(&last)).ok()?))
}

fn quoted(text: &str) -> String {
    let mut out = Vec::new();
    json::push_string(&mut out, text);
    String::from_utf8(out).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(json: &str) -> Object<'_> {
        Object::parse(json.as_bytes()).unwrap()
    }

    fn text(bytes: Vec<u8>) -> String {
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn a_chat_is_continued_behind_a_new_message() {
        let body = parse(r#"{"model":"m", "messages": [ {"role":"user","content":"é\u00e9"} ] ,"max_tokens":9,"stream":true}"#);
        assert_eq!(
            text(continue_chat(&body, "a\n\"b", Lowered { max: Some(5), min: 0 }).unwrap()),
            r#"{"model":"m","messages":[ {"role":"user","content":"é\u00e9"} ,{"role":"assistant","content":"a\n\"b"}],"max_tokens":5,"stream":true,"continue_final_message":true,"add_generation_prompt":false}"#
        );
    }

    #[test]
    fn a_message_that_the_client_continues_is_made_longer() {
        let body = parse(
            r#"{"messages":[{"role":"user","content":"x"},{"role":"assistant","content":"He"}],"continue_final_message":true,"add_generation_prompt":false}"#,
        );
        assert_eq!(
            text(continue_chat(&body, "llo", Lowered::default()).unwrap()),
            r#"{"messages":[{"role":"user","content":"x"},{"role":"assistant","content":"Hello"}],"continue_final_message":true,"add_generation_prompt":false}"#
        );
        let body = parse(r#"{"messages":[{"role":"assistant","content":[{"type":"text","text":"He"}]}],"continue_final_message":true}"#);
        let continued = text(continue_chat(&body, "llo", Lowered::default()).unwrap());
        assert!(continued.contains(r#""content":[{"type":"text","text":"Hello"}]"#), "{continued}");
    }

    #[test]
    fn limits_are_lowered_where_they_are_given() {
        let body = parse(r#"{"prompt":"ab","max_tokens":9,"min_tokens":4,"max_tokens":10}"#);
        assert_eq!(
            text(continue_completion(&body, "cd", Lowered { max: Some(7), min: 1 }).unwrap()),
            r#"{"prompt":"abcd","max_tokens":7,"min_tokens":1}"#
        );
    }

    #[test]
    fn ids_leave_the_chat_behind() {
        let body = parse(r#"{"model":"m","messages":[],"max_completion_tokens":9,"temperature":0,"stream":true}"#);
        assert_eq!(
            text(continue_ids(&body, Ids { prompt: &[1, 2], generated: &[3], ask: true }, 8, 0)),
            r#"{"model":"m","temperature":0,"stream":true,"prompt":[1,2,3],"max_tokens":8,"return_token_ids":true}"#
        );
    }

    #[test]
    fn token_ids_are_asked_for_only_in_streams_that_do_not_ask() {
        assert_eq!(text(with_token_ids(br#"{"stream":true}"#).unwrap()), r#"{"stream":true,"return_token_ids":true}"#);
        assert_eq!(with_token_ids(br#"{"stream":true,"return_token_ids":true}"#), None);
        assert_eq!(with_token_ids(br#"{"stream":false}"#), None);
        assert_eq!(with_token_ids(b"[]"), None);
    }

    #[test]
    fn tokenize_asks_for_what_a_resumed_chat_would_have() {
        let body = parse(r#"{"model":"m","messages":[{"role":"user","content":"x"}],"tools":[1],"stream":true}"#);
        assert_eq!(
            text(tokenize_continued(&body, "y").unwrap()),
            r#"{"model":"m","messages":[{"role":"user","content":"x"},{"role":"assistant","content":"y"}],"continue_final_message":true,"add_generation_prompt":false,"tools":[1]}"#
        );
        assert_eq!(text(tokenize_prompt(&body).unwrap()), r#"{"model":"m","messages":[{"role":"user","content":"x"}],"tools":[1]}"#);
        assert_eq!(text(tokenize_text(&body, "y")), r#"{"model":"m","prompt":"y","add_special_tokens":false}"#);
    }
}
