//! The end of streams that are only watched: `/v1/responses`, `/v1/messages`, and anything with an error as its first
//! event.
//!
//! Owns the names of their last events. Such streams pass byte for byte and are not carried on.

use memchr::memmem;

use super::route::Route;

/// What an event of a watched stream means for its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mark {
    /// Nothing.
    None,
    /// The stream is complete.
    Last,
    /// The stream is complete, and says that its request failed.
    Failed,
    /// The engine reports an error.
    Error,
}

/// Reads the event's name, or the `type` that its data begins with.
pub(super) fn read(route: Route, name: &[u8], data: &[u8]) -> Mark {
    let begins_with_error = data.starts_with(b"{\"error\":") && !data.starts_with(b"{\"error\":null");
    if name == b"error" || begins_with_error || is(data, "error") {
        return Mark::Error;
    }
    let (last, failed): (&[&str], &[&str]) = match route {
        Route::Responses => (&["response.completed", "response.incomplete"], &["response.failed"]),
        Route::Messages => (&["message_stop"], &[]),
        Route::Chat | Route::Completions | Route::Other => (&[], &[]),
    };
    let named = |words: &[&str]| words.iter().any(|word| name == word.as_bytes() || (name.is_empty() && is(data, word)));
    if named(last) {
        Mark::Last
    } else if named(failed) {
        Mark::Failed
    } else {
        Mark::None
    }
}

/// Whether the object's `type` is `word`; only its beginning is searched, as engines write the type first.
fn is(data: &[u8], word: &str) -> bool {
    let head = &data[..data.len().min(64)];
    let Some(at) = memmem::find(head, b"\"type\":") else { return false };
    let value = head[at + 7..].trim_ascii_start();
    value.strip_prefix(b"\"").and_then(|rest| rest.strip_prefix(word.as_bytes())).is_some_and(|rest| rest.first() == Some(&b'"'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_and_errors() {
        assert_eq!(read(Route::Messages, b"message_stop", br#"{"type":"message_stop"}"#), Mark::Last);
        assert_eq!(read(Route::Messages, b"", br#"{"type": "message_stop"}"#), Mark::Last);
        assert_eq!(read(Route::Messages, b"error", b"{}"), Mark::Error);
        assert_eq!(read(Route::Messages, b"ping", br#"{"type":"ping"}"#), Mark::None);
        assert_eq!(read(Route::Responses, b"response.completed", b"{}"), Mark::Last);
        assert_eq!(read(Route::Responses, b"response.completed_not", b"{}"), Mark::None);
        assert_eq!(read(Route::Responses, b"", br#"{"type":"response.failed","response":{}}"#), Mark::Failed);
        assert_eq!(read(Route::Responses, b"response.failed", b"{}"), Mark::Failed);
        assert_eq!(read(Route::Responses, b"response.incomplete", b"{}"), Mark::Last);
        assert_eq!(read(Route::Messages, b"response.failed", b"{}"), Mark::None);
        assert_eq!(read(Route::Other, b"", br#"{"error": {"message":"x"}}"#), Mark::Error);
        assert_eq!(read(Route::Other, b"", br#"{"error":null,"x":1}"#), Mark::None);
    }
}
