//! The last events of a stream whose text is whole: made here because no leader is needed for them any more.
//!
//! Owns their form, which is the engines' own. Used only where every character and the reason of the end are known.

use bytes::Bytes;

use super::journal::Journal;
use super::json::Writer;
use super::route::Route;
use super::usage::Usage;

const DONE: &[u8] = b"data: [DONE]\n\n";

/// The text has reached its limit of tokens: a finish event `length`, the usage event if given, `[DONE]`.
pub(super) fn by_length(route: Route, journal: &Journal, usage: Option<Usage>) -> Bytes {
    let index = journal.choices.first().map_or(0, |sent| sent.index);
    let text = if route == Route::Chat { r#""delta":{"content":""}"# } else { r#""text":"""# };
    let choice = format!(r#"[{{"index":{index},{text},"logprobs":null,"finish_reason":"length","stop_reason":null}}]"#);
    let mut out = event(route, journal, &choice, None);
    out.extend_from_slice(&after_all(route, journal, usage));
    out.into()
}

/// All finish events were sent: the usage event if given, `[DONE]`.
pub(super) fn after_all(route: Route, journal: &Journal, usage: Option<Usage>) -> Bytes {
    let mut out = usage.map(|usage| event(route, journal, "[]", Some(usage))).unwrap_or_default();
    out.extend_from_slice(DONE);
    out.into()
}

fn event(route: Route, journal: &Journal, choices: &str, usage: Option<Usage>) -> Vec<u8> {
    let mut writer = Writer::new(b"data: ".to_vec());
    let head = journal.head.as_deref();
    let mut named = |name, value: Option<&str>| {
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            writer.raw(name, value);
        }
    };
    named("id", head.map(|head| &*head.id));
    named("object", Some(if route == Route::Chat { "\"chat.completion.chunk\"" } else { "\"text_completion\"" }));
    named("created", head.map(|head| &*head.created));
    named("model", head.map(|head| &*head.model));
    named("choices", Some(choices));
    if let Some(usage) = usage {
        let out = writer.name("usage");
        *out = usage.write(std::mem::take(out));
    }
    if let Some(fingerprint) = &journal.fingerprint {
        writer.raw("system_fingerprint", fingerprint);
    }
    let mut out = writer.finish();
    out.extend_from_slice(b"\n\n");
    out
}
