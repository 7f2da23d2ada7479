//! A client's socket as the server reads and writes it.
//!
//! Owns: the bytes read while the HTTP version was found out, and the count of what was written and flushed, which tells a stream whether its last
//! event has left the process (wire rules H10, T7: the error event first, flushed, then the cut), and the clock of a client that takes nothing. For
//! HTTP/1.1 it also fails the read of a head that is late (`head_clock`).

use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use config::Config;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

use crate::server::head_clock::HeadClock;

/// Bytes and flushes of one connection, read by its streams.
#[derive(Debug, Default)]
pub struct Written {
    bytes: AtomicU64,
    flushes: AtomicU64,
}

impl Written {
    /// Bytes handed to the kernel.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Times that the server had nothing more to write and flushed.
    pub fn flushes(&self) -> u64 {
        self.flushes.load(Ordering::Relaxed)
    }
}

/// See the module.
#[derive(Debug)]
pub struct ClientIo<S> {
    socket: S,
    /// Read already, not yet given on.
    prefix: Vec<u8>,
    written: Arc<Written>,
    /// Whose clocks hold here. One pointer: each open stream pays for what lies in this struct.
    config: Arc<Config>,
    /// Runs while the socket takes nothing.
    stalled: Option<Pin<Box<Sleep>>>,
    /// `None`: heads have no clock here.
    heads: Option<Heads>,
}

/// The clock of heads, and the timer of the head that is being read.
#[derive(Debug)]
struct Heads {
    clock: Arc<HeadClock>,
    /// Made only when a head did not come in one piece.
    timer: Option<Pin<Box<Sleep>>>,
}

impl Heads {
    fn bytes_came(&mut self) {
        if self.clock.bytes_came() {
            self.timer = None;
        }
    }

    fn poll_late(&mut self, limit: Duration, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.clock.in_head() {
            return Poll::Pending;
        }
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep(limit)));
        timer.as_mut().poll(cx).map(|()| Err(io::Error::new(io::ErrorKind::TimedOut, "the header section did not arrive in time")))
    }
}

impl<S> ClientIo<S> {
    /// A socket of which `prefix` was read already. A write fails when the peer has taken nothing for `limits.write_timeout`.
    pub fn new(socket: S, prefix: Vec<u8>, config: Arc<Config>) -> Self {
        Self { socket, prefix, written: Arc::default(), config, stalled: None, heads: None }
    }

    /// From now on a head that is not whole `limits.header_timeout` after its first byte fails its read.
    pub fn time_heads(&mut self, clock: Arc<HeadClock>) {
        self.heads = Some(Heads { clock, timer: None });
    }

    /// The counts.
    pub fn written(&self) -> &Arc<Written> {
        &self.written
    }

    fn wrote(&mut self, cx: &mut Context<'_>, result: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        match &result {
            Poll::Ready(Ok(n)) => {
                // One writer: no read-modify-write needed.
                self.written.bytes.store(self.written.bytes() + *n as u64, Ordering::Relaxed);
                self.stalled = None;
            }
            Poll::Ready(Err(_)) => {}
            Poll::Pending => {
                let limit = self.config.limits.write_timeout;
                let timer = self.stalled.get_or_insert_with(|| Box::pin(sleep(limit)));
                ready!(timer.as_mut().poll(cx));
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client takes nothing of its answer")));
            }
        }
        result
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for ClientIo<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = self.read(cx, buf);
        let this = &mut *self;
        match (&mut this.heads, &read) {
            (Some(heads), Poll::Pending) => heads.poll_late(this.config.limits.header_timeout, cx),
            (Some(heads), Poll::Ready(Ok(()))) if buf.filled().len() > before => {
                heads.bytes_came();
                read
            }
            _ => read,
        }
    }
}

impl<S: AsyncRead + Unpin> ClientIo<S> {
    fn read(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.prefix.is_empty() {
            return Pin::new(&mut self.socket).poll_read(cx, buf);
        }
        let n = self.prefix.len().min(buf.remaining());
        buf.put_slice(&self.prefix[..n]);
        self.prefix.drain(..n);
        if self.prefix.is_empty() {
            self.prefix = Vec::new();
            // What follows it comes in the same read: hyper would make its buffer twice as large for a second one. An error shows again.
            let _ = Pin::new(&mut self.socket).poll_read(cx, buf);
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for ClientIo<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.socket).poll_write(cx, buf);
        self.wrote(cx, result)
    }

    fn poll_write_vectored(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bufs: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.socket).poll_write_vectored(cx, bufs);
        self.wrote(cx, result)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.written.flushes.store(self.written.flushes() + 1, Ordering::Relaxed);
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}
