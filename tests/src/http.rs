//! A plain HTTP client for tests: one new connection for every request, nothing sent twice, nothing decoded behind the test's back.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;

use crate::Outcome;

/// Longest that a test waits for the next byte of an answer.
const SILENCE: Duration = Duration::from_secs(60);

/// A whole answer.
#[derive(Debug, Clone)]
pub struct Answer {
    /// Status code.
    pub status: StatusCode,
    /// Header fields.
    pub headers: HeaderMap,
    /// Body as it came.
    pub body: Bytes,
}

impl Answer {
    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON.
    pub fn json(&self) -> Outcome<Value> {
        serde_json::from_slice(&self.body).map_err(|error| format!("{error} in {}", self.text()).into())
    }

    /// A header field as text, empty if it is missing.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }
}

/// `GET url`.
pub async fn get(url: &str) -> Outcome<Answer> {
    whole(open(Request::get(url).body(Full::default())?).await?).await
}

/// `POST url` with a JSON body.
pub async fn post(url: &str, body: &Value) -> Outcome<Answer> {
    whole(open(json_request(url, body)?).await?).await
}

/// Sends a request on a connection of its own and gives the answer once its head is there. Dropping the answer closes the connection.
pub async fn open(request: Request<Full<Bytes>>) -> Outcome<Response<Incoming>> {
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    let client = Client::builder(TokioExecutor::new()).pool_max_idle_per_host(0).retry_canceled_requests(false).build(connector);
    Ok(client.request(request).await?)
}

/// A `POST` with a JSON body, for callers that add header fields.
pub fn json_request(url: &str, body: &Value) -> Outcome<Request<Full<Bytes>>> {
    let body = Full::from(serde_json::to_vec(body)?);
    Ok(Request::post(url).header("content-type", "application/json").body(body)?)
}

async fn whole(response: Response<Incoming>) -> Outcome<Answer> {
    let (head, body) = response.into_parts();
    let body = tokio::time::timeout(SILENCE, body.collect()).await.map_err(|_| "the answer never ended")??.to_bytes();
    Ok(Answer { status: head.status, headers: head.headers, body })
}

/// The events of a streamed answer, one by one.
pub struct Events {
    body: Incoming,
    pending: BytesMut,
}

impl Events {
    /// Starts a streamed request; an answer other than 200 is an error that holds its body.
    pub async fn start(url: &str, body: &Value) -> Outcome<Self> {
        Self::of(json_request(url, body)?).await
    }

    /// [`Events::start`] with a request of the caller's own.
    pub async fn of(request: Request<Full<Bytes>>) -> Outcome<Self> {
        let response = open(request).await?;
        if response.status() != StatusCode::OK {
            let answer = whole(response).await?;
            return Err(format!("{} instead of a stream: {}", answer.status, answer.text()).into());
        }
        Ok(Self { body: response.into_body(), pending: BytesMut::new() })
    }

    /// The next event, without its blank line; `None` at a clean end. A torn end is an error.
    pub async fn next(&mut self) -> Outcome<Option<String>> {
        loop {
            if let Some(end) = find(&self.pending, b"\n\n") {
                let event = self.pending.split_to(end + 2);
                return Ok(Some(String::from_utf8_lossy(&event[..end]).into_owned()));
            }
            let frame = tokio::time::timeout(SILENCE, self.body.frame()).await.map_err(|_| "the stream went quiet")?;
            match frame.transpose()? {
                Some(frame) => self.pending.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data)),
                None if self.pending.is_empty() => return Ok(None),
                None => return Err(format!("the stream ended inside an event: {:?}", self.pending).into()),
            }
        }
    }

    /// The JSON of the next `data:` event; comments are skipped; `None` at `[DONE]` or at the end.
    pub async fn next_data(&mut self) -> Outcome<Option<Value>> {
        while let Some(event) = self.next().await? {
            match event.strip_prefix("data: ") {
                Some("[DONE]") => return Ok(None),
                Some(data) => return Ok(Some(serde_json::from_str(data)?)),
                None => {}
            }
        }
        Ok(None)
    }

    /// Reads to the end: the text of choice 0 and its finish reason.
    pub async fn finish(mut self) -> Outcome<(String, Option<String>)> {
        let (mut text, mut reason) = (String::new(), None);
        while let Some(event) = self.next_data().await? {
            if let Some(error) = event.get("error") {
                return Err(format!("error event: {error}").into());
            }
            text.push_str(event["choices"][0]["delta"]["content"].as_str().unwrap_or_default());
            reason = event["choices"][0]["finish_reason"].as_str().map(str::to_owned).or(reason);
        }
        Ok((text, reason))
    }
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|window| window == needle)
}
