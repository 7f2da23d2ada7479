//! How many probes ended how: a closed set, for metrics.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! closed_set {
    ($(#[doc = $what:literal])+ $name:ident { $($(#[doc = $doc:literal])+ $variant:ident = $word:literal;)+ }) => {
        $(#[doc = $what])+
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name { $($(#[doc = $doc])+ $variant,)+ }
        impl $name {
            /// Every value, for closed label sets.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];
            /// As a label.
            pub fn as_str(self) -> &'static str { match self { $(Self::$variant => $word,)+ } }
        }
    };
}

closed_set! {
    /// A step of a probe.
    ProbeStep {
        /// TCP and TLS.
        Connect = "connect";
        /// `GET /health`.
        Health = "health";
        /// `GET /v1/models`.
        Models = "models";
        /// The one-token generation.
        Generation = "generation";
    }
}

closed_set! {
    /// How a step ended.
    ProbeResult {
        /// As it should.
        Ok = "ok";
        /// Refused, or the host is unreachable or unknown.
        Refused = "refused";
        /// No answer in time.
        Timeout = "timeout";
        /// TLS failed.
        Tls = "tls";
        /// 401 or 403, or the configured key cannot be read.
        Key = "key";
        /// Any other bad answer, or none because the connection broke.
        Failed = "failed";
        /// Nothing to prove: the model does not generate, a router has no `/health`, or good answers to requests showed as much.
        Skipped = "skipped";
    }
}

const STEPS: usize = ProbeStep::ALL.len();
const RESULTS: usize = ProbeResult::ALL.len();

/// Counts of all probes since the start of the process.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProbeCounters {
    counts: [[u64; RESULTS]; STEPS],
}

impl ProbeCounters {
    /// How often `step` ended with `result`.
    pub fn get(&self, step: ProbeStep, result: ProbeResult) -> u64 {
        self.counts[step as usize][result as usize]
    }

    /// Every combination, the ones at 0 too.
    pub fn iter(&self) -> impl Iterator<Item = (ProbeStep, ProbeResult, u64)> + '_ {
        let pairs = ProbeStep::ALL.iter().flat_map(|step| ProbeResult::ALL.iter().map(move |result| (*step, *result)));
        pairs.map(|(step, result)| (step, result, self.get(step, result)))
    }
}

/// The live side of `ProbeCounters`.
#[derive(Debug, Default)]
pub(super) struct Tally {
    counts: [[AtomicU64; RESULTS]; STEPS],
    requests: AtomicU64,
}

impl Tally {
    pub(super) fn add(&self, step: ProbeStep, result: ProbeResult) {
        self.counts[step as usize][result as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// A number that no other probe request of this process has.
    pub(super) fn next_request(&self) -> u64 {
        self.requests.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) fn read(&self) -> ProbeCounters {
        let mut counters = ProbeCounters::default();
        for (row, live) in counters.counts.iter_mut().zip(&self.counts) {
            for (cell, count) in row.iter_mut().zip(live) {
                *cell = count.load(Ordering::Relaxed);
            }
        }
        counters
    }
}
