//! What one request was and how it ended: written once, when the last holder lets go of it, to metrics, access log and the admin port's list.
//!
//! Owns: the marks of one request. Must not: take part in any decision. A request that ends without a verdict was cancelled by its client.

mod end;

use std::net::IpAddr;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime};

use arc_swap::ArcSwap;
use http::{HeaderMap, HeaderValue, Method, Version};

use crate::groups::state::GroupState;
use crate::proxy::body::RequestBody;
use crate::proxy::retry::Failure;
use crate::proxy::trail::Trail;
use crate::reject::Reject;
use crate::telemetry::labels::{AttemptOutcome, Ending, Label, Outcome, ResumeCause, ResumeResult, ResumeWay, RetryCause, Route};
use crate::telemetry::logs::AccessLog;
use crate::telemetry::metrics::{GaugeGuard, Metrics, PoolMetrics, StreamTimes};
use crate::telemetry::recent::{Kind, Note, Recent};
use crate::telemetry::traces::{Traces, Usage};
use crate::telemetry::usage;

/// Where records go.
#[derive(Debug)]
pub struct Telemetry {
    /// Counters and histograms.
    pub metrics: Arc<Metrics>,
    /// Replaced when its settings change; `None` in tests without a log.
    pub access: ArcSwap<Option<AccessLog>>,
    /// For people.
    pub recent: Arc<Recent>,
    /// Makes spans, if that is on.
    pub traces: Traces,
}

/// Marks of one request.
#[derive(Debug)]
pub struct Record {
    telemetry: Arc<Telemetry>,
    started: Instant,
    method: Method,
    path: Box<str>,
    version: Version,
    client: IpAddr,
    request_id: HeaderValue,
    /// The routed path.
    pub route: Route,
    /// Pool, once known.
    pool: Option<Arc<PoolMetrics>>,
    /// Counts it as in flight there.
    in_flight: Option<GaugeGuard>,
    /// Served name.
    model: Option<Arc<str>>,
    /// Last group tried.
    group: Option<Arc<str>>,
    /// The client asked for a stream.
    pub stream: bool,
    /// Tries.
    pub attempts: u32,
    /// Moves to another leader.
    pub resumes: u32,
    /// Bytes of the request body.
    pub request_bytes: u64,
    /// Bytes of the answer's body passed on.
    pub response_bytes: u64,
    usage: Usage,
    /// Where it comes from.
    usage_reader: usage::Reader,
    /// When a try was given up that had no answer yet.
    pub(super) gone: OnceLock<Instant>,
    /// When the client got its head although there was no leader yet, said from outside: this record is away with the wait by then.
    early_head: Option<Arc<OnceLock<Instant>>>,
    /// The answer broke, and nothing is known yet of how it goes on.
    broken: Option<ResumeCause>,
    cancelled: Option<Duration>,
    times: Option<StreamTimes>,
    trail: Trail,
    queue: Option<Duration>,
    first_byte: Option<Duration>,
    first_token: Option<Duration>,
    status: Option<u16>,
    outcome: Outcome,
    reason: &'static str,
    ending: Option<Ending>,
    counted: bool,
}

impl Record {
    /// A request whose head has arrived.
    pub fn new(telemetry: Arc<Telemetry>, head: &http::request::Parts, client: IpAddr, request_id: &HeaderValue, route: Route) -> Self {
        Self {
            usage: Usage::default(),
            usage_reader: usage::Reader::default(),
            gone: OnceLock::new(),
            early_head: None,
            broken: None,
            cancelled: None,
            times: None,
            trail: Trail::new(&telemetry.traces, head, route),
            telemetry,
            started: Instant::now(),
            method: head.method.clone(),
            path: head.uri.path().into(),
            version: head.version,
            client,
            request_id: request_id.clone(),
            route,
            pool: None,
            in_flight: None,
            model: None,
            group: None,
            stream: false,
            attempts: 0,
            resumes: 0,
            request_bytes: 0,
            response_bytes: 0,
            queue: None,
            first_byte: None,
            first_token: None,
            status: None,
            outcome: Outcome::Cancelled,
            reason: "",
            ending: None,
            counted: false,
        }
    }

    /// Its pool is known: it counts as in flight there.
    pub fn pool(&mut self, model: &Arc<str>, metrics: &Arc<PoolMetrics>) {
        if self.pool.is_none() {
            self.model = Some(model.clone());
            self.in_flight = Some(metrics.enter());
            self.pool = Some(metrics.clone());
        }
    }

    /// Its pool's metrics, once known.
    pub fn metrics(&self) -> Option<&Arc<PoolMetrics>> {
        self.pool.as_ref()
    }

    /// When its head arrived.
    pub fn started(&self) -> Instant {
        self.started
    }

    /// A leader is about to be tried, for the first time or again.
    pub fn tried(&mut self, group: &GroupState) {
        self.attempts += 1;
        self.gone.take();
        self.group = Some(group.key.0.clone());
        if self.queue.is_none() {
            let waited = self.started.elapsed();
            self.queue = Some(waited);
            if let Some(metrics) = self.metrics() {
                metrics.queued(waited);
            }
        }
        let metrics = self.pool.as_ref();
        self.trail.tried(self.model.as_ref(), group, self.stream, metrics);
    }

    /// The answer, whose head is out, is no stream of events and passes as it comes: one piece after another, wherever they part it.
    pub fn comes_in_pieces(&mut self) {
        if self.status < Some(400) {
            self.usage_reader = usage::Reader::Pieces(Box::default());
        }
    }

    /// Bytes of the answer's body go out; usage is read from them where they tell it.
    pub fn passed(&mut self, bytes: &[u8]) {
        self.response_bytes += bytes.len() as u64;
        let usage = self.usage_reader.feed(bytes);
        if let Some(usage) = usage {
            self.usage = self.usage.then(usage);
        }
        self.trail.passed(bytes, usage);
    }

    /// An answer of the gateway itself goes out, or its head alone where only that was asked for.
    pub fn passed_own(&mut self, body: &[u8]) {
        if self.method != Method::HEAD {
            self.response_bytes += body.len() as u64;
        }
    }

    /// The client is gone, and the leader's connection was closed so long after that was seen.
    pub fn closed(&mut self, delay: Duration) {
        self.cancelled = Some(delay);
    }

    /// Its body is there and its pool is known.
    pub fn asked(&mut self, body: &RequestBody) {
        self.trail.asked(body);
    }

    /// No leader is free for it: it waits. `first`: nobody else does in its pool, so this is told to people.
    pub fn held(&mut self, first: bool) {
        self.trail.held();
        if first {
            self.note(Kind::Held, "nothing_serves".into());
        }
    }

    /// The trace context that goes to the leader of the open try; empty: the client's passes.
    pub fn context(&self, client: &HeaderMap) -> HeaderMap {
        self.trail.context(client)
    }

    /// The open try ended without anything for the client.
    /// `status`: of the leader's answer, if it gave one.
    pub fn failed(&mut self, failure: Failure, status: Option<u16>) {
        self.trail.failed(failure, status);
    }

    /// Another try is allowed.
    pub fn retried(&mut self, cause: RetryCause) {
        self.broken = None;
        if let Some(metrics) = self.metrics() {
            metrics.retried(cause);
        }
        self.note(Kind::Retried, cause.as_str().into());
    }

    /// The group of the running answer began to leave.
    pub fn draining(&mut self) {
        self.trail.draining();
    }

    /// The running answer broke.
    pub fn broke(&mut self, cause: ResumeCause) {
        self.broken = Some(cause);
        self.trail.broke(cause.as_str());
    }

    /// The head of the answer goes out.
    pub fn answered(&mut self, status: u16) {
        self.trail.answered(status);
        self.head_out(status, self.started.elapsed());
    }

    /// Where to say when the client gets its head although there is no leader yet.
    pub fn early_head(&mut self) -> Arc<OnceLock<Instant>> {
        self.early_head.get_or_insert_default().clone()
    }

    /// Takes note of a head that went out before there was a leader, if one did. Further calls change nothing.
    pub fn comforted(&mut self) {
        let early = self.early_head.as_ref().and_then(|early| early.get()).copied();
        if let Some(at) = early.filter(|_| self.status.is_none()) {
            self.head_out(200, at.saturating_duration_since(self.started));
        }
    }

    /// The head of a leader's answer is there, and its client got one long ago.
    pub fn joined(&mut self, status: u16) {
        self.trail.answered(status);
    }

    /// A leader answered with an error where its client waits for a stream.
    pub fn declined(&mut self, status: u16) {
        self.joined(status);
        let outcome = match status {
            ..400 => AttemptOutcome::Broken,
            400..500 => AttemptOutcome::Status4xx,
            _ => AttemptOutcome::Status5xx,
        };
        self.trail.close(outcome, "");
    }

    fn head_out(&mut self, status: u16, after: Duration) {
        self.status = Some(status);
        if status >= 400 {
            self.usage_reader = usage::Reader::Nothing;
        }
        self.first_byte = Some(after);
        if let Some(metrics) = self.metrics() {
            metrics.first_byte(after);
        }
    }

    /// An event with data that came at `at` goes out; the same moment again is the same event.
    pub fn event(&mut self, at: Instant) {
        self.first_token.get_or_insert(at.saturating_duration_since(self.started));
        self.trail.event();
        if self.times.is_none() {
            let started = self.started;
            self.times = self.metrics().map(|metrics| StreamTimes::new(metrics.clone(), started));
        }
        if let Some(times) = self.times.as_mut().filter(|times| times.last_event() != Some(at)) {
            times.event(at);
        }
    }

    /// All of the answer has gone out.
    pub fn complete(&mut self) {
        self.outcome = match self.status {
            Some(..400) => Outcome::Ok,
            Some(400..500) => Outcome::ClientError,
            _ => Outcome::UpstreamError,
        };
        self.ending = Some(Ending::Complete);
        let outcome = match self.outcome {
            Outcome::ClientError => AttemptOutcome::Status4xx,
            Outcome::UpstreamError => AttemptOutcome::Status5xx,
            Outcome::Ok | Outcome::Refused | Outcome::StreamError | Outcome::Cancelled => AttemptOutcome::Complete,
        };
        self.trail.close(outcome, "");
        if self.outcome == Outcome::UpstreamError {
            self.note(Kind::UpstreamError, format!("status_{}", self.status.unwrap_or_default()).into());
        }
    }

    /// How it ended, or would if it ended now.
    pub fn outcome(&self) -> Outcome {
        self.outcome
    }

    /// The gateway refuses.
    pub fn refused(&mut self, reject: &Reject) {
        // A try is open only when the gateway itself ends: it was not the client that gave it up.
        self.trail.close(AttemptOutcome::Abandoned, reject.code());
        self.answered(reject.status().as_u16());
        self.outcome = Outcome::Refused;
        self.reason = reject.code();
        self.telemetry.metrics.rejected(reject.code());
        self.note(Kind::Refused, self.reason.into());
    }

    /// The stream ends in an error event.
    pub fn stream_error(&mut self, code: &'static str) {
        self.outcome = Outcome::StreamError;
        self.reason = code;
        self.ending = Some(Ending::ErrorEvent);
        self.trail.close(given_up(code), code);
        self.note(Kind::StreamError, self.reason.into());
    }

    /// The answer was cut without a place for an error event.
    pub fn cut(&mut self, code: &'static str) {
        self.outcome = Outcome::UpstreamError;
        self.reason = code;
        self.trail.close(given_up(code), code);
        self.note(Kind::UpstreamError, self.reason.into());
    }

    /// A broken stream was carried on, or not.
    pub fn resumed(&mut self, cause: ResumeCause, way: ResumeWay, result: ResumeResult) {
        self.broken = None;
        if let Some(metrics) = self.metrics() {
            metrics.resumed(cause, way, result);
        }
        if result == ResumeResult::Resumed {
            self.resumes += 1;
            self.trail.resumed(way.as_str());
        }
        tracing::info!(
            request_id = self.request_id.to_str().unwrap_or_default(),
            pool = text(&self.model),
            group = text(&self.group),
            cause = cause.as_str(),
            way = way.as_str(),
            result = result.as_str(),
            "broken stream"
        );
        self.note(Kind::Resumed, format!("{cause} {way} {result}").into());
    }

    /// The time from a break to the next leader's first bytes.
    pub fn paused(&self, pause: Duration) {
        if let Some(metrics) = self.metrics() {
            metrics.resume_pause(pause);
        }
    }

    /// The engine ended the stream by an error event of its own.
    pub fn engine_error(&mut self) {
        self.outcome = Outcome::StreamError;
        self.reason = "engine_error";
        self.trail.close(AttemptOutcome::Broken, "engine_error");
        self.ending = Some(Ending::ErrorEvent);
        self.note(Kind::StreamError, self.reason.into());
    }

    fn note(&self, kind: Kind, detail: Arc<str>) {
        let note = Note {
            pool: self.model.clone().unwrap_or_default(),
            group: self.group.clone().unwrap_or_default(),
            detail,
            request_id: self.request_id.to_str().unwrap_or_default().into(),
            trace_id: self.trail.trace_id.clone().unwrap_or_default(),
        };
        self.telemetry.recent.note(kind, note, SystemTime::now());
    }
}

/// Empty: there is none.
fn text(of: &Option<Arc<str>>) -> &str {
    of.as_deref().unwrap_or_default()
}

/// How a running try ended that the gateway gave up.
fn given_up(code: &'static str) -> AttemptOutcome {
    match code {
        "leader_timeout" => AttemptOutcome::Timeout,
        // The gateway's own end.
        "shutting_down" => AttemptOutcome::Abandoned,
        _ => AttemptOutcome::Broken,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::metrics::Format;

    fn telemetry() -> Arc<Telemetry> {
        Arc::new(Telemetry {
            metrics: crate::testing::metrics(),
            access: ArcSwap::from_pointee(None),
            recent: Recent::new(),
            traces: Traces::off(),
        })
    }

    /// A request to an unknown pool.
    fn record(telemetry: &Arc<Telemetry>) -> Record {
        let head = http::Request::post("/v1/chat/completions").body(()).unwrap().into_parts().0;
        let id = HeaderValue::from_static("r");
        let mut record = Record::new(telemetry.clone(), &head, [127, 0, 0, 1].into(), &id, Route::ChatCompletions);
        record.pool(&"m".into(), &telemetry.metrics.unknown_pool());
        record
    }

    fn shows(telemetry: &Telemetry, lines: &[&str]) {
        let text = telemetry.metrics.scrape(Format::Prometheus, false);
        for line in lines {
            assert!(text.contains(line), "{line} not in {text}");
        }
    }

    #[test]
    fn a_client_that_leaves_a_broken_stream_is_counted_with_it() {
        let telemetry = telemetry();
        let mut record = record(&telemetry);
        record.broke(ResumeCause::Stalled);
        drop(record);
        shows(&telemetry, &[r#"leadgate_resumes_total{cause="stalled",pool="unknown",result="cancelled",way="none"} 1"#]);
    }

    #[test]
    fn the_gateways_own_end_is_no_client_that_left() {
        let telemetry = telemetry();
        let mut record = record(&telemetry);
        record.tried(&GroupState::new(&Arc::new(crate::testing::group(0)), 1, SystemTime::now()));
        // The try is dropped unfinished, as it is when its client leaves.
        record.gone.set(Instant::now()).unwrap();
        record.refused(&Reject::ShuttingDown);
        drop(record);
        let refused = [
            r#"leadgate_requests_total{outcome="refused",pool="unknown",route="chat_completions"} 1"#,
            r#"leadgate_attempts_total{outcome="abandoned",pool="unknown"} 1"#,
            "leadgate_cancel_delay_seconds_count 0",
        ];
        shows(&telemetry, &refused);
    }

    #[test]
    fn a_head_that_went_out_early_is_told_of() {
        let telemetry = telemetry();
        let mut record = record(&telemetry);
        let early = record.early_head();
        record.comforted();
        assert_eq!(record.status, None, "it has not gone out");
        early.set(record.started + Duration::from_millis(5)).unwrap();
        record.comforted();
        record.answered(503);
        record.comforted();
        assert_eq!((record.status, record.first_byte.is_some()), (Some(503), true), "a later head is not overwritten");
    }
}
