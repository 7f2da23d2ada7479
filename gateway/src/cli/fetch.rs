//! One GET to the admin port.
//!
//! Owns: URL, connection, bounds. Must not: follow redirects or speak TLS: the admin port does neither.

use std::io;
use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{Either, select};
use http::header::HOST;
use http::{Request, StatusCode, Uri};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use thiserror::Error;
use tokio::net::TcpStream;

/// For the whole exchange.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes of an answer; a snapshot of 10,000 groups is a tenth of it.
const BYTES: usize = 64 * 1024 * 1024;

/// Why the admin port gave no answer.
#[derive(Debug, Error)]
pub enum FetchError {
    /// Not `http://HOST[:PORT]`.
    #[error("`{0}` is not an admin URL such as http://127.0.0.1:9090")]
    Url(String),
    /// Nobody there.
    #[error("cannot connect to {0}: {1}")]
    Connect(String, io::Error),
    /// The exchange broke.
    #[error("no answer from {0}: {1}")]
    Exchange(String, String),
    /// Another answer than 200.
    #[error("{0} answered {1}: {2}")]
    Status(String, StatusCode, String),
    /// Not the JSON that is expected.
    #[error("{0} is not a Leadgate admin port: {1}")]
    Json(String, serde_json::Error),
    /// Writing the output failed.
    #[error("cannot write: {0}")]
    Output(#[from] io::Error),
}

/// GETs `path` (with its query) of the admin port at `base` and reads its JSON.
pub(super) async fn fetch<T: DeserializeOwned>(base: &str, path: &str) -> Result<T, FetchError> {
    let bytes = get(base, path).await?;
    serde_json::from_slice(&bytes).map_err(|e| FetchError::Json(base.to_owned(), e))
}

/// GETs `path` as it is.
pub(super) async fn get(base: &str, path: &str) -> Result<Bytes, FetchError> {
    let (host, port) = address(base).ok_or_else(|| FetchError::Url(base.to_owned()))?;
    match tokio::time::timeout(TIMEOUT, exchange(base, (&host, port), path)).await {
        Ok(done) => done,
        Err(_) => Err(FetchError::Exchange(base.to_owned(), format!("nothing within {} s", TIMEOUT.as_secs()))),
    }
}

fn address(base: &str) -> Option<(String, u16)> {
    let uri: Uri = base.trim_end_matches('/').parse().ok()?;
    if uri.scheme_str() != Some("http") || !matches!(uri.path(), "" | "/") {
        return None;
    }
    let host = uri.host()?.trim_start_matches('[').trim_end_matches(']').to_owned();
    Some((host, uri.port_u16().unwrap_or(80)))
}

async fn exchange(base: &str, to: (&str, u16), path: &str) -> Result<Bytes, FetchError> {
    let broken = |e: &dyn std::fmt::Display| FetchError::Exchange(base.to_owned(), e.to_string());
    let socket = TcpStream::connect(to).await.map_err(|e| FetchError::Connect(base.to_owned(), e))?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(socket)).await.map_err(|e| broken(&e))?;
    let host = if to.0.contains(':') { format!("[{}]:{}", to.0, to.1) } else { format!("{}:{}", to.0, to.1) };
    let request = Request::get(path).header(HOST, host).body(Empty::<Bytes>::new()).map_err(|e| broken(&e))?;
    let answered = async {
        let response = sender.send_request(request).await.map_err(|e| broken(&e))?;
        let status = response.status();
        let body = Limited::new(response.into_body(), BYTES).collect().await.map_err(|e| broken(&e))?.to_bytes();
        Ok::<_, FetchError>((status, body))
    };
    // The connection is driven by this call alone: no task outlives it.
    let (answered, connection) = (pin!(answered), pin!(connection));
    let (status, body) = match select(answered, connection).await {
        Either::Left((done, _)) => done?,
        Either::Right((_, answered)) => answered.await?,
    };
    match status {
        StatusCode::OK => Ok(body),
        other => Err(FetchError::Status(base.to_owned(), other, String::from_utf8_lossy(&body).trim().to_owned())),
    }
}

/// Percent-encodes a query value.
pub(super) fn encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn admin_urls() {
        assert_eq!(address("http://127.0.0.1:9090"), Some(("127.0.0.1".to_owned(), 9090)));
        assert_eq!(address("http://[::1]:9/"), Some(("::1".to_owned(), 9)));
        assert_eq!(address("http://host"), Some(("host".to_owned(), 80)));
        assert_eq!(address("https://host:1"), None);
        assert_eq!(address("http://host:1/path"), None);
        assert_eq!(address("host:1"), None);
    }

    #[test]
    fn query_values_are_encoded() {
        assert_eq!(encoded("a/b c&d=é"), "a/b%20c%26d%3D%C3%A9");
    }
}
