//! A scripted leader for the prober's tests: answers by path, tells what it was asked, and can stay silent.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

use crate::snapshot::Address;
use crate::tasks::TaskSet;

/// Only a hang reaches it.
const DEADLINE: Duration = Duration::from_secs(20);

/// What a path answers.
#[derive(Clone)]
pub(super) enum Reply {
    Answer(u16, String),
    /// As `Answer`, and `connection: close`.
    Last(u16, String),
    /// 401 unless the request carries this `Authorization`, then the answer.
    Guarded(&'static str, String),
    Hang,
}

/// A request as it came.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) path: String,
    pub(super) headers: http::HeaderMap,
    pub(super) body: Bytes,
}

#[derive(Default)]
struct State {
    seen: Vec<Seen>,
    open: usize,
}

pub(super) struct Leader {
    pub(super) address: Address,
    script: Arc<Mutex<HashMap<&'static str, Reply>>>,
    state: watch::Sender<State>,
}

pub(super) const MODELS: &str = r#"{"object":"list","data":[{"id":"tiny","parent":null}]}"#;
pub(super) const GENERATED: &str = r#"{"choices":[{"index":0,"text":"b","finish_reason":"length"}]}"#;

impl Leader {
    /// A leader that proves itself with the model `tiny`.
    pub(super) async fn start(tasks: &TaskSet) -> Self {
        Self::listen(tasks, None).await
    }

    pub(super) async fn start_tls(tasks: &TaskSet, acceptor: TlsAcceptor) -> Self {
        Self::listen(tasks, Some(acceptor)).await
    }

    async fn listen(tasks: &TaskSet, tls: Option<TlsAcceptor>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let script = Arc::new(Mutex::new(HashMap::from([
            ("/health", Reply::Answer(200, String::new())),
            ("/v1/models", Reply::Answer(200, MODELS.to_owned())),
            ("/v1/completions", Reply::Answer(200, GENERATED.to_owned())),
        ])));
        let leader =
            Self { address: Address { https: tls.is_some(), host: "127.0.0.1".into(), port }, script, state: watch::Sender::default() };
        let (script, state, set) = (leader.script.clone(), leader.state.clone(), tasks.clone());
        tasks.spawn("leader", async move {
            while let Ok((tcp, _)) = listener.accept().await {
                let (script, state, tls) = (script.clone(), state.clone(), tls.clone());
                set.spawn("connection", async move {
                    match tls {
                        None => serve(TokioIo::new(tcp), script, state).await,
                        Some(tls) => {
                            if let Ok(stream) = tls.accept(tcp).await {
                                serve(TokioIo::new(stream), script, state).await;
                            }
                        }
                    }
                });
            }
        });
        leader
    }

    pub(super) fn on(&self, path: &'static str, reply: Reply) {
        self.script.lock().unwrap().insert(path, reply);
    }

    pub(super) fn answer(&self, path: &'static str, status: u16, body: &str) {
        self.on(path, Reply::Answer(status, body.to_owned()));
    }

    pub(super) fn seen(&self) -> Vec<Seen> {
        self.state.borrow().seen.clone()
    }

    pub(super) fn count(&self, path: &str) -> usize {
        self.state.borrow().seen.iter().filter(|seen| seen.path == path).count()
    }

    /// Waits until `path` was asked `times` times.
    pub(super) async fn asked(&self, path: &str, times: usize) {
        let enough = |state: &State| state.seen.iter().filter(|seen| seen.path == path).count() >= times;
        let mut state = self.state.subscribe();
        tokio::time::timeout(DEADLINE, state.wait_for(enough)).await.expect("asked in time").unwrap();
    }

    /// Waits until no connection is open.
    pub(super) async fn left_alone(&self) {
        let mut state = self.state.subscribe();
        tokio::time::timeout(DEADLINE, state.wait_for(|state| state.open == 0)).await.expect("closed in time").unwrap();
    }
}

async fn serve<I>(io: I, script: Arc<Mutex<HashMap<&'static str, Reply>>>, state: watch::Sender<State>)
where
    I: hyper::rt::Read + hyper::rt::Write + Unpin + 'static,
{
    state.send_modify(|state| state.open += 1);
    let service = service_fn(|request| answer(request, &script, &state));
    hyper::server::conn::http1::Builder::new().serve_connection(io, service).await.ok();
    state.send_modify(|state| state.open -= 1);
}

async fn answer(
    request: Request<Incoming>,
    script: &Mutex<HashMap<&'static str, Reply>>,
    state: &watch::Sender<State>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    let path = head.uri.path().to_owned();
    let reply = script.lock().unwrap().get(path.as_str()).cloned();
    let authorised = |key: &str| head.headers.get("authorization").is_some_and(|value| value == key);
    let mut response = Response::builder();
    let (status, text) = match reply {
        None => (404, r#"{"detail":"Not Found"}"#.to_owned()),
        Some(Reply::Answer(status, text)) => (status, text),
        Some(Reply::Last(status, text)) => {
            response = response.header("connection", "close");
            (status, text)
        }
        Some(Reply::Guarded(key, text)) if authorised(key) => (200, text),
        Some(Reply::Guarded(..)) => (401, r#"{"error":"Unauthorized"}"#.to_owned()),
        Some(Reply::Hang) => {
            state.send_modify(|state| state.seen.push(Seen { path, headers: head.headers, body }));
            return std::future::pending().await;
        }
    };
    state.send_modify(|state| state.seen.push(Seen { path, headers: head.headers, body }));
    Ok(response.status(status).body(Full::new(text.into())).unwrap())
}
