//! What discovery publishes: an immutable view of all pools, and the handle through which it is read.
//!
//! Owns: `Snapshot`, `Pool`, `ReplicaGroup` and the words of a group's phase and reasons. Must not: decide a phase (`group` does)
//! or store anything (`publish` is the only writer). Readers: the gateway's routing table, the admin port.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use config::DeploymentRef;

/// Counter of snapshots; only grows (invariant 2).
pub type Generation = u64;

/// Immutable view of all pools at one moment.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    /// 0 before the first list is done.
    pub generation: Generation,
    /// `kubernetes`, `manifests` or `leaders`.
    pub source: &'static str,
    /// When it was published; `None` before the first list is done.
    pub published: Option<SystemTime>,
    /// By served model name. The name `*` (fixed leaders only) takes every name that has no entry.
    pub pools: BTreeMap<Arc<str>, Arc<Pool>>,
    /// `namespace/deployment` → the served name that it is reached by.
    pub deployments: BTreeMap<Arc<str>, Arc<str>>,
    /// Groups of deployments whose names nobody has learned yet, or that own no name; shown, never picked.
    pub unnamed: Vec<Arc<Pool>>,
    /// Some deployment's served names are not known yet: an unknown model is not a 404.
    pub names_pending: bool,
    /// Names that more than one deployment claims.
    pub conflicts: Vec<NameConflict>,
}

/// A served name that several deployments claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NameConflict {
    /// The name.
    pub model: Arc<str>,
    /// Who owns it (the older one, or by configuration).
    pub owner: DeploymentRef,
    /// Who claims it in vain.
    pub refused: Vec<DeploymentRef>,
}

/// Whether waiting for a serving group of a pool makes sense.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Outlook {
    /// A group serves, or one is being replaced, forming or warming.
    #[default]
    Coming,
    /// Deployment deleted or scaled to nothing, or not servable.
    Nothing,
}

/// Interchangeable replica groups that serve one model name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pool {
    /// The served name; empty in `Snapshot::unnamed`.
    pub model: Arc<str>,
    /// The deployment (the owner's, where several are merged); `None` for fixed leaders.
    pub deployment: Option<DeploymentRef>,
    /// By role, ordinal and rank (merged pools: one deployment after the other). Groups that do not serve are here too.
    pub groups: Vec<Arc<ReplicaGroup>>,
    /// Whether waiting makes sense when none serves.
    pub outlook: Outlook,
    /// How long the last replacement of a slot took, delete to serving; `None` before the first one was seen.
    pub last_replacement: Option<Duration>,
}

/// Namespace, deployment, role, ordinal: the place of a replica. Prints as `namespace/deployment/role/ordinal`
/// (behind a router `namespace/deployment/router`; an External-DP rank adds `/rank`; fixed leaders print `static/HOST:PORT`).
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupKey(pub Arc<str>);

impl fmt::Display for GroupKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One incarnation: the key plus UID, restart count and container ids of every member. Opaque; equal means same incarnation.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupId(pub Arc<str>);

/// What Kubernetes and the probe together say of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum GroupPhase {
    /// Members missing, pending or not Ready.
    Forming,
    /// Members Ready, engine not proven since its containers last started.
    Warming,
    /// Takes new requests.
    Serving,
    /// Leaving, or lost a member while it served: no new requests, running streams go on.
    Draining,
}

impl GroupPhase {
    /// As printed: `Forming`, `Warming`, `Serving`, `Draining`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Forming => "Forming",
            Self::Warming => "Warming",
            Self::Serving => "Serving",
            Self::Draining => "Draining",
        }
    }
}

/// One Pod of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Pod name.
    pub pod: Arc<str>,
    /// Pod UID.
    pub uid: Arc<str>,
    /// Member index, 0 = leader.
    pub index: u32,
    /// Condition Ready is True.
    pub ready: bool,
    /// Has a deletionTimestamp.
    pub deleting: bool,
}

/// Where the leader answers.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Address {
    /// Dial TLS.
    pub https: bool,
    /// IP literal (without brackets) or DNS name (router without ClusterIP, fixed leaders).
    pub host: Arc<str>,
    /// TCP port.
    pub port: u16,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.https { "https" } else { "http" };
        if self.host.contains(':') {
            write!(f, "{scheme}://[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{scheme}://{}:{}", self.host, self.port)
        }
    }
}

/// Member 0, or the router's Service, or a fixed leader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leader {
    /// Pod name; the Service's or URL's for routers and fixed leaders.
    pub pod: Arc<str>,
    /// Pod or Service UID; `None` for fixed leaders.
    pub uid: Option<Arc<str>>,
    /// Where it answers.
    pub address: Address,
}

/// How a leaving group ends (operator contract section 5).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DrainBudget {
    /// First sign of leaving that was seen.
    pub since: SystemTime,
    /// terminationGracePeriodSeconds.
    pub grace: Duration,
    /// When the leader's running streams end at the latest: managed since + grace − 5 s; take-over: at once.
    pub streams_until: SystemTime,
    /// When followers are gone (groups of several members, 5 s after the delete), if that is earlier.
    pub followers_until: Option<SystemTime>,
}

/// One leader and its followers, in one incarnation. An incarnation that is in no pool any more is gone: treat it as broken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplicaGroup {
    /// The place.
    pub key: GroupKey,
    /// The incarnation.
    pub id: GroupId,
    /// Replica ordinal; `None` for routers and fixed leaders.
    pub ordinal: Option<u32>,
    /// What to do with it.
    pub phase: GroupPhase,
    /// Why it is not Serving (or a remark while it is), most important first.
    pub reasons: Vec<Reason>,
    /// `None` while the leader Pod does not exist or has no IP.
    pub leader: Option<Leader>,
    /// By index.
    pub members: Vec<Member>,
    /// The operator built the command line: probes and preStop exist.
    pub managed: bool,
    /// Set while the group leaves.
    pub drain: Option<DrainBudget>,
    /// Likely the next to be replaced (highest ordinal while a rollout is in progress): avoid where there is a choice.
    pub next_to_go: bool,
    /// A member is gone, restarted, NotReady or deleting: streams of this group get `resume.stall` of silence and are moved.
    pub broken: bool,
    /// Counts good generation proofs of this incarnation (health + models where generation is off). A gateway that saw a fault at proof
    /// number n trusts the group again when this is greater than n.
    pub proof: u64,
}

impl ReplicaGroup {
    /// Takes new requests as far as discovery knows.
    pub fn serving(&self) -> bool {
        self.phase == GroupPhase::Serving && self.leader.is_some()
    }
}

macro_rules! reasons {
    ($($(#[doc = $doc:literal])+ $name:ident = $word:literal;)+) => {
        /// Why a group is where it is: a closed set of machine-readable words.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Reason { $($(#[doc = $doc])+ $name,)+ }
        impl Reason {
            /// Every reason, for documentation and closed label sets.
            pub const ALL: &'static [Reason] = &[$(Reason::$name,)+];
            /// The word as it is printed.
            pub fn as_str(self) -> &'static str { match self { $(Self::$name => $word,)+ } }
            /// One sentence of what it means.
            pub fn meaning(self) -> &'static str { match self { $(Self::$name => concat!($($doc),+),)+ } }
        }
    };
}

reasons! {
    /// A member Pod does not exist.
    MemberMissing = "member_missing";
    /// A member has a deletionTimestamp.
    MemberDeleting = "member_deleting";
    /// A member's Ready condition is not True.
    MemberNotReady = "member_not_ready";
    /// A member has no IP or is not Running yet (pending, gated by admission, or terminal).
    MemberNotRunning = "member_not_running";
    /// Seats or totals of the members contradict each other.
    ShapeUnreadable = "shape_unreadable";
    /// The operator is replacing this slot: it is being deleted.
    ReplacementCleanup = "replacement_cleanup";
    /// The operator is replacing this slot: the new Pods wait for admission.
    ReplacementWaiting = "replacement_waiting_for_admission";
    /// The operator is retiring this replica.
    Retiring = "retiring";
    /// A retirement of this replica ended Aborted; it is kept as the Service has it.
    RetirementAborted = "retirement_aborted";
    /// The eligibility label that the Service selects by is gone.
    NotEligible = "not_eligible";
    /// The role Service's selector does not match the leader.
    NotSelected = "not_selected";
    /// The deployment is being deleted.
    DeploymentDeleting = "deployment_deleting";
    /// Prefill/Decode/Encode roles without a router: nothing pairs them.
    NotServable = "not_servable";
    /// The router has no Service or no ready replica yet.
    RouterNotReady = "router_not_ready";
    /// Not probed since its containers last started.
    NotProven = "not_proven";
    /// The engine refuses connections.
    ProbeRefused = "probe_refused";
    /// A probe got no answer in time.
    ProbeTimeout = "probe_timeout";
    /// `/health` did not answer 200.
    HealthFailed = "health_failed";
    /// `/v1/models` did not answer 200 with a model list.
    ModelsFailed = "models_failed";
    /// `/v1/models` answered 401: the engine wants a key that is not configured or wrong.
    EngineKeyRefused = "engine_key_refused";
    /// The configured key file is missing, empty or not a key.
    EngineKeyUnreadable = "engine_key_unreadable";
    /// The one-token generation failed.
    GenerationFailed = "generation_failed";
    /// TLS to the engine failed.
    TlsFailed = "tls_failed";
    /// Requests failed at this leader; a good generation brings it back.
    FaultReported = "fault_reported";
    /// A container of a member restarted: the proof is void.
    ContainerRestarted = "container_restarted";
    /// Another, older deployment owns the served name.
    NameConflict = "name_conflict";
    /// Not ordinal 0 of an elastic role.
    ElasticFollower = "elastic_follower";
}
