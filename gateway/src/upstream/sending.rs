//! A request on its way out: its head and the pieces of its body, written without joining them.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use tokio::io::AsyncWrite;

/// Pieces given to one system call.
const SLICES: usize = 64;

/// See the module.
#[derive(Debug)]
pub(super) struct Sending<'a> {
    head: &'a [u8],
    chunks: &'a [Bytes],
    /// The piece that is next, the head being the first, and what of it is written.
    next: usize,
    offset: usize,
    flushed: bool,
}

impl<'a> Sending<'a> {
    pub(super) fn new(head: &'a [u8], chunks: &'a [Bytes]) -> Self {
        Self { head, chunks, next: 0, offset: 0, flushed: false }
    }

    /// A byte was written.
    pub(super) fn begun(&self) -> bool {
        self.next > 0 || self.offset > 0
    }

    /// All was written.
    pub(super) fn done(&self) -> bool {
        self.flushed
    }

    /// Writes as much as the socket takes.
    pub(super) fn poll<W: AsyncWrite>(&mut self, mut out: Pin<&mut W>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.piece(self.next).is_some() {
            let mut slices = [IoSlice::new(&[]); SLICES];
            let mut filled = 0;
            while filled < SLICES
                && let Some(piece) = self.piece(self.next + filled)
            {
                slices[filled] = IoSlice::new(if filled == 0 { &piece[self.offset..] } else { piece });
                filled += 1;
            }
            match ready!(out.as_mut().poll_write_vectored(cx, &slices[..filled]))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                written => self.advance(written),
            }
        }
        if !self.flushed {
            ready!(out.poll_flush(cx))?;
            self.flushed = true;
        }
        Poll::Ready(Ok(()))
    }

    fn piece(&self, nth: usize) -> Option<&'a [u8]> {
        match nth {
            0 => Some(self.head),
            _ => self.chunks.get(nth - 1).map(|chunk| &**chunk),
        }
    }

    fn advance(&mut self, mut written: usize) {
        while let Some(piece) = self.piece(self.next) {
            let left = piece.len() - self.offset;
            if written < left {
                self.offset += written;
                return;
            }
            written -= left;
            (self.next, self.offset) = (self.next + 1, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::task::noop_waker_ref;

    /// Takes so many bytes at each second call, and nothing at the others.
    struct Slow(usize, bool, Vec<u8>);

    impl AsyncWrite for Slow {
        fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
            self.poll_write_vectored(cx, &[IoSlice::new(buf)])
        }

        fn poll_write_vectored(mut self: Pin<&mut Self>, _: &mut Context<'_>, bufs: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
            self.1 = !self.1;
            if self.1 {
                return Poll::Pending;
            }
            let all: Vec<u8> = bufs.iter().flat_map(|buf| buf.to_vec()).take(self.0).collect();
            self.2.extend_from_slice(&all);
            Poll::Ready(Ok(all.len()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[test]
    fn writes_everything_once_whatever_the_socket_takes() {
        let chunks: Vec<Bytes> = (0..200u8).map(|n| Bytes::from(vec![n; usize::from(n % 7)])).collect();
        let whole: Vec<u8> = [b"head".to_vec(), chunks.concat()].concat();
        for takes in [1, 3, 4, 50, 10_000] {
            let mut sending = Sending::new(b"head", &chunks);
            let mut socket = Slow(takes, false, Vec::new());
            let mut cx = Context::from_waker(noop_waker_ref());
            assert!(sending.poll(Pin::new(&mut socket), &mut cx).is_pending() && !sending.begun());
            // Bounded by the bytes there are.
            for _ in 0..2 * whole.len() {
                let _ = sending.poll(Pin::new(&mut socket), &mut cx);
            }
            assert!(sending.done() && socket.2 == whole, "{takes}");
        }
    }
}
