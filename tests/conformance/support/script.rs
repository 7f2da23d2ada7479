//! What a scripted engine does with a request: steps, and the bytes that most tests send.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;

/// Opened by a test, once for each pass.
pub(crate) type Gate = Arc<Semaphore>;

/// A closed gate.
pub(crate) fn gate() -> Gate {
    Arc::new(Semaphore::new(0))
}

/// One step.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    /// Writes bytes.
    Send(Vec<u8>),
    /// Waits for the test.
    Wait(Gate),
    /// Writes the bytes again and again at this pace until the peer is gone.
    Drip(Vec<u8>, Duration),
    /// Writes the bytes so many times, as fast as they are taken.
    Flood(Vec<u8>, usize),
    /// Waits until the peer is gone, and counts that.
    Hold,
    /// Closes with FIN.
    Fin,
    /// Closes with RST.
    Reset,
}

/// Steps with one `Send`.
pub(crate) fn send(bytes: impl AsRef<[u8]>) -> Vec<Step> {
    vec![Step::Send(bytes.as_ref().to_vec())]
}

/// A whole answer with its length. `fields`: lines, each ended by CRLF.
pub(crate) fn answer(status: u16, fields: &str, body: impl AsRef<[u8]>) -> Vec<u8> {
    let body = body.as_ref();
    let mut out = format!("HTTP/1.1 {status} Status\r\ncontent-type: application/json\r\ncontent-length: {}\r\n{fields}\r\n", body.len())
        .into_bytes();
    out.extend_from_slice(body);
    out
}

/// Head of a chunked stream of events.
pub(crate) const EVENTS: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n";

/// The last chunk.
pub(crate) const LAST: &str = "0\r\n\r\n";

/// One chunk.
pub(crate) fn chunk(data: impl AsRef<[u8]>) -> Vec<u8> {
    let data = data.as_ref();
    let mut out = format!("{:x}\r\n", data.len()).into_bytes();
    out.extend_from_slice(data);
    out.extend_from_slice(b"\r\n");
    out
}

/// An event with text.
pub(crate) fn event(text: &str) -> String {
    let text = serde_json::Value::from(text);
    format!(
        "data: {{\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\",\"choices\":[{{\"index\":0,\"delta\":{{\"content\":{text}}},\"finish_reason\":null}}]}}\n\n"
    )
}

/// The event that finishes the choice, and the mark.
pub(crate) const FINISH: &str = "data: {\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";

/// A whole stream with one text.
pub(crate) fn whole_stream(text: &str) -> Vec<u8> {
    [EVENTS.as_bytes(), &chunk(event(text)), &chunk(FINISH), LAST.as_bytes()].concat()
}
