//! One HTTP/1.1 connection to a leader, polled by its user.
//!
//! Owns: the socket, sending one request at a time, and the place in its answer. Why no task: the answer's reader polls the connection, so a slow
//! client slows only its own leader connection, a client that left closes it by drop, and no channel or second task costs time per event.
//! Nothing is kept between two reads but an answer's place: all connections of a thread read into one buffer.

use std::cell::Cell;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use discovery::dial::Conn;
use futures_util::task::noop_waker_ref;
use http::response::Parts;
use tokio::io::{AsyncRead, ReadBuf};

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
    /// Not a byte of the request was written.
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
    _open: GaugeGuard,
}

impl Link {
    /// Wraps a dialled connection; no byte is exchanged. `open` counts it as long as it lives.
    pub fn new(conn: Conn, open: GaugeGuard) -> Self {
        Self { conn, body: Body::Ended, ready: Bytes::new(), reusable: true, _open: open }
    }

    /// Sends a request and reads the answer's head. An answer that comes before the request is out is heard, and the rest is not sent
    /// (RFC 9112 9.5).
    pub async fn send(&mut self, head: &[u8], body: &RequestBody) -> Result<Parts, SendError> {
        let mut sending = Sending::new(head, body.chunks());
        let mut heads = Heads::default();
        let answer = poll_fn(|cx| {
            let failed = match sending.poll(Pin::new(&mut self.conn), cx) {
                Poll::Ready(Err(error)) if !sending.begun() => return Poll::Ready(Err(error.into())),
                Poll::Ready(Err(error)) => Some(error),
                Poll::Ready(Ok(())) | Poll::Pending => None,
            };
            match (self.poll_head(cx, &mut heads), failed) {
                // A leader that closed may have said why.
                (Poll::Ready(Err(_)) | Poll::Pending, Some(error)) => Poll::Ready(Err(error.into())),
                (answer, _) => answer,
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

    /// Whether another request can be sent: the answer has ended well and the peer keeps the connection.
    pub fn is_reusable(&self) -> bool {
        self.reusable && self.ready.is_empty() && matches!(self.body, Body::Ended)
    }

    /// Whether an idle connection still stands: neither closed nor sending what nobody asked for, as far as the runtime has heard.
    pub fn is_alive(&mut self) -> bool {
        let mut byte = [0];
        let read = Pin::new(&mut self.conn).poll_read(&mut Context::from_waker(noop_waker_ref()), &mut ReadBuf::new(&mut byte));
        read.is_pending()
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
                    *reusable &= head.keep_alive;
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
        let mut joined;
        let mut rest = if self.partial.is_empty() {
            buf
        } else {
            joined = std::mem::take(&mut self.partial);
            joined.extend_from_slice(buf);
            joined.as_mut_slice()
        };
        loop {
            let Some(head) = h1::parse(rest)? else {
                self.partial = rest.to_vec();
                return Ok(None);
            };
            let len = head.len;
            if !head.is_interim() {
                return begin(head, &mut rest[len..]).map(Some);
            }
            // Nobody asked for a switch of protocols; of the others there are few.
            self.interim += 1;
            if head.parts.status == http::StatusCode::SWITCHING_PROTOCOLS || self.interim > MAX_INTERIM {
                return Err(Malformed::Interim.into());
            }
            rest = &mut rest[len..];
            if rest.is_empty() {
                return Ok(None);
            }
        }
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
