//! What an engine's answer to a probe says. Pure.
//!
//! Owns: reading of `/v1/models` and of a one-token generation. Must not: ask. Wire forms: engine facts 2 and 4.

use std::sync::Arc;

use http::StatusCode;
use serde::Deserialize;
use serde::de::IgnoredAny;

/// What a one-token generation proved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Generated {
    /// The engine generates.
    Good,
    /// This endpoint does not exist, or not for this model.
    NotHere,
    /// 401 or 403.
    KeyRefused,
    /// A 5xx, 429, or a 200 that holds an error or an abort.
    Failed,
}

/// Every `data[].id` in the engine's order, without repetition; `None` if it is not a list or an empty one.
pub(super) fn model_names(body: &[u8]) -> Option<Arc<[Arc<str>]>> {
    #[derive(Deserialize)]
    struct List {
        data: Vec<Entry>,
    }
    #[derive(Deserialize)]
    struct Entry {
        id: String,
    }
    let list: List = serde_json::from_slice(body).ok()?;
    let mut names: Vec<Arc<str>> = Vec::with_capacity(list.data.len());
    for entry in list.data {
        if !entry.id.is_empty() {
            names.push(entry.id.into());
        }
    }
    let mut seen = std::collections::HashSet::new();
    names.retain(|name| seen.insert(name.clone()));
    (!names.is_empty()).then(|| names.into())
}

/// Judges the answer of a completion or chat completion of `max_tokens: 1`.
///
/// The request itself is plain, so a 4xx says that the endpoint does not serve this model (embedding and rerank models: 400 "does not
/// support", or 404 where the route is missing), not that the request was wrong.
pub(super) fn generated(status: StatusCode, body: &[u8]) -> Generated {
    match status.as_u16() {
        200 if has_good_choice(body) => Generated::Good,
        400 | 404 | 405 | 422 | 501 => Generated::NotHere,
        401 | 403 => Generated::KeyRefused,
        _ => Generated::Failed,
    }
}

/// A leader that is told to stop answers 200 with `finish_reason: "abort"` or an error object (engine facts 4): neither proves anything.
fn has_good_choice(body: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Completion {
        error: Option<IgnoredAny>,
        #[serde(default)]
        choices: Vec<Choice>,
    }
    #[derive(Deserialize)]
    struct Choice {
        finish_reason: Option<String>,
    }
    let Ok(completion) = serde_json::from_slice::<Completion>(body) else { return false };
    let stopped = |choice: &Choice| matches!(choice.finish_reason.as_deref(), None | Some("abort" | "error"));
    completion.error.is_none() && !completion.choices.is_empty() && !completion.choices.iter().any(stopped)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_listed_in_order_adapters_too() {
        let check = |body: &str, expect: Option<&[&str]>| {
            let names = model_names(body.as_bytes());
            let names: Option<Vec<&str>> = names.as_ref().map(|names| names.iter().map(|name| &**name).collect());
            assert_eq!(names.as_deref(), expect, "{body}");
        };
        check(r#"{"object":"list","data":[{"id":"tiny","parent":null},{"id":"lora","parent":"tiny"}]}"#, Some(&["tiny", "lora"]));
        check(r#"{"data":[{"id":"a"},{"id":"a"},{"id":""}]}"#, Some(&["a"]));
        check(r#"{"data":[]}"#, None);
        check(r#"{"object":"list"}"#, None);
        check(r#"{"data":[{"name":"x"}]}"#, None);
        check("<html>", None);
    }

    #[test]
    fn only_a_finished_choice_proves_a_generation() {
        let check = |status: u16, body: &str, expect: Generated| {
            assert_eq!(generated(StatusCode::from_u16(status).unwrap(), body.as_bytes()), expect, "{status} {body}");
        };
        check(200, r#"{"choices":[{"finish_reason":"length"}]}"#, Generated::Good);
        check(200, r#"{"error":null,"choices":[{"finish_reason":"stop"}]}"#, Generated::Good);
        check(200, r#"{"choices":[{"finish_reason":"abort"}]}"#, Generated::Failed);
        check(200, r#"{"choices":[{"finish_reason":"error"}]}"#, Generated::Failed);
        check(200, r#"{"choices":[{"finish_reason":null}]}"#, Generated::Failed);
        check(200, r#"{"choices":[]}"#, Generated::Failed);
        check(200, r#"{"error":{"message":"EngineCore encountered an issue."}}"#, Generated::Failed);
        check(200, r#"{"error":{"code":500},"choices":[{"finish_reason":"length"}]}"#, Generated::Failed);
        check(200, "not json", Generated::Failed);
        check(400, r#"{"error":{"message":"The model does not support Completions API"}}"#, Generated::NotHere);
        check(404, r#"{"detail":"Not Found"}"#, Generated::NotHere);
        check(405, "", Generated::NotHere);
        check(401, r#"{"error":"Unauthorized"}"#, Generated::KeyRefused);
        check(429, "", Generated::Failed);
        check(500, "", Generated::Failed);
        check(503, "", Generated::Failed);
    }
}
