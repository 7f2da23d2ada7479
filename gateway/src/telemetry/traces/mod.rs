//! Traces: one SERVER span a request, a span for its wait, one CLIENT span an attempt, sent by OTLP.
//!
//! Owns: spans, propagation, sampling, export. Must not: cost anything when it is off (no collector configured: every handle is empty),
//! slow or fail a request (a full queue drops spans and counts them), or carry prompts, completions and keys.
//! The spans are plain records (`record`) that become OpenTelemetry's (`translate`) at their request's end, so that the choice to keep a
//! request that went wrong can be made when it is known, and one that is thrown away was never translated. `docs/tracing.md` lists every
//! name. Next step: `export`.

mod answer;
mod asked;
mod context;
mod export;
mod exporter;
mod record;
mod settings;
mod span;
mod told;
mod translate;

use std::sync::Arc;

use opentelemetry_sdk::trace::{IdGenerator, RandomIdGenerator};
use thiserror::Error;

use super::labels::{Label, Route};
use super::metrics::Metrics;

pub use asked::GenAiRequest;
pub use context::{is_context, trace_id_of};
pub use export::Export;
pub use opentelemetry_otlp::SpanExporter as OtlpExporter;
pub use settings::{Protocol, Sampling, TraceSettings};
pub use span::{AttemptSpan, RequestSpan};
pub use told::{AttemptBegin, AttemptEvent, AttemptRef, QueueWait, RequestBegin, RequestEnd, Usage};

use context::Parent;
use export::SpanQueue;

/// Why tracing could not be set up.
#[derive(Debug, Error)]
pub enum TraceError {
    /// A variable that cannot be read.
    #[error("{variable}: `{value}` is not {expected}")]
    Variable {
        /// Its name.
        variable: &'static str,
        /// What it holds.
        value: String,
        /// What would be right.
        expected: &'static str,
    },
    /// The exporter refused its settings.
    #[error("trace exporter: {0}")]
    Exporter(String),
}

/// Makes the spans of requests. Cheap to clone; empty when tracing is off.
#[derive(Debug, Clone, Default)]
pub struct Traces(Option<Arc<Shared>>);

#[derive(Debug)]
pub(in crate::telemetry::traces) struct Shared {
    sampling: Sampling,
    keep_notable: bool,
    propagate: bool,
    ids: RandomIdGenerator,
    queue: SpanQueue,
}

impl Traces {
    /// No tracing: incoming trace headers pass through as any other header.
    pub fn off() -> Self {
        Self(None)
    }

    /// By the standard `OTEL_*` variables of this process; `keep_notable` as in `TraceSettings`. The second part is to be run by a task of its own until the end.
    ///
    /// # Errors
    /// A variable that cannot be read, or an exporter that cannot be built. Must be called inside a Tokio runtime.
    pub fn from_env(keep_notable: bool, metrics: &Metrics) -> Result<(Self, Option<Export<OtlpExporter>>), TraceError> {
        match TraceSettings::read(&|name| std::env::var(name).ok())? {
            Some(settings) => {
                Self::from_settings(&TraceSettings { keep_notable, ..settings }, metrics).map(|(traces, export)| (traces, Some(export)))
            }
            None => Ok((Self::off(), None)),
        }
    }

    /// By these settings, to their collector.
    ///
    /// # Errors
    /// An exporter that cannot be built. Must be called inside a Tokio runtime.
    pub fn from_settings(settings: &TraceSettings, metrics: &Metrics) -> Result<(Self, Export<OtlpExporter>), TraceError> {
        Ok(Self::with(settings, exporter::otlp(settings)?, metrics))
    }

    /// With these settings and this exporter.
    pub fn with<E>(settings: &TraceSettings, exporter: E, metrics: &Metrics) -> (Self, Export<E>)
    where
        E: opentelemetry_sdk::trace::SpanExporter,
    {
        let (queue, export) = export::queue(settings, exporter, metrics);
        let shared = Shared {
            sampling: settings.sampling,
            keep_notable: settings.keep_notable,
            propagate: settings.propagate,
            ids: RandomIdGenerator::default(),
            queue,
        };
        (Self(Some(Arc::new(shared))), export)
    }

    /// Whether spans are made.
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// The SERVER span of a request. It ends by `RequestSpan::finish`, or as cancelled when its last clone is dropped.
    pub fn request(&self, begin: RequestBegin<'_>) -> RequestSpan {
        let Some(shared) = &self.0 else { return RequestSpan::default() };
        let parent = if shared.propagate { context::extract(begin.headers) } else { None };
        let trace_id = parent.as_ref().map_or_else(|| shared.ids.new_trace_id(), |p| p.trace_id);
        let sampled = shared.sampling.decide(trace_id, parent.as_ref().map(|p| p.sampled));
        RequestSpan::begin(shared.clone(), Identity { trace_id, parent, sampled }, &begin)
    }
}

/// Which trace a request belongs to.
#[derive(Debug)]
pub(in crate::telemetry::traces) struct Identity {
    trace_id: opentelemetry::trace::TraceId,
    parent: Option<Parent>,
    sampled: bool,
}

/// Operation names of the GenAI conventions; other routes go by their own name.
pub(in crate::telemetry::traces) fn operation(route: Route) -> &'static str {
    match route {
        Route::ChatCompletions | Route::Responses | Route::Messages => "chat",
        Route::Completions => "text_completion",
        Route::Embeddings | Route::Pooling => "embeddings",
        Route::Rerank
        | Route::Score
        | Route::Classify
        | Route::Tokenize
        | Route::Detokenize
        | Route::Models
        | Route::Extra
        | Route::Other => route.as_str(),
    }
}
