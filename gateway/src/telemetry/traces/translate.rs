//! From what was kept of a request to spans in OpenTelemetry's form.
//!
//! Owns: names of spans and attributes (GenAI and HTTP conventions; own ones begin with `leadgate.`). Runs at a request's end, and only for
//! one whose spans are sent. Must not: choose what is sent (`span` does). Next step: `export`.

use std::borrow::Cow;
use std::sync::LazyLock;
use std::time::{Duration, SystemTime};

use opentelemetry::trace::{Event, Link, SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState};
use opentelemetry::{Array, InstrumentationScope, KeyValue, StringValue, Value};
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanLinks};

use super::answer::GenAiResponse;
use super::asked::GenAiRequest;
use super::operation;
use super::record::{Head, Mark, Try, cut};
use super::told::{AttemptEvent, AttemptRef, QueueWait, RequestEnd, Usage};
use crate::telemetry::labels::{AttemptOutcome, Label, Outcome, Route};

static SCOPE: LazyLock<InstrumentationScope> =
    LazyLock::new(|| InstrumentationScope::builder("leadgate").with_version(env!("CARGO_PKG_VERSION")).build());

/// A request in its trace.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) trace: TraceId,
    /// Of the SERVER span.
    pub(super) span: SpanId,
    /// The caller's span.
    pub(super) parent: Option<SpanId>,
    pub(super) sampled: bool,
    pub(super) route: Route,
}

/// A span's place in a trace.
pub(super) fn context(trace: TraceId, span: SpanId, sampled: bool) -> SpanContext {
    let flags = if sampled { TraceFlags::SAMPLED } else { TraceFlags::default() };
    SpanContext::new(trace, span, flags, false, TraceState::default())
}

/// The SERVER span.
pub(super) fn server(place: &Place, head: &Head, end: &RequestEnd<'_>, ended: SystemTime) -> SpanData {
    let mut attributes = Attributes::default();
    attributes.text("http.request.method", head.method());
    attributes.text("url.path", head.path());
    attributes.set("network.protocol.version", head.protocol);
    attributes.set("leadgate.route", place.route.as_str());
    attributes.end(end);
    let mut status = Status::Unset;
    if failed(end) {
        let reason = if end.reason.is_empty() { end.outcome.map_or("", Label::as_str) } else { end.reason };
        attributes.set("error.type", reason.to_owned());
        status = Status::error(reason.to_owned());
    }
    let times = (head.started, ended);
    let mut span = child(place, (place.span, SpanKind::Server), server_name(place.route, head).into(), times, attributes);
    span.parent_span_id = place.parent.unwrap_or(SpanId::INVALID);
    span.parent_span_is_remote = place.parent.is_some();
    span.status = status;
    span
}

/// The span of a wait for a leader.
pub(super) fn wait(place: &Place, span: SpanId, wait: &QueueWait) -> SpanData {
    let mut attributes = Attributes::default();
    attributes.set("leadgate.held", wait.held.is_some());
    let held = wait.held.map(|at| Mark { event: AttemptEvent::Held, at, detail: "" });
    let released = Mark { event: AttemptEvent::Released, at: wait.to, detail: "" };
    let released = held.filter(|_| wait.released).map(|_| released);
    let mut span = child(place, (span, SpanKind::Internal), "queue".into(), (wait.from, wait.to), attributes);
    span.events.events = held.into_iter().chain(released).map(event).collect();
    span
}

/// The CLIENT span of a try.
pub(super) fn attempt(place: &Place, kept: &Try) -> SpanData {
    let operation = operation(place.route);
    let mut attributes = Attributes::default();
    attributes.asked_of(operation, kept);
    attributes.answered(kept);
    attributes.set("leadgate.verdict", kept.outcome.as_str());
    attributes.text("leadgate.reason", kept.reason);
    let mut status = Status::Unset;
    if !matches!(kept.outcome, AttemptOutcome::Complete | AttemptOutcome::Cancelled) {
        attributes.set("error.type", if kept.reason.is_empty() { kept.outcome.as_str() } else { kept.reason });
        status = Status::error(kept.outcome.as_str());
    }
    let name = format!("{operation} {}", kept.model).into();
    let mut span = child(place, (kept.span, SpanKind::Client), name, (kept.started, kept.ended), attributes);
    span.events.events = kept.marks.iter().copied().map(event).collect();
    span.events.dropped_count = kept.marks_lost;
    span.links.links = kept.replaces.map(AttemptRef::context).into_iter().map(|context| Link::new(context, Vec::new(), 0)).collect();
    span.status = status;
    span
}

/// HTTP conventions: a SERVER span fails by 5xx, not by the client's 4xx; a stream that ended in an error event failed under 200.
pub(super) fn failed(end: &RequestEnd<'_>) -> bool {
    end.status.is_some_and(|s| s >= 500) || matches!(end.outcome, Some(Outcome::StreamError | Outcome::UpstreamError))
}

/// The path of an unknown route is the client's text: it is an attribute, never a name.
fn server_name(route: Route, head: &Head) -> String {
    let method = head.method();
    match route {
        Route::Other | Route::Extra => method.to_owned(),
        Route::Models => format!("{method} /v1/models"),
        Route::ChatCompletions
        | Route::Completions
        | Route::Responses
        | Route::Messages
        | Route::Embeddings
        | Route::Pooling
        | Route::Rerank
        | Route::Score
        | Route::Classify
        | Route::Tokenize
        | Route::Detokenize => format!("{method} {}", head.path()),
    }
}

/// A span below the SERVER span, without events, links and status.
fn child(
    place: &Place,
    (span, span_kind): (SpanId, SpanKind),
    name: Cow<'static, str>,
    (started, ended): (SystemTime, SystemTime),
    Attributes(attributes): Attributes,
) -> SpanData {
    SpanData {
        span_context: context(place.trace, span, place.sampled),
        parent_span_id: place.span,
        parent_span_is_remote: false,
        span_kind,
        name,
        start_time: started,
        end_time: ended.max(started),
        attributes,
        dropped_attributes_count: 0,
        events: SpanEvents::default(),
        links: SpanLinks::default(),
        status: Status::Unset,
        instrumentation_scope: SCOPE.clone(),
    }
}

fn event(mark: Mark) -> Event {
    let attributes = if mark.detail.is_empty() { Vec::new() } else { vec![KeyValue::new("leadgate.reason", mark.detail)] };
    Event::new(mark.event.name(), mark.at, attributes, 0)
}

#[derive(Default)]
struct Attributes(Vec<KeyValue>);

impl Attributes {
    fn set(&mut self, key: &'static str, value: impl Into<Value>) {
        self.0.push(KeyValue::new(key, value));
    }

    fn text(&mut self, key: &'static str, value: &str) {
        if !value.is_empty() {
            self.set(key, value.to_owned());
        }
    }

    fn texts<T: AsRef<str>>(&mut self, key: &'static str, values: &[T]) {
        if !values.is_empty() {
            let values: Vec<StringValue> = values.iter().map(|v| v.as_ref().to_owned().into()).collect();
            self.set(key, Value::Array(Array::String(values)));
        }
    }

    fn count(&mut self, key: &'static str, value: Option<u64>) {
        if let Some(value) = value {
            self.set(key, i64::try_from(value).unwrap_or(i64::MAX));
        }
    }

    fn seconds(&mut self, key: &'static str, value: Option<Duration>) {
        if let Some(value) = value {
            self.set(key, value.as_secs_f64());
        }
    }

    /// How a request ended.
    fn end(&mut self, end: &RequestEnd<'_>) {
        self.count("http.response.status_code", end.status.map(u64::from));
        self.set("leadgate.outcome", end.outcome.unwrap_or(Outcome::Cancelled).as_str());
        self.text("leadgate.reason", end.reason);
        self.text("leadgate.request_id", cut(end.request_id));
        self.text("leadgate.pool", end.pool);
        self.text("leadgate.group", end.group);
        self.set("leadgate.attempts", i64::from(end.attempts));
        self.set("leadgate.resumes", i64::from(end.resumes));
        self.seconds("leadgate.time_to_first_token", end.first_token);
        self.usage(end.usage);
    }

    /// What a try asked, and whom.
    fn asked_of(&mut self, operation: &'static str, kept: &Try) {
        self.set("gen_ai.operation.name", operation);
        // Which engine it is is not known from outside; the platform that runs it is.
        self.set("gen_ai.provider.name", "gpustack");
        self.text("gen_ai.request.model", &kept.model);
        if let Some(leader) = &kept.group.leader {
            self.text("server.address", &leader.address.host);
            self.set("server.port", i64::from(leader.address.port));
            self.text("leadgate.leader.uid", leader.uid.as_deref().unwrap_or_default());
        }
        self.set("http.request.method", "POST");
        self.set("network.protocol.version", "1.1");
        self.count("http.request.resend_count", Some(u64::from(kept.resend)).filter(|&count| count > 0));
        self.text("leadgate.group", &kept.group.key.0);
        self.count("leadgate.slot", kept.group.ordinal.map(u64::from));
        self.set("gen_ai.request.stream", kept.stream);
        if let Some(asked) = &kept.asked {
            self.request(asked);
        }
    }

    /// What came back.
    fn answered(&mut self, kept: &Try) {
        let first = kept.marks.iter().find(|mark| mark.event == AttemptEvent::FirstToken);
        let after = first.map(|mark| mark.at.duration_since(kept.started).unwrap_or(Duration::ZERO));
        self.seconds("gen_ai.response.time_to_first_chunk", after);
        self.count("http.response.status_code", kept.status.map(u64::from));
        self.usage(kept.usage);
        if let Some(answer) = &kept.answer {
            self.response(answer);
        }
    }

    fn usage(&mut self, usage: Usage) {
        self.count("gen_ai.usage.input_tokens", usage.prompt);
        self.count("gen_ai.usage.output_tokens", usage.completion);
        self.count("gen_ai.usage.cache_read.input_tokens", usage.cached);
        self.count("gen_ai.usage.reasoning.output_tokens", usage.reasoning);
    }

    fn request(&mut self, request: &GenAiRequest) {
        self.count("gen_ai.request.max_tokens", request.max_tokens);
        self.count("gen_ai.request.choice.count", request.choices);
        for (key, value) in [
            ("gen_ai.request.temperature", request.temperature),
            ("gen_ai.request.top_p", request.top_p),
            ("gen_ai.request.frequency_penalty", request.frequency_penalty),
            ("gen_ai.request.presence_penalty", request.presence_penalty),
        ] {
            if let Some(value) = value {
                self.set(key, value);
            }
        }
        for (key, value) in [("gen_ai.request.top_k", request.top_k), ("gen_ai.request.seed", request.seed)] {
            if let Some(value) = value {
                self.set(key, value);
            }
        }
        self.texts("gen_ai.request.stop_sequences", &request.stop);
        self.texts("gen_ai.request.encoding_formats", request.encoding.as_slice());
        self.text("gen_ai.output.type", request.output.unwrap_or(""));
    }

    fn response(&mut self, response: &GenAiResponse) {
        self.text("gen_ai.response.id", &response.id);
        self.text("gen_ai.response.model", &response.model);
        self.texts("gen_ai.response.finish_reasons", &response.finish_reasons);
    }
}
