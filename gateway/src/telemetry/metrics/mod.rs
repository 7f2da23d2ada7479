//! The metric registry: every family with the prefix `leadgate_`, and the process figures.
//!
//! Owns: `Metrics`, made once by the composition root and shared. Must not: make a series from text that a client chose; the only
//! free label is `pool`, whose values are names of the snapshot's pools, at most `MOST_POOLS`, then `other`. Requests for names that
//! are no pool count under `unknown`. Next step: `encode` turns a scrape into text.

mod collect;
mod encode;
mod families;
mod grid;
mod mirror;
mod pool;
mod pool_table;
mod process;
mod stream_times;

use std::sync::Arc;
use std::time::Duration;

use discovery::snapshot::Pool;
use prometheus::{IntCounter, Registry};

use super::labels::{Label, Side, Verdict};
use super::view::View;

pub use encode::Format;
pub use pool::{GaugeGuard, PoolFigures, PoolMetrics};
pub use pool_table::MOST_POOLS;
pub use stream_times::StreamTimes;

/// Every metric of the process. Cheap to use from any thread; share it by `Arc`.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    families: Arc<families::Families>,
    pools: Arc<pool_table::PoolTable>,
    /// Streams that could not be kept because a bound was reached.
    pub resume_not_kept: IntCounter,
    /// Log lines that found the writer's queue full.
    pub log_lines_dropped: IntCounter,
    /// Spans that were not delivered: the export failed or its queue was full.
    pub spans_lost: IntCounter,
    /// Spans that were delivered.
    pub spans_exported: IntCounter,
    /// Panics caught while a request was served.
    pub panics: IntCounter,
}

impl Metrics {
    /// Registers every family.
    ///
    /// # Errors
    /// Only by a mistake in this crate: two families of one name.
    pub fn new() -> Result<Arc<Self>, prometheus::Error> {
        Self::with_requests(true)
    }

    /// [`Metrics::new`]; `counted`: whether requests are counted and timed by pool (`telemetry.request_metrics`). Where they are not, no
    /// series of theirs exists.
    ///
    /// # Errors
    /// As [`Metrics::new`].
    pub fn with_requests(counted: bool) -> Result<Arc<Self>, prometheus::Error> {
        let registry = Registry::new();
        let families = Arc::new(families::Families::new(&registry, counted)?);
        let pools = Arc::new(pool_table::PoolTable::new(counted.then(|| families.clone())));
        registry.register(Box::new(process::Process::new()?))?;
        families::build_info(&registry)?;
        let counter = |name, help| families::counter(&registry, name, help);
        Ok(Arc::new(Self {
            resume_not_kept: counter("resume_not_kept_total", "Streams that are not resumable because a byte bound was reached.")?,
            log_lines_dropped: counter("log_lines_dropped_total", "Log lines dropped because the writer was behind.")?,
            spans_lost: counter("trace_spans_lost_total", "Spans not delivered: export failed or queue full.")?,
            spans_exported: counter("trace_spans_exported_total", "Spans delivered to the collector.")?,
            panics: counter("panics_total", "Panics caught while a request was served.")?,
            registry,
            families,
            pools,
        }))
    }

    /// The handle of a pool of the snapshot; resolve it once a request. The same model name gives the same handle.
    pub fn pool(&self, pool: &Pool) -> Arc<PoolMetrics> {
        self.pools.known(&pool.model)
    }

    /// The handle for requests whose model is no pool.
    pub fn unknown_pool(&self) -> Arc<PoolMetrics> {
        self.pools.unknown()
    }

    /// Totals of each pool since the start; none where requests are not counted.
    pub fn figures(&self) -> Vec<PoolFigures> {
        self.pools.figures()
    }

    /// A refusal, by its code (`x-leadgate-reason`). `&'static str` keeps the set closed.
    pub fn rejected(&self, reason: &'static str) {
        self.families.rejects.with_label_values(&[reason]).inc();
    }

    /// Makes the series of these codes at 0, so that a first refusal shows as a rise.
    pub fn declare_rejects(&self, reasons: &[&'static str]) {
        for reason in reasons {
            self.families.rejects.with_label_values(&[*reason]).inc_by(0);
        }
    }

    /// Counts a connection as open until the guard is dropped.
    pub fn connection(&self, side: Side) -> GaugeGuard {
        self.families.connections_total.with_label_values(&[side.as_str()]).inc();
        GaugeGuard::raise(self.families.connections.with_label_values(&[side.as_str()]))
    }

    /// A configuration file was read again: applied, or refused and the old one kept.
    pub fn config_reload(&self, verdict: Verdict) {
        self.families.config_reloads.with_label_values(&[verdict.as_str()]).inc();
        self.families.config_last_reload_ok.set(i64::from(verdict == Verdict::Ok));
    }

    /// Adds what is read from the running gateway at each scrape: groups, waiting requests, snapshot, discovery's counters.
    ///
    /// # Errors
    /// When called twice.
    pub fn observe(&self, view: Arc<dyn View>) -> Result<(), prometheus::Error> {
        self.registry.register(Box::new(collect::ViewCollector::new(view, self.pools.clone())?))
    }

    /// One scrape. `mirror`: also under the names of other conventions (see `mirror`).
    pub fn scrape(&self, format: Format, mirror: bool) -> String {
        let mut all = self.registry.gather();
        if mirror {
            all.extend(mirror::mirrors(&all));
        }
        encode::encode(&all, format)
    }
}

/// Seconds of a duration, as histograms take them.
pub(crate) fn seconds(duration: Duration) -> f64 {
    duration.as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::labels::{AttemptOutcome, Outcome, ResumeCause, ResumeResult, ResumeWay, RetryCause, Route};

    fn pool_named(model: &str) -> Pool {
        Pool { model: Arc::from(model), deployment: None, groups: vec![], outlook: Default::default(), last_replacement: None }
    }

    #[test]
    fn unknown_names_share_one_series() {
        let metrics = Metrics::new().unwrap();
        for _ in 0..10_000 {
            metrics.unknown_pool().request(Route::ChatCompletions, Outcome::Refused);
        }
        let text = metrics.scrape(Format::Prometheus, false);
        let series: Vec<_> = text.lines().filter(|l| l.starts_with("leadgate_requests_total{")).collect();
        assert_eq!(series, vec![r#"leadgate_requests_total{outcome="refused",pool="unknown",route="chat_completions"} 10000"#]);
    }

    #[test]
    fn pools_beyond_the_bound_are_other() {
        let metrics = Metrics::new().unwrap();
        for n in 0..MOST_POOLS + 50 {
            metrics.pool(&pool_named(&format!("model-{n}"))).request(Route::Completions, Outcome::Ok);
        }
        let text = metrics.scrape(Format::Prometheus, false);
        let series = text.lines().filter(|l| l.starts_with("leadgate_requests_total{")).count();
        assert_eq!(series, MOST_POOLS + 1);
        assert!(text.contains(r#"leadgate_requests_total{outcome="ok",pool="other",route="completions"} 50"#));
    }

    /// No series at all: one at 0 would say that nothing happened.
    #[test]
    fn requests_that_are_not_counted_leave_no_series() {
        let feed = |metrics: &Metrics| {
            for pool in [metrics.pool(&pool_named("m")), metrics.unknown_pool()] {
                let running = pool.enter();
                pool.request(Route::ChatCompletions, Outcome::Ok);
                pool.attempt(AttemptOutcome::Complete);
                pool.queued(Duration::from_millis(3));
                let mut times = StreamTimes::new(pool.clone(), std::time::Instant::now());
                (0..300).for_each(|_| times.event(std::time::Instant::now()));
                assert_eq!(times.events(), 300, "the access line wants them");
                pool.client_cancelled(Some(Duration::ZERO));
                drop((times, running));
            }
            metrics.rejected("queue_full");
            metrics.scrape(Format::Prometheus, false)
        };
        let (on, off) = (Metrics::new().unwrap(), Metrics::with_requests(false).unwrap());
        let (with, without) = (feed(&on), feed(&off));
        assert!(with.contains(r#"pool="m""#) && on.figures().len() == 2, "{with}");
        assert!(!without.contains("pool=") && off.figures().is_empty(), "{without}");
        // What docs/operations.md says.
        let words = ["requests", "attempts", "retries", "resumes", "endings", "cancelled", "tokens", "body_bytes", "in_flight", "_bucket{"];
        let series = |text: &str, word: &str| text.lines().any(|line| !line.starts_with('#') && line.contains(word));
        assert_eq!(words.map(|word| series(&without, word)), [false; 10], "{without}");
        assert!(series(&with, "leadgate_cancel_delay_seconds_bucket{"), "{with}");
        assert!(without.contains(r#"leadgate_rejects_total{reason="queue_full"} 1"#), "{without}");
    }

    #[test]
    fn a_pool_may_be_called_like_a_reserved_word() {
        let metrics = Metrics::new().unwrap();
        metrics.pool(&pool_named("unknown")).request(Route::Completions, Outcome::Ok);
        metrics.unknown_pool().request(Route::Completions, Outcome::Ok);
        assert!(metrics.scrape(Format::Prometheus, false).contains(r#"{outcome="ok",pool="unknown",route="completions"} 2"#));
    }

    #[test]
    fn counts_show_up_in_both_formats() {
        let metrics = Metrics::new().unwrap();
        let pool = metrics.pool(&pool_named("m\"1\\"));
        pool.attempt(AttemptOutcome::Complete);
        pool.retried(RetryCause::GroupDying);
        pool.resumed(ResumeCause::Stalled, ResumeWay::Continue, ResumeResult::Resumed);
        pool.queued(Duration::from_millis(3));
        let running = pool.enter();
        let text = metrics.scrape(Format::OpenMetrics, false);
        assert!(text.contains(r#"leadgate_attempts_total{outcome="complete",pool="m\"1\\"} 1"#), "{text}");
        assert!(text.contains("# TYPE leadgate_attempts counter\n"));
        assert!(text.contains(r#"leadgate_in_flight{pool="m\"1\\"} 1"#));
        assert!(text.contains(r#"leadgate_resumes_total{cause="stalled",pool="m\"1\\",result="resumed",way="continue"} 1"#));
        assert!(text.contains(r#"leadgate_queue_seconds_bucket{pool="m\"1\\",le="0.005"} 1"#), "{text}");
        assert!(text.ends_with("# EOF\n"));
        drop(running);
        let text = metrics.scrape(Format::Prometheus, false);
        assert!(text.contains(r#"leadgate_in_flight{pool="m\"1\\"} 0"#));
        assert!(text.contains("# TYPE leadgate_attempts_total counter\n"));
        assert!(!text.contains("# EOF"));
    }
}
