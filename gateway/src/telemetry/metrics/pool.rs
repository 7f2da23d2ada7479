//! Metrics of one pool, resolved once.
//!
//! Owns: what is counted and timed of a request, or that nothing is (`telemetry.request_metrics`). Must not: choose the value of the `pool`
//! label (`pool_table` does). Next step: the proxy keeps the `Arc<PoolMetrics>` for the life of a request.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use prometheus::local::LocalHistogram;
use prometheus::{Histogram, IntCounter, IntGauge};
use serde::{Deserialize, Serialize};

use super::families::Families;
use super::grid::Grid;
use super::seconds;
use crate::telemetry::labels::{
    AttemptOutcome, Direction, Ending, Label, Outcome, ResumeCause, ResumeResult, ResumeWay, RetryCause, Route, TokenKind,
};

/// Raises a gauge for as long as it lives.
#[derive(Debug)]
pub struct GaugeGuard(Option<IntGauge>);

impl GaugeGuard {
    pub(super) fn raise(gauge: IntGauge) -> Self {
        gauge.inc();
        Self(Some(gauge))
    }
}

impl Drop for GaugeGuard {
    fn drop(&mut self) {
        if let Some(gauge) = &self.0 {
            gauge.dec();
        }
    }
}

/// Metrics of one pool. Every call is a few atomic additions, or nothing where requests are not counted.
#[derive(Debug)]
pub struct PoolMetrics {
    label: Arc<str>,
    /// `None`: requests are not counted, and no series is made that would stand at 0.
    counted: Option<Counted>,
}

/// The resolved series.
#[derive(Debug)]
struct Counted {
    families: Arc<Families>,
    requests: Grid,
    attempts: Grid,
    retries: Grid,
    endings: Grid,
    tokens: Grid,
    bytes: Grid,
    cancelled: IntCounter,
    in_flight: IntGauge,
    queue: Histogram,
    first_byte: Histogram,
    first_token: Histogram,
    between: Histogram,
    duration: Histogram,
    resume_pause: Histogram,
    resumed: AtomicU64,
}

/// Totals of a pool since the start, for the status page: it makes rates of them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct PoolFigures {
    /// Value of the `pool` label.
    pub pool: String,
    /// Requests in the gateway now.
    pub in_flight: i64,
    /// Requests that ended.
    pub requests: u64,
    /// Of them, those that ended in a refusal, a 5xx or an error event.
    pub failed: u64,
    /// Of them, those whose client went away.
    pub cancelled: u64,
    /// Second tries before the first event.
    pub retries: u64,
    /// Broken answers.
    pub resumes: u64,
    /// Data events after the first, in streams.
    pub events: u64,
    /// First tokens.
    pub first_tokens: u64,
    /// Sum of the times to them, seconds.
    pub first_token_seconds: f64,
}

impl Counted {
    fn new(label: &str, families: Arc<Families>) -> Self {
        let name = [label];
        Self {
            requests: Grid::new(Route::ALL.len() * Outcome::ALL.len()),
            attempts: Grid::new(AttemptOutcome::ALL.len()),
            retries: Grid::new(RetryCause::ALL.len()),
            endings: Grid::new(Ending::ALL.len()),
            tokens: Grid::new(TokenKind::ALL.len()),
            bytes: Grid::new(Direction::ALL.len()),
            cancelled: families.cancelled.with_label_values(&name),
            in_flight: families.in_flight.with_label_values(&name),
            queue: families.queue.with_label_values(&name),
            first_byte: families.first_byte.with_label_values(&name),
            first_token: families.first_token.with_label_values(&name),
            between: families.between.with_label_values(&name),
            duration: families.duration.with_label_values(&name),
            resume_pause: families.resume_pause.with_label_values(&name),
            resumed: AtomicU64::new(0),
            families,
        }
    }
}

impl PoolMetrics {
    /// With `families` requests are counted under the label.
    pub(super) fn new(label: Arc<str>, families: Option<Arc<Families>>) -> Self {
        Self { counted: families.map(|families| Counted::new(&label, families)), label }
    }

    /// The value of the `pool` label.
    pub fn label(&self) -> &Arc<str> {
        &self.label
    }

    /// A request entered; it counts as in flight until the guard is dropped.
    pub fn enter(&self) -> GaugeGuard {
        self.counted.as_ref().map_or(GaugeGuard(None), |counted| GaugeGuard::raise(counted.in_flight.clone()))
    }

    /// A request ended. Once a request.
    pub fn request(&self, route: Route, outcome: Outcome) {
        let Some(counted) = &self.counted else { return };
        let resolve = || counted.families.requests.with_label_values(&[&*self.label, route.as_str(), outcome.as_str()]);
        counted.requests.at(route.index() * Outcome::ALL.len() + outcome.index(), resolve).inc();
    }

    /// A try at one leader ended. Once an attempt.
    pub fn attempt(&self, outcome: AttemptOutcome) {
        let Some(counted) = &self.counted else { return };
        let resolve = || counted.families.attempts.with_label_values(&[&*self.label, outcome.as_str()]);
        counted.attempts.at(outcome.index(), resolve).inc();
    }

    /// A second try before the first event begins.
    pub fn retried(&self, cause: RetryCause) {
        let Some(counted) = &self.counted else { return };
        let resolve = || counted.families.retries.with_label_values(&[&*self.label, cause.as_str()]);
        counted.retries.at(cause.index(), resolve).inc();
    }

    /// A broken answer was carried on, or not. Once a break.
    pub fn resumed(&self, cause: ResumeCause, way: ResumeWay, result: ResumeResult) {
        let Some(counted) = &self.counted else { return };
        counted.resumed.fetch_add(1, Ordering::Relaxed);
        counted.families.resumes.with_label_values(&[&*self.label, cause.as_str(), way.as_str(), result.as_str()]).inc();
    }

    /// A stream ended. Once a stream.
    pub fn ending(&self, ending: Ending) {
        let Some(counted) = &self.counted else { return };
        let resolve = || counted.families.endings.with_label_values(&[&*self.label, ending.as_str()]);
        counted.endings.at(ending.index(), resolve).inc();
    }

    /// Tokens of an answer, once the usage of one request is known.
    pub fn tokens(&self, kind: TokenKind, count: u64) {
        let Some(counted) = &self.counted else { return };
        let resolve = || counted.families.tokens.with_label_values(&[&*self.label, kind.as_str()]);
        counted.tokens.at(kind.index(), resolve).inc_by(count);
    }

    /// Bytes of a body. Once a body, not once a frame.
    pub fn bytes(&self, direction: Direction, count: u64) {
        let Some(counted) = &self.counted else { return };
        let resolve = || counted.families.bytes.with_label_values(&[&*self.label, direction.as_str()]);
        counted.bytes.at(direction.index(), resolve).inc_by(count);
    }

    /// Time from the whole request body to the pick of a leader.
    pub fn queued(&self, waited: Duration) {
        if let Some(counted) = &self.counted {
            counted.queue.observe(seconds(waited));
        }
    }

    /// Time from the request to the first byte of the answer's head.
    pub fn first_byte(&self, after: Duration) {
        if let Some(counted) = &self.counted {
            counted.first_byte.observe(seconds(after));
        }
    }

    /// Time from the request to the first `data:` event. `StreamTimes` calls this for streams.
    pub fn first_token(&self, after: Duration) {
        if let Some(counted) = &self.counted {
            counted.first_token.observe(seconds(after));
        }
    }

    /// Time from the request to the end of the answer.
    pub fn duration(&self, whole: Duration) {
        if let Some(counted) = &self.counted {
            counted.duration.observe(seconds(whole));
        }
    }

    /// Time from the break to the first event of the next leader.
    pub fn resume_pause(&self, pause: Duration) {
        if let Some(counted) = &self.counted {
            counted.resume_pause.observe(seconds(pause));
        }
    }

    /// Times between events of one stream, to be added in batches.
    pub(super) fn gaps(&self) -> Option<LocalHistogram> {
        self.counted.as_ref().map(|counted| counted.between.local())
    }

    /// Totals since the start; `None` where requests are not counted.
    pub fn figures(&self) -> Option<PoolFigures> {
        let counted = self.counted.as_ref()?;
        let outcome = |of: &[Outcome]| {
            let places = (0..Route::ALL.len()).flat_map(|route| of.iter().map(move |o| route * Outcome::ALL.len() + o.index()));
            places.map(|place| counted.requests.value(place)).sum()
        };
        Some(PoolFigures {
            pool: self.label.to_string(),
            in_flight: counted.in_flight.get(),
            requests: outcome(Outcome::ALL),
            failed: outcome(&[Outcome::Refused, Outcome::UpstreamError, Outcome::StreamError]),
            cancelled: counted.cancelled.get(),
            retries: RetryCause::ALL.iter().map(|c| counted.retries.value(c.index())).sum(),
            resumes: counted.resumed.load(Ordering::Relaxed),
            events: counted.between.get_sample_count(),
            first_tokens: counted.first_token.get_sample_count(),
            first_token_seconds: counted.first_token.get_sample_sum(),
        })
    }

    /// The client went away; `delay`: until the upstream connection was closed, `None` where there was none.
    pub fn client_cancelled(&self, delay: Option<Duration>) {
        let Some(counted) = &self.counted else { return };
        counted.cancelled.inc();
        if let Some(delay) = delay {
            counted.families.cancel_delay.observe(seconds(delay));
        }
    }
}
