//! W3C trace context in and out of headers.
//!
//! Owns: `traceparent`. Must not: touch `baggage`, which passes as any header does. `tracestate` passes unchanged with a valid
//! `traceparent`, and not at all without one (Trace Context section 3.4: a restarted trace drops it). The parsing is the SDK's propagator.

use http::header::{HeaderMap, HeaderName, HeaderValue};
use opentelemetry::Context;
use opentelemetry::propagation::{Extractor, TextMapPropagator};
use opentelemetry::trace::{SpanId, TraceContextExt, TraceId};
use opentelemetry_sdk::propagation::TraceContextPropagator;

const TRACEPARENT: &str = "traceparent";
const TRACESTATE: &str = "tracestate";

/// The caller's span.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Parent {
    pub(super) trace_id: TraceId,
    pub(super) span_id: SpanId,
    pub(super) sampled: bool,
}

struct Headers<'a>(&'a HeaderMap);

impl Extractor for Headers<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).and_then(|v| v.to_str().ok())
    }

    fn keys(&self) -> Vec<&str> {
        self.0.keys().map(http::HeaderName::as_str).collect()
    }
}

/// The caller's span, if the headers name one.
pub(super) fn extract(headers: &HeaderMap) -> Option<Parent> {
    if !headers.contains_key(TRACEPARENT) {
        return None;
    }
    let context = TraceContextPropagator::new().extract_with_context(&Context::new(), &Headers(headers));
    let span = context.span();
    let found = span.span_context();
    found.is_valid().then(|| Parent { trace_id: found.trace_id(), span_id: found.span_id(), sampled: found.is_sampled() })
}

/// Names `span` as the parent of what comes next.
pub(super) fn inject(headers: &mut HeaderMap, trace: TraceId, span: SpanId, sampled: bool) {
    let text = format!("00-{trace}-{span}-{:02x}", u8::from(sampled));
    if let Ok(value) = HeaderValue::from_str(&text) {
        headers.insert(TRACEPARENT, value);
    }
}

/// Takes the trace state of a valid parent over, line by line.
pub(super) fn keep_state(from: &HeaderMap, to: &mut HeaderMap) {
    for value in from.get_all(TRACESTATE) {
        to.append(TRACESTATE, value.clone());
    }
}

/// Whether a header is part of the trace context: it passes as a whole or not at all.
pub fn is_context(name: &HeaderName) -> bool {
    name == TRACEPARENT || name == TRACESTATE
}

/// The trace id that a request's `traceparent` names, for log lines when tracing is off.
pub fn trace_id_of(headers: &HeaderMap) -> Option<String> {
    extract(headers).map(|p| p.trace_id.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(value: &'static str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(TRACEPARENT, HeaderValue::from_static(value));
        headers
    }

    #[test]
    fn only_valid_parents_count() {
        let good = extract(&headers("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")).unwrap();
        assert_eq!(good.trace_id.to_string(), "0af7651916cd43dd8448eb211c80319c");
        assert!(good.sampled);
        for bad in [
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
            "junk",
        ] {
            assert_eq!(extract(&headers(bad)), None, "{bad}");
        }
    }

    #[test]
    fn what_is_injected_can_be_extracted() {
        let mut headers = HeaderMap::new();
        let (trace, span) = (TraceId::from(7_u128), SpanId::from(9_u64));
        inject(&mut headers, trace, span, false);
        assert_eq!(extract(&headers), Some(Parent { trace_id: trace, span_id: span, sampled: false }));
    }
}
