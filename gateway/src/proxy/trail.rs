//! The trace of one request: its span, the try that is open, and the counting of tries.
//!
//! Owns: when an attempt's span begins and ends, in one place for metrics and traces, so that they agree. Must not: take part in any
//! decision. `record` calls it at the marks of a request.

use std::sync::Arc;
use std::time::SystemTime;

use http::request::Parts;
use http::{HeaderMap, Version};

use crate::groups::state::GroupState;
use crate::proxy::body::RequestBody;
use crate::proxy::retry::Failure;
use crate::telemetry::labels::{AttemptOutcome, Route};
use crate::telemetry::metrics::PoolMetrics;
use crate::telemetry::traces::{
    AttemptBegin, AttemptEvent, AttemptRef, AttemptSpan, GenAiRequest, QueueWait, RequestBegin, RequestEnd, RequestSpan, Traces, Usage,
    trace_id_of,
};

/// See the module.
#[derive(Debug)]
pub struct Trail {
    span: RequestSpan,
    /// 32 digits; `None` without a trace.
    pub trace_id: Option<Arc<str>>,
    /// What the request asks of the model; `None`: not read.
    asked: Option<Arc<GenAiRequest>>,
    waiting: Option<Waiting>,
    tries: u32,
    open: Option<Open>,
    /// The try whose answer broke and has not been carried on yet.
    replaced: Option<AttemptRef>,
}

#[derive(Debug)]
struct Waiting {
    since: SystemTime,
    held: Option<SystemTime>,
}

#[derive(Debug)]
struct Open {
    span: AttemptSpan,
    metrics: Option<Arc<PoolMetrics>>,
    byte_seen: bool,
    event_seen: bool,
    draining: bool,
    usage: Option<Usage>,
    /// It carries a broken answer on: the usage that passes is that of all tries together.
    carries_on: bool,
}

impl Open {
    /// Of its answer, by whatever is seen of it first: the client may have had its head long before.
    fn first_byte(&mut self) {
        if !std::mem::replace(&mut self.byte_seen, true) {
            self.span.event(AttemptEvent::FirstByte, "");
        }
    }
}

impl Trail {
    /// A request whose head has arrived.
    pub fn new(traces: &Traces, head: &Parts, route: Route) -> Self {
        let begun = SystemTime::now();
        let protocol = spoken(head.version);
        let (method, path) = (head.method.as_str(), head.uri.path());
        let span = traces.request(RequestBegin { headers: &head.headers, method, path, route, protocol, started: begun });
        let trace_id = span.trace_id().or_else(|| trace_id_of(&head.headers)).map(Arc::from);
        let waiting = Some(Waiting { since: begun, held: None });
        Self { span, trace_id, asked: None, waiting, tries: 0, open: None, replaced: None }
    }

    /// The body is there. It is looked at only if the spans of this request are sent.
    pub fn asked(&mut self, body: &RequestBody) {
        if self.span.is_sampled() && self.asked.is_none() && body.bytes() <= GenAiRequest::longest_body() {
            self.asked = Some(Arc::new(GenAiRequest::read(&body.to_bytes())));
        }
    }

    /// No leader is free for the request: it waits.
    pub fn held(&mut self) {
        let now = SystemTime::now();
        self.waiting.get_or_insert(Waiting { since: now, held: None }).held.get_or_insert(now);
    }

    fn waited(&mut self, released: bool) {
        if let Some(Waiting { since, held }) = self.waiting.take() {
            self.span.queue_wait(QueueWait { from: since, held, to: SystemTime::now(), released });
        }
    }

    /// A leader is about to be tried. A try that is still open was given up for this one.
    pub fn tried(&mut self, model: Option<&Arc<str>>, group: &GroupState, stream: bool, metrics: Option<&Arc<PoolMetrics>>) {
        self.close(AttemptOutcome::Abandoned, "");
        self.waited(true);
        let span = self.span.attempt(|| {
            let (model, group) = (model.cloned().unwrap_or_default(), group.published());
            AttemptBegin { model, group, resend: self.tries, stream, request: self.asked.as_ref(), replaces: self.replaced }
        });
        self.tries += 1;
        self.open = Some(Open {
            span,
            metrics: metrics.cloned(),
            byte_seen: false,
            event_seen: false,
            draining: false,
            usage: None,
            carries_on: false,
        });
    }

    /// The trace context that goes to the leader of the open try; empty: the client's passes.
    pub fn context(&self, client: &HeaderMap) -> HeaderMap {
        self.open.as_ref().map_or_else(HeaderMap::new, |open| open.span.context(client))
    }

    /// The head of the leader's answer is there.
    pub fn answered(&mut self, status: u16) {
        if let Some(open) = &mut self.open {
            open.first_byte();
            open.span.status(status);
        }
    }

    /// Bytes of the answer passed. `usage`: what they tell of the tokens.
    pub fn passed(&mut self, bytes: &[u8], usage: Option<Usage>) {
        if let Some(open) = &mut self.open {
            open.first_byte();
            open.span.passed(bytes);
            if let Some(usage) = usage {
                open.usage = Some(open.usage.unwrap_or_default().then(usage));
            }
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
    pub fn failed(&mut self, failure: Failure, status: Option<u16>) {
        if let Some((open, status)) = self.open.as_mut().zip(status) {
            open.span.status(status);
        }
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
        self.waiting = Some(Waiting { since: SystemTime::now(), held: None });
        self.close(AttemptOutcome::Broken, cause);
    }

    /// The open try carries a broken answer on.
    pub fn resumed(&mut self, way: &'static str) {
        self.replaced = None;
        if let Some(open) = &mut self.open {
            open.carries_on = true;
            open.first_byte();
            open.span.event(AttemptEvent::Resumed, way);
        }
    }

    /// A try is open: it has no end yet.
    pub fn is_trying(&self) -> bool {
        self.open.is_some()
    }

    /// The open try, if there is one, is over.
    pub fn close(&mut self, outcome: AttemptOutcome, reason: &'static str) {
        let Some(mut open) = self.open.take() else { return };
        if let Some(usage) = open.usage.filter(|_| !open.carries_on) {
            open.span.usage(usage);
        }
        open.span.end(outcome, reason);
        if let Some(metrics) = &open.metrics {
            metrics.attempt(outcome);
        }
    }

    /// The request is over.
    pub fn finish(&mut self, end: &RequestEnd<'_>) {
        self.close(AttemptOutcome::Cancelled, "");
        // A request that was refused at once has waited for nothing.
        if self.waiting.as_ref().is_some_and(|waiting| waiting.held.is_some()) {
            self.waited(false);
        }
        std::mem::take(&mut self.span).finish(end);
    }
}

/// `network.protocol.version` of what the client speaks.
fn spoken(version: Version) -> &'static str {
    match version {
        Version::HTTP_10 => "1.0",
        Version::HTTP_2 => "2",
        _ => "1.1",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_version_has_its_word() {
        assert_eq!([Version::HTTP_10, Version::HTTP_11, Version::HTTP_2].map(spoken), ["1.0", "1.1", "2"]);
    }
}
