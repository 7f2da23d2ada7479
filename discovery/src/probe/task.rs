//! The loop of one incarnation: wait, probe, take the result in, say if the verdict changed.
//!
//! Owns: when to probe. Must not: judge results (`record`) or speak HTTP (`round`). Ends when its `Prober` entry or the reader of the
//! verdicts is gone; nothing it awaits holds a lock.

use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex};

use config::GenerationProbe;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};

use super::counters::{ProbeResult, ProbeStep, Tally};
use super::key::KeyFile;
use super::record::{FIRST_PAUSE, Outcome, Record, RoundKind, Started};
use super::round::Round;
use super::stand_in::StandIn;
use super::{ProbeTarget, Verdict, lock};
use crate::dial::Dialer;
use crate::snapshot::GroupId;

/// What the prober tells a task. Every change of it breaks a round off and begins the next one.
#[derive(Debug, Clone)]
pub(super) struct Control {
    pub(super) target: Arc<ProbeTarget>,
    /// Counts reported faults, only to wake the task.
    pub(super) nudges: u64,
}

/// The prober let go of this incarnation.
struct Stopped;

pub(super) struct ProbeTask {
    record: Arc<Mutex<Record>>,
    stand_in: StandIn,
    control: watch::Receiver<Control>,
    dialer: Arc<Dialer>,
    tally: Arc<Tally>,
    changed: mpsc::Sender<GroupId>,
    announced: Verdict,
    key: KeyFile,
    last_start: Option<Instant>,
}

impl ProbeTask {
    pub(super) fn new(
        (record, stand_in): (Arc<Mutex<Record>>, StandIn),
        control: watch::Receiver<Control>,
        dialer: Arc<Dialer>,
        tally: Arc<Tally>,
        changed: mpsc::Sender<GroupId>,
    ) -> Self {
        let announced = lock(&record).verdict().clone();
        Self { record, stand_in, control, dialer, tally, changed, announced, key: KeyFile::default(), last_start: None }
    }

    pub(super) async fn run(mut self) {
        // The only way out is the end of the incarnation.
        let Stopped = self.turns().await;
    }

    async fn turns(&mut self) -> Stopped {
        let mut next = Instant::now();
        loop {
            if self.announce().await.is_err() {
                return Stopped;
            }
            tokio::select! {
                biased;
                told = self.control.changed() => {
                    if told.is_err() {
                        return Stopped;
                    }
                    self.stand_in.ask_next();
                    next = next.min(self.soonest());
                    continue;
                }
                () = sleep_until(next) => {}
            }
            let target = self.control.borrow().target.clone();
            let started = lock(&self.record).start();
            if started.kind == RoundKind::Light && lock(&self.record).is_sound() && self.stand_in.covers(&target.id) {
                self.tally.add(ProbeStep::Health, ProbeResult::Skipped);
                next = Instant::now() + lock(&self.record).pause(RoundKind::Light, &target.settings.probe, jitter());
                continue;
            }
            self.last_start = Some(Instant::now());
            let round = probe(&self.dialer, &self.tally, &mut self.key, &target, started);
            tokio::select! {
                biased;
                told = self.control.changed() => {
                    if told.is_err() {
                        return Stopped;
                    }
                    self.stand_in.ask_next();
                    next = self.soonest();
                }
                outcome = round => next = self.take_in(&target, started, outcome),
            }
        }
    }

    /// After a fault or a change of settings the next round is due at once, but rounds never begin faster than the first pause: faults may
    /// come in by the thousand.
    fn soonest(&self) -> Instant {
        let now = Instant::now();
        self.last_start.map_or(now, |start| now.max(start + FIRST_PAUSE))
    }

    /// Returns when the next round is due.
    fn take_in(&self, target: &ProbeTarget, started: Started, outcome: Outcome) -> Instant {
        let settings = &target.settings.probe;
        let mut record = lock(&self.record);
        record.finish(started, outcome, settings.misses.max(1));
        Instant::now() + record.pause(started.kind, settings, jitter())
    }

    /// Sends the id if the verdict is not what was sent last.
    async fn announce(&mut self) -> Result<(), Stopped> {
        let verdict = lock(&self.record).verdict().clone();
        if verdict == self.announced {
            return Ok(());
        }
        let target = self.control.borrow().target.clone();
        let reason = verdict.reason.map(crate::snapshot::Reason::as_str);
        if verdict.proven == self.announced.proven {
            tracing::debug!(group = %target.key, leader = %target.address, proven = verdict.proven, reason, "verdict changed");
        } else {
            tracing::info!(group = %target.key, leader = %target.address, proven = verdict.proven, reason, "verdict changed");
        }
        self.announced = verdict;
        self.changed.send(target.id.clone()).await.map_err(|_| Stopped)
    }
}

async fn probe(dialer: &Dialer, tally: &Tally, key: &mut KeyFile, target: &ProbeTarget, started: Started) -> Outcome {
    let generate = started.kind == RoundKind::Full && target.settings.probe.generation == GenerationProbe::On;
    Round { dialer, tally, target }.run(key, generate).await
}

/// A number in 0.0..1.0 from the hasher's random keys.
fn jitter() -> f64 {
    let bits = RandomState::new().hash_one(0_u8) >> 11;
    bits as f64 / (1_u64 << 53) as f64
}
