//! The JSON of the admin port. A public form: fields are added, never renamed or removed.
//!
//! Owns: names and shapes. Must not: compute (`state` and `explain` do). Written by the admin port, read by the command line, which
//! ignores fields that it does not know and takes defaults for those that an older gateway does not send.

use serde::{Deserialize, Serialize};

use crate::telemetry::metrics::PoolFigures;
use crate::telemetry::recent::Event;

/// `/debug/status`, and each event of `/debug/events`: everything that the status page shows.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// When it was true, milliseconds since the epoch.
    pub at_ms: u64,
    /// As `/debug/snapshot`.
    pub state: State,
    /// Totals of each pool since the start.
    pub figures: Vec<PoolFigures>,
    /// As `/debug/recent`; in a stream only what is newer than the event before.
    pub recent: Vec<Event>,
}

/// `/debug/snapshot`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// Number of the snapshot in use; 0 before the first list.
    pub generation: u64,
    /// Seconds since the source last confirmed it.
    pub age_seconds: f64,
    /// `kubernetes`, `manifests` or `leaders`.
    pub source: String,
    /// By model name.
    pub pools: Vec<PoolState>,
    /// Deployments that own no name yet; their groups are never picked.
    #[serde(default)]
    pub unnamed: Vec<PoolState>,
    /// Served names of some deployment are not known yet.
    #[serde(default)]
    pub names_pending: bool,
    /// Names that several deployments claim.
    #[serde(default)]
    pub conflicts: Vec<Conflict>,
    /// Discovery's watches.
    #[serde(default)]
    pub watches: Vec<Watch>,
    /// What `/readyz` misses; empty when ready.
    #[serde(default)]
    pub not_ready: Vec<String>,
    /// Version of the gateway.
    #[serde(default)]
    pub version: String,
    /// Start of the process, milliseconds since the epoch.
    #[serde(default)]
    pub started_ms: u64,
}

/// One of `/debug/history`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// When, milliseconds since the epoch.
    pub at_ms: u64,
    /// Totals of each pool since the start.
    pub figures: Vec<PoolFigures>,
    /// Phase of each group.
    pub phases: Vec<PhaseSample>,
}

/// What a group did at a moment.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct PhaseSample {
    /// Key of the group.
    pub key: String,
    /// `Forming`, `Warming`, `Serving`, `Draining`.
    pub phase: String,
    /// Names the incarnation.
    #[serde(default)]
    pub incarnation: String,
    /// Attempts begun.
    #[serde(default)]
    pub attempts: u64,
    /// Smoothed time to the first event.
    #[serde(default)]
    pub first_token_seconds: Option<f64>,
}

/// A pool.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct PoolState {
    /// Served name.
    pub model: String,
    /// `namespace/name`; null for fixed leaders.
    pub deployment: Option<String>,
    /// Requests that wait.
    pub waiting: usize,
    /// By key.
    pub groups: Vec<GroupState>,
    /// `coming` or `nothing`: whether waiting makes sense when no group serves.
    #[serde(default)]
    pub outlook: String,
    /// How long the last replacement took, delete to serving.
    #[serde(default)]
    pub last_replacement_seconds: Option<f64>,
    /// Retries that may still be made.
    #[serde(default)]
    pub retry_budget: Option<f64>,
}

/// A replica group.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct GroupState {
    /// `namespace/deployment/role/ordinal`.
    pub key: String,
    /// Replica ordinal; null for routers and fixed leaders.
    pub ordinal: Option<u32>,
    /// `Forming`, `Warming`, `Serving`, `Draining`.
    pub phase: String,
    /// Machine-readable words, most important first.
    pub reasons: Vec<String>,
    /// Null while there is none.
    pub leader: Option<LeaderState>,
    /// By index.
    pub members: Vec<MemberState>,
    /// Requests at its leader.
    pub in_flight: usize,
    /// `closed`, `open`, `half_open`.
    pub health: String,
    /// Names the incarnation.
    #[serde(default)]
    pub incarnation: String,
    /// The operator built the command line.
    #[serde(default)]
    pub managed: bool,
    /// While it leaves.
    #[serde(default)]
    pub drain: Option<DrainState>,
    /// Likely replaced next.
    #[serde(default)]
    pub next_to_go: bool,
    /// A member is gone or restarted: streams are moved.
    #[serde(default)]
    pub broken: bool,
    /// Good generation proofs.
    #[serde(default)]
    pub proofs: u64,
    /// Attempts begun.
    #[serde(default)]
    pub attempts: u64,
    /// Attempts that failed by the leader's fault.
    #[serde(default)]
    pub failures: u64,
    /// Smoothed time to the first event.
    #[serde(default)]
    pub first_token_seconds: Option<f64>,
}

/// Member 0.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct LeaderState {
    /// Pod (or Service, or host) name.
    pub pod: String,
    /// Null for fixed leaders.
    pub uid: Option<String>,
    /// `http://IP:PORT`.
    pub address: String,
}

/// One Pod.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct MemberState {
    /// Pod name.
    pub pod: String,
    /// Pod UID.
    pub uid: String,
    /// 0 = leader.
    pub index: u32,
    /// Condition Ready is True.
    pub ready: bool,
    /// Has a deletionTimestamp.
    pub deleting: bool,
}

/// What is left to a group that leaves. Seconds from now, 0 when over.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct DrainState {
    /// Seconds since the first sign of leaving.
    pub since_seconds: f64,
    /// terminationGracePeriodSeconds.
    pub grace_seconds: f64,
    /// Until running streams end at the latest.
    pub streams_left_seconds: f64,
    /// Until its followers are gone; null where that does not come first.
    pub followers_left_seconds: Option<f64>,
}

/// A name that several deployments claim.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Conflict {
    /// The name.
    pub model: String,
    /// Who has it.
    pub owner: String,
    /// Who wants it.
    pub refused: Vec<String>,
}

/// A watch of discovery.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Watch {
    /// What is watched.
    pub resource: String,
    /// What it does now.
    pub state: String,
    /// Seconds since it last heard anything.
    pub idle_seconds: f64,
    /// Why it does not work.
    pub error: Option<String>,
}

/// `/debug/explain`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Explanation {
    /// The name that was asked for.
    pub model: String,
    /// The pool that it leads to; null when none.
    pub pool: Option<String>,
    /// One sentence: what a request would meet now.
    pub verdict: String,
    /// The code of the refusal that it would get, if it would get one at once.
    #[serde(default)]
    pub refusal: Option<String>,
    /// Requests that wait in the pool already.
    pub waiting: usize,
    /// Number of the snapshot that this was read from.
    pub generation: u64,
    /// Each group of the pool: why, or why not.
    pub groups: Vec<GroupVerdict>,
}

/// Whether a group would get the request.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct GroupVerdict {
    /// Its key.
    pub key: String,
    /// `candidate`, `avoided` (only if nothing else serves) or `excluded`.
    pub standing: String,
    /// Why, in machine-readable words.
    pub why: Vec<String>,
    /// Requests at its leader.
    pub in_flight: usize,
    /// `http://IP:PORT`; null while there is no leader.
    pub address: Option<String>,
}
