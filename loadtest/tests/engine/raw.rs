//! A client that sees bytes: no HTTP library hides what was on the wire.

use std::net::SocketAddr;
use std::time::Duration;

use loadtest::engine::{Engine, EngineConfig, EngineHandle};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// No wait of these tests may last longer.
pub(crate) const DEADLINE: Duration = Duration::from_secs(30);

pub(crate) async fn start(config: EngineConfig) -> EngineHandle {
    let engine = Engine::start(config).await.unwrap();
    engine.listening().await;
    engine
}

/// Waits for a state, with a deadline.
pub(crate) async fn eventually(what: &str, mut state: impl FnMut() -> bool) {
    let wait = async {
        while !state() {
            tokio::task::yield_now().await;
        }
    };
    assert!(tokio::time::timeout(DEADLINE, wait).await.is_ok(), "never: {what}");
}

pub(crate) fn chat(more: Value) -> Value {
    let mut body = json!({"model": "tiny", "temperature": 0, "messages": [{"role": "user", "content": "Tell me something. #sentences=6"}]});
    for (name, value) in more.as_object().unwrap() {
        body[name] = value.clone();
    }
    body
}

pub(crate) fn post(path: &str, body: &str, headers: &str) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nhost: engine\r\ncontent-type: application/json\r\n{headers}content-length: {}\r\n\r\n{body}",
        body.len()
    )
}

pub(crate) fn post_chat(more: Value) -> String {
    post("/v1/chat/completions", &chat(more).to_string(), "connection: close\r\n")
}

pub(crate) fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: engine\r\nconnection: close\r\n\r\n")
}

pub(crate) async fn send(address: SocketAddr, request: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

/// Everything until the connection ends, and how it ended.
pub(crate) async fn read_all(stream: &mut TcpStream) -> (String, std::io::Result<()>) {
    let mut bytes = Vec::new();
    let mut buffer = [0; 4096];
    let read = async {
        loop {
            match stream.read(&mut buffer).await {
                Ok(0) => return Ok(()),
                Ok(n) => bytes.extend_from_slice(&buffer[..n]),
                Err(error) => return Err(error),
            }
        }
    };
    let ended = tokio::time::timeout(DEADLINE, read).await.expect("the connection never ends");
    (String::from_utf8_lossy(&bytes).into_owned(), ended)
}

/// Reads until `mark` was seen.
pub(crate) async fn read_until(stream: &mut TcpStream, mark: &str) -> String {
    let mut bytes = Vec::new();
    let read = async {
        while !String::from_utf8_lossy(&bytes).contains(mark) {
            if stream.read_buf(&mut bytes).await.unwrap() == 0 {
                panic!("the stream ended before {mark:?}: {}", String::from_utf8_lossy(&bytes));
            }
        }
    };
    tokio::time::timeout(DEADLINE, read).await.unwrap_or_else(|_| panic!("no {mark:?}"));
    String::from_utf8_lossy(&bytes).into_owned()
}

pub(crate) async fn ask(address: SocketAddr, request: &str) -> String {
    let mut stream = send(address, request).await;
    let (text, ended) = read_all(&mut stream).await;
    ended.unwrap();
    text
}

pub(crate) fn body(answer: &str) -> &str {
    answer.split_once("\r\n\r\n").map_or("", |(_, body)| body)
}

/// The `data:` lines of a stream, framing removed.
pub(crate) fn events(answer: &str) -> Vec<String> {
    let body = if answer.starts_with("HTTP/1.1 ") { body(answer) } else { answer };
    body.lines().filter_map(|line| line.strip_prefix("data: ")).map(str::to_owned).collect()
}

/// The content of the first choice, put together.
pub(crate) fn content(answer: &str) -> String {
    let piece = |event: &String| {
        let event: Value = serde_json::from_str(event).ok()?;
        Some(event["choices"].get(0)?["delta"]["content"].as_str()?.to_owned())
    };
    events(answer).iter().filter_map(piece).collect()
}

/// True if the chunks are all whole and the last one is there.
pub(crate) fn is_framed(answer: &str) -> bool {
    let mut rest = body(answer).as_bytes();
    loop {
        let Some(end) = rest.windows(2).position(|w| w == b"\r\n") else { return false };
        let Some(size) = std::str::from_utf8(&rest[..end]).ok().and_then(|size| usize::from_str_radix(size, 16).ok()) else { return false };
        rest = &rest[end + 2..];
        if rest.len() < size + 2 || &rest[size..size + 2] != b"\r\n" {
            return false;
        }
        rest = &rest[size + 2..];
        if size == 0 {
            return rest.is_empty();
        }
    }
}
