//! HTTP/1.1 messages read from a socket byte by byte, for clients and engines of tests alike.
//!
//! Owns: heads, lengths, chunks, and how a message ended. It repairs nothing: what is no HTTP is an error.

use bytes::{Buf, BytesMut};
use tests::{Failure, Outcome};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::within;

/// A start line and its fields.
#[derive(Debug, Clone, Default)]
pub(crate) struct Head {
    /// `POST /path HTTP/1.1` or `HTTP/1.1 200 OK`.
    pub(crate) start: String,
    /// Fields in the order of the wire, names in lower case.
    pub(crate) fields: Vec<(String, String)>,
}

impl Head {
    fn parse(bytes: &[u8]) -> Outcome<Self> {
        let text = String::from_utf8_lossy(bytes).into_owned();
        let mut lines = text.split("\r\n").filter(|line| !line.is_empty());
        let start = lines.next().ok_or("a message without a start line")?.to_owned();
        let field = |line: &str| {
            let (name, value) = line.split_once(':').ok_or_else(|| Failure::from(format!("no field: {line:?}")))?;
            Ok((name.to_ascii_lowercase(), value.trim().to_owned()))
        };
        Ok(Self { start, fields: lines.map(field).collect::<Outcome<_>>()? })
    }

    /// All values of a field.
    pub(crate) fn all(&self, name: &str) -> Vec<&str> {
        self.fields.iter().filter(|(n, _)| n == name).map(|(_, value)| value.as_str()).collect()
    }

    /// The first value of a field.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.all(name).first().copied()
    }

    /// The second word of a status line.
    pub(crate) fn status(&self) -> u16 {
        self.start.split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap_or(0)
    }
}

/// How the peer ended its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Gone {
    /// FIN.
    Closed,
    /// RST.
    Reset,
}

/// How a body ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// As its framing says.
    Whole,
    /// With the connection, and without any framing.
    UntilClose,
    /// The connection ended first.
    Cut,
}

/// One piece of a chunked body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Chunk {
    /// A chunk.
    Data(Vec<u8>),
    /// The last chunk, with its trailer lines.
    Last(String),
    /// The connection ended first.
    Cut,
}

/// A socket and what was read from it and not yet used.
pub(crate) struct Peer {
    pub(crate) stream: TcpStream,
    buffer: BytesMut,
}

impl Peer {
    /// Wraps a connected socket.
    pub(crate) fn new(stream: TcpStream) -> Outcome<Self> {
        stream.set_nodelay(true)?;
        Ok(Self { stream, buffer: BytesMut::new() })
    }

    /// Writes all of it.
    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) -> Outcome<()> {
        within("a write", async { Ok(self.stream.write_all(bytes.as_ref()).await?) }).await
    }

    /// Reads more; `None` when there was some.
    pub(crate) async fn fill(&mut self) -> Outcome<Option<Gone>> {
        let read = tokio::time::timeout(tests::poll::PATIENCE, self.stream.read_buf(&mut self.buffer)).await;
        match read.map_err(|_| format!("the peer went quiet behind {:?}", tail(&self.buffer)))? {
            Ok(0) => Ok(Some(Gone::Closed)),
            Ok(_) => Ok(None),
            Err(_) => Ok(Some(Gone::Reset)),
        }
    }

    /// The next head; `None` if the connection ended before its first byte.
    pub(crate) async fn head(&mut self) -> Outcome<Option<Head>> {
        loop {
            if let Some(end) = find(&self.buffer, b"\r\n\r\n") {
                let head = Head::parse(&self.buffer[..end])?;
                self.buffer.advance(end + 4);
                return Ok(Some(head));
            }
            match self.fill().await? {
                None => {}
                Some(_) if self.buffer.is_empty() => return Ok(None),
                Some(gone) => return Err(format!("{gone:?} inside a head: {:?}", tail(&self.buffer)).into()),
            }
        }
    }

    /// `n` bytes, or as many as came.
    pub(crate) async fn exactly(&mut self, n: usize) -> Outcome<(Vec<u8>, End)> {
        while self.buffer.len() < n {
            if self.fill().await?.is_some() {
                return Ok((self.buffer.split().to_vec(), End::Cut));
            }
        }
        Ok((self.buffer.split_to(n).to_vec(), End::Whole))
    }

    /// All until the connection ends.
    pub(crate) async fn rest(&mut self) -> Outcome<(Vec<u8>, Gone)> {
        loop {
            if let Some(gone) = self.fill().await? {
                return Ok((self.buffer.split().to_vec(), gone));
            }
        }
    }

    /// The next chunk of a chunked body.
    pub(crate) async fn chunk(&mut self) -> Outcome<Chunk> {
        let Some(line) = self.line().await? else { return Ok(Chunk::Cut) };
        let size = line.split(';').next().unwrap_or_default().trim();
        let size = usize::from_str_radix(size, 16).map_err(|_| format!("no chunk size: {line:?}"))?;
        if size == 0 {
            return self.trailers().await;
        }
        let (mut data, end) = self.exactly(size + 2).await?;
        if end == End::Cut {
            return Ok(Chunk::Cut);
        }
        data.truncate(size);
        Ok(Chunk::Data(data))
    }

    async fn trailers(&mut self) -> Outcome<Chunk> {
        let mut trailers = String::new();
        loop {
            match self.line().await? {
                None => return Ok(Chunk::Cut),
                Some(line) if line.is_empty() => return Ok(Chunk::Last(trailers)),
                Some(line) => trailers.extend([line.as_str(), "\n"]),
            }
        }
    }

    async fn line(&mut self) -> Outcome<Option<String>> {
        loop {
            if let Some(end) = find(&self.buffer, b"\r\n") {
                let line = String::from_utf8_lossy(&self.buffer[..end]).into_owned();
                self.buffer.advance(end + 2);
                return Ok(Some(line));
            }
            if self.fill().await?.is_some() {
                return Ok(None);
            }
        }
    }

    /// The body that `head` announces; `closes`: without framing it lasts until the connection ends, as an answer's does.
    pub(crate) async fn body(&mut self, head: &Head, closes: bool) -> Outcome<(Vec<u8>, End)> {
        if head.get("transfer-encoding").is_some_and(|coding| coding.eq_ignore_ascii_case("chunked")) {
            return self.chunked().await;
        }
        match head.get("content-length") {
            Some(length) => self.exactly(length.parse()?).await,
            None if closes => Ok((self.rest().await?.0, End::UntilClose)),
            None => Ok((Vec::new(), End::Whole)),
        }
    }

    async fn chunked(&mut self) -> Outcome<(Vec<u8>, End)> {
        let mut body = Vec::new();
        loop {
            match self.chunk().await? {
                Chunk::Data(data) => body.extend(data),
                Chunk::Last(_) => return Ok((body, End::Whole)),
                Chunk::Cut => return Ok((body, End::Cut)),
            }
        }
    }
}

/// Where `needle` is.
pub(crate) fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|window| window == needle)
}

/// The end of some bytes, for messages.
pub(crate) fn tail(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(300)..]).into_owned()
}
