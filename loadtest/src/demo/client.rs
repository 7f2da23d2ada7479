//! One request as a client sees it, checked character by character.
//!
//! Owns: reading the answer and judging it. Must not: know who answered. It has a parser of its own on purpose.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;

use super::plan::Planned;
use super::report::{Seen, Verdict};
use crate::engine::{Persona, expected_text};

/// Sends one planned request to `to` and judges the answer.
pub(super) async fn ask(to: SocketAddr, planned: &Planned, persona: &Persona) -> Seen {
    let mut answer = Answer::new();
    let verdict = match exchange(to, planned, &mut answer).await {
        Ok(()) => judge(&answer, planned, &expected_text(&planned.body, persona)),
        Err(verdict) => verdict,
    };
    let usage_wrong = verdict == Verdict::Complete && answer.completion_tokens != Some(planned.tokens);
    Seen {
        at: planned.at,
        streamed: planned.streamed,
        verdict,
        first_event: answer.first_event,
        longest_pause: answer.longest_pause,
        took: answer.started.elapsed(),
        comments: answer.comments,
        usage_wrong,
    }
}

/// What came so far.
struct Answer {
    started: Instant,
    last_text: Instant,
    first_event: Option<Duration>,
    longest_pause: Duration,
    text: String,
    finish: Option<String>,
    ids: Vec<String>,
    roles: u32,
    completion_tokens: Option<u64>,
    comments: u32,
    done: bool,
}

impl Answer {
    fn new() -> Self {
        let now = Instant::now();
        Self {
            started: now,
            last_text: now,
            first_event: None,
            longest_pause: Duration::ZERO,
            text: String::new(),
            finish: None,
            ids: vec![],
            roles: 0,
            completion_tokens: None,
            comments: 0,
            done: false,
        }
    }

    /// One event of a stream, without its blank line.
    fn event(&mut self, event: &str) -> Result<(), Verdict> {
        for line in event.lines() {
            match line.strip_prefix("data:").map(str::trim_start) {
                Some("[DONE]") => self.done = true,
                Some(data) => self.data(data)?,
                None if line.starts_with(':') => self.comments += 1,
                None => {}
            }
        }
        Ok(())
    }

    fn data(&mut self, data: &str) -> Result<(), Verdict> {
        let event: Value = serde_json::from_str(data).map_err(|error| Verdict::Failed(format!("an event is no JSON: {error}")))?;
        if !event["error"].is_null() {
            return Err(Verdict::Failed(format!("error event: {}", event["error"]["message"])));
        }
        let now = Instant::now();
        self.first_event.get_or_insert(now - self.started);
        self.longest_pause = self.longest_pause.max(now - self.last_text);
        self.last_text = now;
        if let Some(id) = event["id"].as_str().filter(|id| self.ids.last().is_none_or(|last| last != id)) {
            self.ids.push(id.to_owned());
        }
        self.completion_tokens = event["usage"]["completion_tokens"].as_u64().or(self.completion_tokens);
        let choice = &event["choices"][0];
        self.roles += u32::from(choice["delta"]["role"].is_string());
        self.text.push_str(choice["delta"]["content"].as_str().unwrap_or_default());
        if let Some(reason) = choice["finish_reason"].as_str() {
            self.finish = Some(reason.to_owned());
        }
        Ok(())
    }

    fn whole(&mut self, body: &[u8]) -> Result<(), Verdict> {
        let answer: Value = serde_json::from_slice(body).map_err(|error| Verdict::Truncated(format!("the answer is no JSON: {error}")))?;
        self.text = answer["choices"][0]["message"]["content"].as_str().unwrap_or_default().to_owned();
        self.finish = answer["choices"][0]["finish_reason"].as_str().map(str::to_owned);
        self.completion_tokens = answer["usage"]["completion_tokens"].as_u64();
        self.first_event = Some(self.started.elapsed());
        Ok(())
    }
}

async fn exchange(to: SocketAddr, planned: &Planned, answer: &mut Answer) -> Result<(), Verdict> {
    let failed = |error: &dyn std::fmt::Display| Verdict::Failed(error.to_string());
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    let client = Client::builder(TokioExecutor::new()).pool_max_idle_per_host(0).retry_canceled_requests(false).build(connector);
    let request = Request::post(format!("http://{to}/v1/chat/completions"))
        .header("content-type", "application/json")
        .body(Full::new(Bytes::from(planned.body.to_string())))
        .map_err(|error| failed(&error))?;
    let response = client.request(request).await.map_err(|error| Verdict::Failed(format!("no answer: {}", cause(&error))))?;
    let status = response.status();
    if status != 200 {
        let body = response.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
        return Err(Verdict::Failed(format!("{status}: {}", String::from_utf8_lossy(&body))));
    }
    if planned.streamed {
        read_stream(response.into_body(), answer).await
    } else {
        let body = response.into_body().collect().await.map_err(|error| Verdict::Truncated(cause(&error)))?;
        answer.whole(&body.to_bytes())
    }
}

async fn read_stream(mut body: Incoming, answer: &mut Answer) -> Result<(), Verdict> {
    let mut pending = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| Verdict::Truncated(cause(&error)))?;
        pending.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data));
        while let Some(end) = pending.windows(2).position(|pair| pair == b"\n\n") {
            let event = pending.split_to(end + 2);
            answer.event(&String::from_utf8_lossy(&event))?;
        }
    }
    Ok(())
}

fn judge(answer: &Answer, planned: &Planned, expected: &str) -> Verdict {
    let finished = answer.finish.as_deref().is_some_and(|reason| reason != "abort");
    if !finished || (planned.streamed && !answer.done) {
        return Verdict::Truncated(format!(
            "ended with finish_reason {:?} after {} characters",
            answer.finish,
            answer.text.chars().count()
        ));
    }
    if answer.text != expected {
        return Verdict::Wrong(difference(&answer.text, expected));
    }
    if answer.ids.len() > 1 || answer.roles > 1 {
        return Verdict::Wrong(format!("{} ids and {} role events in one stream", answer.ids.len(), answer.roles));
    }
    Verdict::Complete
}

/// Where two texts part, and how long each is.
fn difference(seen: &str, expected: &str) -> String {
    let at = seen.chars().zip(expected.chars()).take_while(|(a, b)| a == b).count();
    let around = |text: &str| text.chars().skip(at.saturating_sub(10)).take(30).collect::<String>();
    let (seen_length, expected_length) = (seen.chars().count(), expected.chars().count());
    format!("character {at}: {:?} instead of {:?} ({seen_length} characters instead of {expected_length})", around(seen), around(expected))
}

/// The innermost cause of an error, which says more than "error sending request".
fn cause(error: &dyn std::error::Error) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn planned() -> Planned {
        Planned { at: Duration::ZERO, streamed: true, body: json!({}), tokens: 8 }
    }

    fn judged(events: &[&str], expected: &str) -> Verdict {
        let mut answer = Answer::new();
        for event in events {
            if let Err(verdict) = answer.event(event) {
                return verdict;
            }
        }
        judge(&answer, &planned(), expected)
    }

    const ROLE: &str = r#"data: {"id":"a","choices":[{"delta":{"role":"assistant","content":""}}]}"#;
    const TEXT: &str = r#"data: {"id":"a","choices":[{"delta":{"content":"ab"}}]}"#;
    const STOP: &str = r#"data: {"id":"a","choices":[{"delta":{"content":""},"finish_reason":"stop"}]}"#;
    const ABORT: &str = r#"data: {"id":"a","choices":[{"delta":{},"finish_reason":"abort"}]}"#;
    const DONE: &str = "data: [DONE]";

    #[test]
    fn only_a_whole_and_exact_stream_is_complete() {
        assert_eq!(judged(&[": wait", ROLE, TEXT, STOP, DONE], "ab"), Verdict::Complete);
        assert!(matches!(judged(&[ROLE, TEXT, STOP], "ab"), Verdict::Truncated(_)));
        assert!(matches!(judged(&[ROLE, TEXT, ABORT, DONE], "ab"), Verdict::Truncated(_)));
        assert!(matches!(judged(&[ROLE, TEXT, TEXT, STOP, DONE], "ab"), Verdict::Wrong(_)));
        assert!(matches!(judged(&[ROLE, TEXT, ROLE, STOP, DONE], "ab"), Verdict::Wrong(_)));
        assert!(matches!(judged(&[r#"data: {"error":{"message":"x"}}"#], ""), Verdict::Failed(_)));
    }
}
