//! HTTP to one leader for one round of probing: one connection, dialled on first use, dialled anew if the leader closed it, closed at the
//! end.
//!
//! Owns: requests, their clocks and the bound on answers. Must not: judge an answer (`answer`) or keep a connection between rounds.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::Fuse;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, USER_AGENT};
use http::{HeaderValue, Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1::{self, Connection, SendRequest};
use hyper_util::rt::TokioIo;

use super::ProbeTarget;
use super::counters::{ProbeResult, ProbeStep, Tally};
use crate::dial::{Conn, DialError, Dialer};

/// One request of a probe.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) path: &'static str,
    /// POSTed as JSON; `None`: GET.
    pub(super) json: Option<Bytes>,
    /// From the request to the last byte of the answer; dialling has its own clock.
    pub(super) limit: Duration,
    /// Largest answer that is read.
    pub(super) max_bytes: usize,
}

/// A whole answer.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) body: Bytes,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum CallError {
    #[error(transparent)]
    Dial(DialError),
    #[error("no answer in time")]
    Timeout,
    /// Reset, closed, not HTTP, or larger than `max_bytes`.
    #[error("no whole answer: {0}")]
    Broken(String),
}

pub(super) struct Session<'a> {
    dialer: &'a Dialer,
    tally: &'a Tally,
    target: &'a ProbeTarget,
    /// `Authorization` of calls below `/v1/`.
    pub(super) key: Option<HeaderValue>,
    open: Option<Open>,
}

struct Open {
    sender: SendRequest<Full<Bytes>>,
    driver: Driver,
}

type Driver = Pin<Box<Fuse<Connection<TokioIo<Conn>, Full<Bytes>>>>>;

impl<'a> Session<'a> {
    pub(super) fn new(dialer: &'a Dialer, tally: &'a Tally, target: &'a ProbeTarget) -> Self {
        Self { dialer, tally, target, key: None, open: None }
    }

    /// Sends one request and reads its answer whole.
    pub(super) async fn call(&mut self, call: Call) -> Result<Answer, CallError> {
        let limit = call.limit;
        let max_bytes = call.max_bytes;
        let request = self.request(call)?;
        let mut open = match self.still_open().await {
            Some(open) => open,
            None => self.dial().await?,
        };
        let exchange = exchange(&mut open.sender, request, max_bytes);
        let answer = tokio::time::timeout(limit, drive(&mut open.driver, exchange)).await.map_err(|_| CallError::Timeout)??;
        self.open = Some(open);
        Ok(answer)
    }

    /// The connection of the call before, if the leader keeps it.
    async fn still_open(&mut self) -> Option<Open> {
        let mut open = self.open.take()?;
        let ready = drive(&mut open.driver, open.sender.ready()).await;
        ready.is_ok().then_some(open)
    }

    async fn dial(&self) -> Result<Open, CallError> {
        let settings = &self.target.settings;
        let dialled = self.dialer.connect(&self.target.address, &settings.tls, settings.clocks.connect).await;
        self.tally.add(ProbeStep::Connect, connect_result(&dialled));
        let (sender, connection) = http1::handshake(TokioIo::new(dialled.map_err(CallError::Dial)?)).await.map_err(broken)?;
        Ok(Open { sender, driver: Box::pin(connection.fuse()) })
    }

    fn request(&self, call: Call) -> Result<Request<Full<Bytes>>, CallError> {
        let method = if call.json.is_some() { Method::POST } else { Method::GET };
        let mut request = Request::builder()
            .method(method)
            .uri(call.path)
            .header(HOST, authority(self.target))
            .header(USER_AGENT, "leadgate-probe")
            .header(ACCEPT, "application/json")
            .header("x-request-id", format!("leadgate-probe-{}", self.tally.next_request()));
        if call.json.is_some() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        if let Some(key) = self.key.as_ref().filter(|_| call.path.starts_with("/v1/")) {
            request = request.header(AUTHORIZATION, key);
        }
        request.body(Full::new(call.json.unwrap_or_default())).map_err(|error| CallError::Broken(error.to_string()))
    }
}

fn authority(target: &ProbeTarget) -> String {
    let address = &target.address;
    if address.host.contains(':') { format!("[{}]:{}", address.host, address.port) } else { format!("{}:{}", address.host, address.port) }
}

fn connect_result(dialled: &Result<Conn, DialError>) -> ProbeResult {
    match dialled {
        Ok(_) => ProbeResult::Ok,
        Err(DialError::Timeout(_)) => ProbeResult::Timeout,
        Err(DialError::Tls(_)) => ProbeResult::Tls,
        Err(DialError::Refused | DialError::Unreachable | DialError::Resolve(_)) => ProbeResult::Refused,
        Err(DialError::Io(_)) => ProbeResult::Failed,
    }
}

async fn exchange(sender: &mut SendRequest<Full<Bytes>>, request: Request<Full<Bytes>>, max_bytes: usize) -> Result<Answer, CallError> {
    let response = sender.send_request(request).await.map_err(broken)?;
    let status = response.status();
    let body = Limited::new(response.into_body(), max_bytes).collect().await.map_err(|error| CallError::Broken(error.to_string()))?;
    Ok(Answer { status, body: body.to_bytes() })
}

/// Polls the connection beside `work`, so that no task is needed for it. Its own end is not a result: `work` sees it in its answer.
async fn drive<F: Future>(driver: &mut Driver, work: F) -> F::Output {
    let mut work = pin!(work);
    poll_fn(|cx| {
        if let Poll::Ready(Err(error)) = driver.poll_unpin(cx) {
            tracing::trace!(%error, "probe connection ended");
        }
        work.as_mut().poll(cx)
    })
    .await
}

fn broken(error: hyper::Error) -> CallError {
    CallError::Broken(error.to_string())
}
