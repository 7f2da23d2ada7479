//! The clock of a request's header section on an HTTP/1.1 connection (`limits.header_timeout`).
//!
//! Owns: where a connection stands: idle, inside a head, or answering. hyper has one clock for idle connections and slow heads alike, and they need
//! different limits: idle ones are kept for minutes, half a head is an attack or a dead link. Must not: close anything; `io` fails the read that
//! waits for the rest of a late head, which ends the connection. Limit: the first part of a head that came together with the request before it is
//! only seen by the idle clock.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

const IDLE: u8 = 0;
const IN_HEAD: u8 = 1;
const ANSWERING: u8 = 2;

/// Where one connection stands. Only its own task changes it.
#[derive(Debug, Default)]
pub struct HeadClock(AtomicU8);

impl HeadClock {
    /// Bytes came. True if they begin a head.
    pub fn bytes_came(&self) -> bool {
        self.0.compare_exchange(IDLE, IN_HEAD, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Whether a head has begun and is not whole.
    pub fn in_head(&self) -> bool {
        self.0.load(Ordering::Relaxed) == IN_HEAD
    }

    /// The head is whole; the connection is idle again when the guard is dropped.
    pub fn answering(self: &Arc<Self>) -> Answering {
        self.0.store(ANSWERING, Ordering::Relaxed);
        Answering(self.clone())
    }
}

/// Lives as long as an answer.
#[derive(Debug)]
pub struct Answering(Arc<HeadClock>);

impl Drop for Answering {
    fn drop(&mut self) {
        self.0.0.store(IDLE, Ordering::Relaxed);
    }
}

/// An answer's body that tells the clock when it has ended.
#[derive(Debug)]
pub struct Timed<B> {
    body: B,
    _answering: Answering,
}

impl<B> Timed<B> {
    /// `body` of the answer that `answering` stands for.
    pub fn new(body: B, answering: Answering) -> Self {
        Self { body, _answering: answering }
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for Timed<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_bytes_of_a_head_begin_it() {
        let clock = Arc::new(HeadClock::default());
        assert!(clock.bytes_came());
        assert!(!clock.bytes_came());
        assert!(clock.in_head());
        let answering = clock.answering();
        assert!(!clock.bytes_came(), "bytes of the body");
        drop(answering);
        assert!(!clock.in_head());
        assert!(clock.bytes_came());
    }
}
