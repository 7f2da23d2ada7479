//! HTTP/1.1 towards leaders, as far as a reverse proxy needs it: one request at a time, its head written once, the answer decoded in the buffer that
//! it was read into.
//!
//! Why not hyper's client: it is made for two tasks. Connection and body wake each other through a channel, every chunk of a chunked answer passes
//! that channel alone, and each connection keeps a read buffer of its own. Engines send one chunk an event, so that cost is paid for every token
//! (docs/performance.md has the figures). What is strict in hyper is strict here; what is ambiguous is refused (RFC 9112 11.2), since an engine
//! that frames badly has no second meaning worth guessing.
//!
//! Trailers of an answer are dropped, as RFC 9110 6.5.1 allows.
//!
//! Pure: `request` writes, `head` and `chunked` read; none of them does IO. `upstream::link` does.

mod chunked;
mod head;
mod request;

pub(super) use chunked::{Chunked, Then};
pub(super) use head::{Framing, Head, MAX_HEAD, parse};
pub use request::RequestHead;

/// Why an answer cannot be understood. The connection that it came by is of no further use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// Not a status line and fields by RFC 9112 4 and 5.
    #[error("its head is not valid: {0}")]
    Head(httparse::Error),
    /// More than [`head::MAX_HEAD`] bytes.
    #[error("its head is longer than {} KiB", head::MAX_HEAD / 1024)]
    LongHead,
    /// A status or field that cannot be passed on.
    #[error("its head has a value that is not valid")]
    Value,
    /// RFC 9112 6.3: not a number, too large, or several that differ.
    #[error("its Content-Length is not valid")]
    Length,
    /// Anything but `chunked` alone, which is all that we can undo and all that was asked for.
    #[error("its Transfer-Encoding is not `chunked` alone")]
    Coding,
    /// 101, or interim answers without end.
    #[error("it sent interim answers that nobody asked for")]
    Interim,
    /// RFC 9112 7.1: size, line ends, extensions or trailers.
    #[error("its chunks are not valid")]
    Chunk,
}
