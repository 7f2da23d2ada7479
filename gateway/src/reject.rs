//! Refusals: the only author of error answers (invariant 10).
//!
//! Owns: the table of `Reject`s with status, code and whether the client may try again, in the OpenAI error shape, as a whole answer and as
//! an in-stream event. Must not: decide when to refuse.

use std::time::Duration;

use bytes::Bytes;
use http::header::{ALLOW, CONTENT_TYPE, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{Response, StatusCode};
use serde_json::json;

use crate::proxy::headers::X_LEADGATE_REASON;
use crate::telemetry::labels::Route;

/// Longest `Retry-After`: the OpenAI SDK ignores more.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(60);

/// Which clock ended an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clock {
    /// TCP or TLS handshake.
    Connect,
    /// First `data:` event of a stream.
    FirstEvent,
    /// The whole of a non-streamed answer.
    Response,
    /// Silence between events.
    Idle,
}

impl Clock {
    fn name(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::FirstEvent => "first_event",
            Self::Response => "response",
            Self::Idle => "idle",
        }
    }
}

/// A refusal with a machine-readable reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reject {
    /// 400: what is wrong, and what would be right.
    BadRequest(String),
    /// 404: no pool serves this name.
    UnknownModel(String),
    /// 404: not on the allow-list.
    UnknownPath,
    /// 405, with the methods that are allowed.
    MethodNotAllowed(&'static str),
    /// 413.
    BodyTooLarge {
        /// Bytes allowed.
        limit: u64,
    },
    /// 408: the client stopped sending its body.
    BodyTimeout,
    /// 508: the request came through this gateway before.
    Loop,
    /// 401.
    Unauthorized,
    /// 403.
    Forbidden,
    /// 429: a bound of the gateway is reached.
    QueueFull {
        /// Which bound.
        what: &'static str,
    },
    /// 429: leaders serve but were full for as long as the request might wait.
    QueueTimeout,
    /// 503: nothing serves, and the hold ended.
    NoServingGroup {
        /// From the measured length of the last replacement.
        retry_after: Duration,
        /// Why nothing serves, in words.
        detail: String,
    },
    /// 503: the gateway is going away.
    ShuttingDown,
    /// 502: no connection to the leader.
    UpstreamConnect(String),
    /// 502: the leader went away before or while it answered.
    UpstreamReset(String),
    /// 502: a broken stream that no way carries on exactly.
    NotResumable {
        /// Word from a closed set.
        reason: &'static str,
        /// In words.
        detail: String,
    },
    /// 504.
    UpstreamTimeout(Clock),
    /// 500.
    Internal,
}

impl Reject {
    /// The machine-readable word, sent as `x-leadgate-reason` and as `error.code`. A closed set.
    pub fn code(&self) -> &'static str {
        match self {
            Self::BadRequest(_) | Self::BodyTimeout => "invalid_request",
            Self::UnknownModel(_) => "model_not_found",
            Self::UnknownPath => "path_not_found",
            Self::MethodNotAllowed(_) => "method_not_allowed",
            Self::BodyTooLarge { .. } => "body_too_large",
            Self::Loop => "loop_detected",
            Self::Unauthorized => "invalid_api_key",
            Self::Forbidden => "model_not_allowed",
            Self::QueueFull { .. } => "queue_full",
            Self::QueueTimeout => "queue_timeout",
            Self::NoServingGroup { .. } => "no_serving_group",
            Self::ShuttingDown => "shutting_down",
            Self::UpstreamConnect(_) => "leader_unreachable",
            Self::UpstreamReset(_) => "leader_reset",
            Self::NotResumable { .. } => "not_resumable",
            Self::UpstreamTimeout(_) => "leader_timeout",
            Self::Internal => "internal",
        }
    }

    /// HTTP status (RFC 9110 15.5, 15.6).
    pub fn status(&self) -> StatusCode {
        match self {
            Self::BadRequest(_) => StatusCode::BAD_REQUEST,
            Self::UnknownModel(_) | Self::UnknownPath => StatusCode::NOT_FOUND,
            Self::MethodNotAllowed(_) => StatusCode::METHOD_NOT_ALLOWED,
            Self::BodyTooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            Self::BodyTimeout => StatusCode::REQUEST_TIMEOUT,
            Self::Loop => StatusCode::LOOP_DETECTED,
            Self::Unauthorized => StatusCode::UNAUTHORIZED,
            Self::Forbidden => StatusCode::FORBIDDEN,
            Self::QueueFull { .. } | Self::QueueTimeout => StatusCode::TOO_MANY_REQUESTS,
            Self::NoServingGroup { .. } | Self::ShuttingDown => StatusCode::SERVICE_UNAVAILABLE,
            Self::UpstreamConnect(_) | Self::UpstreamReset(_) | Self::NotResumable { .. } => StatusCode::BAD_GATEWAY,
            Self::UpstreamTimeout(_) => StatusCode::GATEWAY_TIMEOUT,
            Self::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    fn kind(&self) -> &'static str {
        match self.status().as_u16() {
            401 => "authentication_error",
            403 => "permission_error",
            404 => "not_found_error",
            429 => "rate_limit_error",
            400..=499 => "invalid_request_error",
            _ => "server_error",
        }
    }

    fn message(&self) -> String {
        match self {
            Self::BadRequest(what) => what.clone(),
            Self::UnknownModel(name) => {
                format!("The model `{}` does not exist. GET /v1/models lists the names that are served.", clip(name))
            }
            Self::UnknownPath => "This path is not routed. See the list of routed paths in the gateway's documentation.".into(),
            Self::MethodNotAllowed(allow) => format!("This method is not allowed here; allowed: {allow}."),
            Self::BodyTooLarge { limit } => format!("The request body is larger than {limit} bytes, the limit of this gateway."),
            Self::BodyTimeout => "The request body did not arrive in time.".into(),
            Self::Loop => "The request has already passed through this gateway: a leader address points back at it.".into(),
            Self::Unauthorized => "The API key is missing or not known.".into(),
            Self::Forbidden => "The API key does not allow this model.".into(),
            Self::QueueFull { what } => format!("The gateway is full ({what}). Try again later."),
            Self::QueueTimeout => "All leaders were busy for as long as the request could wait. Try again later.".into(),
            Self::NoServingGroup { detail, .. } => format!("No replica of this model serves now: {detail}. Try again later."),
            Self::ShuttingDown => "This gateway is shutting down. Try again; another instance will answer.".into(),
            Self::UpstreamConnect(why) => format!("The leader could not be reached: {why}."),
            Self::UpstreamReset(why) => format!("The leader broke off: {why}."),
            Self::NotResumable { detail, .. } => format!("The stream broke and could not be carried on: {detail}."),
            Self::UpstreamTimeout(clock) => format!("The leader did not answer in time (clock `{}`).", clock.name()),
            Self::Internal => "Internal error of the gateway.".into(),
        }
    }

    /// The error object of the OpenAI API.
    pub fn body(&self) -> Bytes {
        let param = matches!(self, Self::UnknownModel(_)).then_some("model");
        let mut error = json!({ "message": self.message(), "type": self.kind(), "param": param, "code": self.code() });
        if let Self::NotResumable { reason, .. } = self {
            error["reason"] = json!(reason);
        }
        json!({ "error": error }).to_string().into()
    }

    /// A whole answer.
    pub fn response(&self) -> Response<Bytes> {
        let mut response = Response::new(self.body());
        *response.status_mut() = self.status();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(X_LEADGATE_REASON, HeaderValue::from_static(self.code()));
        if let Some(after) = self.retry_after() {
            headers.insert(RETRY_AFTER, HeaderValue::from(after.clamp(Duration::from_secs(1), MAX_RETRY_AFTER).as_secs()));
        }
        if matches!(self, Self::Unauthorized) {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Self::MethodNotAllowed(allow) = self {
            headers.insert(ALLOW, HeaderValue::from_static(allow));
        }
        response
    }

    /// The same as the last event of a stream whose status is long sent, in the error form of its API. `at_boundary`: the last byte sent ended an
    /// event (wire rule S16).
    pub fn event(&self, route: Route, at_boundary: bool) -> Bytes {
        let start: &[u8] = if at_boundary { b"" } else { b"\n\n" };
        let message = self.message();
        let (name, data): (&[u8], Bytes) = if route == Route::Messages {
            let error = json!({ "type": self.kind(), "message": message });
            (b"event: error\n", json!({ "type": "error", "error": error }).to_string().into())
        } else if route == Route::Responses {
            (b"event: error\n", json!({ "type": "error", "code": self.code(), "message": message, "param": null }).to_string().into())
        } else {
            (b"", self.body())
        };
        [start, name, b"data: ", &data, b"\n\n"].concat().into()
    }

    fn retry_after(&self) -> Option<Duration> {
        if let Self::NoServingGroup { retry_after, .. } = self {
            return Some(*retry_after);
        }
        matches!(self, Self::QueueFull { .. } | Self::QueueTimeout | Self::ShuttingDown).then_some(Duration::from_secs(1))
    }
}

/// A client's text in an error message, bounded.
fn clip(text: &str) -> String {
    let mut out: String = text.chars().take(128).collect();
    if out.len() < text.len() {
        out.push('…');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_have_the_openai_shape() {
        let reject = Reject::NoServingGroup { retry_after: Duration::from_secs(900), detail: "x".into() };
        let response = reject.response();
        assert_eq!(response.status(), 503);
        assert_eq!(response.headers()["retry-after"], "60");
        assert_eq!(response.headers()["x-leadgate-reason"], "no_serving_group");
        let body: serde_json::Value = serde_json::from_slice(response.body()).unwrap();
        assert_eq!(body["error"]["code"], "no_serving_group");
        assert_eq!(body["error"]["type"], "server_error");
        assert!(body["error"]["param"].is_null());
        assert_eq!(Reject::Unauthorized.response().headers()["www-authenticate"], "Bearer");
    }

    #[test]
    fn events_begin_with_a_blank_line_inside_an_event() {
        assert!(Reject::Internal.event(Route::ChatCompletions, false).starts_with(b"\n\ndata: {"));
        assert!(Reject::Internal.event(Route::ChatCompletions, true).starts_with(b"data: {"));
        assert!(Reject::Internal.event(Route::ChatCompletions, true).ends_with(b"}\n\n"));
    }

    #[test]
    fn each_api_has_its_own_error_event() {
        let messages = Reject::Internal.event(Route::Messages, true);
        assert!(messages.starts_with(b"event: error\ndata: {\"type\":\"error\",\"error\":{"), "{messages:?}");
        assert!(
            Reject::Internal
                .event(Route::Responses, false)
                .starts_with(b"\n\nevent: error\ndata: {\"type\":\"error\",\"code\":\"internal\"")
        );
    }

    #[test]
    fn names_of_clients_are_clipped() {
        assert!(Reject::UnknownModel("x".repeat(100_000)).body().len() < 1000);
    }
}
