//! Spans of requests over the wire: to receivers that decode OTLP, to the real OpenTelemetry collector, and to none.

// A test program: its helpers stand outside of test functions, and a failure in one of them is a failure of the test.
#![allow(missing_docs, unreachable_pub, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod real;
mod receiver;
mod whole;

use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use discovery::snapshot::{Address, GroupId, GroupKey, GroupPhase, Leader, ReplicaGroup};
use gateway::telemetry::labels::{AttemptOutcome, Outcome, Route};
use gateway::telemetry::metrics::{Format, Metrics};
use gateway::telemetry::traces::{
    AttemptBegin, AttemptEvent, AttemptRef, QueueWait, RequestBegin, RequestEnd, TraceSettings, Traces, Usage, trace_id_of,
};
use http::{HeaderMap, HeaderValue};
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use receiver::{Received, collector, tls_collector};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

fn settings(variables: &[(&str, &str)]) -> TraceSettings {
    let find = |name: &str| variables.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned());
    let keep_notable = find("keep_notable").is_none();
    TraceSettings { keep_notable, ..TraceSettings::read(&find).unwrap().unwrap() }
}

fn begin<'a>(headers: &'a HeaderMap) -> RequestBegin<'a> {
    let (path, route) = ("/v1/chat/completions", Route::ChatCompletions);
    RequestBegin { headers, method: "POST", path, route, protocol: "1.1", started: SystemTime::now() }
}

fn attempt(resend: u32, replaces: Option<AttemptRef>) -> AttemptBegin<'static> {
    let address = Address { https: false, host: "127.0.0.2".into(), port: 8000 };
    let group = ReplicaGroup {
        key: GroupKey("ns/d/w/1".into()),
        id: GroupId("ns/d/w/1@uid-1".into()),
        ordinal: Some(1),
        phase: GroupPhase::Serving,
        reasons: Vec::new(),
        leader: Some(Leader { pod: "d-w-1-m0".into(), uid: Some("uid-1".into()), address }),
        members: Vec::new(),
        managed: false,
        drain: None,
        next_to_go: false,
        broken: false,
        proof: 1,
    };
    AttemptBegin { model: "qwen".into(), group: Arc::new(group), resend, stream: true, request: None, replaces }
}

fn headers(parent: &'static str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert("traceparent", HeaderValue::from_static(parent));
    headers.insert("tracestate", HeaderValue::from_static("a=b"));
    headers.insert("baggage", HeaderValue::from_static("k=v"));
    headers
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn attribute<'a>(span: &'a Span, key: &str) -> Option<&'a Value> {
    span.attributes.iter().find(|a| a.key == key)?.value.as_ref()?.value.as_ref()
}

fn text(span: &Span, key: &str) -> String {
    match attribute(span, key) {
        Some(Value::StringValue(text)) => text.clone(),
        other => format!("{other:?}"),
    }
}

/// A request that waits, breaks at one leader and goes on at another.
fn moved_request(traces: &Traces) -> Vec<HeaderMap> {
    let incoming = headers(PARENT);
    let span = traces.request(begin(&incoming));
    let now = SystemTime::now();
    span.queue_wait(QueueWait { from: now, held: Some(now), to: now + Duration::from_millis(3), released: true });
    let mut first = span.attempt(|| attempt(0, None));
    let mut sent = vec![first.context(&incoming)];
    first.event(AttemptEvent::FirstByte, "");
    first.event(AttemptEvent::FirstToken, "");
    first.event(AttemptEvent::Broken, "connection_lost");
    let replaced = first.reference();
    first.end(AttemptOutcome::Broken, "connection_lost");
    let mut second = span.attempt(|| attempt(1, replaced));
    sent.push(second.context(&incoming));
    second.event(AttemptEvent::Resumed, "");
    second.status(200);
    let usage = Usage { prompt: Some(10), completion: Some(20), ..Usage::default() };
    second.usage(usage);
    second.end(AttemptOutcome::Complete, "");
    let outcome = Some(Outcome::Ok);
    span.finish(&RequestEnd { status: Some(200), outcome, resumes: 1, attempts: 2, usage, pool: "qwen", ..RequestEnd::default() });
    sent
}

fn check_moved(spans: &[Span], sent: &[HeaderMap]) {
    assert!(spans.iter().all(|s| hex(&s.trace_id) == "0af7651916cd43dd8448eb211c80319c"));
    let server = spans.iter().find(|s| s.kind == 2).expect("SERVER");
    assert_eq!((server.name.as_str(), hex(&server.parent_span_id).as_str()), ("POST /v1/chat/completions", "b7ad6b7169203331"));
    assert_eq!(text(server, "leadgate.pool"), "qwen");
    assert_eq!(attribute(server, "gen_ai.usage.output_tokens"), Some(&Value::IntValue(20)));
    let clients: Vec<_> = spans.iter().filter(|s| s.kind == 3).collect();
    let [first, second] = clients.as_slice() else { panic!("two CLIENT spans: {clients:?}") };
    for (client, headers) in [first, second].into_iter().zip(sent) {
        assert_eq!(client.name, "chat qwen");
        assert_eq!(client.parent_span_id, server.span_id);
        let expect = format!("00-0af7651916cd43dd8448eb211c80319c-{}-01", hex(&client.span_id));
        assert_eq!(headers["traceparent"], expect);
        assert_eq!(headers["tracestate"], "a=b");
        assert_eq!(headers.len(), 2, "baggage passes by itself");
    }
    let events: Vec<_> = first.events.iter().map(|e| e.name.as_str()).collect();
    assert_eq!(events, ["first_byte", "first_token", "broken"]);
    assert!(attribute(first, "gen_ai.response.time_to_first_chunk").is_some());
    assert_eq!((text(first, "leadgate.verdict").as_str(), text(first, "error.type").as_str()), ("broken", "connection_lost"));
    assert_eq!(second.links[0].span_id, first.span_id);
    assert_eq!(attribute(second, "http.request.resend_count"), Some(&Value::IntValue(1)));
    let queue = spans.iter().find(|s| s.name == "queue").expect("queue span");
    assert_eq!(queue.parent_span_id, server.span_id);
}

/// Sends moved requests to `url` and reads them from `received`.
async fn arrives(url: &str, protocol: &str, received: &Received) {
    arrives_with(&[("OTEL_EXPORTER_OTLP_ENDPOINT", url), ("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)], received).await;
}

async fn arrives_with(variables: &[(&str, &str)], received: &Received) {
    let variables: Vec<_> = variables.iter().copied().chain([("OTEL_BSP_SCHEDULE_DELAY", "1")]).collect();
    let metrics = Metrics::new().unwrap();
    let (traces, export) = Traces::from_settings(&settings(&variables), &metrics).unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let mut running = JoinSet::new();
    running.spawn(export.run(async move { drop(stopped.await) }, Duration::from_secs(30)));
    let before = received.count();
    let sent = moved_request(&traces);
    check_moved(&received.wait(before + 4).await[before..], &sent);
    moved_request(&traces);
    drop(stop);
    running.join_next().await.unwrap().unwrap();
    // The flush at the end sends what is left.
    received.wait(before + 8).await;
    let text = metrics.scrape(Format::Prometheus, false);
    assert!(text.contains("leadgate_trace_spans_exported_total 8") && text.contains("leadgate_trace_spans_lost_total 0"));
}

#[tokio::test]
async fn spans_arrive_by_http() {
    let mut tasks = JoinSet::new();
    let (url, received) = collector(false, &mut tasks).await;
    arrives(&url, "http/protobuf", &received).await;
}

#[tokio::test]
async fn spans_arrive_by_grpc() {
    let mut tasks = JoinSet::new();
    let (url, received) = collector(true, &mut tasks).await;
    arrives(&url, "grpc", &received).await;
}

/// By both protocols: with the certificate's file named, and in vain without it.
#[tokio::test]
async fn spans_arrive_over_tls_and_only_at_a_trusted_collector() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("collector.pem");
    for (grpc, protocol) in [(false, "http/protobuf"), (true, "grpc")] {
        let mut tasks = JoinSet::new();
        let (url, received) = tls_collector(grpc, &file, &mut tasks).await;
        let endpoint = [("OTEL_EXPORTER_OTLP_ENDPOINT", url.as_str()), ("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)];
        let trusted = [endpoint[0], endpoint[1], ("OTEL_EXPORTER_OTLP_CERTIFICATE", file.to_str().unwrap())];
        arrives_with(&trusted, &received).await;
        let before = received.count();
        let metrics = Metrics::new().unwrap();
        let (traces, export) = Traces::from_settings(&settings(&endpoint), &metrics).unwrap();
        moved_request(&traces);
        export.run(std::future::ready(()), Duration::from_secs(30)).await;
        assert_eq!((received.count(), metrics.spans_lost.get()), (before, 4), "{protocol}");
    }
}

#[tokio::test]
async fn a_certificate_file_that_cannot_be_used_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let empty = folder.path().join("empty.pem");
    std::fs::write(&empty, "no certificate").unwrap();
    for protocol in ["grpc", "http/protobuf"] {
        for file in [folder.path().join("missing.pem"), empty.clone()] {
            let file = file.to_str().unwrap();
            let variables = [
                ("OTEL_EXPORTER_OTLP_ENDPOINT", "https://127.0.0.1:1"),
                ("OTEL_EXPORTER_OTLP_PROTOCOL", protocol),
                ("OTEL_EXPORTER_OTLP_CERTIFICATE", file),
            ];
            let error = Traces::from_settings(&settings(&variables), &Metrics::new().unwrap()).err().map(|e| e.to_string());
            assert!(error.as_ref().is_some_and(|e| e.contains(file)), "{protocol}: {error:?}");
        }
    }
}

/// Keeps what it is given; fails or hangs on demand.
#[derive(Debug, Clone)]
struct Kept {
    spans: Arc<Mutex<Vec<opentelemetry_sdk::trace::SpanData>>>,
    mode: Mode,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Mode {
    Works,
    Fails,
    Hangs,
}

impl opentelemetry_sdk::trace::SpanExporter for Kept {
    async fn export(&self, batch: Vec<opentelemetry_sdk::trace::SpanData>) -> opentelemetry_sdk::error::OTelSdkResult {
        match self.mode {
            Mode::Works => self.spans.lock().unwrap().extend(batch),
            Mode::Fails => return Err(opentelemetry_sdk::error::OTelSdkError::InternalFailure("no".into())),
            Mode::Hangs => std::future::pending().await,
        }
        Ok(())
    }
}

/// Runs `requests` with a recording exporter and ends at once; gives the names that were exported and the number lost.
async fn recorded(mode: Mode, variables: &[(&str, &str)], requests: impl FnOnce(&Traces)) -> (Vec<String>, u64) {
    let all: Vec<_> = [("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")].into_iter().chain(variables.iter().copied()).collect();
    let kept = Kept { spans: Arc::default(), mode };
    let metrics = Metrics::new().unwrap();
    let (traces, export) = Traces::with(&settings(&all), kept.clone(), &metrics);
    requests(&traces);
    export.run(std::future::ready(()), Duration::from_millis(20)).await;
    let names = kept.spans.lock().unwrap().iter().map(|s| s.name.to_string()).collect();
    (names, metrics.spans_lost.get())
}

fn plain_request(traces: &Traces, outcome: Outcome, status: u16) {
    let headers = HeaderMap::new();
    let span = traces.request(begin(&headers));
    span.finish(&RequestEnd { status: Some(status), outcome: Some(outcome), ..RequestEnd::default() });
}

#[tokio::test]
async fn what_went_wrong_is_kept_though_not_sampled() {
    let off = [("OTEL_TRACES_SAMPLER", "always_off")];
    let (names, _) = recorded(Mode::Works, &off, |t| plain_request(t, Outcome::Ok, 200)).await;
    assert!(names.is_empty());
    let (names, _) = recorded(Mode::Works, &off, |t| plain_request(t, Outcome::StreamError, 200)).await;
    assert_eq!(names.len(), 1);
    let (names, _) = recorded(Mode::Works, &off, |t| drop(moved_request(t))).await;
    assert_eq!(names.len(), 4);
    let only_sampled = [off[0], ("keep_notable", "false")];
    let (names, _) = recorded(Mode::Works, &only_sampled, |t| drop(moved_request(t))).await;
    assert!(names.is_empty());
}

#[tokio::test]
async fn an_unsampled_trace_goes_on_unsampled() {
    let off = [("OTEL_TRACES_SAMPLER", "parentbased_always_on"), ("keep_notable", "false")];
    let check = |traces: &Traces| {
        let incoming = headers("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00");
        let sent = traces.request(begin(&incoming)).attempt(|| attempt(0, None)).context(&incoming);
        let parts: Vec<_> = sent["traceparent"].to_str().unwrap().split('-').collect();
        assert_eq!([parts[0], parts[1], parts[3]], ["00", "0af7651916cd43dd8448eb211c80319c", "00"]);
        assert_ne!(parts[2], "b7ad6b7169203331");
    };
    assert_eq!(recorded(Mode::Works, &off, check).await, (vec![], 0));
}

/// What is at hand is recorded for a request that may be kept; more is read only for those that are sent for certain.
#[tokio::test]
async fn only_sampled_requests_are_looked_at() {
    let sampled = |t: &Traces| t.request(begin(&HeaderMap::new())).is_sampled();
    recorded(Mode::Works, &[], |t| assert!(sampled(t))).await;
    recorded(Mode::Works, &[("OTEL_TRACES_SAMPLER", "always_off")], |t| assert!(!sampled(t))).await;
    assert!(!sampled(&Traces::off()));
}

#[tokio::test]
async fn a_dropped_request_ends_as_cancelled() {
    let drops = |traces: &Traces| {
        let span = traces.request(begin(&HeaderMap::new()));
        let attempt = span.attempt(|| attempt(0, None));
        drop(span);
        drop(attempt);
    };
    let (names, _) = recorded(Mode::Works, &[], drops).await;
    assert_eq!(names, ["chat qwen", "POST /v1/chat/completions"]);
}

#[tokio::test]
async fn a_dead_collector_costs_spans_and_nothing_else() {
    for mode in [Mode::Fails, Mode::Hangs] {
        let (names, lost) = recorded(mode, &[], |t| drop(moved_request(t))).await;
        assert_eq!((names, lost), (vec![], 4), "{mode:?}");
    }
    let small = [("OTEL_BSP_MAX_QUEUE_SIZE", "6")];
    let many = |traces: &Traces| {
        for _ in 0..100 {
            moved_request(traces);
        }
    };
    let (names, lost) = recorded(Mode::Works, &small, many).await;
    assert_eq!((names.len(), lost), (4, 396), "whole requests or nothing");
}

#[test]
fn off_leaves_headers_alone() {
    let traces = Traces::off();
    let incoming = headers(PARENT);
    let span = traces.request(begin(&incoming));
    assert_eq!(span.trace_id(), None);
    assert!(span.attempt(|| attempt(0, None)).context(&incoming).is_empty());
    assert_eq!(trace_id_of(&incoming).as_deref(), Some("0af7651916cd43dd8448eb211c80319c"));
}

#[tokio::test]
async fn a_restarted_trace_drops_the_old_state() {
    let check = |traces: &Traces| {
        let incoming = headers("junk");
        let sent = traces.request(begin(&incoming)).attempt(|| attempt(0, None)).context(&incoming);
        assert!(!sent.contains_key("tracestate"));
        assert!(trace_id_of(&sent).is_some());
    };
    recorded(Mode::Works, &[], check).await;
}
