//! Why a stream counts as broken, and whose fault an engine's error event is.
//!
//! Owns the reading of error objects. It decides nothing about what comes next; `planner` does.

use super::json::Object;
use serde_json::value::RawValue;

/// Why a stream is broken. The relay names the causes that bytes cannot show (`Cut`, `Stall`, `Gone`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Cause {
    /// The connection was lost, or its framing did not end.
    Cut,
    /// Silence while the group is leaving or broken.
    Stall,
    /// The group is gone and its connections were closed by us.
    Gone,
    /// An error event that is not the request's own fault.
    EngineError,
    /// `finish_reason: "abort"`.
    Abort,
    /// A proper end without a `finish_reason` for every choice.
    NoFinish,
    /// The rest did not agree with what the client has already got.
    Differed,
    /// An event that cannot be read where it must be.
    Unreadable,
}

impl Cause {
    /// A word for metrics and logs, from a closed set.
    pub fn word(self) -> &'static str {
        match self {
            Self::Cut => "cut",
            Self::Stall => "stall",
            Self::Gone => "gone",
            Self::EngineError => "engine_error",
            Self::Abort => "abort",
            Self::NoFinish => "no_finish",
            Self::Differed => "differed",
            Self::Unreadable => "unreadable",
        }
    }
}

/// Whether an error object says that the request itself is wrong, so that no other leader would answer it either:
/// a 4xx code other than those that speak of load, time or the client. Engines write the code as a number or a string.
pub(super) fn is_requests_fault(error: &RawValue, top: &Object<'_>) -> bool {
    let inner = Object::of(error).unwrap_or_default();
    let code = code(&inner).or_else(|| code(top));
    code.is_some_and(|code| (400..500).contains(&code) && !matches!(code, 408 | 409 | 425 | 429 | 499))
}

fn code(object: &Object<'_>) -> Option<u64> {
    ["code", "status", "status_code"].into_iter().find_map(|key| object.number(key).or_else(|| object.text(key)?.parse().ok()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(json: &str, fault: bool) {
        let top = Object::parse(json.as_bytes()).unwrap();
        let error = top.get("error").or_else(|| top.get("message")).unwrap();
        assert_eq!(is_requests_fault(error, &top), fault, "{json}");
    }

    #[test]
    fn tells_the_requests_fault_from_the_engines() {
        check(r#"{"error": {"message": "EngineCore encountered an issue.", "type": "InternalServerError", "code": 500}}"#, false);
        check(r#"{"error":{"message":"too long","type":"BadRequestError","param":"input_tokens","code":400}}"#, true);
        check(r#"{"error":{"message":"no","code":"404"}}"#, true);
        check(r#"{"error":{"message":"busy","code":429}}"#, false);
        check(r#"{"error":{"message":"busy","code":503}}"#, false);
        check(r#"{"error":{"message":"x","code":"model_not_found"}}"#, false);
        check(r#"{"error":"Unauthorized"}"#, false);
        check(r#"{"object":"error","message":"bad","type":"BadRequestError","param":null,"code":400}"#, true);
    }
}
