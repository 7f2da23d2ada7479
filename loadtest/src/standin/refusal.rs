//! A request that the stand-in refuses, as the `Status` object that Kubernetes answers.

use serde_json::{Value, json};

use super::route::Kind;

/// A refusal: HTTP status, machine-readable reason, message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}: {message}")]
pub struct Refusal {
    /// HTTP status, also `code` in the body.
    pub code: u16,
    /// As Kubernetes spells it, such as `NotFound`.
    pub reason: &'static str,
    /// For people.
    pub message: String,
}

impl Refusal {
    pub(super) fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into() }
    }

    pub(super) fn not_found(kind: Kind, name: &str) -> Self {
        Self::new(404, "NotFound", format!("{} \"{name}\" not found", kind.resource()))
    }

    pub(super) fn no_such_path() -> Self {
        Self::new(404, "NotFound", "the server could not find the requested resource")
    }

    pub(super) fn exists(kind: Kind, name: &str) -> Self {
        Self::new(409, "AlreadyExists", format!("{} \"{name}\" already exists", kind.resource()))
    }

    pub(super) fn conflict(kind: Kind, name: &str, what: &str) -> Self {
        Self::new(409, "Conflict", format!("Operation cannot be fulfilled on {} \"{name}\": {what}", kind.resource()))
    }

    pub(super) fn invalid(message: impl Into<String>) -> Self {
        Self::new(422, "Invalid", message)
    }

    pub(super) fn bad(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    pub(super) fn expired() -> Self {
        Self::new(410, "Expired", "The resourceVersion for the provided watch is too old.")
    }

    /// The body of the answer, and the object of an in-band `ERROR` event.
    pub fn status(&self) -> Value {
        json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "reason": self.reason, "code": self.code,
        })
    }
}
