//! Reads requests from a connection in memory, and sees when the other side is gone.
//!
//! Owns: the bytes read ahead. Knows only what the gateway sends: a head and a `content-length`.

use std::io;

use tokio::io::{AsyncReadExt, DuplexStream, ReadHalf};

/// One request.
#[derive(Debug, Default)]
pub(crate) struct Request {
    /// The path.
    pub(crate) path: String,
    /// `X-Request-Id`.
    pub(crate) id: String,
    /// The body.
    pub(crate) body: Vec<u8>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Inbox {
    reader: ReadHalf<DuplexStream>,
    ahead: Vec<u8>,
}

impl Inbox {
    /// Nothing read yet.
    pub(crate) fn new(reader: ReadHalf<DuplexStream>) -> Self {
        Self { reader, ahead: Vec::new() }
    }

    /// The next request; `None`: the other side is gone.
    pub(crate) async fn next(&mut self) -> Option<Request> {
        loop {
            if let Some(request) = self.whole() {
                return Some(request);
            }
            self.more().await.ok()?;
        }
    }

    /// Resolves when the other side is gone.
    pub(crate) async fn gone(&mut self) {
        while self.more().await.is_ok() {}
    }

    async fn more(&mut self) -> io::Result<()> {
        if self.reader.read_buf(&mut self.ahead).await? == 0 { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
    }

    fn whole(&mut self) -> Option<Request> {
        let end = self.ahead.windows(4).position(|w| w == b"\r\n\r\n")? + 4;
        let head = String::from_utf8_lossy(&self.ahead[..end]).into_owned();
        let field = |name: &str| {
            let mut fields = head.lines().filter_map(|line| line.split_once(':'));
            fields.find(|(have, _)| have.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim().to_owned())
        };
        let length = field("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
        if self.ahead.len() < end + length {
            return None;
        }
        let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
        let request = Request { path, id: field("x-request-id").unwrap_or_default(), body: self.ahead[end..end + length].to_vec() };
        self.ahead.drain(..end + length);
        Some(request)
    }
}
