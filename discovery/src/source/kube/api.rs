//! The two requests of a list-watch, and what an API server can answer.
//!
//! Owns: paths, query, status decoding, and the limits of one request. Must not: retry (`reflector` does) or read objects (`decode` does).

use std::time::Duration;

use ::kube::Client;
use ::kube::client::Body;
use ::kube::core::Request;
use ::kube::core::params::{ListParams, WatchParams};
use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::lines::Lines;
use crate::fact::Kind;
use crate::source::operator;
use crate::status::Denied;

/// Objects a page: some 4 MiB of Pods.
const PAGE: u32 = 500;
/// Longest page in bytes.
const MAX_PAGE: usize = 256 * 1024 * 1024;
/// The server ends a watch after this and it is opened again; must be below 295 s.
const WATCH_SECONDS: u32 = 290;

/// One kind in one namespace, or in all.
#[derive(Debug, Clone)]
pub(super) struct Resource {
    pub(super) kind: Kind,
    pub(super) namespace: Option<String>,
}

/// What went wrong with a request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Failure {
    /// 403.
    #[error("{0}")]
    Denied(Denied),
    /// 410, or a resource version that the server does not accept: only a new list helps.
    #[error("the resource version is too old")]
    Expired,
    /// Any other answer that is no success.
    #[error("the API server answered {code}: {message}")]
    Status {
        /// HTTP status, or the code of an in-band error.
        code: u16,
        /// As the server says it.
        message: String,
    },
    /// No answer, or a broken one.
    #[error("{0}")]
    Transport(String),
    /// Nothing within the limit.
    #[error("no sign of life for {0:?}")]
    Silent(Duration),
}

/// One page of a list.
#[derive(Debug)]
pub(super) struct Page {
    pub(super) items: Vec<Box<RawValue>>,
    /// Where a watch goes on.
    pub(super) version: String,
    /// Token of the next page.
    pub(super) next: Option<String>,
}

/// One event of a watch.
#[derive(Debug, Deserialize)]
pub(super) struct WatchLine {
    /// `ADDED`, `MODIFIED`, `DELETED`, `BOOKMARK` or `ERROR`.
    #[serde(rename = "type")]
    pub(super) event: String,
    /// The object, or a Status.
    pub(super) object: Box<RawValue>,
}

/// An open watch.
#[derive(Debug)]
pub(super) struct Watch {
    body: Body,
    lines: Lines,
    idle: Duration,
}

impl Resource {
    /// `pods`, or with its group: `modeldeployments.worker.gpustack.ai`.
    pub(super) fn full_name(&self) -> String {
        match self.kind {
            Kind::Deployment => format!("{}.{}", self.kind.resource(), operator::GROUP),
            Kind::Pod | Kind::Service => self.kind.resource().to_owned(),
        }
    }

    fn path(&self) -> String {
        let root = match self.kind {
            Kind::Deployment => format!("/apis/{}/{}", operator::GROUP, operator::WATCHED_VERSION),
            Kind::Pod | Kind::Service => "/api/v1".to_owned(),
        };
        let namespace = self.namespace.as_ref().map(|namespace| format!("/namespaces/{namespace}")).unwrap_or_default();
        format!("{root}{namespace}/{}", self.kind.resource())
    }

    fn selector(&self) -> Option<&'static str> {
        match self.kind {
            Kind::Deployment => None,
            Kind::Pod | Kind::Service => Some(operator::OBJECT_SELECTOR),
        }
    }

    fn denied(&self, verb: &'static str) -> Failure {
        Failure::Denied(Denied { verb, resource: self.full_name(), namespace: self.namespace.clone() })
    }
}

/// Reads one page. The first page (`token` is `None`) is asked of etcd, not of a cache: a relist must not bring old news.
pub(super) async fn page(client: &Client, resource: &Resource, token: Option<String>, limit: Duration) -> Result<Page, Failure> {
    #[derive(Deserialize)]
    struct List {
        metadata: ListMeta,
        #[serde(default)]
        items: Option<Vec<Box<RawValue>>>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct ListMeta {
        #[serde(default)]
        resource_version: String,
        #[serde(rename = "continue")]
        next: Option<String>,
    }
    let mut params = ListParams::default().limit(PAGE);
    params.label_selector = resource.selector().map(str::to_owned);
    params.continue_token = token;
    let request = Request::new(resource.path()).list(&params).map_err(|error| Failure::Transport(error.to_string()))?;
    let read = async {
        let answer = send(client, resource, "list", request).await?;
        collect(answer).await
    };
    let bytes = tokio::time::timeout(limit, read).await.map_err(|_| Failure::Silent(limit))??;
    let list: List = serde_json::from_slice(&bytes).map_err(|error| Failure::Transport(format!("the list cannot be read: {error}")))?;
    Ok(Page {
        items: list.items.unwrap_or_default(),
        version: list.metadata.resource_version,
        next: list.metadata.next.filter(|token| !token.is_empty()),
    })
}

/// Opens a watch behind `version`. `limit` bounds the answer's head, `idle` every silence after it.
pub(super) async fn watch(client: &Client, resource: &Resource, version: &str, limits: (Duration, Duration)) -> Result<Watch, Failure> {
    let (limit, idle) = limits;
    let mut params = WatchParams::default().timeout(WATCH_SECONDS);
    params.label_selector = resource.selector().map(str::to_owned);
    let request = Request::new(resource.path()).watch(&params, version).map_err(|error| Failure::Transport(error.to_string()))?;
    let answer = tokio::time::timeout(limit, send(client, resource, "watch", request)).await.map_err(|_| Failure::Silent(limit))??;
    Ok(Watch { body: answer.into_body(), lines: Lines::default(), idle })
}

impl Watch {
    /// The next event; `None` when the server ended the watch.
    pub(super) async fn next(&mut self) -> Result<Option<WatchLine>, Failure> {
        loop {
            if let Some(line) = self.lines.next().map_err(|_| Failure::Transport("a line of the watch is too long".into()))? {
                let parsed = serde_json::from_slice(&line);
                return parsed.map(Some).map_err(|error| Failure::Transport(format!("an event cannot be read: {error}")));
            }
            let frame = tokio::time::timeout(self.idle, self.body.frame()).await.map_err(|_| Failure::Silent(self.idle))?;
            match frame {
                Some(Ok(frame)) => {
                    if let Some(bytes) = frame.data_ref() {
                        self.lines.push(bytes);
                    }
                }
                Some(Err(error)) => return Err(Failure::Transport(error.to_string())),
                None => return Ok(None),
            }
        }
    }
}

/// An in-band `ERROR` event, or the body of a refusal.
pub(super) fn failure(status: &[u8], fallback: u16) -> Failure {
    #[derive(Deserialize, Default)]
    #[serde(default)]
    struct Status {
        code: u16,
        reason: String,
        message: String,
    }
    let text = || String::from_utf8_lossy(&status[..status.len().min(200)]).into_owned();
    let status: Status = serde_json::from_slice(status).unwrap_or_else(|_| Status { message: text(), ..Status::default() });
    let code = if status.code == 0 { fallback } else { status.code };
    if code == StatusCode::GONE.as_u16() || matches!(status.reason.as_str(), "Expired" | "Gone") {
        return Failure::Expired;
    }
    Failure::Status { code, message: status.message }
}

async fn send(
    client: &Client,
    resource: &Resource,
    verb: &'static str,
    request: http::Request<Vec<u8>>,
) -> Result<Response<Body>, Failure> {
    let answer = client.send(request.map(Body::from)).await.map_err(|error| Failure::Transport(chain(&error)))?;
    match answer.status() {
        status if status.is_success() => Ok(answer),
        StatusCode::FORBIDDEN => Err(resource.denied(verb)),
        status => {
            let body = collect(answer).await.unwrap_or_default();
            Err(failure(&body, status.as_u16()))
        }
    }
}

async fn collect(answer: Response<Body>) -> Result<Bytes, Failure> {
    let collected = Limited::new(answer.into_body(), MAX_PAGE).collect().await;
    collected.map(http_body_util::Collected::to_bytes).map_err(|error| Failure::Transport(chain(&*error)))
}

/// "client error (Connect)" alone tells nobody what to do: the causes are said too.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let next = error.to_string();
        if !text.ends_with(&next) {
            text.push_str(": ");
            text.push_str(&next);
        }
        cause = error.source();
    }
    text
}
