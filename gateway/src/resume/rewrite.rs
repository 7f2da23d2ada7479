//! Small changes to an event that otherwise stays as the engine wrote it.

use super::chunk::Chunk;
use super::json::Writer;

/// The event without its token ids, which we asked for and the client did not.
pub(super) fn without_ids(chunk: &Chunk<'_>) -> Vec<u8> {
    let ids = |name: &str| matches!(name, "token_ids" | "prompt_token_ids");
    with(chunk, |name, _| ids(name).then_some("null"))
}

/// The event without its `finish_reason: "abort"`: the text in it is good, the end is not.
pub(super) fn without_abort(chunk: &Chunk<'_>) -> Vec<u8> {
    with(chunk, |name, raw| (name == "finish_reason" && raw == "\"abort\"").then_some("null"))
}

/// JSON as an event's bytes.
pub(super) fn event(json: &[u8]) -> Vec<u8> {
    [b"data: ", json, b"\n\n"].concat()
}

/// Replaces values of top-level and choice fields.
fn with(chunk: &Chunk<'_>, change: impl Fn(&str, &str) -> Option<&'static str>) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new());
    for (name, raw) in chunk.top.fields() {
        if name == "choices" && !chunk.choices.is_empty() {
            let out = writer.name(name);
            for (nth, choice) in chunk.choices.iter().enumerate() {
                out.push(if nth == 0 { b'[' } else { b',' });
                let mut inner = Writer::new(std::mem::take(out));
                for (name, raw) in choice.object.fields() {
                    inner.raw(name, change(name, raw.get()).unwrap_or(raw.get()));
                }
                *out = inner.finish();
            }
            out.push(b']');
        } else {
            writer.raw(name, change(name, raw.get()).unwrap_or(raw.get()));
        }
    }
    writer.finish()
}
