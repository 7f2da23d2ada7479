//! A leader's error answer to a client that was told 200 long ago: the last event of its stream.
//!
//! Owns: the engine's own words in the error form of the client's API (as `reject` does for ours). Next step: `exchange` ends the stream behind it.

use bytes::Bytes;
use http::StatusCode;
use serde_json::{Value, json};

use crate::reject::Reject;
use crate::telemetry::labels::Route;

/// The last event of a stream by `route`, made of an answer with this status and body. Without an error object in it the words are ours.
pub fn event(route: Route, status: StatusCode, body: &[u8]) -> Bytes {
    let answer: Value = serde_json::from_slice(body).unwrap_or_default();
    let error = &answer["error"];
    if error.is_null() {
        return Reject::UpstreamReset(format!("it answered {status} where a stream was expected")).event(route, true);
    }
    // Some engines say `{"error": "text"}`.
    let message = error.as_str().or(error["message"].as_str()).unwrap_or_default();
    match route {
        Route::Messages => {
            let kind = error["type"].as_str().unwrap_or("api_error");
            named(&json!({ "type": "error", "error": { "type": kind, "message": message } }))
        }
        Route::Responses => named(&json!({ "type": "error", "code": error["code"], "message": message, "param": error["param"] })),
        Route::ChatCompletions
        | Route::Completions
        | Route::Embeddings
        | Route::Rerank
        | Route::Score
        | Route::Pooling
        | Route::Classify
        | Route::Tokenize
        | Route::Detokenize
        | Route::Models
        | Route::Extra
        | Route::Other => format!("data: {answer}\n\n").into(),
    }
}

fn named(data: &Value) -> Bytes {
    format!("event: error\ndata: {data}\n\n").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn has_the_form_of_the_clients_api() {
        let body = br#"{"error":{"message":"too long","type":"invalid_request_error","param":null,"code":400}}"#;
        let of = |route, body: &[u8]| String::from_utf8(event(route, StatusCode::BAD_REQUEST, body).to_vec()).unwrap();
        let chat = of(Route::ChatCompletions, body);
        assert!(chat.starts_with("data: {\"error\":{") && chat.contains(r#""code":400"#), "{chat}");
        let messages = of(Route::Messages, body);
        let data = messages.strip_prefix("event: error\ndata: ").and_then(|data| data.strip_suffix("\n\n")).unwrap();
        let error = json!({ "type": "error", "error": { "type": "invalid_request_error", "message": "too long" } });
        assert_eq!(serde_json::from_str::<Value>(data).unwrap(), error);
        let responses = of(Route::Responses, body);
        assert!(responses.starts_with("event: error\ndata: {") && responses.contains(r#""message":"too long""#), "{responses}");
        for route in [Route::ChatCompletions, Route::Messages, Route::Responses] {
            assert!(of(route, b"<html>").contains("400 Bad Request"), "{route:?}");
        }
        assert!(of(Route::Messages, br#"{"error":"gone"}"#).contains(r#""message":"gone""#));
    }
}
