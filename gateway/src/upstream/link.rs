//! One HTTP/1.1 connection to a leader, polled by its user.
//!
//! Owns: hyper's sender and connection halves together. Why no task: the answer's reader polls the connection in turn, so a slow client slows only
//! its own leader connection, a client that left closes it by drop, and no channel or second task costs time per event.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};

use discovery::dial::Conn;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, Connection, SendRequest};
use hyper_util::rt::TokioIo;

use crate::proxy::body::BodyReader;
use crate::telemetry::metrics::GaugeGuard;

/// Header fields accepted from a leader.
const MAX_HEADERS: usize = 128;

/// A connection and the right to send on it.
pub struct Link {
    sender: SendRequest<BodyReader>,
    /// `None` once hyper is done with it.
    connection: Option<Box<Connection<TokioIo<Conn>, BodyReader>>>,
    _open: GaugeGuard,
}

/// Why a request got no answer head.
#[derive(Debug)]
pub struct SendError {
    /// Not a byte of the request was written.
    pub unsent: bool,
    /// In words.
    pub error: hyper::Error,
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link").field("open", &self.connection.is_some()).finish()
    }
}

impl Link {
    /// Wraps a dialled connection; no byte is exchanged. `open` counts it as long as it lives.
    pub async fn new(conn: Conn, open: GaugeGuard) -> Result<Self, hyper::Error> {
        let (sender, connection) = http1::Builder::new().max_headers(MAX_HEADERS).handshake(TokioIo::new(conn)).await?;
        Ok(Self { sender, connection: Some(Box::new(connection)), _open: open })
    }

    /// Sends a request and reads the answer's head.
    pub async fn send(&mut self, request: Request<BodyReader>) -> Result<Response<Incoming>, SendError> {
        let mut answer = Box::pin(self.sender.try_send_request(request));
        let connection = &mut self.connection;
        poll_fn(|cx| {
            drive(connection, cx);
            answer.as_mut().poll(cx)
        })
        .await
        .map_err(|mut failed| SendError { unsent: failed.take_message().is_some(), error: failed.into_error() })
    }

    /// Lets the connection read, write and notice its end.
    pub fn drive(&mut self, cx: &mut Context<'_>) {
        drive(&mut self.connection, cx);
    }

    /// Whether another request can be sent now, after [`Link::drive`].
    pub fn is_ready(&self) -> bool {
        self.connection.is_some() && self.sender.is_ready() && !self.sender.is_closed()
    }
}

fn drive(connection: &mut Option<Box<Connection<TokioIo<Conn>, BodyReader>>>, cx: &mut Context<'_>) {
    if let Some(open) = connection
        && let Poll::Ready(result) = Pin::new(&mut **open).poll(cx)
    {
        // The request or body that the error belongs to has been told by hyper.
        if let Err(error) = result {
            tracing::trace!(%error, "leader connection ended");
        }
        *connection = None;
    }
}
