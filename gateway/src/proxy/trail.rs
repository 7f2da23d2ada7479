//! The trace of one request: its span, the try that is open, and the counting of tries.
//!
//! Owns: when an attempt's span begins and ends, in one place for metrics and traces, so that they agree. Must not: take part in any
//! decision. `record` calls it at the marks of a request.

use std::sync::Arc;
use std::time::SystemTime;

use discovery::snapshot::ReplicaGroup;
use http::request::Parts;
use http::{HeaderMap, Version};

use crate::proxy::retry::Failure;
use crate::telemetry::labels::{AttemptOutcome, Route};
use crate::telemetry::metrics::PoolMetrics;
use crate::telemetry::traces::{
    AttemptBegin, AttemptEvent, AttemptRef, AttemptSpan, GenAiRequest, RequestBegin, RequestEnd, RequestSpan, Traces, trace_id_of,
};

/// See the module.
#[derive(Debug)]
pub struct Trail {
    span: RequestSpan,
    /// 32 digits; empty without a trace.
    pub trace_id: Arc<str>,
    begun: SystemTime,
    held: bool,
    tries: u32,
    open: Option<Open>,
    replaced: Option<AttemptRef>,
}

#[derive(Debug)]
struct Open {
    span: AttemptSpan,
    metrics: Option<Arc<PoolMetrics>>,
    event_seen: bool,
    draining: bool,
}

impl Trail {
    /// A request whose head has arrived.
    pub fn new(traces: &Traces, head: &Parts, route: Route) -> Self {
        let begun = SystemTime::now();
        let protocol = if head.version == Version::HTTP_2 { "2" } else { "1.1" };
        let (method, path) = (head.method.as_str(), head.uri.path());
        let span = traces.request(RequestBegin { headers: &head.headers, method, path, route, protocol, started: begun });
        let trace_id = span.trace_id().or_else(|| trace_id_of(&head.headers)).map_or_else(|| Arc::from(""), Arc::from);
        Self { span, trace_id, begun, held: false, tries: 0, open: None, replaced: None }
    }

    /// The request waits because nothing serves.
    pub fn held(&mut self) {
        self.held = true;
    }

    /// The wait for the first leader is over.
    pub fn queued(&self) {
        self.span.queue_wait(self.begun, SystemTime::now(), self.held);
    }

    /// A leader is about to be tried. A try that is still open was given up for this one.
    pub fn tried(&mut self, model: &str, group: &ReplicaGroup, stream: bool, metrics: Option<&Arc<PoolMetrics>>) {
        self.close(AttemptOutcome::Abandoned, "");
        let leader = group.leader.as_ref();
        let span = self.span.attempt(&AttemptBegin {
            model,
            host: leader.map_or("", |l| &l.address.host),
            port: leader.map_or(0, |l| l.address.port),
            group: &group.key.0,
            slot: group.ordinal,
            leader_uid: leader.and_then(|l| l.uid.as_deref()).unwrap_or(""),
            resend: self.tries,
            request: GenAiRequest { stream: Some(stream), ..GenAiRequest::default() },
            replaces: self.replaced.take(),
        });
        self.tries += 1;
        self.open = Some(Open { span, metrics: metrics.cloned(), event_seen: false, draining: false });
    }

    /// Names the open try as the parent in the headers that go to its leader.
    pub fn inject(&self, headers: &mut HeaderMap) {
        if let Some(open) = &self.open {
            open.span.inject(headers);
        }
    }

    /// The head of the leader's answer is there.
    pub fn answered(&mut self, status: u16) {
        if let Some(open) = &mut self.open {
            open.span.event(AttemptEvent::FirstByte, "");
            open.span.status(status);
        }
    }

    /// An event with data passed.
    pub fn event(&mut self) {
        if let Some(open) = self.open.as_mut().filter(|open| !open.event_seen) {
            open.event_seen = true;
            open.span.event(AttemptEvent::FirstToken, "");
        }
    }

    /// The group of the running answer began to leave.
    pub fn draining(&mut self) {
        if let Some(open) = self.open.as_mut().filter(|open| !open.draining) {
            open.draining = true;
            open.span.event(AttemptEvent::DrainStarted, "");
        }
    }

    /// The try ended without anything for the client.
    pub fn failed(&mut self, failure: Failure) {
        let outcome = match failure {
            Failure::NotSent => AttemptOutcome::NotSent,
            Failure::Refused => AttemptOutcome::Status5xx,
            Failure::Ended => AttemptOutcome::Broken,
            Failure::Unknown => AttemptOutcome::Reset,
            Failure::Clock => AttemptOutcome::Timeout,
        };
        self.close(outcome, failure.as_str());
    }

    /// The running answer broke; the next try may carry it on.
    pub fn broke(&mut self, cause: &'static str) {
        if let Some(open) = &mut self.open {
            open.span.event(AttemptEvent::Broken, cause);
            self.replaced = open.span.reference();
        }
        self.close(AttemptOutcome::Broken, cause);
    }

    /// The open try carries a broken answer on.
    pub fn resumed(&mut self, way: &'static str) {
        if let Some(open) = &mut self.open {
            open.span.event(AttemptEvent::Resumed, way);
        }
    }

    /// The open try, if there is one, is over.
    pub fn close(&mut self, outcome: AttemptOutcome, reason: &'static str) {
        let Some(open) = self.open.take() else { return };
        open.span.end(outcome, reason);
        if let Some(metrics) = &open.metrics {
            metrics.attempt(outcome);
        }
    }

    /// The request is over.
    pub fn finish(&mut self, end: &RequestEnd<'_>) {
        self.close(AttemptOutcome::Cancelled, "");
        std::mem::take(&mut self.span).finish(end);
    }
}
