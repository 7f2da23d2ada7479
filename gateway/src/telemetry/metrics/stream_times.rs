//! First-token and inter-event times of one stream, gathered in the stream and added to the shared histogram in batches.
//!
//! Owns: the stream's clock marks. Must not: take the time itself (the relay reads the clock once an event) or touch shared memory for
//! each event. Next step: `PoolMetrics`' histograms, every `BATCH` events and at the end.

use std::sync::Arc;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use prometheus::local::LocalHistogram;

use super::pool::PoolMetrics;
use super::seconds;

/// Events between two additions to the shared histogram: a long stream shows up while it runs.
const BATCH: u32 = 128;

/// Times of one stream. What is left is added when it is dropped.
#[derive(Debug)]
pub struct StreamTimes {
    pool: Arc<PoolMetrics>,
    started: Instant,
    first: Option<Instant>,
    last: Option<Instant>,
    events: u64,
    unflushed: u32,
    // The mutex is never locked (`get_mut`): it only makes the type `Sync`, so that a body that holds it may be boxed as any body may.
    gaps: Option<Mutex<LocalHistogram>>,
}

impl StreamTimes {
    /// `started`: when the request's head had arrived.
    pub fn new(pool: Arc<PoolMetrics>, started: Instant) -> Self {
        let gaps = pool.gaps().map(Mutex::new);
        Self { pool, started, first: None, last: None, events: 0, unflushed: 0, gaps }
    }

    /// A `data:` event that the client gets passed at `now`.
    pub fn event(&mut self, now: Instant) {
        self.events += 1;
        match self.last.replace(now) {
            Some(before) => self.gap(now.saturating_duration_since(before)),
            None => {
                self.first = Some(now);
                self.pool.first_token(now.saturating_duration_since(self.started));
            }
        }
    }

    /// From the request to the first event, if there was one.
    pub fn first_token(&self) -> Option<Duration> {
        self.first.map(|at| at.saturating_duration_since(self.started))
    }

    /// When the last event passed.
    pub fn last_event(&self) -> Option<Instant> {
        self.last
    }

    /// Events that passed.
    pub fn events(&self) -> u64 {
        self.events
    }

    fn gap(&mut self, gap: Duration) {
        let Some(gaps) = &mut self.gaps else { return };
        let gaps = gaps.get_mut().unwrap_or_else(PoisonError::into_inner);
        gaps.observe(seconds(gap));
        self.unflushed += 1;
        if self.unflushed == BATCH {
            gaps.flush();
            self.unflushed = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Format, Metrics};
    use super::*;

    fn count(metrics: &Metrics, family: &str) -> String {
        let text = metrics.scrape(Format::Prometheus, false);
        let start = format!("leadgate_{family}_count{{pool=\"unknown\"}} ");
        text.lines().find_map(|l| l.strip_prefix(&start)).unwrap_or("none").to_owned()
    }

    #[test]
    fn gaps_arrive_in_batches_and_at_the_end() {
        let metrics = Metrics::new().unwrap();
        let start = Instant::now();
        let mut times = StreamTimes::new(metrics.unknown_pool(), start);
        for n in 0..=BATCH + 3 {
            times.event(start + Duration::from_millis(u64::from(n) + 1));
        }
        assert_eq!(count(&metrics, "time_to_first_token_seconds"), "1");
        assert_eq!(count(&metrics, "inter_event_seconds"), BATCH.to_string());
        assert_eq!(times.first_token(), Some(Duration::from_millis(1)));
        drop(times);
        assert_eq!(count(&metrics, "inter_event_seconds"), (BATCH + 3).to_string());
    }

    #[test]
    fn a_boxed_body_may_hold_it() {
        fn fits<T: Send + Sync + 'static>() {}
        fits::<StreamTimes>();
    }
}
