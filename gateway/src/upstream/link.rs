//! One HTTP/1.1 connection to a leader, polled by its user.
//!
//! Owns: the socket, sending one request at a time, and the place in its answer. Why no task: the answer's reader polls the connection, so a slow
//! client slows only its own leader connection, a client that left closes it by drop, and no channel or second task costs time per event.
//! Nothing is kept between two reads but an answer's place: all connections of a thread read into one buffer.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use discovery::dial::Conn;
use futures_util::task::noop_waker_ref;
use http::response::Parts;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::task::coop::unconstrained;

use crate::proxy::body::RequestBody;
use crate::telemetry::metrics::GaugeGuard;
use crate::upstream::h1::{self, Chunked, Framing, Head, Malformed, Then};
use crate::upstream::sending::Sending;

/// Bytes read at once.
const READ: usize = 64 * 1024;
/// Interim answers before the real one.
const MAX_INTERIM: u8 = 16;

thread_local! {
    static BUFFER: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Why a connection gives no answer, or no more of it.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// The socket failed.
    #[error("the connection broke: {0}")]
    Io(#[from] io::Error),
    /// It was closed before the answer was whole.
    #[error("the connection was closed before the answer was whole")]
    Incomplete,
    /// The answer cannot be understood.
    #[error("the leader's answer is not valid HTTP: {0}")]
    Malformed(#[from] Malformed),
}

/// Why a request got no answer head.
#[derive(Debug)]
pub struct SendError {
    /// Nothing of the request was written; by TLS perhaps a part, but never all of it: it cannot be executing.
    pub unsent: bool,
    /// What happened.
    pub error: LinkError,
}

/// Where an answer's body stands.
#[derive(Debug)]
enum Body {
    /// Bytes to come.
    Length(u64),
    Chunked(Chunked),
    Close,
    /// All of it was read, or there is none.
    Ended,
    /// What came last was good, what followed it was not.
    Failed(Malformed),
}

/// A connection that is idle or gives an answer.
#[derive(Debug)]
pub struct Link {
    conn: Conn,
    body: Body,
    /// Came with the head.
    ready: Bytes,
    /// Another request may follow once the body has ended.
    reusable: bool,
    open: GaugeGuard,
}

impl Link {
    /// Wraps a dialled connection; no byte is exchanged. `open` counts it as long as it lives.
    pub fn new(conn: Conn, open: GaugeGuard) -> Self {
        Self { conn, body: Body::Ended, ready: Bytes::new(), reusable: true, open }
    }

    /// Sends a request and reads the answer's head. An answer that comes before the request is out is heard, and the rest is not sent
    /// (RFC 9112 9.5, which means errors; no engine is known to begin a good answer before it has the body). Dropped before its end, or failed,
    /// the connection is of no further use.
    pub async fn send(&mut self, head: &[u8], body: &RequestBody) -> Result<Parts, SendError> {
        // Until there is an answer's head that says otherwise.
        self.reusable = false;
        let mut sending = Sending::new(head, body.chunks());
        let mut heads = Heads::default();
        let mut failed = None;
        let answer = poll_fn(|cx| {
            if failed.is_none()
                && let Poll::Ready(Err(error)) = sending.poll(Pin::new(&mut self.conn), cx)
            {
                if !sending.begun() {
                    return Poll::Ready(Err(error.into()));
                }
                // A leader that closed may have said why: its socket can be read now, or soon will be.
                failed = Some(error);
            }
            match self.poll_head(cx, &mut heads) {
                Poll::Ready(Err(error)) => Poll::Ready(Err(failed.take().map_or(error, LinkError::from))),
                answer @ (Poll::Ready(Ok(_)) | Poll::Pending) => answer,
            }
        });
        let answer = answer.await;
        self.reusable &= sending.done();
        answer.map_err(|error| SendError { unsent: !sending.begun(), error })
    }

    /// The next bytes of the answer's body. `None`: its framing ended properly; an error: it did not.
    pub fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, LinkError>>> {
        if !self.ready.is_empty() {
            return Poll::Ready(Some(Ok(std::mem::take(&mut self.ready))));
        }
        match self.body {
            Body::Ended => return Poll::Ready(None),
            Body::Failed(why) => return Poll::Ready(Some(Err(why.into()))),
            Body::Length(_) | Body::Chunked(_) | Body::Close => {}
        }
        let (body, reusable) = (&mut self.body, &mut self.reusable);
        loop {
            let data = ready!(read(&mut self.conn, cx, |buf| decode(body, reusable, buf)));
            return Poll::Ready(match data {
                Ok(data) if !data.is_empty() => Some(Ok(data)),
                Ok(_) => match body {
                    Body::Ended => None,
                    Body::Failed(why) => Some(Err((*why).into())),
                    Body::Length(_) | Body::Chunked(_) | Body::Close => continue,
                },
                Err(error) => {
                    *reusable = false;
                    Some(Err(error))
                }
            });
        }
    }

    /// Whether all of the answer's body was given out and its framing ended properly.
    pub fn is_whole(&self) -> bool {
        self.ready.is_empty() && matches!(self.body, Body::Ended)
    }

    /// What [`Link::new`] takes, if another request can be sent: the answer has ended well and the peer keeps the connection.
    pub fn into_idle(self) -> Option<(Conn, GaugeGuard)> {
        (self.reusable && self.is_whole()).then_some((self.conn, self.open))
    }

    /// Whether an idle connection still stands: neither closed nor sending what nobody asked for, as far as the runtime has heard.
    pub fn is_alive(&mut self) -> bool {
        let conn = &mut self.conn;
        let look = poll_fn(|cx| Pin::new(&mut *conn).poll_read(cx, &mut ReadBuf::new(&mut [0])));
        // Within the task's budget a look at many dead connections would use it up, and the next would seem to be silent.
        pin!(unconstrained(look)).poll(&mut Context::from_waker(noop_waker_ref())).is_pending()
    }

    fn poll_head(&mut self, cx: &mut Context<'_>, heads: &mut Heads) -> Poll<Result<Parts, LinkError>> {
        let (body, reusable) = (&mut self.body, &mut self.reusable);
        loop {
            let begun = ready!(read(&mut self.conn, cx, |buf| {
                if buf.is_empty() {
                    return Err(LinkError::Incomplete);
                }
                heads.feed(buf, |head, rest| {
                    *body = Body::from(head.framing);
                    *reusable = head.keep_alive;
                    let data = if rest.is_empty() { Bytes::new() } else { decode(body, reusable, rest)? };
                    Ok((head.parts, data))
                })
            }));
            if let Some((parts, data)) = begun? {
                self.ready = data;
                return Poll::Ready(Ok(parts));
            }
        }
    }
}

impl From<Framing> for Body {
    fn from(framing: Framing) -> Self {
        match framing {
            Framing::Length(0) => Self::Ended,
            Framing::Length(length) => Self::Length(length),
            Framing::Chunked => Self::Chunked(Chunked::default()),
            Framing::Close => Self::Close,
        }
    }
}

/// What came of a head that is not whole, and the interim ones so far.
#[derive(Default)]
struct Heads {
    partial: Vec<u8>,
    interim: u8,
}

impl Heads {
    /// Takes the next bytes; `begin` gets the final head and what follows it.
    fn feed<T>(&mut self, buf: &mut [u8], begin: impl FnOnce(Head, &mut [u8]) -> Result<T, LinkError>) -> Result<Option<T>, LinkError> {
        // In the usual case the head came in one piece and is read where it lies.
        if self.partial.is_empty() {
            let (used, begun) = self.advance(buf, begin)?;
            if begun.is_none() {
                self.partial.extend_from_slice(&buf[used..]);
            }
            return Ok(begun);
        }
        let mut joined = std::mem::take(&mut self.partial);
        joined.extend_from_slice(buf);
        // A head that comes in crumbs is looked at once a line, not once a crumb.
        if memchr::memchr(b'\n', buf).is_none() && joined.len() <= h1::MAX_HEAD {
            self.partial = joined;
            return Ok(None);
        }
        let (used, begun) = self.advance(&mut joined, begin)?;
        if begun.is_none() {
            joined.drain(..used);
            self.partial = joined;
        }
        Ok(begun)
    }

    /// Passes over interim heads to the final one. Gives the bytes of those passed over, if the final one is not whole.
    fn advance<T>(
        &mut self,
        buf: &mut [u8],
        begin: impl FnOnce(Head, &mut [u8]) -> Result<T, LinkError>,
    ) -> Result<(usize, Option<T>), LinkError> {
        let mut at = 0;
        while at < buf.len()
            && let Some(head) = h1::parse(&buf[at..])?
        {
            at += head.len;
            if !head.is_interim() {
                return begin(head, &mut buf[at..]).map(|begun| (at, Some(begun)));
            }
            // Nobody asked for a switch of protocols; of the others there are few.
            self.interim += 1;
            if head.parts.status == http::StatusCode::SWITCHING_PROTOCOLS || self.interim > MAX_INTERIM {
                return Err(Malformed::Interim.into());
            }
        }
        Ok((at, None))
    }
}

/// Reads once into the thread's buffer and hands what came to `take`; nothing: the end.
fn read<T>(conn: &mut Conn, cx: &mut Context<'_>, take: impl FnOnce(&mut [u8]) -> Result<T, LinkError>) -> Poll<Result<T, LinkError>> {
    let mut buffer = BUFFER.take();
    if buffer.len() < READ {
        buffer = vec![0; READ];
    }
    let mut buf = ReadBuf::new(&mut buffer);
    let read = Pin::new(conn).poll_read(cx, &mut buf);
    let result = read.map(|read| read.map_err(LinkError::from).and_then(|()| take(buf.filled_mut())));
    BUFFER.set(buffer);
    result
}

/// Takes the framing off the next bytes of a body; an empty `buf` is the end of the connection.
fn decode(body: &mut Body, reusable: &mut bool, buf: &mut [u8]) -> Result<Bytes, LinkError> {
    let (data, used) = match body {
        Body::Close if buf.is_empty() => {
            *body = Body::Ended;
            (0, 0)
        }
        Body::Length(_) | Body::Chunked(_) if buf.is_empty() => return Err(LinkError::Incomplete),
        Body::Close => (buf.len(), buf.len()),
        Body::Length(left) => {
            let n = usize::try_from(*left).unwrap_or(usize::MAX).min(buf.len());
            *left -= n as u64;
            if *left == 0 {
                *body = Body::Ended;
            }
            (n, n)
        }
        Body::Chunked(chunked) => {
            let decoded = chunked.decode(buf);
            match decoded.then {
                Then::More => {}
                Then::End => *body = Body::Ended,
                Then::Invalid => *body = Body::Failed(Malformed::Chunk),
            }
            (decoded.data, decoded.used)
        }
        Body::Ended | Body::Failed(_) => (0, 0),
    };
    // What follows an answer belongs to none.
    *reusable &= used == buf.len();
    Ok(Bytes::copy_from_slice(&buf[..data]))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds `text` in pieces of `piece` bytes up to the final head: its status and what followed it in that piece.
    fn fed(text: &[u8], piece: usize) -> Result<Option<(u16, Vec<u8>)>, LinkError> {
        let mut heads = Heads::default();
        for bytes in text.chunks(piece) {
            let mut buf = bytes.to_vec();
            let begun = heads.feed(&mut buf, |head, rest| Ok((head.parts.status.as_u16(), rest.to_vec())))?;
            if begun.is_some() {
                return Ok(begun);
            }
        }
        Ok(None)
    }

    #[test]
    fn finds_the_final_head_however_it_comes() {
        let text =
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: a\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nbody";
        for piece in 1..=text.len() {
            let (status, rest) = fed(text, piece).unwrap().unwrap();
            assert!(status == 200 && b"body".starts_with(&rest), "{piece}");
        }
        for len in 0..text.len() - 4 {
            assert!(fed(&text[..len], 7).unwrap().is_none(), "{len}");
        }
    }

    #[test]
    fn interim_answers_and_crumbs_are_bounded() {
        let many = "HTTP/1.1 103 Early Hints\r\n\r\n".repeat(usize::from(MAX_INTERIM) + 1);
        assert!(matches!(fed(many.as_bytes(), 11), Err(LinkError::Malformed(Malformed::Interim))));
        let switch = b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\n\r\n";
        assert!(matches!(fed(switch, 11), Err(LinkError::Malformed(Malformed::Interim))));
        let long = format!("HTTP/1.1 200 OK\r\nx: {}", "a".repeat(h1::MAX_HEAD));
        assert!(matches!(fed(long.as_bytes(), 1), Err(LinkError::Malformed(Malformed::LongHead))));
    }
}
