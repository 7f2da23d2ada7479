//! Metrics of one pool, resolved once, and the bounded table of them.
//!
//! Owns: which `pool` label a model name gets. Must not: take a name that did not come from a snapshot's pool (`Metrics::pool` asks for
//! the pool itself). Next step: the proxy keeps the `Arc<PoolMetrics>` for the life of a request.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use dashmap::DashMap;
use prometheus::{Histogram, IntCounter, IntGauge};
use serde::{Deserialize, Serialize};

use super::families::Families;
use super::grid::Grid;
use super::seconds;
use crate::telemetry::labels::{
    AttemptOutcome, Direction, Ending, Label, Outcome, ResumeCause, ResumeResult, ResumeWay, RetryCause, Route, TokenKind,
};

/// Pool names that get a label of their own; the ones after that share `other`.
pub const MOST_POOLS: usize = 1000;

/// Raises a gauge for as long as it lives.
#[derive(Debug)]
pub struct GaugeGuard(IntGauge);

impl GaugeGuard {
    pub(super) fn raise(gauge: IntGauge) -> Self {
        gauge.inc();
        Self(gauge)
    }
}

impl Drop for GaugeGuard {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// Metrics of one pool. Every call is a few atomic additions.
#[derive(Debug)]
pub struct PoolMetrics {
    label: Arc<str>,
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
    pub(super) between: Histogram,
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

impl PoolMetrics {
    fn new(label: Arc<str>, families: Arc<Families>) -> Self {
        let name = [&*label];
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
            label,
        }
    }

    /// The value of the `pool` label.
    pub fn label(&self) -> &Arc<str> {
        &self.label
    }

    /// A request entered; it counts as in flight until the guard is dropped.
    pub fn enter(&self) -> GaugeGuard {
        GaugeGuard::raise(self.in_flight.clone())
    }

    /// A request ended. Once a request.
    pub fn request(&self, route: Route, outcome: Outcome) {
        let resolve = || self.families.requests.with_label_values(&[&*self.label, route.as_str(), outcome.as_str()]);
        self.requests.at(route.index() * Outcome::ALL.len() + outcome.index(), resolve).inc();
    }

    /// A try at one leader ended. Once an attempt.
    pub fn attempt(&self, outcome: AttemptOutcome) {
        let resolve = || self.families.attempts.with_label_values(&[&*self.label, outcome.as_str()]);
        self.attempts.at(outcome.index(), resolve).inc();
    }

    /// A second try before the first event begins.
    pub fn retried(&self, cause: RetryCause) {
        let resolve = || self.families.retries.with_label_values(&[&*self.label, cause.as_str()]);
        self.retries.at(cause.index(), resolve).inc();
    }

    /// A broken answer was carried on, or not. Once a break.
    pub fn resumed(&self, cause: ResumeCause, way: ResumeWay, result: ResumeResult) {
        self.resumed.fetch_add(1, Ordering::Relaxed);
        self.families.resumes.with_label_values(&[&*self.label, cause.as_str(), way.as_str(), result.as_str()]).inc();
    }

    /// A stream ended. Once a stream.
    pub fn ending(&self, ending: Ending) {
        let resolve = || self.families.endings.with_label_values(&[&*self.label, ending.as_str()]);
        self.endings.at(ending.index(), resolve).inc();
    }

    /// Tokens of an answer, once the usage of one request is known.
    pub fn tokens(&self, kind: TokenKind, count: u64) {
        let resolve = || self.families.tokens.with_label_values(&[&*self.label, kind.as_str()]);
        self.tokens.at(kind.index(), resolve).inc_by(count);
    }

    /// Bytes of a body. Once a body, not once a frame.
    pub fn bytes(&self, direction: Direction, count: u64) {
        let resolve = || self.families.bytes.with_label_values(&[&*self.label, direction.as_str()]);
        self.bytes.at(direction.index(), resolve).inc_by(count);
    }

    /// Time from the whole request body to the pick of a leader.
    pub fn queued(&self, waited: Duration) {
        self.queue.observe(seconds(waited));
    }

    /// Time from the request to the first byte of the answer's head.
    pub fn first_byte(&self, after: Duration) {
        self.first_byte.observe(seconds(after));
    }

    /// Time from the request to the first `data:` event. `StreamTimes` calls this for streams.
    pub fn first_token(&self, after: Duration) {
        self.first_token.observe(seconds(after));
    }

    /// Time from the request to the end of the answer.
    pub fn duration(&self, whole: Duration) {
        self.duration.observe(seconds(whole));
    }

    /// Time from the break to the first event of the next leader.
    pub fn resume_pause(&self, pause: Duration) {
        self.resume_pause.observe(seconds(pause));
    }

    /// Totals since the start.
    pub fn figures(&self) -> PoolFigures {
        let outcome = |of: &[Outcome]| {
            let places = (0..Route::ALL.len()).flat_map(|route| of.iter().map(move |o| route * Outcome::ALL.len() + o.index()));
            places.map(|place| self.requests.value(place)).sum()
        };
        PoolFigures {
            pool: self.label.to_string(),
            in_flight: self.in_flight.get(),
            requests: outcome(Outcome::ALL),
            failed: outcome(&[Outcome::Refused, Outcome::UpstreamError, Outcome::StreamError]),
            cancelled: self.cancelled.get(),
            retries: RetryCause::ALL.iter().map(|c| self.retries.value(c.index())).sum(),
            resumes: self.resumed.load(Ordering::Relaxed),
            events: self.between.get_sample_count(),
            first_tokens: self.first_token.get_sample_count(),
            first_token_seconds: self.first_token.get_sample_sum(),
        }
    }

    /// The client went away; `delay`: until the upstream connection was closed, `None` where there was none.
    pub fn client_cancelled(&self, delay: Option<Duration>) {
        self.cancelled.inc();
        if let Some(delay) = delay {
            self.families.cancel_delay.observe(seconds(delay));
        }
    }
}

/// The pools that have been seen, at most `MOST_POOLS` and the two shared ones.
#[derive(Debug)]
pub(super) struct PoolTable {
    families: Arc<Families>,
    known: DashMap<Arc<str>, Arc<PoolMetrics>>,
    count: AtomicUsize,
    unknown: OnceLock<Arc<PoolMetrics>>,
    other: OnceLock<Arc<PoolMetrics>>,
}

impl PoolTable {
    pub(super) fn new(families: Arc<Families>) -> Self {
        Self { families, known: DashMap::new(), count: AtomicUsize::new(0), unknown: OnceLock::new(), other: OnceLock::new() }
    }

    /// Totals of every pool that was used, by name; the shared ones at the end.
    pub(super) fn figures(&self) -> Vec<PoolFigures> {
        let mut all: Vec<_> = self.known.iter().map(|p| p.figures()).collect();
        all.sort_by(|a, b| a.pool.cmp(&b.pool));
        all.extend([&self.unknown, &self.other].into_iter().filter_map(OnceLock::get).map(|p| p.figures()));
        all
    }

    // The shared ones begin at their first use: without it they are not worth their series.
    pub(super) fn unknown(&self) -> Arc<PoolMetrics> {
        self.shared(&self.unknown, "unknown")
    }

    fn shared(&self, place: &OnceLock<Arc<PoolMetrics>>, label: &str) -> Arc<PoolMetrics> {
        place.get_or_init(|| Arc::new(PoolMetrics::new(Arc::from(label), self.families.clone()))).clone()
    }

    /// The entry of a pool's name; `other` when the table is full.
    pub(super) fn known(&self, model: &Arc<str>) -> Arc<PoolMetrics> {
        if let Some(found) = self.known.get(model) {
            return found.clone();
        }
        // The count may run ahead of the table when two threads meet here for one new name; the bound still holds.
        if self.count.fetch_add(1, Ordering::Relaxed) >= MOST_POOLS {
            self.count.fetch_sub(1, Ordering::Relaxed);
            return self.shared(&self.other, "other");
        }
        let mut made = false;
        let entry = self.known.entry(model.clone()).or_insert_with(|| {
            made = true;
            Arc::new(PoolMetrics::new(model.clone(), self.families.clone()))
        });
        let found = entry.clone();
        drop(entry);
        if !made {
            self.count.fetch_sub(1, Ordering::Relaxed);
        }
        found
    }
}
