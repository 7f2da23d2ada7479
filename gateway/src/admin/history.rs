//! The last minutes, for somebody who opens the status page in the middle of a rollout.
//!
//! Owns: a bounded ring of samples. Must not: replace a metrics store; it forgets after `SPAN`, and sooner where there is very much to
//! remember. Filled by the admin port's own task, read at `/debug/history`.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use discovery::snapshot::ReplicaGroup;

use super::Admin;
use super::model::{PhaseSample, Sample};
use super::state::{millis, short};
use crate::telemetry::view::GroupView;

/// Between two samples.
pub(super) const PACE: Duration = Duration::from_secs(5);
/// Samples kept: five minutes.
const SAMPLES: usize = 60;
/// Pools and groups of all samples together at most: about 25 MiB in the worst case.
const ENTRIES: usize = 100_000;

/// The ring.
#[derive(Debug, Default)]
pub(super) struct History {
    samples: Mutex<VecDeque<Sample>>,
}

impl History {
    /// Adds what is true at `now`.
    pub(super) fn sample(&self, admin: &Admin, now: SystemTime) {
        let snapshot = admin.view.snapshot();
        let groups = snapshot.pools.values().chain(&snapshot.unnamed).flat_map(|p| &p.groups);
        let phases = groups.map(|g| phase(g, admin.view.group(&g.id))).collect();
        self.add(Sample { at_ms: millis(now), figures: admin.metrics.figures(), phases });
    }

    /// Oldest first.
    pub(super) fn samples(&self) -> Vec<Sample> {
        self.samples.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }

    fn add(&self, sample: Sample) {
        let entries = |s: &Sample| s.figures.len() + s.phases.len();
        let mut samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        samples.push_back(sample);
        let mut total: usize = samples.iter().map(entries).sum();
        while samples.len() > SAMPLES || (total > ENTRIES && samples.len() > 1) {
            total -= samples.pop_front().as_ref().map_or(0, entries);
        }
    }
}

fn phase(group: &ReplicaGroup, seen: GroupView) -> PhaseSample {
    PhaseSample {
        key: group.key.to_string(),
        phase: group.phase.as_str().to_owned(),
        incarnation: short(&group.id),
        attempts: seen.attempts,
        first_token_seconds: seen.first_token.map(|d| d.as_secs_f64()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(at_ms: u64, groups: usize) -> Sample {
        Sample { at_ms, figures: vec![], phases: vec![PhaseSample::default(); groups] }
    }

    #[test]
    fn forgets_by_number_and_by_size() {
        let history = History::default();
        for n in 0..100 {
            history.add(sample(n, 1));
        }
        let kept = history.samples();
        assert_eq!((kept.len(), kept[0].at_ms), (SAMPLES, 40));
        history.add(sample(100, ENTRIES - 2));
        assert_eq!(history.samples().len(), 3);
        history.add(sample(101, ENTRIES * 2));
        assert_eq!(history.samples().len(), 1);
    }
}
