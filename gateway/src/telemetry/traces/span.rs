//! The handles that a request's path holds: its own span and one for each attempt.
//!
//! Owns: when spans begin and end. Must not: be able to leak: a handle that is dropped without an end ends as cancelled, whatever way the
//! request went. When tracing is off or a request is not recorded the handles are empty or hold ids only.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use http::HeaderMap;
use opentelemetry::trace::{SpanContext, SpanId, SpanKind, Status, TraceId};
use opentelemetry_sdk::trace::{IdGenerator, SpanData};

use super::answer::GenAiResponse;
use super::asked::GenAiRequest;
use super::record::{AttemptEvent, Draft, Usage, context};
use super::{Identity, RequestBegin, Shared, context as headers, operation};
use crate::telemetry::labels::{AttemptOutcome, Label, Outcome, Route};

/// Spans of one request at most: bounded by the attempts of a request anyway; this holds whatever they are set to.
const SPANS: usize = 64;

/// What is known of a request at its end. Empty texts are left out.
#[derive(Debug, Clone, Copy, Default)]
pub struct RequestEnd<'a> {
    /// HTTP status that the client got; `None` when it left before.
    pub status: Option<u16>,
    /// How it ended; `None` counts as cancelled.
    pub outcome: Option<Outcome>,
    /// Code of a refusal, or why a stream ended in an error event.
    pub reason: &'a str,
    /// `x-request-id`.
    pub request_id: &'a str,
    /// Model name of the pool.
    pub pool: &'a str,
    /// Key of the last group that was tried.
    pub group: &'a str,
    /// Tries at leaders.
    pub attempts: u32,
    /// Times that the answer moved.
    pub resumes: u32,
    /// To the first `data:` event.
    pub first_token: Option<Duration>,
    /// Tokens of the whole request.
    pub usage: Usage,
}

/// What is known of an attempt when it begins.
#[derive(Debug, Clone, Copy)]
pub struct AttemptBegin<'a> {
    /// Served model name that the leader is asked for.
    pub model: &'a str,
    /// Host of the leader's address.
    pub host: &'a str,
    /// Port of the leader's address.
    pub port: u16,
    /// Key of the group.
    pub group: &'a str,
    /// Its ordinal.
    pub slot: Option<u32>,
    /// UID of the leader's Pod.
    pub leader_uid: &'a str,
    /// 0 for the first try; the number of tries before this one.
    pub resend: u32,
    /// The client asked for a stream.
    pub stream: bool,
    /// What the request asks of the model; `None`: not read.
    pub request: Option<&'a GenAiRequest>,
    /// The attempt that this one carries on.
    pub replaces: Option<AttemptRef>,
}

/// Names an attempt's span, so that a later one can link to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttemptRef {
    trace: TraceId,
    span: SpanId,
    sampled: bool,
}

impl AttemptRef {
    fn context(self) -> SpanContext {
        context(self.trace, self.span, self.sampled)
    }
}

/// A wait for a leader.
#[derive(Debug, Clone, Copy)]
pub struct QueueWait {
    /// From the request's head, or from the break of its stream.
    pub from: SystemTime,
    /// When no leader was free for it and it joined the pool's queue; `None`: it went on at once.
    pub held: Option<SystemTime>,
    /// Until its leader was chosen, or it was given up.
    pub to: SystemTime,
    /// A leader was chosen.
    pub released: bool,
}

/// The SERVER span of one request. Clones are the same span.
#[derive(Debug, Clone, Default)]
pub struct RequestSpan(Option<Arc<Request>>);

#[derive(Debug)]
struct Request {
    shared: Arc<Shared>,
    trace: TraceId,
    span: SpanId,
    parented: bool,
    sampled: bool,
    route: Route,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// `None`: not recorded.
    draft: Option<Draft>,
    done: Vec<SpanData>,
    notable: bool,
    ended: Option<SystemTime>,
}

impl RequestSpan {
    pub(super) fn begin(shared: Arc<Shared>, identity: Identity, begin: &RequestBegin<'_>) -> Self {
        let span = shared.ids.new_span_id();
        let recorded = identity.sampled || shared.keep_notable;
        let draft = recorded.then(|| server(span, &identity, begin));
        let state = Mutex::new(State { draft, done: Vec::new(), notable: false, ended: None });
        let parented = identity.parent.is_some();
        let (trace, sampled) = (identity.trace_id, identity.sampled);
        Self(Some(Arc::new(Request { shared, trace, span, parented, sampled, route: begin.route, state })))
    }

    /// 32 hexadecimal digits; `None` when tracing is off.
    pub fn trace_id(&self) -> Option<String> {
        self.0.as_ref().map(|r| r.trace.to_string())
    }

    /// 16 hexadecimal digits of this span; `None` when tracing is off.
    pub fn span_id(&self) -> Option<String> {
        self.0.as_ref().map(|r| r.span.to_string())
    }

    /// These spans will be sent however the request ends: only then is more read for them than what is at hand.
    pub fn is_sampled(&self) -> bool {
        self.0.as_ref().is_some_and(|r| r.sampled)
    }

    /// The request waited for a leader.
    pub fn queue_wait(&self, wait: QueueWait) {
        let Some(request) = &self.0 else { return };
        let mut state = request.state();
        if state.draft.is_none() || state.done.len() >= SPANS {
            return;
        }
        let ids = (request.shared.ids.new_span_id(), request.span);
        let mut draft = Draft::new("queue".into(), SpanKind::Internal, ids, wait.from);
        draft.set("leadgate.held", wait.held.is_some());
        if let Some(at) = wait.held {
            draft.event(AttemptEvent::Held, at, "");
            if wait.released {
                draft.event(AttemptEvent::Released, wait.to, "");
            }
        }
        state.done.push(draft.end(request.trace, request.sampled, wait.to));
    }

    /// Something happened to the request. `detail`: a word of a closed set, or empty.
    pub fn event(&self, event: AttemptEvent, detail: &'static str) {
        let Some(request) = &self.0 else { return };
        let mut state = request.state();
        state.notable |= matches!(event, AttemptEvent::Broken | AttemptEvent::Resumed);
        if let Some(draft) = &mut state.draft {
            draft.event(event, SystemTime::now(), detail);
        }
    }

    /// Send this request's spans whatever was sampled.
    pub fn keep(&self) {
        if let Some(request) = &self.0 {
            request.state().notable = true;
        }
    }

    /// The CLIENT span of a try at one leader.
    pub fn attempt(&self, begin: &AttemptBegin<'_>) -> AttemptSpan {
        let Some(request) = &self.0 else { return AttemptSpan::default() };
        let span = request.shared.ids.new_span_id();
        let recorded = request.state().draft.is_some();
        let draft = recorded.then(|| Box::new(client(request, span, begin)));
        let answer = request.sampled.then(Box::default);
        AttemptSpan(Some(Attempt { request: request.clone(), span, draft, answer, started: SystemTime::now() }))
    }

    /// The request has ended.
    pub fn finish(self, end: &RequestEnd<'_>) {
        let Some(request) = self.0 else { return };
        let mut state = request.state();
        state.ended = Some(SystemTime::now());
        state.notable |= end.resumes > 0 || failed(end);
        if let Some(draft) = &mut state.draft {
            close(draft, end);
        }
    }
}

impl Request {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        let Some(mut draft) = state.draft.take() else { return };
        if !self.sampled && !state.notable {
            return;
        }
        if state.ended.is_none() {
            close(&mut draft, &RequestEnd::default());
        }
        let mut spans = std::mem::take(&mut state.done);
        spans.push(draft.end(self.trace, self.sampled, state.ended.unwrap_or_else(SystemTime::now)));
        self.shared.queue.send(spans);
    }
}

/// The CLIENT span of one try. Dropped without an end it ends as cancelled.
#[derive(Debug, Default)]
pub struct AttemptSpan(Option<Attempt>);

#[derive(Debug)]
struct Attempt {
    request: Arc<Request>,
    span: SpanId,
    draft: Option<Box<Draft>>,
    /// `None`: not read.
    answer: Option<Box<GenAiResponse>>,
    started: SystemTime,
}

impl AttemptSpan {
    /// The trace context for the leader, with this span as the parent. It stands in the place of the `client`'s; empty: that one passes.
    pub fn context(&self, client: &HeaderMap) -> HeaderMap {
        let mut made = HeaderMap::new();
        if let Some(Attempt { request, span, .. }) = self.0.as_ref().filter(|a| a.request.shared.propagate) {
            headers::inject(&mut made, request.trace, *span, request.sampled);
            if request.parented {
                headers::keep_state(client, &mut made);
            }
        }
        made
    }

    /// For a later attempt's link.
    pub fn reference(&self) -> Option<AttemptRef> {
        self.0.as_ref().map(|a| AttemptRef { trace: a.request.trace, span: a.span, sampled: a.request.sampled })
    }

    /// Something happened. `detail`: a word of a closed set, or empty.
    pub fn event(&mut self, event: AttemptEvent, detail: &'static str) {
        let Some(attempt) = &mut self.0 else { return };
        if matches!(event, AttemptEvent::Broken | AttemptEvent::Resumed) {
            attempt.request.state().notable = true;
        }
        let Some(draft) = &mut attempt.draft else { return };
        let now = SystemTime::now();
        draft.event(event, now, detail);
        if event == AttemptEvent::FirstToken {
            let after = now.duration_since(attempt.started).unwrap_or(Duration::ZERO);
            draft.set("gen_ai.response.time_to_first_chunk", after.as_secs_f64());
        }
    }

    /// The leader's status.
    pub fn status(&mut self, status: u16) {
        self.draft(|d| d.set("http.response.status_code", i64::from(status)));
    }

    /// Bytes of the answer passed; what it says of itself is read from them if these spans are sent.
    pub fn passed(&mut self, bytes: &[u8]) {
        if let Some(answer) = self.0.as_mut().and_then(|a| a.answer.as_mut()) {
            answer.feed(bytes);
        }
    }

    /// Tokens of this attempt.
    pub fn usage(&mut self, usage: Usage) {
        self.draft(|d| d.usage(usage));
    }

    /// The try has ended. `reason`: a word of a closed set, or empty.
    pub fn end(mut self, outcome: AttemptOutcome, reason: &'static str) {
        self.close(outcome, reason);
    }

    fn draft(&mut self, change: impl FnOnce(&mut Draft)) {
        if let Some(draft) = self.0.as_mut().and_then(|a| a.draft.as_mut()) {
            change(draft);
        }
    }

    fn close(&mut self, outcome: AttemptOutcome, reason: &'static str) {
        let Some(Attempt { request, draft: Some(mut draft), answer, .. }) = self.0.take() else { return };
        if let Some(answer) = answer {
            draft.response(&answer);
        }
        draft.set("leadgate.verdict", outcome.as_str());
        draft.text("leadgate.reason", reason);
        if !matches!(outcome, AttemptOutcome::Complete | AttemptOutcome::Cancelled) {
            draft.set("error.type", if reason.is_empty() { outcome.as_str() } else { reason });
            draft.status = Status::error(outcome.as_str());
        }
        let mut state = request.state();
        if state.done.len() < SPANS {
            state.done.push(draft.end(request.trace, request.sampled, SystemTime::now()));
        }
    }
}

impl Drop for AttemptSpan {
    fn drop(&mut self) {
        self.close(AttemptOutcome::Cancelled, "");
    }
}

fn server(span: SpanId, identity: &Identity, begin: &RequestBegin<'_>) -> Draft {
    // The path of an unknown route is the client's text: it is an attribute, never a name.
    let name = if matches!(begin.route, Route::Other | Route::Extra) {
        begin.method.to_owned()
    } else if begin.route == Route::Models {
        format!("{} /v1/models", begin.method)
    } else {
        format!("{} {}", begin.method, begin.path)
    };
    let parent = identity.parent.map_or(SpanId::INVALID, |p| p.span_id);
    let mut draft = Draft::new(name.into(), SpanKind::Server, (span, parent), begin.started);
    draft.parent_remote = identity.parent.is_some();
    draft.text("http.request.method", begin.method);
    draft.text("url.path", cut(begin.path));
    draft.set("network.protocol.version", begin.protocol);
    draft.set("leadgate.route", begin.route.as_str());
    draft
}

fn client(request: &Request, span: SpanId, begin: &AttemptBegin<'_>) -> Draft {
    let operation = operation(request.route);
    let name = format!("{operation} {}", begin.model);
    let mut draft = Draft::new(name.into(), SpanKind::Client, (span, request.span), SystemTime::now());
    draft.set("gen_ai.operation.name", operation);
    // Which engine it is is not known from outside; the platform that runs it is.
    draft.set("gen_ai.provider.name", "gpustack");
    draft.text("gen_ai.request.model", begin.model);
    draft.text("server.address", begin.host);
    draft.set("server.port", i64::from(begin.port));
    draft.set("http.request.method", "POST");
    draft.set("network.protocol.version", "1.1");
    if begin.resend > 0 {
        draft.set("http.request.resend_count", i64::from(begin.resend));
    }
    draft.text("leadgate.group", begin.group);
    draft.count("leadgate.slot", begin.slot.map(u64::from));
    draft.text("leadgate.leader.uid", begin.leader_uid);
    draft.set("gen_ai.request.stream", begin.stream);
    if let Some(asked) = begin.request {
        draft.request(asked);
    }
    draft.link = begin.replaces.map(AttemptRef::context);
    draft
}

fn close(draft: &mut Draft, end: &RequestEnd<'_>) {
    if let Some(status) = end.status {
        draft.set("http.response.status_code", i64::from(status));
    }
    draft.set("leadgate.outcome", end.outcome.unwrap_or(Outcome::Cancelled).as_str());
    draft.text("leadgate.reason", end.reason);
    draft.text("leadgate.request_id", cut(end.request_id));
    draft.text("leadgate.pool", end.pool);
    draft.text("leadgate.group", end.group);
    draft.set("leadgate.attempts", i64::from(end.attempts));
    draft.set("leadgate.resumes", i64::from(end.resumes));
    if let Some(after) = end.first_token {
        draft.set("leadgate.time_to_first_token", after.as_secs_f64());
    }
    draft.usage(end.usage);
    if failed(end) {
        let reason = if end.reason.is_empty() { end.outcome.map_or("", Label::as_str) } else { end.reason };
        draft.set("error.type", reason.to_owned());
        draft.status = Status::error(reason.to_owned());
    }
}

/// HTTP conventions: a SERVER span fails by 5xx, not by the client's 4xx; a stream that ended in an error event failed under 200.
fn failed(end: &RequestEnd<'_>) -> bool {
    end.status.is_some_and(|s| s >= 500) || matches!(end.outcome, Some(Outcome::StreamError | Outcome::UpstreamError))
}

fn cut(text: &str) -> &str {
    const MOST: usize = 256;
    let end = (0..=text.len().min(MOST)).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
    &text[..end]
}
