//! What all connections of one engine share.

use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tokio::sync::{Semaphore, watch};

use super::canned::Canned;
use super::config::{Ending, EngineConfig};
use super::fault::Rules;
use super::guarded::Guarded;
use super::mood::Mood;
use super::stats::Stats;
use crate::text::Rng;

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) config: EngineConfig,
    pub(crate) fingerprint: String,
    /// Set for an engine of a benchmark.
    pub(crate) canned: Option<Canned>,
    pub(crate) stats: Stats,
    pub(crate) rules: Rules,
    pub(crate) mood: watch::Sender<Mood>,
    pub(crate) places: Semaphore,
    /// Numbers of [`Mood::once`].
    pub(crate) rounds: AtomicU64,
    pub(crate) started: Instant,
    /// `process_start_time_seconds`: another one for each incarnation.
    pub(crate) born: f64,
    rng: Guarded<Rng>,
}

impl Shared {
    pub(crate) fn new(config: EngineConfig) -> Self {
        let fingerprint = config.persona.fingerprint();
        let canned = config.canned.then(|| Canned::new(&config.persona, &fingerprint, config.pace.batch)).flatten();
        Self {
            fingerprint,
            canned,
            stats: Stats::new(config.requests_log),
            rules: Rules::default(),
            mood: watch::Sender::new(Mood::new()),
            places: Semaphore::new(config.limits.running.min(Semaphore::MAX_PERMITS)),
            rounds: AtomicU64::new(0),
            started: Instant::now(),
            born: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64()),
            rng: Guarded::new(Rng::new(config.seed)),
            config,
        }
    }

    /// A number that no other call gets; the same sequence for the same seed.
    pub(crate) fn nonce(&self) -> u64 {
        self.rng.with(Rng::next_u64)
    }

    /// The ending of a SIGTERM, by the measured chances: silence 4, abort 2, error 1 of 7.
    pub(crate) fn draw_ending(&self) -> Ending {
        self.config.death.ending.unwrap_or_else(|| match self.rng.with(|rng| rng.below(7)) {
            0..4 => Ending::Silence,
            4 | 5 => Ending::Abort,
            _ => Ending::Error,
        })
    }

    pub(crate) fn change(&self, change: impl FnOnce(&mut Mood)) {
        self.mood.send_modify(change);
    }
}

/// `time` longer or shorter by up to `percent`.
pub(crate) fn jittered(time: Duration, percent: u32, rng: &mut Rng) -> Duration {
    if percent == 0 || time.is_zero() {
        return time;
    }
    let share = f64::from(percent) / 100.0;
    time.mul_f64((1.0 + share * (2.0 * rng.unit() - 1.0)).max(0.0))
}
