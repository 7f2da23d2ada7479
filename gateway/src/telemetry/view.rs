//! The read model: what metrics, the admin port and the status page may ask of the running gateway.
//!
//! Owns: the questions. Must not: answer them (the composition root implements `View` over the routing table and discovery) and
//! offers nothing that changes anything. Next step: `metrics::collect` and `admin` read it at each scrape or request.

use std::sync::Arc;
use std::time::Duration;

use discovery::snapshot::{GroupId, Snapshot};

/// What the gateway itself observed of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Health {
    /// Takes requests.
    #[default]
    Closed,
    /// Taken out after faults on real requests.
    Open,
    /// On trial: few requests at once until one goes well.
    HalfOpen,
}

impl Health {
    /// Every value.
    pub const ALL: &'static [Self] = &[Self::Closed, Self::Open, Self::HalfOpen];

    /// As printed: `closed`, `open`, `half_open`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open => "open",
            Self::HalfOpen => "half_open",
        }
    }
}

/// Counters of one incarnation since it was first seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GroupView {
    /// Requests at its leader now.
    pub in_flight: usize,
    /// What was observed.
    pub health: Health,
    /// Attempts begun.
    pub attempts: u64,
    /// Attempts that failed by the leader's fault.
    pub failures: u64,
    /// Smoothed time to the first event; `None` before the first.
    pub first_token: Option<Duration>,
}

/// Why the gateway is not ready, if it is not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Readiness {
    /// The configuration was loaded.
    pub config_loaded: bool,
    /// Discovery finished its first list.
    pub first_list: bool,
    /// The gateway is shutting down (`LameDuck`).
    pub lame_duck: bool,
}

impl Readiness {
    /// What is missing, in words; empty when ready. Never "leaders exist" (invariant 12).
    pub fn missing(self) -> Vec<&'static str> {
        let mut missing = Vec::new();
        if !self.config_loaded {
            missing.push("configuration not loaded");
        }
        if !self.first_list {
            missing.push("first list of the discovery source not done");
        }
        if self.lame_duck {
            missing.push("shutting down");
        }
        missing
    }
}

/// One counter of discovery. `what` and `result` are words of closed sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tally {
    /// Which: a resource (`pods`) or a probe (`health`).
    pub what: &'static str,
    /// How it went, or why.
    pub result: &'static str,
    /// How often since the start.
    pub count: u64,
}

/// Discovery's counters since the start.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DiscoveryStats {
    /// Probes by kind (`health`, `models`, `generation`) and result.
    pub probes: Vec<Tally>,
    /// Watches begun again, by resource and cause.
    pub watch_restarts: Vec<Tally>,
    /// Lists by resource and result.
    pub lists: Vec<Tally>,
}

/// State of one watch, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatchView {
    /// Resource, with its namespace if it is watched by namespace.
    pub resource: String,
    /// `listing`, `watching`, `backoff` …
    pub state: &'static str,
    /// Time since the last event, bookmark or list.
    pub idle: Duration,
    /// The last error, if it is not over; never holds credentials.
    pub error: Option<String>,
}

/// The running gateway as its observers see it. Each call is cheap: no I/O, no long lock.
pub trait View: Send + Sync + 'static {
    /// The snapshot that requests are routed by now.
    fn snapshot(&self) -> Arc<Snapshot>;
    /// Time since the source last confirmed the snapshot (an event, a bookmark or a list).
    fn snapshot_age(&self) -> Duration;
    /// Counters of one incarnation; all zero for one that is not known.
    fn group(&self, id: &GroupId) -> GroupView;
    /// Requests waiting in the pool of this model name.
    fn waiting(&self, model: &str) -> usize;
    /// Retries that the pool of this model name may still make; `None` where it has not been used yet.
    fn retry_budget(&self, _model: &str) -> Option<f64> {
        None
    }
    /// Bytes kept so that streams can be resumed.
    fn resume_kept(&self) -> usize {
        0
    }
    /// When certificates end, in seconds since the epoch: which ones (a word of a closed set), and the soonest end among them.
    fn certificates(&self) -> Vec<(&'static str, i64)> {
        Vec::new()
    }
    /// Whether the gateway is ready.
    fn readiness(&self) -> Readiness;
    /// Discovery's counters.
    fn discovery(&self) -> DiscoveryStats {
        DiscoveryStats::default()
    }
    /// Discovery's watches.
    fn watches(&self) -> Vec<WatchView> {
        Vec::new()
    }
}
