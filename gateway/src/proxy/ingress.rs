//! Reads one request whole: checks of its head, its body within bounds, its model.
//!
//! Owns: `Inbound`. Must not: look at pools. The body is bounded by `limits.body_bytes`, all bodies together by `limits.body_bytes_total`.

use std::error::Error;
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use config::Limits;
use http::header::{CONTENT_LENGTH, HeaderMap, HeaderValue};
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{Method, Version};
use http_body::Body;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::time::timeout;

use crate::proxy::body::{BodyBuilder, RequestBody};
use crate::proxy::headers::{self, X_REQUEST_ID};
use crate::proxy::scan::{Scan, ScanError, Scanned};
use crate::reject::Reject;
use crate::telemetry::labels::Route;

/// Longest request id kept from a client.
const MAX_REQUEST_ID: usize = 256;

/// A request that has been read.
#[derive(Debug)]
pub struct Inbound {
    /// What the path does.
    pub route: Route,
    /// As sent.
    pub method: Method,
    /// As sent (RFC 9110 7.7).
    pub target: PathAndQuery,
    /// Version that the client spoke.
    pub version: Version,
    /// The client's fields.
    pub headers: HeaderMap,
    /// The client's authority.
    pub host: HeaderValue,
    /// Kept or made.
    pub request_id: HeaderValue,
    /// Model and stream.
    pub scanned: Scanned,
    /// The whole body.
    pub body: RequestBody,
    /// Its share of the total.
    pub charge: BodyCharge,
}

impl Inbound {
    /// Copies the head, and a small body, out of the buffer that they were read into. For a request that is kept while its answer runs: a few
    /// hundred bytes instead of the connection's buffer, which hyper then uses again instead of making another one to watch for the client's end.
    pub fn compact(&mut self) {
        self.body = self.body.compacted();
        self.headers.values_mut().for_each(|value| *value = headers::copied(value));
        self.host = headers::copied(&self.host);
        if let Ok(target) = PathAndQuery::try_from(self.target.as_str()) {
            self.target = target;
        }
    }
}

/// Why a request was not read.
#[derive(Debug)]
pub enum Unread {
    /// It is refused.
    Refused(Reject),
    /// Its client left before its end: there is nobody to refuse.
    Left,
}

impl From<Reject> for Unread {
    fn from(reject: Reject) -> Self {
        Self::Refused(reject)
    }
}

/// Bytes of all request bodies held at once.
#[derive(Debug)]
pub struct BodyBudget {
    held: AtomicU64,
}

impl Default for BodyBudget {
    fn default() -> Self {
        Self { held: AtomicU64::new(0) }
    }
}

impl BodyBudget {
    /// Bytes held now.
    pub fn held(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }
}

/// One body's share of the budget, given back by drop.
#[derive(Debug)]
pub struct BodyCharge {
    budget: Arc<BodyBudget>,
    bytes: u64,
}

impl BodyCharge {
    /// An empty share.
    pub fn new(budget: &Arc<BodyBudget>) -> Self {
        Self { budget: budget.clone(), bytes: 0 }
    }

    fn grow(&mut self, by: u64, max: u64) -> bool {
        let before = self.budget.held.fetch_add(by, Ordering::Relaxed);
        self.bytes += by;
        before.saturating_add(by) <= max
    }
}

impl Drop for BodyCharge {
    fn drop(&mut self) {
        self.budget.held.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// The id of a request: the client's if it is one line of visible characters, else a new one.
pub fn request_id(headers: &HeaderMap) -> HeaderValue {
    let usable = |value: &&HeaderValue| !value.is_empty() && value.len() <= MAX_REQUEST_ID && value.to_str().is_ok();
    headers.get(X_REQUEST_ID).filter(usable).map_or_else(new_request_id, headers::copied)
}

fn new_request_id() -> HeaderValue {
    let mut buffer = uuid::Uuid::encode_buffer();
    let id = uuid::Builder::from_random_bytes(rand::random()).into_uuid();
    HeaderValue::from_str(id.simple().encode_lower(&mut buffer)).unwrap_or_else(|_| HeaderValue::from_static("unknown"))
}

/// Reads the body of a routed request. `request_id` was made by the caller, who also needs it for refusals; `seen` counts the bytes of the body as
/// they come, also of one that is refused.
pub async fn read(
    (route, request_id): (Route, HeaderValue),
    parts: Parts,
    body: Incoming,
    limits: &Limits,
    (budget, seen): (&Arc<BodyBudget>, &mut u64),
) -> Result<Inbound, Unread> {
    let host = headers::authority(&parts.uri, &parts.headers, parts.version).map_err(|what| Reject::BadRequest(what.to_owned()))?;
    if declared_length(&parts.headers).is_some_and(|length| length > limits.body_bytes) {
        return Err(Reject::BodyTooLarge { limit: limits.body_bytes }.into());
    }
    let mut charge = BodyCharge::new(budget);
    let (body, scan) = collect((body, parts.version), limits, (&mut charge, seen)).await?;
    let scanned =
        scan.finish().map_err(|error: ScanError| Reject::BadRequest(format!("{error}: send a JSON object with a `model` field")))?;
    let target = parts.uri.into_parts().path_and_query.unwrap_or_else(|| PathAndQuery::from_static("/"));
    Ok(Inbound {
        route,
        method: parts.method,
        target,
        version: parts.version,
        headers: parts.headers,
        host,
        request_id,
        scanned,
        body,
        charge,
    })
}

async fn collect(
    (mut body, version): (Incoming, Version),
    limits: &Limits,
    (charge, seen): (&mut BodyCharge, &mut u64),
) -> Result<(RequestBody, Scan), Unread> {
    let (mut builder, mut scan) = (BodyBuilder::default(), Scan::default());
    // A body of known length that is whole needs no further look: hyper would only say so at another poll.
    while !body.is_end_stream() {
        let Some(frame) = next_frame(&mut body, limits.body_timeout).await? else {
            if broke_off(&body, version) {
                return Err(Unread::Left);
            }
            break;
        };
        // Trailers of a request are dropped (RFC 9110 6.5.1).
        let Ok(chunk) = frame.into_data() else { continue };
        *seen += chunk.len() as u64;
        if builder.bytes() as u64 + chunk.len() as u64 > limits.body_bytes {
            return Err(Reject::BodyTooLarge { limit: limits.body_bytes }.into());
        }
        if !charge.grow(chunk.len() as u64, limits.body_bytes_total) {
            return Err(Reject::QueueFull { what: "bytes of request bodies" }.into());
        }
        scan.feed(&chunk);
        builder.push(chunk);
    }
    Ok((builder.finish(), scan))
}

async fn next_frame(body: &mut Incoming, silence: Duration) -> Result<Option<http_body::Frame<bytes::Bytes>>, Unread> {
    match timeout(silence, body.frame()).await {
        Ok(None) => Ok(None),
        Ok(Some(Ok(frame))) => Ok(Some(frame)),
        Ok(Some(Err(error))) if has_left(&error) => Err(Unread::Left),
        Ok(Some(Err(error))) => Err(Reject::BadRequest(format!("the request body broke off: {error}")).into()),
        Err(_) => Err(Reject::BodyTimeout.into()),
    }
}

/// Whether a body without more frames never came to its end: hyper takes the RST_STREAM of a client that gives up (CANCEL) for an end. HTTP/1.1 has
/// an error for it.
fn broke_off(body: &Incoming, version: Version) -> bool {
    version == Version::HTTP_2 && !body.is_end_stream()
}

/// Whether a body failed because its client is gone: its connection ended, or it reset the stream. Anything else is what the client sent.
fn has_left(error: &(dyn Error + 'static)) -> bool {
    if let Some(error) = error.downcast_ref::<io::Error>() {
        // What the system reports of the socket has its number; what the framing finds wrong has none.
        return error.kind() == ErrorKind::UnexpectedEof || error.raw_os_error().is_some();
    }
    if let Some(error) = error.downcast_ref::<h2::Error>() {
        return error.is_remote() || error.is_io();
    }
    error.source().is_some_and(has_left)
}

/// hyper has refused lengths that are not valid by grammar or differ (RFC 9112 6.3).
fn declared_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_ids_are_kept_when_usable() {
        let mut headers = HeaderMap::new();
        assert_eq!(request_id(&headers).len(), 32);
        headers.insert(X_REQUEST_ID, HeaderValue::from_static("mine"));
        assert_eq!(request_id(&headers), "mine");
        headers.insert(X_REQUEST_ID, HeaderValue::from_str(&"x".repeat(MAX_REQUEST_ID + 1)).unwrap());
        assert_eq!(request_id(&headers).len(), 32);
    }

    /// As hyper wraps it.
    #[derive(Debug, thiserror::Error)]
    #[error("outer")]
    struct Outer(#[source] io::Error);

    #[test]
    fn a_client_that_left_is_told_from_one_that_sends_nonsense() {
        let left = [io::Error::from(ErrorKind::UnexpectedEof), io::Error::from_raw_os_error(104), io::Error::from_raw_os_error(110)];
        assert!(left.into_iter().all(|error| has_left(&Outer(error))));
        let nonsense = [ErrorKind::InvalidInput, ErrorKind::InvalidData, ErrorKind::Other].map(|kind| io::Error::new(kind, "x"));
        assert!(!nonsense.into_iter().any(|error| has_left(&Outer(error))));
        assert!(has_left(&io::Error::from(ErrorKind::UnexpectedEof)));
        assert!(!has_left(&h2::Error::from(h2::Reason::PROTOCOL_ERROR)), "it was not the client that ended it");
    }

    #[test]
    fn charges_are_given_back() {
        let budget = Arc::new(BodyBudget::default());
        let mut one = BodyCharge::new(&budget);
        assert!(one.grow(60, 100));
        let mut two = BodyCharge::new(&budget);
        assert!(!two.grow(60, 100));
        drop(two);
        assert_eq!(budget.held(), 60);
        drop(one);
        assert_eq!(budget.held(), 0);
    }
}
