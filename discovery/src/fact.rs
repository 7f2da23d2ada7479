//! The few fields that discovery keeps of a ModelDeployment, a Pod and a Service.
//!
//! Owns: the plain types, and the two questions that need nothing but them (does a selector match, which port serves). Must not: know
//! a label key or JSON (`source/operator` reads those) or judge anything (`observe` and `group` do). Next step: `index`.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// Shared text: names and UIDs are compared and cloned far more often than made.
pub type Str = Arc<str>;

/// Which of the watched kinds a fact is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// `modeldeployments.worker.gpustack.ai`
    Deployment,
    /// Core `pods` with the operator's label.
    Pod,
    /// Core `services` with the operator's label.
    Service,
}

impl Kind {
    /// Every kind, in the order in which a reader understands them.
    pub const ALL: [Kind; 3] = [Kind::Deployment, Kind::Pod, Kind::Service];

    /// The resource name of the API: `modeldeployments`, `pods`, `services`.
    pub fn resource(self) -> &'static str {
        match self {
            Self::Deployment => "modeldeployments",
            Self::Pod => "pods",
            Self::Service => "services",
        }
    }
}

/// One object of any watched kind.
#[derive(Debug, Clone, PartialEq)]
pub enum Fact {
    /// A ModelDeployment.
    Deployment(Arc<DeploymentFact>),
    /// An engine Pod.
    Pod(Arc<PodFact>),
    /// A Service of a deployment.
    Service(Arc<ServiceFact>),
}

impl Fact {
    /// The kind it is of.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Deployment(_) => Kind::Deployment,
            Self::Pod(_) => Kind::Pod,
            Self::Service(_) => Kind::Service,
        }
    }

    /// `metadata.uid`.
    pub fn uid(&self) -> &Str {
        match self {
            Self::Deployment(fact) => &fact.uid,
            Self::Pod(fact) => &fact.uid,
            Self::Service(fact) => &fact.uid,
        }
    }
}

/// A ModelDeployment.
#[derive(Debug, Clone, PartialEq)]
pub struct DeploymentFact {
    /// `metadata.uid`; what Pods and Services name as their controller.
    pub uid: Str,
    /// `metadata.namespace`.
    pub namespace: Str,
    /// `metadata.name`.
    pub name: Str,
    /// `metadata.creationTimestamp`; the older of two deployments owns a contested name.
    pub created: SystemTime,
    /// Has a deletionTimestamp, or `status.phase` says Deleting.
    pub deleting: bool,
    /// `spec.model.name`.
    pub model: Str,
    /// `spec.roles`, in order, with what `status.roles` adds.
    pub roles: Vec<RoleFact>,
    /// `spec.router`, if there is one.
    pub router: Option<RouterFact>,
    /// `status.endpoint` begins with https; says something of the first role only.
    pub endpoint_https: bool,
    /// Since when `ReplicasUpToDate` is False for `RolloutInProgress`; `None` when no rollout runs.
    pub rollout: Option<SystemTime>,
    /// The replacement-slots annotation.
    pub slots: Vec<SlotFact>,
    /// `status.retirement`.
    pub retirement: Option<RetirementFact>,
}

/// How requests may reach a role.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RoleKind {
    /// `Server`: leaders take requests.
    Server,
    /// Prefill, Decode, Encode or a kind of a newer operator: only a router can use it.
    Disaggregated,
}

/// `status.roles[].parallelism.loadBalance`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoadBalance {
    /// External or Hybrid: every rank answers by itself.
    EveryRank,
    /// Internal or MultiPort: member 0 answers.
    Leader,
    /// Not observed (take-over roles are never read).
    Unknown,
}

/// One entry of `spec.roles`.
#[derive(Debug, Clone, PartialEq)]
pub struct RoleFact {
    /// `name`.
    pub name: Str,
    /// `kind`; Server when absent.
    pub kind: RoleKind,
    /// `replicas`; 1 when absent.
    pub replicas: u32,
    /// Has `elasticEp`: only ordinal 0 answers.
    pub elastic: bool,
    /// Which members answer.
    pub load_balance: LoadBalance,
    /// `command` is set: the *next* Pods are take-over. What is deployed is said by the Pods themselves.
    pub take_over: bool,
    /// Served names in `command` or `extraArgs`, for the time before there is a Pod.
    pub declared_names: Vec<Str>,
}

/// `spec.router` and its status.
#[derive(Debug, Clone, PartialEq)]
pub struct RouterFact {
    /// Condition `RouterReady` is False.
    pub not_ready: bool,
    /// `status.router.endpoint`.
    pub endpoint: Option<Str>,
}

/// Phase of a replacement slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SlotPhase {
    /// The old members are being deleted.
    Cleanup,
    /// The new members wait for admission.
    WaitingForAdmission,
}

/// One entry of the replacement-slots annotation.
#[derive(Debug, Clone, PartialEq)]
pub struct SlotFact {
    /// Role name.
    pub role: Str,
    /// Replica ordinal.
    pub ordinal: u32,
    /// What is going on.
    pub phase: SlotPhase,
    /// Cleanup: who is about to go. WaitingForAdmission: who is new. Empty when not recorded.
    pub members: Vec<Str>,
}

/// `status.retirement`.
#[derive(Debug, Clone, PartialEq)]
pub struct RetirementFact {
    /// `roleName`.
    pub role: Str,
    /// `replicaOrdinal`.
    pub ordinal: u32,
    /// `targetMemberUIDs`; empty when not recorded.
    pub members: Vec<Str>,
    /// State `Aborted`: everything is kept.
    pub aborted: bool,
    /// `deadline`: by then it is deleted, or aborted.
    pub deadline: Option<SystemTime>,
}

/// A number in a label or annotation that may be absent or nonsense.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Numeral {
    /// Not there.
    Absent,
    /// A decimal from 0.
    Is(u32),
    /// There, but negative or not a number.
    Unreadable,
}

/// `status.phase` as far as it matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PodPhase {
    /// Pending, or not reported.
    Pending,
    /// Running.
    Running,
    /// Failed or Succeeded.
    Terminal,
}

/// One engine Pod.
#[derive(Debug, Clone, PartialEq)]
pub struct PodFact {
    /// `metadata.uid`.
    pub uid: Str,
    /// `metadata.namespace`.
    pub namespace: Str,
    /// `metadata.name`; fixed names repeat across generations, never an identity.
    pub name: Str,
    /// UID of the controlling ModelDeployment.
    pub owner: Option<Str>,
    /// Role label; `None` on router Pods, which are not members of a replica.
    pub role: Option<Str>,
    /// Ordinal label.
    pub ordinal: Numeral,
    /// Member-index label; absent reads as 0.
    pub index: Numeral,
    /// Group-total annotation; absent reads as 1.
    pub total: Numeral,
    /// The operator built the command line (its scrape annotation is there).
    pub managed: bool,
    /// Carries the endpoint-eligible label.
    pub eligible: bool,
    /// Labels that a Service selector may use, sorted by key.
    pub labels: Vec<(Str, Str)>,
    /// `metadata.creationTimestamp`.
    pub created: SystemTime,
    /// `metadata.deletionTimestamp`: the moment at which the grace ends.
    pub deletion: Option<SystemTime>,
    /// Grace of the deletion that runs, else `spec.terminationGracePeriodSeconds` (default 30 s).
    pub grace: Duration,
    /// `status.phase`.
    pub phase: PodPhase,
    /// Condition Ready is True.
    pub ready: bool,
    /// `status.podIP`.
    pub ip: Option<Str>,
    /// Ports of container `main` (else of the first one): name and number, in order.
    pub ports: Vec<(Str, u16)>,
    /// Restart count and container id of every container: changes whenever one of them starts anew.
    pub containers: Str,
    /// Served names in the command line of `main`.
    pub declared_names: Vec<Str>,
    /// The command line of `main` switches TLS on.
    pub https: bool,
}

impl PodFact {
    /// Running with an address.
    pub fn running(&self) -> bool {
        self.phase == PodPhase::Running && self.ip.is_some()
    }

    /// The seat in its replica; `None` if the label is nonsense.
    pub fn seat(&self) -> Option<u32> {
        match self.index {
            Numeral::Absent => Some(0),
            Numeral::Is(index) => Some(index),
            Numeral::Unreadable => None,
        }
    }
}

/// What a selector term is about, as far as discovery must tell terms apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TermKind {
    /// Member index: the Service is narrowed to leaders.
    Member,
    /// The eligibility gate.
    Eligibility,
    /// Anything else.
    Other,
}

/// One `key: value` of a Service selector.
#[derive(Debug, Clone, PartialEq)]
pub struct Term {
    /// Label key.
    pub key: Str,
    /// Label value.
    pub value: Str,
    /// What it is about.
    pub kind: TermKind,
}

/// Answer of [`ServiceFact::selects`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Selection {
    /// The Pod is an endpoint, once it is Ready.
    Selected,
    /// Only the eligibility term does not match.
    NotEligible,
    /// Another term does not match.
    NotSelected,
}

/// `targetPort` of a Service port.
#[derive(Debug, Clone, PartialEq)]
pub enum TargetPort {
    /// A number; the port itself where none is given.
    Number(u16),
    /// The name of a container port.
    Named(Str),
}

/// One port of a Service.
#[derive(Debug, Clone, PartialEq)]
pub struct ServicePort {
    /// `name`; empty when absent.
    pub name: Str,
    /// `port`.
    pub port: u16,
    /// `targetPort`.
    pub target: TargetPort,
}

/// One Service of a deployment.
#[derive(Debug, Clone, PartialEq)]
pub struct ServiceFact {
    /// `metadata.uid`.
    pub uid: Str,
    /// `metadata.namespace`.
    pub namespace: Str,
    /// `metadata.name`.
    pub name: Str,
    /// UID of the controlling ModelDeployment.
    pub owner: Option<Str>,
    /// `spec.selector`. A Service without one selects nothing.
    pub selector: Vec<Term>,
    /// `spec.ports`, TCP only.
    pub ports: Vec<ServicePort>,
    /// `spec.clusterIP`; `None` for headless Services.
    pub cluster_ip: Option<Str>,
}

impl ServiceFact {
    /// Whether the live selector matches the Pod's labels. Readiness is another question.
    pub fn selects(&self, pod: &PodFact) -> Selection {
        if self.selector.is_empty() {
            return Selection::NotSelected;
        }
        let misses = |term: &&Term| !pod.labels.iter().any(|(key, value)| *key == term.key && *value == term.value);
        let mut answer = Selection::Selected;
        for term in self.selector.iter().filter(misses) {
            match term.kind {
                TermKind::Eligibility => answer = Selection::NotEligible,
                TermKind::Member | TermKind::Other => return Selection::NotSelected,
            }
        }
        answer
    }

    /// The selector has a term of this kind.
    pub fn has_term(&self, kind: TermKind) -> bool {
        self.selector.iter().any(|term| term.kind == kind)
    }

    /// The port that serves requests: the one named `http`, else the first (the operator lists the serving port first and KV-event
    /// ports behind it).
    pub fn serving_port(&self) -> Option<&ServicePort> {
        self.ports.iter().find(|port| &*port.name == "http").or_else(|| self.ports.first())
    }

    /// The number on which `pod` serves, by the serving port's target.
    pub fn target_on(&self, pod: &PodFact) -> Option<u16> {
        match &self.serving_port()?.target {
            TargetPort::Number(number) => Some(*number),
            TargetPort::Named(name) => pod.ports.iter().find(|(port, _)| port == name).map(|(_, number)| *number),
        }
    }
}
