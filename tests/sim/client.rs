//! One client: its connection in memory to the real server, its request, and how that ended.
//!
//! Owns: leaving at its time, slow reading, and the longest silence. What came is put together by `heard`, judged by `judge`.

use std::future::{Future, poll_fn};
use std::net::{IpAddr, Ipv4Addr};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use gateway::gateway::Gateway;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::duplex;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::heard::Heard;
use crate::leader::Scene;
use crate::plan::ClientPlan;

/// How a request ended for its client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The client left.
    Left,
    /// A status and a body, the framing ended properly or not.
    Answered {
        /// Status.
        status: u16,
        /// The body's end was proper.
        clean: bool,
    },
    /// Not even a head.
    Nothing(String),
}

/// What became of one client.
#[derive(Debug)]
pub(crate) struct Report {
    /// What it wanted.
    pub(crate) plan: ClientPlan,
    /// How it ended.
    pub(crate) verdict: Verdict,
    /// What came.
    pub(crate) heard: Heard,
    /// When it ended.
    pub(crate) ended: Duration,
    /// Longest time without a byte, once the head had come.
    pub(crate) silence: Duration,
}

/// Client connections that the server has not let go of.
#[derive(Debug, Default)]
pub(crate) struct Open(AtomicUsize);

impl Open {
    /// Now.
    pub(crate) fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// Plays a client to its end.
pub(crate) async fn run(scene: Arc<Scene>, gateway: Arc<Gateway>, open: Arc<Open>, plan: ClientPlan) -> Report {
    sleep_until(scene.journal.at(plan.at)).await;
    let (ours, theirs) = duplex(plan.buffer);
    open.0.fetch_add(1, Ordering::Relaxed);
    scene.tasks.spawn(async move {
        gateway::server::connection::serve(theirs, IpAddr::V4(Ipv4Addr::LOCALHOST), gateway, 0).await;
        open.0.fetch_sub(1, Ordering::Relaxed);
    });
    scene.journal.note(format_args!("{} asks{}", plan.id, if plan.stream { "" } else { " for a whole answer" }));
    let mut listening = Listening { heard: Heard::default(), last: None, silence: Duration::ZERO };
    let talk = talk(ours, &plan, &mut listening);
    let verdict = match plan.leaves {
        None => talk.await,
        Some(after) => timeout(after, talk).await.unwrap_or(Verdict::Left),
    };
    scene.journal.note(format_args!("{} ended: {verdict:?} {:?}", plan.id, listening.heard.error));
    Report { plan, verdict, ended: scene.journal.now(), heard: listening.heard, silence: listening.silence }
}

struct Listening {
    heard: Heard,
    last: Option<Instant>,
    silence: Duration,
}

impl Listening {
    fn byte(&mut self) {
        let now = Instant::now();
        if let Some(last) = self.last.replace(now) {
            self.silence = self.silence.max(now - last);
        }
    }
}

async fn talk(socket: tokio::io::DuplexStream, plan: &ClientPlan, listening: &mut Listening) -> Verdict {
    let body = Full::new(Bytes::from(plan.body.to_string()));
    let request = Request::post(format!("http://gateway{}", plan.path))
        .header("host", "gateway")
        .header("content-type", "application/json")
        .header("x-request-id", &plan.id)
        .body(body);
    let nothing = |error: &dyn std::fmt::Display| Verdict::Nothing(error.to_string());
    let mut request = match request {
        Ok(request) => request,
        Err(error) => return nothing(&error),
    };
    let io = TokioIo::new(socket);
    if plan.h2 {
        match http2::handshake(TokioExecutor::new(), io).await {
            Ok((mut sender, connection)) => beside(connection, listen(sender.send_request(request), plan, listening)).await,
            Err(error) => nothing(&error),
        }
    } else {
        *request.uri_mut() = http::Uri::from_static(plan.path);
        match http1::handshake(io).await {
            Ok((mut sender, connection)) => beside(connection, listen(sender.send_request(request), plan, listening)).await,
            Err(error) => nothing(&error),
        }
    }
}

async fn listen(answer: impl Future<Output = hyper::Result<Response<Incoming>>>, plan: &ClientPlan, listening: &mut Listening) -> Verdict {
    let response = match answer.await {
        Ok(response) => response,
        Err(error) => return Verdict::Nothing(error.to_string()),
    };
    listening.byte();
    let status = response.status().as_u16();
    let stream = response.headers().get("content-type").is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"));
    let mut body = response.into_body();
    let mut whole = Vec::new();
    let clean = loop {
        if !plan.slow.is_zero() {
            sleep(plan.slow).await;
        }
        match body.frame().await {
            None => break true,
            Some(Err(_)) => break false,
            Some(Ok(frame)) => {
                let data = frame.into_data().unwrap_or_default();
                listening.byte();
                if stream { listening.heard.bytes(&data) } else { whole.extend_from_slice(&data) }
            }
        }
    };
    if !stream {
        listening.heard.object(&whole);
    }
    Verdict::Answered { status, clean }
}

/// `work`, with the connection driven beside it.
async fn beside<F: Future>(connection: impl Future, work: F) -> F::Output {
    let (mut connection, mut work) = (pin!(connection.fuse()), pin!(work));
    poll_fn(|cx| {
        // Its errors reach the request that they belong to.
        let _ = connection.as_mut().poll(cx);
        work.as_mut().poll(cx)
    })
    .await
}
