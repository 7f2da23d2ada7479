//! The gateway's own binary between a client and an engine: one trace from end to end, and the figures that go with it.

use std::convert::Infallible;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::StreamExt;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::receiver::collector;
use super::{attribute, hex, text};

type Answer = UnsyncBoxBody<Bytes, Infallible>;
type Seen = Arc<Mutex<Vec<HeaderMap>>>;

/// An engine that streams three events; keeps the headers of the chat requests that it gets.
async fn engine(tasks: &mut JoinSet<()>) -> (String, Seen) {
    let seen = Seen::default();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let kept = seen.clone();
    tasks.spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((socket, _)) = listener.accept().await {
            let kept = kept.clone();
            connections.spawn(async move {
                let service = service_fn(move |request| answer(request, kept.clone()));
                drop(http1::Builder::new().serve_connection(TokioIo::new(socket), service).await);
            });
        }
    });
    (url, seen)
}

async fn answer(request: Request<Incoming>, seen: Seen) -> Result<Response<Answer>, Infallible> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.map(|b| b.to_bytes()).unwrap_or_default();
    let whole = |text: &'static str| Ok(Response::new(Full::from(text).boxed_unsync()));
    match parts.uri.path() {
        "/health" => whole(""),
        "/v1/models" => whole(r#"{"object":"list","data":[{"id":"m","object":"model"}]}"#),
        "/v1/chat/completions" if body.windows(13).any(|w| w == b"\"stream\":true") => {
            let first = {
                let mut seen = seen.lock().unwrap();
                seen.push(parts.headers);
                seen.len() == 1
            };
            let event = |text: &'static str| Ok(Frame::data(Bytes::from_static(text.as_bytes())));
            let events = [
                event(
                    "data: {\"id\":\"c\",\"model\":\"n\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n",
                ),
                event("data: {\"id\":\"c\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"hi\"}}]}\n\n"),
                event("data: {\"id\":\"c\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n"),
                event("data: {\"id\":\"c\",\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":1,\"total_tokens\":8}}\n\n"),
                event("data: [DONE]\n\n"),
            ];
            // A model that never ends, for clients that leave; an engine that dies at its first request.
            let endless = body.windows(7).any(|w| w == b"endless");
            let dies = first && body.windows(6).any(|w| w == b"broken");
            let events = futures_util::stream::iter(events.into_iter().take(if endless || dies { 2 } else { 5 }));
            let rest = futures_util::stream::pending().take(usize::from(endless));
            let mut response = Response::new(StreamBody::new(events.chain(rest)).boxed_unsync());
            response.headers_mut().insert("content-type", "text/event-stream".parse().unwrap());
            Ok(response)
        }
        _ => {
            let mut response =
                Response::new(Full::from(r#"{"id":"c","choices":[{"index":0,"text":"x","finish_reason":"length"}]}"#).boxed_unsync());
            *response.status_mut() = StatusCode::OK;
            Ok(response)
        }
    }
}

/// The binary, ended with the test.
struct Leadgate(Child);

impl Drop for Leadgate {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

async fn start(folder: &Path, leader: &str, endpoint: &str) -> (Leadgate, String, String) {
    let file = folder.join("addresses");
    let log = std::fs::File::create(folder.join("log")).unwrap();
    let child = Command::new(env!("CARGO_BIN_EXE_leadgate"))
        .args(["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--leaders", &format!("m={leader}")])
        .arg("--addr-file")
        .arg(&file)
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
        .env("OTEL_BSP_SCHEDULE_DELAY", "60000")
        .env("LEADGATE_SHUTDOWN_SETTLE", "0s")
        .stderr(Stdio::from(log))
        .spawn()
        .unwrap();
    let running = Leadgate(child);
    let addresses = eventually(|| std::fs::read_to_string(&file).ok()).await;
    let json: serde_json::Value = serde_json::from_str(&addresses).unwrap();
    let address = |key: &str| json[key].as_str().unwrap().to_owned();
    (running, address("listen"), address("admin"))
}

async fn eventually<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < until, "not in time");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn ask(address: &str, request: &str) -> String {
    let mut socket = TcpStream::connect(address).await.unwrap();
    socket.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).await.unwrap();
    answer
}

fn chat(parent: &str, words: &str) -> String {
    let asked = r#""temperature":0.5,"max_tokens":9,"seed":3,"stop":"end","n":1"#;
    let body = format!(r#"{{"model":"m","stream":true,{asked},"messages":[{{"role":"user","content":"{words}"}}]}}"#);
    let head =
        "POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Type: application/json\r\nx-request-id: req-1\r\n";
    let length = body.len();
    format!("{head}traceparent: {parent}\r\ntracestate: a=b\r\nbaggage: k=v\r\nContent-Length: {length}\r\n\r\n{body}")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_trace_from_client_to_engine() {
    let mut tasks = JoinSet::new();
    let (endpoint, received) = collector(false, &mut tasks).await;
    let (leader, seen) = engine(&mut tasks).await;
    let folder = tempfile::tempdir().unwrap();
    let (mut running, listen, admin) = start(folder.path(), &leader, &endpoint).await;
    let answer = ask(&listen, &chat(super::PARENT, "secret words")).await;
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("[DONE]"), "{answer}");

    let headers = seen.lock().unwrap()[0].clone();
    let parent = headers["traceparent"].to_str().unwrap().to_owned();
    assert!(parent.starts_with("00-0af7651916cd43dd8448eb211c80319c-") && !parent.contains("b7ad6b7169203331"), "{parent}");
    assert_eq!((&headers["tracestate"], &headers["baggage"]), (&"a=b".parse().unwrap(), &"k=v".parse().unwrap()));

    let metrics = ask(&admin, "GET /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await;
    for expect in [
        r#"leadgate_requests_total{outcome="ok",pool="m",route="chat_completions"} 1"#,
        r#"leadgate_attempts_total{outcome="complete",pool="m"} 1"#,
        r#"leadgate_time_to_first_token_seconds_count{pool="m"} 1"#,
        r#"leadgate_stream_endings_total{ending="complete",pool="m"} 1"#,
        r#"leadgate_tokens_total{kind="prompt",pool="m"} 7"#,
        r#"leadgate_connections_opened_total{side="upstream"} 1"#,
        r#"leadgate_groups{phase="Serving",pool="m",reason="none"} 1"#,
    ] {
        assert!(metrics.contains(expect), "{expect} is not in {metrics}");
    }

    // Nothing was sent yet: the batch is far from full. The end of the process sends it.
    let pid = running.0.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    let spans = received.wait(3).await;
    let ended = eventually(|| running.0.try_wait().unwrap()).await;
    assert!(ended.success());
    let server = spans.iter().find(|s| s.kind == 2).expect("SERVER");
    let client = spans.iter().find(|s| s.kind == 3).expect("CLIENT");
    assert_eq!(hex(&server.parent_span_id), "b7ad6b7169203331");
    assert_eq!(client.parent_span_id, server.span_id);
    assert_eq!(parent, format!("00-0af7651916cd43dd8448eb211c80319c-{}-01", hex(&client.span_id)));
    assert_eq!((client.name.as_str(), text(client, "leadgate.verdict").as_str()), ("chat m", "complete"));
    assert_eq!(attribute(server, "gen_ai.usage.output_tokens"), Some(&Value::IntValue(1)));
    assert!(attribute(client, "gen_ai.response.time_to_first_chunk").is_some());
    assert_eq!(text(server, "leadgate.request_id"), "req-1");
    check_words(client);

    let log = std::fs::read_to_string(folder.path().join("log")).unwrap();
    let line = log.lines().find(|l| l.contains("\"access\"")).unwrap_or_else(|| panic!("no access line in {log}"));
    let line: serde_json::Value = serde_json::from_str(line).unwrap();
    assert_eq!(line["trace_id"], "0af7651916cd43dd8448eb211c80319c");
    assert!(line["first_token_ms"].is_number(), "{line}");
    assert!(!log.contains("secret words"));
}

/// The engine dies in the middle of a stream; nothing serves until it has proven itself again, then it carries the stream on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_moves_is_told_whole_though_not_sampled() {
    let mut tasks = JoinSet::new();
    let (endpoint, received) = collector(false, &mut tasks).await;
    let (leader, seen) = engine(&mut tasks).await;
    let folder = tempfile::tempdir().unwrap();
    let (running, listen, admin) = start(folder.path(), &leader, &endpoint).await;
    shows(&admin, &[r#"leadgate_groups{phase="Serving",pool="m",reason="none"} 1"#]).await;
    let unsampled = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";
    let answer = ask(&listen, &chat(unsampled, "broken")).await;
    assert!(answer.contains("[DONE]"), "{answer}");
    // Its context is junk: a new trace begins, and the old one's state goes no further.
    assert!(ask(&listen, &chat("junk", "x")).await.contains("[DONE]"));
    let last = seen.lock().unwrap().last().unwrap().clone();
    assert!(last["traceparent"].to_str().unwrap().starts_with("00-") && !last.contains_key("tracestate"), "{last:?}");

    assert!(Command::new("kill").args(["-TERM", &running.0.id().to_string()]).status().unwrap().success());
    // Five of the stream that moved, three of the other.
    let mut spans = received.wait(8).await;
    spans.retain(|span| hex(&span.trace_id) == "0af7651916cd43dd8448eb211c80319c");
    // SERVER (2) and the first wait begin at one moment.
    spans.sort_by_key(|span| (span.start_time_unix_nano, span.kind != 2));
    let story: Vec<_> = spans.iter().map(|span| (span.name.as_str(), names(span).join(" "))).collect();
    let expect = [
        ("POST /v1/chat/completions", ""),
        ("queue", ""),
        ("chat m", "first_byte first_token broken"),
        ("queue", "held released"),
        ("chat m", "first_byte resumed first_token"),
    ];
    assert_eq!(story, expect.map(|(name, events)| (name, events.to_owned())));
    assert_eq!(spans[4].links[0].span_id, spans[2].span_id);
    assert_eq!(attribute(&spans[0], "leadgate.resumes"), Some(&Value::IntValue(1)));
    assert_eq!((text(&spans[2], "leadgate.verdict").as_str(), text(&spans[4], "leadgate.verdict").as_str()), ("broken", "complete"));
}

/// Waits until the metrics have all of these lines.
async fn shows(admin: &str, lines: &[&str]) {
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        let metrics = ask(admin, "GET /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await;
        let missing: Vec<_> = lines.iter().filter(|expect| !metrics.contains(**expect)).collect();
        if missing.is_empty() {
            return;
        }
        assert!(Instant::now() < until, "{missing:?} not in {metrics}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn names(span: &Span) -> Vec<&str> {
    span.events.iter().map(|event| event.name.as_str()).collect()
}

/// What the request asked and what the answer said of itself.
fn check_words(client: &Span) {
    let number = |key: &str, is: i64| assert_eq!(attribute(client, key), Some(&Value::IntValue(is)), "{key}");
    number("gen_ai.request.max_tokens", 9);
    number("gen_ai.request.seed", 3);
    number("gen_ai.request.choice.count", 1);
    number("gen_ai.usage.input_tokens", 7);
    number("gen_ai.usage.output_tokens", 1);
    assert_eq!(attribute(client, "gen_ai.request.temperature"), Some(&Value::DoubleValue(0.5)));
    assert_eq!(attribute(client, "gen_ai.request.stream"), Some(&Value::BoolValue(true)));
    assert_eq!((text(client, "gen_ai.response.id").as_str(), text(client, "gen_ai.response.model").as_str()), ("c", "n"));
    for (key, word) in [("gen_ai.request.stop_sequences", "end"), ("gen_ai.response.finish_reasons", "stop")] {
        let Some(Value::ArrayValue(list)) = attribute(client, key) else { panic!("no {key}") };
        let expect = Value::StringValue(word.to_owned());
        assert_eq!(list.values.iter().map(|v| v.value.as_ref()).collect::<Vec<_>>(), [Some(&expect)], "{key}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_leaves_is_counted() {
    let mut tasks = JoinSet::new();
    let (leader, _) = engine(&mut tasks).await;
    let folder = tempfile::tempdir().unwrap();
    let (_running, listen, admin) = start(folder.path(), &leader, "").await;
    let mut socket = TcpStream::connect(&listen).await.unwrap();
    socket.write_all(chat(super::PARENT, "endless").as_bytes()).await.unwrap();
    let mut seen = Vec::new();
    while !seen.windows(4).any(|w| w == b"\"hi\"") {
        assert_ne!(socket.read_buf(&mut seen).await.unwrap(), 0);
    }
    drop(socket);
    let gone = [
        r#"leadgate_requests_total{outcome="cancelled",pool="m",route="chat_completions"} 1"#,
        r#"leadgate_client_cancelled_total{pool="m"} 1"#,
        r#"leadgate_attempts_total{outcome="cancelled",pool="m"} 1"#,
        r#"leadgate_stream_endings_total{ending="client_gone",pool="m"} 1"#,
        "leadgate_cancel_delay_seconds_count 1",
        r#"leadgate_in_flight{pool="m"} 0"#,
        r#"leadgate_running{pool="m"} 0"#,
    ];
    shows(&admin, &gone).await;
}
