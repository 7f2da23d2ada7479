//! The real OpenTelemetry collector, and what it passes on: spans as it understood them.
//!
//! Owns: the collector's process, and the receiver of OTLP/JSON behind it. Must not: know which spans a request should have.

use std::convert::Infallible;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tempfile::TempDir;
use tests::poll::{PATIENCE, eventually};
use tests::process::{Process, Spec};
use tests::{Outcome, binaries};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::own_address;

type Kept = Arc<Mutex<Vec<Value>>>;

/// A running collector; ended with the test.
pub(crate) struct Collector {
    address: SocketAddr,
    spans: Kept,
    process: Process,
    _folder: TempDir,
    _tasks: JoinSet<()>,
}

impl Collector {
    /// Starts one and waits until it listens.
    pub(crate) async fn start() -> Outcome<Self> {
        let (mut tasks, spans) = (JoinSet::new(), Kept::default());
        let listener = TcpListener::bind(own_address()).await?;
        let behind = listener.local_addr()?;
        tasks.spawn(receive(listener, spans.clone()));
        let folder = tempfile::tempdir()?;
        // It cannot say which port it was given. The address is nobody else's, so that a port that was free stays so.
        let address = StdListener::bind(own_address())?.local_addr()?;
        let config = folder.path().join("collector.yaml");
        std::fs::write(&config, settings(address, behind))?;
        let program = binaries::collector().await?.to_owned();
        let args = vec!["--config".into(), config.into()];
        let process = Process::start(Spec { program, args, env: vec![], log: folder.path().join("log"), litter: None })?;
        let collector = Self { address, spans, process, _folder: folder, _tasks: tasks };
        eventually(PATIENCE, "a collector that listens", || async {
            TcpStream::connect(address).await.map(drop).map_err(|error| format!("{error}; log:\n{}", collector.process.log_tail(20)))
        })
        .await?;
        Ok(collector)
    }

    /// Its base URL for OTLP over HTTP.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The spans of a trace once there are `count`, by their start; of two that start together the SERVER span first.
    pub(crate) async fn trace(&self, id: &str, count: usize) -> Outcome<Vec<Value>> {
        let mut spans = eventually(PATIENCE, "spans at the collector", || async {
            let spans: Vec<Value> = held(&self.spans).iter().filter(|span| span["traceId"] == id).cloned().collect();
            if spans.len() >= count { Ok(spans) } else { Err(format!("{} of {count}", spans.len())) }
        })
        .await?;
        spans.sort_by_key(|span| (time(&span["startTimeUnixNano"]), span["kind"] != 2));
        Ok(spans)
    }
}

/// An attribute that is text.
pub(crate) fn text<'a>(span: &'a Value, key: &str) -> &'a str {
    let attributes = span["attributes"].as_array().into_iter().flatten();
    attributes
        .filter(|attribute| attribute["key"] == key)
        .find_map(|attribute| attribute["value"]["stringValue"].as_str())
        .unwrap_or_default()
}

/// The names of a span's events in their order, with blanks between them.
pub(crate) fn events(span: &Value) -> String {
    let events = span["events"].as_array().into_iter().flatten();
    events.filter_map(|event| event["name"].as_str()).collect::<Vec<_>>().join(" ")
}

/// When the first event of this name happened, nanoseconds since 1970.
pub(crate) fn event_time(span: &Value, name: &str) -> Option<u64> {
    span["events"].as_array()?.iter().find(|event| event["name"] == name).map(|event| time(&event["timeUnixNano"]))
}

/// A time of OTLP/JSON: nanoseconds since 1970, as text.
pub(crate) fn time(value: &Value) -> u64 {
    value.as_str().and_then(|text| text.parse().ok()).unwrap_or_default()
}

fn settings(listens: SocketAddr, behind: SocketAddr) -> String {
    format!(
        "receivers: {{otlp: {{protocols: {{http: {{endpoint: '{listens}'}}}}}}}}\n\
         exporters: {{otlp_http: {{endpoint: 'http://{behind}', encoding: json, compression: none, sending_queue: {{enabled: false}}}}}}\n\
         service: {{telemetry: {{metrics: {{level: none}}}}, pipelines: {{traces: {{receivers: [otlp], exporters: [otlp_http]}}}}}}\n"
    )
}

async fn receive(listener: TcpListener, spans: Kept) {
    let mut connections = JoinSet::new();
    while let Ok((socket, _)) = listener.accept().await {
        let spans = spans.clone();
        connections.spawn(async move {
            let service = service_fn(move |request| keep(request, spans.clone()));
            drop(http1::Builder::new().serve_connection(TokioIo::new(socket), service).await);
        });
    }
}

/// What is no JSON is kept by nobody; the test that waits for its spans says so.
async fn keep(request: Request<Incoming>, spans: Kept) -> Result<Response<Full<Bytes>>, Infallible> {
    let body = request.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let message: Value = serde_json::from_slice(&body).unwrap_or_default();
    let inner = |value: &Value, name: &str| value[name].as_array().cloned().unwrap_or_default();
    let scopes = inner(&message, "resourceSpans").into_iter().flat_map(|resource| inner(&resource, "scopeSpans"));
    held(&spans).extend(scopes.flat_map(|scope| inner(&scope, "spans")));
    let mut response = Response::new(Full::from("{}"));
    response.headers_mut().insert("content-type", http::HeaderValue::from_static("application/json"));
    Ok(response)
}

fn held(spans: &Kept) -> MutexGuard<'_, Vec<Value>> {
    spans.lock().unwrap_or_else(PoisonError::into_inner)
}
