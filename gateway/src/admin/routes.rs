//! What each path of the admin port answers.
//!
//! Owns: paths, methods, statuses. Must not: take a body larger than a log filter or wait for one longer than `BODY_TIMEOUT`.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::header::{ACCEPT, ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use http::{Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use serde::Serialize;

use super::explain::explain;
use super::server::Port;
use super::state::{state, status};
use super::{Admin, events};
use crate::telemetry::logs::LEVEL_BYTES;
use crate::telemetry::metrics::Format;

/// Body of an answer.
pub(super) type Body = UnsyncBoxBody<Bytes, std::convert::Infallible>;

/// For the body of a log-level change.
const BODY_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest model name that is explained, bytes.
const MODEL_BYTES: usize = 1024;

const TEXT: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";

/// Answers one request.
pub(super) async fn answer(request: Request<Incoming>, port: &Port) -> Response<Body> {
    let admin = &*port.admin;
    let path = request.uri().path().to_owned();
    if path == "/debug/log-level" {
        return log_level(request, admin).await;
    }
    if !known(&path) {
        return text(StatusCode::NOT_FOUND, "not found\n");
    }
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return not_allowed("GET, HEAD");
    }
    if path == "/debug/events" {
        return events(&request, port);
    }
    if path == "/debug/history" {
        return json(&port.history.samples());
    }
    read(&path, &request, admin)
}

fn known(path: &str) -> bool {
    let debug = ["/debug/snapshot", "/debug/explain", "/debug/recent", "/debug/status", "/debug/events", "/debug/history"];
    matches!(path, "/" | "/livez" | "/readyz" | "/metrics") || debug.contains(&path)
}

fn read(path: &str, request: &Request<Incoming>, admin: &Admin) -> Response<Body> {
    match path {
        "/livez" => text(StatusCode::OK, "ok\n"),
        "/readyz" => ready(admin),
        "/metrics" => metrics(request, admin),
        "/debug/snapshot" => json(&state(&*admin.view, SystemTime::now(), admin.started)),
        "/debug/recent" => json(&admin.recent.since(0)),
        "/debug/status" => json(&status(admin, SystemTime::now(), 0)),
        "/" => page(),
        _ => explanation(request, admin),
    }
}

fn page() -> Response<Body> {
    let mut response = respond(StatusCode::OK, "text/html; charset=utf-8", include_str!("page.html").to_owned());
    // The page is one file: nothing may be loaded but what it holds, and it may talk to this port alone.
    const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; img-src data:; \
                          base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
    response.headers_mut().insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    response.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

fn events(request: &Request<Incoming>, port: &Port) -> Response<Body> {
    // HEAD asks for the headers alone; a body that never ends must not be begun for it.
    if request.method() == Method::HEAD {
        return respond(StatusCode::OK, events::TYPE, String::new());
    }
    match events::stream(&port.admin, &port.places) {
        Some(body) => {
            let mut response = respond(StatusCode::OK, events::TYPE, String::new());
            *response.body_mut() = body;
            response
        }
        None => text(StatusCode::SERVICE_UNAVAILABLE, "too many readers of /debug/events\n"),
    }
}

fn ready(admin: &Admin) -> Response<Body> {
    let missing = admin.view.readiness().missing();
    if missing.is_empty() {
        return text(StatusCode::OK, "ok\n");
    }
    text(StatusCode::SERVICE_UNAVAILABLE, &format!("{}\n", missing.join("\n")))
}

fn metrics(request: &Request<Incoming>, admin: &Admin) -> Response<Body> {
    let format = Format::accepted(request.headers().get(ACCEPT).and_then(|v| v.to_str().ok()));
    respond(StatusCode::OK, format.content_type(), admin.metrics.scrape(format, admin.mirror_names))
}

fn explanation(request: &Request<Incoming>, admin: &Admin) -> Response<Body> {
    let asked = request.uri().query().and_then(|q| parameter(q, "model"));
    match asked {
        Some(model) if !model.is_empty() && model.len() <= MODEL_BYTES => json(&explain(&*admin.view, &model)),
        _ => text(StatusCode::BAD_REQUEST, "say which model: /debug/explain?model=NAME\n"),
    }
}

async fn log_level(request: Request<Incoming>, admin: &Admin) -> Response<Body> {
    match *request.method() {
        Method::GET | Method::HEAD => text(StatusCode::OK, &format!("{}\n", admin.logs.level())),
        Method::PUT | Method::POST => set_level(request.into_body(), admin).await,
        _ => not_allowed("GET, HEAD, PUT, POST"),
    }
}

async fn set_level(body: Incoming, admin: &Admin) -> Response<Body> {
    let collected = tokio::time::timeout(BODY_TIMEOUT, Limited::new(body, LEVEL_BYTES).collect()).await;
    let Ok(Ok(collected)) = collected else {
        return text(StatusCode::BAD_REQUEST, "body too long or too late\n");
    };
    let bytes = collected.to_bytes();
    let changed = std::str::from_utf8(&bytes).map_err(|e| e.to_string()).and_then(|l| admin.logs.set_level(l).map_err(|e| e.to_string()));
    match changed {
        Ok(()) => {
            tracing::info!(level = admin.logs.level(), "log level changed");
            text(StatusCode::OK, &format!("{}\n", admin.logs.level()))
        }
        Err(why) => text(StatusCode::BAD_REQUEST, &format!("{why}\n")),
    }
}

fn not_allowed(allow: &'static str) -> Response<Body> {
    let mut response = text(StatusCode::METHOD_NOT_ALLOWED, "method not allowed\n");
    response.headers_mut().insert(ALLOW, HeaderValue::from_static(allow));
    response
}

fn text(status: StatusCode, body: &str) -> Response<Body> {
    respond(status, TEXT, body.to_owned())
}

fn json<T: Serialize>(value: &T) -> Response<Body> {
    match serde_json::to_string(value) {
        Ok(body) => respond(StatusCode::OK, JSON, body),
        Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, &format!("{error}\n")),
    }
}

pub(super) fn respond(status: StatusCode, kind: &'static str, body: String) -> Response<Body> {
    let mut response = Response::new(Full::new(Bytes::from(body)).boxed_unsync());
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Value of a query parameter, percent-decoded; `+` stands for itself.
fn parameter(query: &str, name: &str) -> Option<String> {
    let raw = query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))?;
    let mut bytes = Vec::with_capacity(raw.len());
    let mut rest = raw.as_bytes();
    while let [first, tail @ ..] = rest {
        let escaped = || Some(hex(*tail.first()?)? * 16 + hex(*tail.get(1)?)?);
        match (*first == b'%').then(escaped).flatten() {
            Some(byte) => {
                bytes.push(byte);
                rest = &tail[2..];
            }
            None => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    String::from_utf8(bytes).ok()
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|d| u8::try_from(d).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_decoded() {
        assert_eq!(parameter("a=1&model=ns%2Fm+x", "model").as_deref(), Some("ns/m+x"));
        assert_eq!(parameter("model=%e2%82%ac", "model").as_deref(), Some("€"));
        assert_eq!(parameter("model=a%", "model").as_deref(), Some("a%"));
        assert_eq!(parameter("model=%ff", "model"), None);
        assert_eq!(parameter("modelx=1", "model"), None);
    }
}
