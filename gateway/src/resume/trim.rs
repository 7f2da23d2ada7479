//! Takes away what the client already has of an event's per-token lists: `logprobs` and `token_ids`.
//!
//! An engine sends these for held-back tokens too, whose text came later or never; so they are counted by entries, not
//! by text.

use serde_json::value::RawValue;

use super::chunk::Choice;
use super::json::{self, Object, Writer};

/// The `logprobs` of a choice without the entries that were sent; `None`: as they are. `skip` counts down.
pub(super) fn logprobs(choice: &Choice<'_>, skip: &mut usize) -> Option<Vec<u8>> {
    if *skip == 0 {
        return None;
    }
    let logprobs = choice.object.object("logprobs")?;
    let entries = longest(&logprobs);
    let drop = entries.min(*skip);
    *skip -= drop;
    let mut writer = Writer::new(Vec::new());
    for (name, raw) in logprobs.fields() {
        match json::list(raw) {
            Some(list) => push_list(writer.name(name), list.get(drop..).unwrap_or_default()),
            None => writer.raw(name, raw.get()),
        }
    }
    Some(writer.finish())
}

/// The `token_ids` of a choice without those that were sent; `None`: as they are. `skip` counts down.
pub(super) fn token_ids(choice: &Choice<'_>, skip: &mut usize) -> Option<Vec<u8>> {
    if *skip == 0 {
        return None;
    }
    let ids = choice.object.get("token_ids").and_then(json::ids)?;
    let drop = ids.len().min(*skip);
    *skip -= drop;
    let mut out = Vec::new();
    json::push_ids(&mut out, ids.into_iter().skip(drop));
    Some(out)
}

fn longest(logprobs: &Object<'_>) -> usize {
    logprobs.fields().filter_map(|(_, raw)| json::list(raw)).map(|list| list.len()).max().unwrap_or(0)
}

fn push_list(out: &mut Vec<u8>, elements: &[&RawValue]) {
    out.push(b'[');
    for (nth, element) in elements.iter().enumerate() {
        if nth > 0 {
            out.push(b',');
        }
        out.extend_from_slice(element.get().as_bytes());
    }
    out.push(b']');
}
