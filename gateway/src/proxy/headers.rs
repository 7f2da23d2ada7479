//! Header fields on their way through: what is dropped, kept and added, in both directions.
//!
//! Owns: hop-by-hop rules (RFC 9110 7.6.1), `Via`, `Host`, cookies from HTTP/2, the request id. Must not: know leaders or bodies.

use discovery::snapshot::GroupKey;
use http::header::{
    ACCEPT_ENCODING, AUTHORIZATION, CONNECTION, CONTENT_LENGTH, COOKIE, EXPECT, HOST, HeaderMap, HeaderName, HeaderValue,
    PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRAILER, TRANSFER_ENCODING, UPGRADE, VIA,
};
use http::{Uri, Version};

use crate::telemetry::traces::is_context;

/// The request id, kept if the client sent one.
pub const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// The group that answered.
pub const X_LEADGATE_GROUP: HeaderName = HeaderName::from_static("x-leadgate-group");
/// The code of a refusal.
pub const X_LEADGATE_REASON: HeaderName = HeaderName::from_static("x-leadgate-reason");
const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");

/// What an attempt adds to the client's fields.
#[derive(Debug)]
pub struct Upward<'a> {
    /// The client's authority.
    pub host: &'a HeaderValue,
    /// Kept or made.
    pub request_id: &'a HeaderValue,
    /// Our `Via` entry for the version that the client spoke.
    pub via: &'a HeaderValue,
    /// Replaces the client's `Authorization`.
    pub authorization: Option<&'a HeaderValue>,
    /// The trace context, which replaces the client's; empty: the client's passes.
    pub trace: &'a HeaderMap,
    /// A stream must come unencoded, or its events cannot be told apart.
    pub stream: bool,
}

/// Fields of one hop only (RFC 9110 7.6.1): never passed on in either direction.
fn is_hop_by_hop(name: &HeaderName) -> bool {
    matches!(*name, CONNECTION | TRANSFER_ENCODING | TE | UPGRADE | TRAILER | PROXY_AUTHENTICATE | PROXY_AUTHORIZATION)
        || name == KEEP_ALIVE
        || name == PROXY_CONNECTION
}

/// Names that `Connection` lists, lower case; empty in the usual case.
fn named_by_connection(headers: &HeaderMap) -> Vec<String> {
    let values = headers.get_all(CONNECTION).into_iter().filter_map(|v| v.to_str().ok());
    values
        .flat_map(|v| v.split(','))
        .map(|token| token.trim().to_ascii_lowercase())
        .filter(|token| !token.is_empty() && token != "close" && token != "keep-alive")
        .collect()
}

fn passes(name: &HeaderName, named: &[String]) -> bool {
    !is_hop_by_hop(name) && !named.iter().any(|n| n == name.as_str())
}

/// Gives the fields of a request to a leader to `put`, one by one.
pub fn upward(client: &HeaderMap, add: &Upward<'_>, mut put: impl FnMut(&HeaderName, &HeaderValue)) {
    let named = named_by_connection(client);
    put(&HOST, add.host);
    let mut cookies: Vec<u8> = Vec::new();
    for (name, value) in client {
        let ours = matches!(*name, HOST | CONTENT_LENGTH | EXPECT) || name == X_REQUEST_ID;
        let ours = ours || (!add.trace.is_empty() && is_context(name));
        let replaced = (*name == AUTHORIZATION && add.authorization.is_some()) || (*name == ACCEPT_ENCODING && add.stream);
        if ours || replaced || !passes(name, &named) {
            continue;
        }
        if *name == COOKIE {
            // RFC 9113 8.2.3: split cookie fields become one towards HTTP/1.1.
            if !cookies.is_empty() {
                cookies.extend_from_slice(b"; ");
            }
            cookies.extend_from_slice(value.as_bytes());
            continue;
        }
        put(name, value);
    }
    if let Ok(value) = HeaderValue::from_bytes(&cookies)
        && !cookies.is_empty()
    {
        put(&COOKIE, &value);
    }
    if let Some(value) = add.authorization {
        put(&AUTHORIZATION, value);
    }
    add.trace.iter().for_each(|(name, value)| put(name, value));
    put(&VIA, add.via);
    put(&X_REQUEST_ID, add.request_id);
}

/// Drops the fields of the upstream hop from an answer, in place.
pub fn downward(headers: &mut HeaderMap) {
    // An answer that was not streamed has none, and looking at all is cheaper than asking for each.
    if !headers.keys().any(is_hop_by_hop) {
        return;
    }
    let named = named_by_connection(headers);
    // RFC 9112 6.3: the coding framed this body, so a length beside it may be wrong and must not be passed on.
    if headers.contains_key(TRANSFER_ENCODING) {
        headers.remove(CONTENT_LENGTH);
    }
    for name in [CONNECTION, TRANSFER_ENCODING, TE, UPGRADE, TRAILER, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, KEEP_ALIVE, PROXY_CONNECTION]
    {
        headers.remove(name);
    }
    for name in named {
        headers.remove(name.as_str());
    }
}

/// The group's key as a value of [`X_LEADGATE_GROUP`]. Made for each answer: the key's text is read for the access log anyway, and a value that is
/// shared has its count elsewhere, cold when there are many leaders.
pub fn group(key: &GroupKey) -> HeaderValue {
    HeaderValue::from_str(&key.0).unwrap_or_else(|_| HeaderValue::from_static("unprintable"))
}

/// The same value in memory of its own.
pub fn copied(value: &HeaderValue) -> HeaderValue {
    let mut copy = HeaderValue::from_bytes(value.as_bytes()).unwrap_or_else(|_| value.clone());
    copy.set_sensitive(value.is_sensitive());
    copy
}

/// `Via` entries name the version of the message received (RFC 9110 7.6.3).
pub fn via_version(version: Version) -> &'static str {
    match version {
        Version::HTTP_10 => "1.0",
        Version::HTTP_2 => "2.0",
        _ => "1.1",
    }
}

/// Whether a request has passed through the gateway named `pseudonym` before (RFC 9110 7.6).
pub fn has_looped(headers: &HeaderMap, pseudonym: &str) -> bool {
    headers.get_all(VIA).iter().filter_map(|v| v.to_str().ok()).flat_map(|v| v.split(',')).any(|entry| {
        let mut words = entry.split_ascii_whitespace();
        words.nth(1) == Some(pseudonym)
    })
}

/// The client's authority: the target's, where it has one, over `Host` (RFC 9112 3.2.2, RFC 9113 8.3.1).
///
/// Errors: what is wrong, for a 400 (RFC 9112 3.2).
pub fn authority(uri: &Uri, headers: &HeaderMap, version: Version) -> Result<HeaderValue, &'static str> {
    let mut hosts = headers.get_all(HOST).into_iter();
    let host = hosts.next();
    if hosts.next().is_some() {
        return Err("the request has more than one Host field");
    }
    if let Some(authority) = uri.authority() {
        if authority.as_str().contains('@') {
            return Err("the request target has user information");
        }
        return HeaderValue::from_str(authority.as_str()).map_err(|_| "the request target's authority is not valid");
    }
    match host {
        Some(value) if valid_host(value.as_bytes()) => Ok(value.clone()),
        Some(_) => Err("the Host field is not valid"),
        None if version == Version::HTTP_10 => Ok(HeaderValue::from_static("")),
        None => Err("the request has no Host field"),
    }
}

/// `uri-host [ ":" port ]`; empty is legal where the target has no authority.
fn valid_host(value: &[u8]) -> bool {
    plain_host(value)
        || value.is_empty()
        || std::str::from_utf8(value).is_ok_and(|v| !v.contains('@') && v.parse::<http::uri::Authority>().is_ok())
}

/// A name or an IPv4 address, with a port or without: what most clients send needs no parser.
fn plain_host(value: &[u8]) -> bool {
    let in_name = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-');
    match value.iter().position(|b| !in_name(b)) {
        None => !value.is_empty(),
        Some(0) => false,
        Some(end) => {
            let port = &value[end + 1..];
            value[end] == b':' && matches!(port.len(), 1..=5) && port.iter().all(u8::is_ascii_digit)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(fields: &[(&str, &str)]) -> HeaderMap {
        let mut out = HeaderMap::new();
        for (name, value) in fields {
            out.append(HeaderName::from_bytes(name.as_bytes()).unwrap(), HeaderValue::from_str(value).unwrap());
        }
        out
    }

    fn up(fields: &[(&str, &str)], stream: bool) -> HeaderMap {
        let (host, id, via) = (HeaderValue::from_static("h"), HeaderValue::from_static("id"), HeaderValue::from_static("1.1 leadgate"));
        let trace = map(&[("traceparent", "ours")]);
        let mut out = HeaderMap::new();
        upward(
            &map(fields),
            &Upward { host: &host, request_id: &id, via: &via, authorization: None, trace: &trace, stream },
            |name, value| {
                out.append(name.clone(), value.clone());
            },
        );
        out
    }

    #[test]
    fn drops_hop_by_hop_fields_and_those_that_connection_names() {
        let got = up(
            &[
                ("connection", "close, X-Foo"),
                ("x-foo", "1"),
                ("x-bar", "2"),
                ("te", "trailers"),
                ("keep-alive", "5"),
                ("upgrade", "h2c"),
                ("expect", "100-continue"),
            ],
            false,
        );
        assert_eq!(got.get("x-bar").unwrap(), "2");
        for gone in ["connection", "x-foo", "te", "keep-alive", "upgrade", "expect"] {
            assert!(!got.contains_key(gone), "{gone}");
        }
        let mut down = map(&[
            ("connection", "x-secret"),
            ("x-secret", "1"),
            ("set-cookie", "a=1"),
            ("set-cookie", "b=2"),
            ("transfer-encoding", "chunked"),
        ]);
        downward(&mut down);
        assert_eq!(down, map(&[("set-cookie", "a=1"), ("set-cookie", "b=2")]));
        let mut framed_twice = map(&[("content-length", "3"), ("transfer-encoding", "chunked")]);
        downward(&mut framed_twice);
        assert_eq!(framed_twice, HeaderMap::new());
    }

    #[test]
    fn joins_cookies_appends_via_and_keeps_order() {
        let got = up(
            &[
                ("cookie", "a=1"),
                ("traceparent", "theirs"),
                ("tracestate", "theirs"),
                ("via", "1.0 other"),
                ("cookie", "b=2"),
                ("x", "1"),
                ("x", "2"),
                ("accept-encoding", "gzip"),
            ],
            true,
        );
        assert_eq!(got.get_all(COOKIE).iter().collect::<Vec<_>>(), ["a=1; b=2"]);
        assert_eq!(got.get_all(VIA).iter().collect::<Vec<_>>(), ["1.0 other", "1.1 leadgate"]);
        assert_eq!(got.get_all("x").iter().collect::<Vec<_>>(), ["1", "2"]);
        assert_eq!(got.get_all("traceparent").iter().collect::<Vec<_>>(), ["ours"]);
        assert!(!got.contains_key("tracestate"), "the context is replaced as a whole");
        assert!(!got.contains_key(ACCEPT_ENCODING));
    }

    #[test]
    fn finds_its_own_via_entry() {
        assert!(has_looped(&map(&[("via", "1.1 a, 2.0 leadgate-77")]), "leadgate-77"));
        assert!(!has_looped(&map(&[("via", "1.1 leadgate-7")]), "leadgate-77"));
    }

    #[test]
    fn a_plain_host_is_one_for_the_parser_too() {
        for host in ["a", "a.b-c", "127.0.0.1", "a:8", "A.b:65535"] {
            assert!(plain_host(host.as_bytes()) && host.parse::<http::uri::Authority>().is_ok(), "{host}");
        }
        for host in ["", ":", ":80", "a:", "a:b", "a:123456", "a:8:8", "[::1]:80", "a b", "a/b", "a@b", "a,b", "a\u{e9}"] {
            assert!(!plain_host(host.as_bytes()), "{host}");
        }
    }

    #[test]
    fn the_authority_is_one_and_valid() {
        let uri: Uri = "/v1/models".parse().unwrap();
        assert_eq!(authority(&uri, &map(&[("host", "a:80")]), Version::HTTP_11).unwrap(), "a:80");
        assert!(authority(&uri, &map(&[]), Version::HTTP_11).is_err());
        assert!(authority(&uri, &map(&[]), Version::HTTP_10).is_ok());
        assert!(authority(&uri, &map(&[("host", "a"), ("host", "b")]), Version::HTTP_11).is_err());
        assert!(authority(&uri, &map(&[("host", "a b")]), Version::HTTP_11).is_err());
        let absolute: Uri = "http://real/v1/models".parse().unwrap();
        assert_eq!(authority(&absolute, &map(&[("host", "other")]), Version::HTTP_11).unwrap(), "real");
    }
}
