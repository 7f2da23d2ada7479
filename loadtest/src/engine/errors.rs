//! Refusals in the engine's words: status, `type`, `param`, numeric `code`.
//!
//! Owns the texts of engine facts, section 2 (table of errors). Writes no HTTP; `http::reply` does.

use serde_json::json;

/// A request that is refused with a status, before anything was generated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiError {
    /// HTTP status; also the body's numeric `code`.
    pub status: u16,
    /// The engine's sentence.
    pub message: String,
    /// The body's `type`.
    pub kind: &'static str,
    /// The body's `param`.
    pub param: Option<String>,
}

impl ApiError {
    /// A refusal for a value, with the parameter that is wrong.
    pub fn bad(message: impl Into<String>, param: Option<&str>) -> Self {
        Self { status: 400, message: message.into(), kind: "BadRequestError", param: param.map(str::to_owned) }
    }

    /// A body that fails validation; `kind` and `text` are the validator's.
    pub fn invalid(kind: &str, place: &str, text: &str, input: &str) -> Self {
        let message = format!("1 validation error:\n  {{'type': '{kind}', 'loc': '{place}', 'msg': '{text}', 'input': {input}}}");
        Self { status: 400, message, kind: "Bad Request", param: Some(place.to_owned()) }
    }

    /// A body that is no JSON; `at` is the byte where reading it failed.
    pub fn no_json(at: usize) -> Self {
        let message = format!(
            "1 validation error:\n  {{'type': 'json_invalid', 'loc': 'body.{at}', 'msg': 'JSON decode error', 'input': '<dict of 0 items>', \
             'ctx': {{'error': 'Expecting value'}}}}"
        );
        Self { status: 400, message, kind: "Bad Request", param: Some(format!("body.{at}")) }
    }

    /// A name that this engine does not serve.
    pub fn unknown_model(name: &str, served: &str) -> Self {
        let message = format!("The model `{name}` does not exist. Valid aliases: {served}.");
        Self { status: 404, message, kind: "NotFoundError", param: Some("model".to_owned()) }
    }

    /// More waiting requests than allowed.
    pub fn busy() -> Self {
        let message = "The engine is currently busy and cannot accept new requests. Please try again later or on a different instance.";
        Self { status: 503, message: message.to_owned(), kind: "Service Unavailable", param: None }
    }

    /// The engine process is gone.
    pub fn core_dead() -> Self {
        Self::internal("EngineCore encountered an issue. See stack trace (above) for the root cause.")
    }

    /// The server is told to stop and takes nothing new.
    pub fn stopping() -> Self {
        Self::internal("cannot schedule new futures after shutdown")
    }

    /// A 500 with the engine's type.
    pub fn internal(message: &str) -> Self {
        Self { status: 500, message: message.to_owned(), kind: "InternalServerError", param: None }
    }

    /// The body as the engine writes it: no blanks.
    pub fn body(&self) -> String {
        json!({"error": {"message": self.message, "type": self.kind, "param": self.param, "code": self.status}}).to_string()
    }

    /// The same object as an event of a stream, which has blanks behind `:` and `,` as no other event has.
    pub fn event(&self) -> String {
        let quoted = |text: &str| serde_json::Value::from(text).to_string();
        let param = self.param.as_deref().map_or_else(|| "null".to_owned(), quoted);
        let (message, kind) = (quoted(&self.message), quoted(self.kind));
        format!("data: {{\"error\": {{\"message\": {message}, \"type\": {kind}, \"param\": {param}, \"code\": {}}}}}\n\n", self.status)
    }
}
