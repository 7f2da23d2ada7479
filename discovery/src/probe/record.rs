//! What the results of probes and the faults of requests mean for one incarnation. Pure: no time, no IO.
//!
//! Owns: the verdict's rules. Must not: probe. Rules, with `full` = generation included:
//! - not proven → only a full round that began after the last fault proves it, and counts as one proof;
//! - proven → light rounds (health and names), unless requests show as much (`stand_in`); `misses` bad ones in a row take it out, and behind one whose port refused the next ones
//!   come at the warming pace;
//! - a fault takes it out at once;
//! - a trusted incarnation is proven from the start, and misses are only remarked; faults count as for any other.

use std::sync::Arc;
use std::time::Duration;

use config::ProbeSettings;

use super::Verdict;
use crate::snapshot::Reason;

/// First pause between polls of an engine that is not up yet; doubles up to the warming pace. An engine's port refuses until it is ready,
/// and then answers everything within the same 20 ms (engine facts 1), so a quick poll is cheap and finds it early.
pub(super) const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// How much is asked in a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RoundKind {
    /// Health and names.
    Light,
    /// Health, names, and a generation unless that is off.
    Full,
}

/// A round that was begun.
#[derive(Debug, Clone, Copy)]
pub(super) struct Started {
    pub(super) kind: RoundKind,
    faults: u64,
}

/// What a round found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Outcome {
    /// The names, if they were listed (also when a later step failed).
    pub(super) models: Option<Arc<[Arc<str>]>>,
    /// The step that failed.
    pub(super) failure: Option<Reason>,
}

/// The state of one incarnation.
#[derive(Debug)]
pub(super) struct Record {
    verdict: Verdict,
    trusted: bool,
    /// Out because of a fault: trust does not bring it back.
    faulted: bool,
    faults: u64,
    misses: u32,
    /// The last round that counted found a port that refuses. No load does that, so that it need not be waited out: an engine that was told
    /// to stop refuses at once and keeps its streams open without a byte (engine facts 4).
    refused: bool,
    /// Rounds since it was last taken out, for the growing pause.
    polls: u32,
}

impl Record {
    pub(super) fn new(trusted: bool) -> Self {
        let verdict = Verdict { proven: trusted, reason: (!trusted).then_some(Reason::NotProven), models: None, proof: 0 };
        Self { verdict, trusted, faulted: false, faults: 0, misses: 0, refused: false, polls: 0 }
    }

    pub(super) fn verdict(&self) -> &Verdict {
        &self.verdict
    }

    /// The configuration changed: trust proves what no fault has taken out, and its end voids what nothing else proved.
    pub(super) fn set_trusted(&mut self, trusted: bool) {
        self.trusted = trusted;
        if trusted && !self.faulted {
            self.verdict.proven = true;
            self.verdict.reason = None;
        } else if !trusted && self.verdict.proof == 0 && self.verdict.proven {
            self.take_out(Reason::NotProven);
        }
    }

    pub(super) fn fault(&mut self) {
        self.faults += 1;
        self.faulted = true;
        self.take_out(Reason::FaultReported);
    }

    pub(super) fn start(&self) -> Started {
        let kind = if self.verdict.proven { RoundKind::Light } else { RoundKind::Full };
        Started { kind, faults: self.faults }
    }

    /// A light round would be asked out of habit alone: nothing is missing and nothing was missed.
    pub(super) fn is_sound(&self) -> bool {
        self.verdict.proven && self.verdict.models.is_some() && self.misses == 0 && !self.refused
    }

    /// Takes in a result; `limit` is `ProbeSettings::misses`. What began before a fault teaches names and nothing else.
    pub(super) fn finish(&mut self, started: Started, outcome: Outcome, limit: u32) {
        if outcome.models.is_some() && outcome.models != self.verdict.models {
            self.verdict.models = outcome.models;
        }
        if started.faults != self.faults {
            return;
        }
        self.polls = self.polls.saturating_add(1);
        self.refused = outcome.failure == Some(Reason::ProbeRefused);
        match outcome.failure {
            None => self.passed(started.kind),
            Some(reason) => self.missed(reason, limit),
        }
    }

    /// The pause before the next round, behind one of the kind `after`. `jitter` in 0.0..1.0 spreads the slow pace by ±10 %, so that probes do
    /// not march in step; the first pause behind a proof is anything up to that pace, since all leaders are proven at once when a gateway starts.
    pub(super) fn pause(&self, after: RoundKind, settings: &ProbeSettings, jitter: f64) -> Duration {
        let serving = self.verdict.proven && self.verdict.models.is_some();
        if serving && self.refused {
            settings.warming_interval.min(settings.serving_interval)
        } else if serving {
            let jitter = jitter.clamp(0.0, 1.0);
            let share = if after == RoundKind::Full { 0.1 + 0.9 * jitter } else { 0.9 + 0.2 * jitter };
            settings.serving_interval.mul_f64(share)
        } else {
            let doublings = self.polls.saturating_sub(1).min(16);
            (FIRST_PAUSE * (1 << doublings)).min(settings.warming_interval)
        }
    }

    fn passed(&mut self, kind: RoundKind) {
        self.misses = 0;
        match kind {
            RoundKind::Full => {
                self.verdict.proof += 1;
                self.verdict.proven = true;
                self.faulted = false;
                self.verdict.reason = None;
            }
            RoundKind::Light if self.verdict.proven => self.verdict.reason = None,
            // Taken out meanwhile (trust ended): a light round is not a proof.
            RoundKind::Light => {}
        }
    }

    fn missed(&mut self, reason: Reason, limit: u32) {
        self.misses = self.misses.saturating_add(1);
        if !self.verdict.proven || self.trusted {
            self.verdict.reason = Some(reason);
        } else if self.misses >= limit {
            self.take_out(reason);
        }
    }

    fn take_out(&mut self, reason: Reason) {
        self.verdict.proven = false;
        self.verdict.reason = Some(reason);
        self.misses = 0;
        self.polls = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ok() -> Outcome {
        Outcome { models: Some(Arc::from([Arc::from("m")])), failure: None }
    }

    fn bad(reason: Reason) -> Outcome {
        Outcome { models: None, failure: Some(reason) }
    }

    fn round(record: &mut Record, outcome: Outcome) {
        let started = record.start();
        record.finish(started, outcome, 3);
    }

    fn proven() -> Record {
        let mut record = Record::new(false);
        round(&mut record, ok());
        assert!(record.verdict.proven);
        record
    }

    #[test]
    fn only_misses_in_a_row_take_out() {
        let mut record = proven();
        for outcome in [bad(Reason::HealthFailed), bad(Reason::HealthFailed), ok(), bad(Reason::HealthFailed), bad(Reason::ProbeTimeout)] {
            round(&mut record, outcome);
            assert_eq!((record.verdict.proven, record.verdict.reason), (true, None));
        }
        round(&mut record, bad(Reason::ProbeTimeout));
        assert_eq!((record.verdict.proven, record.verdict.reason), (false, Some(Reason::ProbeTimeout)));
        assert_eq!(record.start().kind, RoundKind::Full, "the way back is a full proof");
    }

    #[test]
    fn a_success_that_began_before_the_fault_does_not_count() {
        let mut record = Record::new(false);
        let started = record.start();
        record.fault();
        record.finish(started, ok(), 3);
        assert_eq!((record.verdict.proven, record.verdict.reason, record.verdict.proof), (false, Some(Reason::FaultReported), 0));
        assert!(record.verdict.models.is_some(), "names are learned all the same");
        round(&mut record, ok());
        assert_eq!((record.verdict.proven, record.verdict.proof), (true, 1));
    }

    #[test]
    fn a_light_round_neither_counts_as_proof_nor_heals_a_fault() {
        let mut record = proven();
        round(&mut record, ok());
        assert_eq!(record.verdict.proof, 1);
        let light = record.start();
        assert_eq!(light.kind, RoundKind::Light);
        record.fault();
        record.finish(light, ok(), 3);
        assert!(!record.verdict.proven);
    }

    #[test]
    fn trust_proves_at_once_but_not_after_a_fault() {
        let mut record = Record::new(true);
        assert!(record.verdict.proven);
        for _ in 0..5 {
            round(&mut record, bad(Reason::EngineKeyRefused));
        }
        assert_eq!((record.verdict.proven, record.verdict.reason), (true, Some(Reason::EngineKeyRefused)));
        record.fault();
        record.set_trusted(true);
        assert_eq!((record.verdict.proven, record.verdict.reason), (false, Some(Reason::FaultReported)));
        round(&mut record, ok());
        assert!(record.verdict.proven);
    }

    #[test]
    fn the_end_of_trust_voids_what_only_trust_proved() {
        let mut record = Record::new(true);
        let light = record.start();
        record.set_trusted(false);
        record.finish(light, ok(), 3);
        assert_eq!((record.verdict.proven, record.verdict.reason), (false, Some(Reason::NotProven)));
        let mut record = proven();
        record.set_trusted(true);
        record.set_trusted(false);
        assert!(record.verdict.proven, "its own proof stands");
    }

    fn settings() -> ProbeSettings {
        ProbeSettings {
            generation: config::GenerationProbe::On,
            trust_managed: false,
            warming_interval: Duration::from_secs(1),
            serving_interval: Duration::from_secs(10),
            timeout: Duration::from_secs(1),
            generation_timeout: Duration::from_secs(1),
            misses: 3,
        }
    }

    #[test]
    fn a_serving_port_that_refuses_is_asked_again_soon() {
        let mut record = proven();
        let mut pause = |outcome| {
            round(&mut record, outcome);
            record.pause(RoundKind::Light, &settings(), 0.5).as_secs()
        };
        assert_eq!(pause(bad(Reason::ProbeTimeout)), 10, "slow may be load");
        assert_eq!(pause(bad(Reason::ProbeRefused)), 1);
        assert_eq!(pause(ok()), 10);
    }

    #[test]
    fn a_refusal_never_slows_the_pace_down() {
        let mut record = proven();
        round(&mut record, bad(Reason::ProbeRefused));
        let quick = ProbeSettings { serving_interval: Duration::from_millis(200), ..settings() };
        assert_eq!(record.pause(RoundKind::Light, &quick, 0.5), Duration::from_millis(200));
    }

    #[test]
    fn the_pause_grows_while_warming_and_starts_anew_after_a_fault() {
        let settings = settings();
        let mut record = Record::new(false);
        let mut pauses = Vec::new();
        for _ in 0..6 {
            round(&mut record, bad(Reason::ProbeRefused));
            pauses.push(record.pause(RoundKind::Full, &settings, 0.0).as_millis());
        }
        assert_eq!(pauses, [100, 200, 400, 800, 1000, 1000]);
        round(&mut record, ok());
        assert_eq!(record.pause(RoundKind::Full, &settings, 0.0), Duration::from_secs(1));
        assert_eq!(record.pause(RoundKind::Full, &settings, 1.0), Duration::from_secs(10));
        assert_eq!(record.pause(RoundKind::Light, &settings, 0.0), Duration::from_secs(9));
        assert_eq!(record.pause(RoundKind::Light, &settings, 1.0), Duration::from_secs(11));
        record.fault();
        round(&mut record, bad(Reason::GenerationFailed));
        assert_eq!(record.pause(RoundKind::Light, &settings, 0.0), FIRST_PAUSE);
    }
}
