//! A raw HTTP/1.1 client: writes what a test says, reads what comes.

use std::net::SocketAddr;

use tests::Outcome;
use tests::gateway::GatewayHandle;
use tokio::net::{TcpSocket, TcpStream};

use super::message::{Chunk, End, Gone, Head, Peer, find, tail};
use super::within;

/// A chat request without a stream.
pub(crate) const CHAT: &str = r#"{"model":"m","messages":[]}"#;
/// A chat request with a stream.
pub(crate) const STREAM: &str = r#"{"model":"m","stream":true,"messages":[]}"#;

/// A whole answer.
#[derive(Debug)]
pub(crate) struct Answer {
    /// Status and fields.
    pub(crate) head: Head,
    /// Body without its framing.
    pub(crate) body: Vec<u8>,
    /// How it ended.
    pub(crate) end: End,
    /// Statuses of informational answers before it.
    pub(crate) informational: Vec<u16>,
}

impl Answer {
    /// The status.
    pub(crate) fn status(&self) -> u16 {
        self.head.status()
    }

    /// The body as text.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// `error.code` of a refusal, `x-leadgate-reason` checked to say the same.
    pub(crate) fn code(&self) -> Outcome<String> {
        let body: serde_json::Value = serde_json::from_slice(&self.body).map_err(|error| format!("{error} in {}", self.text()))?;
        let error = &body["error"];
        let shaped = error["message"].is_string() && error["type"].is_string() && error.get("param").is_some();
        let code = error["code"].as_str().filter(|_| shaped).ok_or_else(|| format!("not the OpenAI shape: {body}"))?;
        if self.head.get("x-leadgate-reason") == Some(code) {
            Ok(code.to_owned())
        } else {
            Err(format!("{code} but header {:?}", self.head.get("x-leadgate-reason")).into())
        }
    }
}

/// A POST of JSON with its length. `fields`: further lines, each ended by CRLF.
pub(crate) fn post(fields: &str, body: &str) -> Vec<u8> {
    post_to("/v1/chat/completions", fields, body)
}

/// [`post`] to another path.
pub(crate) fn post_to(path: &str, fields: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!(
        "POST {path} HTTP/1.1\r\nhost: gateway.test\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n{fields}\r\n{body}"
    )
    .into_bytes()
}

/// A GET.
pub(crate) fn get(path: &str, fields: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nhost: gateway.test\r\n{fields}\r\n").into_bytes()
}

/// A connection to the gateway.
pub(crate) struct Wire(pub(crate) Peer);

impl Wire {
    /// Connects to the gateway's clients' port.
    pub(crate) async fn open(gateway: &GatewayHandle) -> Outcome<Self> {
        Self::to(gateway.listen()).await
    }

    /// Connects to an address.
    pub(crate) async fn to(address: SocketAddr) -> Outcome<Self> {
        Ok(Self(Peer::new(within("a connection", async { Ok(TcpStream::connect(address).await?) }).await?)?))
    }

    /// Connects with a small receive buffer, for a client that does not read.
    pub(crate) async fn narrow(gateway: &GatewayHandle) -> Outcome<Self> {
        let socket = TcpSocket::new_v4()?;
        socket.set_recv_buffer_size(16 * 1024)?;
        Ok(Self(Peer::new(socket.connect(gateway.listen()).await?)?))
    }

    /// One request on a connection of its own, and its answer.
    pub(crate) async fn ask(gateway: &GatewayHandle, request: impl AsRef<[u8]>) -> Outcome<Answer> {
        let mut wire = Self::open(gateway).await?;
        wire.send(request).await?;
        wire.answer().await
    }

    /// Writes bytes.
    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) -> Outcome<()> {
        self.0.send(bytes).await
    }

    /// The next head.
    pub(crate) async fn head(&mut self) -> Outcome<Head> {
        Ok(self.0.head().await?.ok_or("the gateway closed instead of an answer")?)
    }

    /// The next final answer.
    pub(crate) async fn answer(&mut self) -> Outcome<Answer> {
        let mut informational = Vec::new();
        loop {
            let head = self.head().await?;
            if head.status() < 200 {
                informational.push(head.status());
                continue;
            }
            let (body, end) = self.0.body(&head, true).await?;
            return Ok(Answer { head, body, end, informational });
        }
    }

    /// Chunks until their data holds `needle`; an error if the body ends first.
    pub(crate) async fn until(&mut self, needle: &str) -> Outcome<Vec<u8>> {
        let mut seen = Vec::new();
        while find(&seen, needle.as_bytes()).is_none() {
            match self.0.chunk().await? {
                Chunk::Data(data) => seen.extend(data),
                end @ (Chunk::Last(_) | Chunk::Cut) => return Err(format!("{end:?} before {needle:?}, behind {:?}", tail(&seen)).into()),
            }
        }
        Ok(seen)
    }

    /// Waits until the gateway has closed, and nothing came before.
    pub(crate) async fn closed(&mut self) -> Outcome<Gone> {
        let (rest, gone) = self.0.rest().await?;
        if rest.is_empty() { Ok(gone) } else { Err(format!("bytes before the end: {:?}", tail(&rest)).into()) }
    }
}
