//! HTTP of the stand-in: connections, and which store operation a request is.
//!
//! Owns: methods, bodies, statuses. Must not: decide what a change does (`store`) or what a watch sends (`watch`).

use std::convert::Infallible;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream;
use http::header::CONTENT_TYPE;
use http::{Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, Limited, StreamBody};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::faults::{Faults, Verb};
use super::page::{self, Page, Token};
use super::query::Query;
use super::refusal::Refusal;
use super::route::{self, Kind, Part, Route};
use super::store::{Deletion, Key, Store};
use super::watch::{Activity, Watch};

/// A larger object is refused; a real server's limit is 3 MiB.
const MAX_BODY: usize = 3 * 1024 * 1024;

type Body = UnsyncBoxBody<Bytes, io::Error>;

/// What all connections share.
#[derive(Debug, Default)]
pub(super) struct Shared {
    pub(super) store: Store,
    pub(super) faults: Faults,
    pub(super) activity: Activity,
}

/// Serves every connection of `listener`; dropping the future closes them all.
pub(super) async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((tcp, _)) if !shared.faults.is_gone() => {
                    connections.spawn(serve(tcp, shared.clone()));
                }
                Ok(_) => {}
                Err(error) => tracing::debug!(%error, "accept failed"),
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn serve(tcp: TcpStream, shared: Arc<Shared>) {
    let service = service_fn(|request| answer(request, &shared));
    let connection = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(tcp), service);
    tokio::select! {
        ended = connection => {
            if let Err(error) = ended {
                tracing::trace!(%error, "connection ended");
            }
        }
        () = shared.faults.going() => {}
    }
}

async fn answer(request: Request<Incoming>, shared: &Arc<Shared>) -> Result<Response<Body>, Infallible> {
    Ok(match request.uri().path() {
        "/version" => json_response(StatusCode::OK, &json!({"major": "1", "minor": "33", "gitVersion": "v1.33.0-standin"})),
        "/readyz" | "/livez" | "/healthz" => response(StatusCode::OK, "text/plain", boxed("ok".into())),
        _ => resource(request, shared).await.unwrap_or_else(|refusal| {
            json_response(StatusCode::from_u16(refusal.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR), &refusal.status())
        }),
    })
}

async fn resource(request: Request<Incoming>, shared: &Arc<Shared>) -> Result<Response<Body>, Refusal> {
    let route = route::parse(request.uri().path())?;
    let query = Query::parse(request.uri().query());
    let verb = verb(request.method(), &route, &query)?;
    shared.faults.admit(verb, route.kind, route.namespace.as_deref()).await?;
    let store = &shared.store;
    let key = Key::new(route.kind, route.namespace.as_deref().unwrap_or_default(), route.name.as_deref().unwrap_or_default());
    let done = match verb {
        Verb::List => return list(shared, &route, &query),
        Verb::Watch => return Ok(watch(Watch::open(shared.clone(), route, &query)?)),
        Verb::Get => store.get(&key)?,
        Verb::Create if route.part == Part::Binding => {
            let target = read_json(request).await?["target"]["name"].as_str().unwrap_or_default().to_owned();
            store.bind(&key, &target)?;
            return Ok(json_response(StatusCode::CREATED, &success()));
        }
        Verb::Create => {
            let object = store.create(route.kind, &key.namespace, read_json(request).await?)?;
            return Ok(json_response(StatusCode::CREATED, &object));
        }
        Verb::Update if route.part == Part::Status => store.replace_status(&key, read_json(request).await?)?,
        Verb::Update => store.replace(&key, read_json(request).await?)?,
        Verb::Patch => patch(store, &key, route.part, request).await?,
        Verb::Delete => return delete(store, &key, deletion(&query, request).await?),
    };
    Ok(json_response(StatusCode::OK, &done))
}

fn verb(method: &Method, route: &Route, query: &Query) -> Result<Verb, Refusal> {
    Ok(match (method.as_str(), &route.name) {
        ("GET", None) if query.flag("watch") => Verb::Watch,
        ("GET", None) => Verb::List,
        ("GET", Some(_)) => Verb::Get,
        ("POST", None) => Verb::Create,
        ("POST", Some(_)) if route.part == Part::Binding => Verb::Create,
        ("PUT", Some(_)) => Verb::Update,
        ("PATCH", Some(_)) => Verb::Patch,
        ("DELETE", Some(_)) => Verb::Delete,
        _ => return Err(Refusal::new(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")),
    })
}

fn list(shared: &Shared, route: &Route, query: &Query) -> Result<Response<Body>, Refusal> {
    let from = query.get("continue").map(Token::parse).transpose()?;
    let limit = query.number("limit")?.filter(|limit| *limit > 0).and_then(|limit| usize::try_from(limit).ok());
    let (objects, revision) = shared.store.list(route.kind, route.namespace.as_deref(), &query.selector()?);
    let exact = query.get("resourceVersionMatch") == Some("Exact");
    if exact && query.number("resourceVersion")?.is_some_and(|wanted| wanted != revision) {
        return Err(Refusal::expired());
    }
    shared.activity.listed(route.kind);
    Ok(json_response(StatusCode::OK, &page::list(route.kind, objects, revision, &Page { from, limit })))
}

fn watch(watch: Watch) -> Response<Body> {
    let events = stream::unfold(watch, |mut watch| async move { watch.next().await.map(|event| (event, watch)) });
    response(StatusCode::OK, "application/json", StreamBody::new(events).boxed_unsync())
}

async fn patch(store: &Store, key: &Key, part: Part, request: Request<Incoming>) -> Result<Arc<Value>, Refusal> {
    let kind = request.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if !kind.starts_with("application/merge-patch+json") {
        let message = format!("the body of the request was in an unsupported format ({kind}); accepted: application/merge-patch+json");
        return Err(Refusal::new(415, "UnsupportedMediaType", message));
    }
    let body = read_json(request).await?;
    if part == Part::Status { store.patch_status(key, body) } else { store.patch(key, body) }
}

async fn deletion(query: &Query, request: Request<Incoming>) -> Result<Deletion, Refusal> {
    let options = read_json(request).await?;
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let preconditions = &options["preconditions"];
    let grace = options["gracePeriodSeconds"].as_u64().or(query.number("gracePeriodSeconds")?);
    Ok(Deletion { grace, uid: text(&preconditions["uid"]), version: text(&preconditions["resourceVersion"]) })
}

/// A Pod's deletion answers the Pod, whatever became of it; other kinds answer `Success` once they are gone.
fn delete(store: &Store, key: &Key, deletion: Deletion) -> Result<Response<Body>, Refusal> {
    let object = store.delete(key, &deletion)?;
    let gone = key.kind != Kind::Pod && store.get(key).is_err();
    Ok(if gone { json_response(StatusCode::OK, &success()) } else { json_response(StatusCode::OK, &object) })
}

fn success() -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"})
}

/// The body as JSON; an empty one is `null`.
async fn read_json(request: Request<Incoming>) -> Result<Value, Refusal> {
    let body = Limited::new(request.into_body(), MAX_BODY).collect().await.map_err(|error| Refusal::bad(error.to_string()))?;
    let bytes = body.to_bytes();
    if bytes.is_empty() {
        return Ok(Value::Null);
    }
    serde_json::from_slice(&bytes).map_err(|error| Refusal::bad(format!("the body is not JSON: {error}")))
}

fn json_response(status: StatusCode, value: &Value) -> Response<Body> {
    response(status, "application/json", boxed(value.to_string().into()))
}

fn response(status: StatusCode, kind: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, http::HeaderValue::from_static(kind));
    response
}

fn boxed(bytes: Bytes) -> Body {
    Full::new(bytes).map_err(|never| match never {}).boxed_unsync()
}
