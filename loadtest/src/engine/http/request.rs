//! Reading requests from a connection.
//!
//! Owns the input buffer of a connection and its bounds. Accepts what clients and proxies really send: `Content-Length`,
//! chunked, `Expect: 100-continue`, pipelining. Anything ambiguous ends the connection with a 400.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Longest head in bytes.
const MAX_HEAD: usize = 64 * 1024;

/// One request, whole.
#[derive(Debug, Clone, Default)]
pub(crate) struct Request {
    pub(crate) method: String,
    /// Without the query.
    pub(crate) path: String,
    /// Names in lower case, in the order of the wire.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    /// The connection ends behind the answer.
    pub(crate) close: bool,
}

impl Request {
    /// The first value of a header; `name` in lower case.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(have, _)| have == name).map(|(_, value)| value.as_str())
    }
}

/// Why there is no request.
#[derive(Debug)]
pub(crate) enum ReadError {
    /// The peer closed, or nothing came in time.
    Closed,
    /// The bytes are no request.
    Bad,
}

impl From<io::Error> for ReadError {
    fn from(_: io::Error) -> Self {
        Self::Closed
    }
}

/// A connection and the bytes read ahead of it.
#[derive(Debug)]
pub(crate) struct Input {
    pub(crate) stream: TcpStream,
    pub(crate) ahead: Vec<u8>,
    max_body: usize,
}

impl Input {
    pub(crate) fn new(stream: TcpStream, max_body: usize) -> Self {
        Self { stream, ahead: Vec::with_capacity(2048), max_body }
    }

    /// Waits for the next request's first bytes for at most `idle`, then reads all of it.
    pub(crate) async fn next(&mut self, idle: Duration) -> Result<Request, ReadError> {
        if self.ahead.is_empty() {
            tokio::time::timeout(idle, self.more()).await.map_err(|_| ReadError::Closed)??;
        }
        let end = self.head_end().await?;
        let head = String::from_utf8(self.ahead[..end].to_vec()).map_err(|_| ReadError::Bad)?;
        self.ahead.drain(..end + 4);
        let mut request = parse_head(&head)?;
        if request.header("expect").is_some_and(|value| value.eq_ignore_ascii_case("100-continue")) {
            self.stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await?;
        }
        request.body = self.body(&request).await?;
        Ok(request)
    }

    async fn more(&mut self) -> Result<(), ReadError> {
        if self.stream.read_buf(&mut self.ahead).await? == 0 { Err(ReadError::Closed) } else { Ok(()) }
    }

    async fn head_end(&mut self) -> Result<usize, ReadError> {
        let mut from = 0;
        loop {
            if let Some(at) = find(&self.ahead[from..], b"\r\n\r\n") {
                return Ok(from + at);
            }
            if self.ahead.len() > MAX_HEAD {
                return Err(ReadError::Bad);
            }
            from = self.ahead.len().saturating_sub(3);
            self.more().await?;
        }
    }

    async fn body(&mut self, request: &Request) -> Result<Vec<u8>, ReadError> {
        match (request.header("transfer-encoding"), request.header("content-length")) {
            (Some(_), Some(_)) => Err(ReadError::Bad),
            (Some(coding), None) if coding.eq_ignore_ascii_case("chunked") => self.chunked().await,
            (Some(_), None) => Err(ReadError::Bad),
            (None, Some(length)) => {
                let length = length.parse().map_err(|_| ReadError::Bad)?;
                self.take(length).await
            }
            (None, None) => Ok(Vec::new()),
        }
    }

    async fn take(&mut self, length: usize) -> Result<Vec<u8>, ReadError> {
        if length > self.max_body {
            return Err(ReadError::Bad);
        }
        self.ahead.reserve(length.saturating_sub(self.ahead.len()));
        while self.ahead.len() < length {
            self.more().await?;
        }
        let rest = self.ahead.split_off(length);
        Ok(std::mem::replace(&mut self.ahead, rest))
    }

    async fn chunked(&mut self) -> Result<Vec<u8>, ReadError> {
        let mut body = Vec::new();
        loop {
            let line = self.line().await?;
            let size = line.split(';').next().unwrap_or("").trim();
            let size = usize::from_str_radix(size, 16).map_err(|_| ReadError::Bad)?;
            if body.len().saturating_add(size) > self.max_body {
                return Err(ReadError::Bad);
            }
            if size == 0 {
                while !self.line().await?.is_empty() {}
                return Ok(body);
            }
            let mut chunk = self.take(size + 2).await?;
            chunk.truncate(size);
            body.append(&mut chunk);
        }
    }

    async fn line(&mut self) -> Result<String, ReadError> {
        loop {
            if let Some(at) = find(&self.ahead, b"\r\n") {
                let line = String::from_utf8(self.ahead[..at].to_vec()).map_err(|_| ReadError::Bad)?;
                self.ahead.drain(..at + 2);
                return Ok(line);
            }
            if self.ahead.len() > MAX_HEAD {
                return Err(ReadError::Bad);
            }
            self.more().await?;
        }
    }
}

fn parse_head(head: &str) -> Result<Request, ReadError> {
    let mut lines = head.split("\r\n");
    let mut words = lines.next().unwrap_or("").split(' ');
    let (Some(method), Some(target), Some(version), None) = (words.next(), words.next(), words.next(), words.next()) else {
        return Err(ReadError::Bad);
    };
    let mut headers = Vec::with_capacity(12);
    for line in lines {
        let (name, value) = line.split_once(':').ok_or(ReadError::Bad)?;
        if name.is_empty() || name.contains(' ') {
            return Err(ReadError::Bad);
        }
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    let path = target.split('?').next().unwrap_or("").to_owned();
    let mut request = Request { method: method.to_owned(), path, headers, body: Vec::new(), close: false };
    let said = request.header("connection").unwrap_or("").to_ascii_lowercase();
    request.close = match version {
        "HTTP/1.1" => said.contains("close"),
        "HTTP/1.0" => !said.contains("keep-alive"),
        _ => return Err(ReadError::Bad),
    };
    Ok(request)
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    memchr::memmem::find(haystack, needle)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_parsed_or_refused() {
        let request = parse_head("POST /v1/x?a=1 HTTP/1.1\r\nHost: a\r\nX-Request-Id:  7 ").ok().unwrap();
        assert_eq!((request.path.as_str(), request.header("x-request-id"), request.close), ("/v1/x", Some("7"), false));
        assert!(parse_head("GET / HTTP/1.1\r\nConnection: close").ok().unwrap().close);
        assert!(parse_head("GET / HTTP/1.0\r\nHost: a").ok().unwrap().close);
        for bad in ["GET /", "GET / HTTP/2.0", "GET / HTTP/1.1\r\nno colon", "GET / HTTP/1.1\r\nname : x"] {
            assert!(parse_head(bad).is_err(), "{bad}");
        }
    }
}
