//! A span while it grows, and its translation to OpenTelemetry's form.
//!
//! Owns: attribute names (GenAI and HTTP conventions; own ones begin with `leadgate.`), bounds of one span. Must not: hold text of
//! prompts or completions.

use std::borrow::Cow;
use std::sync::LazyLock;
use std::time::SystemTime;

use opentelemetry::trace::{Event, Link, SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState};
use opentelemetry::{Array, InstrumentationScope, KeyValue, StringValue, Value};
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanLinks};

use super::answer::GenAiResponse;
use super::asked::GenAiRequest;

/// Events of one span at most; the rest is counted.
const EVENTS: usize = 64;

static SCOPE: LazyLock<InstrumentationScope> =
    LazyLock::new(|| InstrumentationScope::builder("leadgate").with_version(env!("CARGO_PKG_VERSION")).build());

/// Something that happened to an attempt or to its request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttemptEvent {
    /// First byte of the leader's answer.
    FirstByte,
    /// First `data:` event.
    FirstToken,
    /// The group began to leave.
    DrainStarted,
    /// The answer broke.
    Broken,
    /// The answer goes on at another leader.
    Resumed,
    /// The request waits because nothing serves.
    Held,
    /// The wait is over.
    Released,
}

impl AttemptEvent {
    fn name(self) -> &'static str {
        match self {
            Self::FirstByte => "first_byte",
            Self::FirstToken => "first_token",
            Self::DrainStarted => "drain_started",
            Self::Broken => "broken",
            Self::Resumed => "resumed",
            Self::Held => "held",
            Self::Released => "released",
        }
    }
}

/// Tokens of a request, from the answer's `usage`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// `prompt_tokens`.
    pub prompt: Option<u64>,
    /// `completion_tokens`.
    pub completion: Option<u64>,
    /// `prompt_tokens_details.cached_tokens`.
    pub cached: Option<u64>,
    /// `completion_tokens_details.reasoning_tokens`.
    pub reasoning: Option<u64>,
}

/// Growing attributes and events of one span.
#[derive(Debug)]
pub(super) struct Draft {
    pub(super) name: Cow<'static, str>,
    pub(super) kind: SpanKind,
    pub(super) span_id: SpanId,
    pub(super) parent: SpanId,
    pub(super) parent_remote: bool,
    pub(super) started: SystemTime,
    pub(super) attributes: Vec<KeyValue>,
    pub(super) events: Vec<Event>,
    pub(super) events_lost: u32,
    pub(super) link: Option<SpanContext>,
    pub(super) status: Status,
}

impl Draft {
    pub(super) fn new(name: Cow<'static, str>, kind: SpanKind, ids: (SpanId, SpanId), started: SystemTime) -> Self {
        Self {
            name,
            kind,
            span_id: ids.0,
            parent: ids.1,
            parent_remote: false,
            started,
            attributes: Vec::with_capacity(24),
            events: Vec::new(),
            events_lost: 0,
            link: None,
            status: Status::Unset,
        }
    }

    pub(super) fn set(&mut self, key: &'static str, value: impl Into<opentelemetry::Value>) {
        self.attributes.push(KeyValue::new(key, value));
    }

    pub(super) fn text(&mut self, key: &'static str, value: &str) {
        if !value.is_empty() {
            self.set(key, value.to_owned());
        }
    }

    pub(super) fn count(&mut self, key: &'static str, value: Option<u64>) {
        if let Some(value) = value {
            self.set(key, i64::try_from(value).unwrap_or(i64::MAX));
        }
    }

    pub(super) fn event(&mut self, event: AttemptEvent, at: SystemTime, detail: &'static str) {
        if self.events.len() == EVENTS {
            self.events_lost += 1;
            return;
        }
        let attributes = if detail.is_empty() { Vec::new() } else { vec![KeyValue::new("leadgate.reason", detail)] };
        self.events.push(Event::new(event.name(), at, attributes, 0));
    }

    pub(super) fn usage(&mut self, usage: Usage) {
        self.count("gen_ai.usage.input_tokens", usage.prompt);
        self.count("gen_ai.usage.output_tokens", usage.completion);
        self.count("gen_ai.usage.cache_read.input_tokens", usage.cached);
        self.count("gen_ai.usage.reasoning.output_tokens", usage.reasoning);
    }

    pub(super) fn request(&mut self, request: &GenAiRequest) {
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

    pub(super) fn response(&mut self, response: &GenAiResponse) {
        self.text("gen_ai.response.id", &response.id);
        self.text("gen_ai.response.model", &response.model);
        self.texts("gen_ai.response.finish_reasons", &response.finish_reasons);
    }

    fn texts<T: AsRef<str>>(&mut self, key: &'static str, values: &[T]) {
        if !values.is_empty() {
            let values: Vec<StringValue> = values.iter().map(|v| v.as_ref().to_owned().into()).collect();
            self.set(key, Value::Array(Array::String(values)));
        }
    }

    /// The finished span.
    pub(super) fn end(self, trace: TraceId, sampled: bool, ended: SystemTime) -> SpanData {
        let mut events = SpanEvents::default();
        events.events = self.events;
        events.dropped_count = self.events_lost;
        let mut links = SpanLinks::default();
        links.links = self.link.into_iter().map(|context| Link::new(context, Vec::new(), 0)).collect();
        SpanData {
            span_context: context(trace, self.span_id, sampled),
            parent_span_id: self.parent,
            parent_span_is_remote: self.parent_remote,
            span_kind: self.kind,
            name: self.name,
            start_time: self.started,
            end_time: ended.max(self.started),
            attributes: self.attributes,
            dropped_attributes_count: 0,
            events,
            links,
            status: self.status,
            instrumentation_scope: SCOPE.clone(),
        }
    }
}

/// A span's place in a trace.
pub(super) fn context(trace: TraceId, span: SpanId, sampled: bool) -> SpanContext {
    let flags = if sampled { TraceFlags::SAMPLED } else { TraceFlags::default() };
    SpanContext::new(trace, span, flags, false, TraceState::default())
}
