//! One deployment as groups: what `observe`, `group` and `incarnation` say of each of its targets, put together.
//!
//! Owns: which targets a deployment has (leaders, ranks, or its router) and the past of each. Must not: know other deployments, ask the
//! probe by itself or own names (`names`, `table`). Next step: `table`.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use config::{DeploymentRef, Membership};

use crate::fact::{DeploymentFact, PodFact, RoleFact, ServiceFact, Str};
use crate::group::{RETIREMENT, drain_budget, leaving_since, phase_of, wants_probe};
use crate::incarnation::Memory;
use crate::index::Index;
use crate::observe::{Observed, Replica, by_ordinal, every_rank, observe};
use crate::probe::Verdict;
use crate::router;
use crate::snapshot::{Address, DrainBudget, GroupId, GroupKey, GroupPhase, Leader, Member, Reason, ReplicaGroup};
use crate::source::operator;

/// What the probe knows of an incarnation; the test's stand-in for a prober.
pub trait Verdicts {
    /// Not proven if the incarnation is not known.
    fn verdict(&self, id: &GroupId) -> Verdict;
}

impl<F: Fn(&GroupId) -> Verdict> Verdicts for F {
    fn verdict(&self, id: &GroupId) -> Verdict {
        self(id)
    }
}

/// What a view is computed with besides the facts.
pub struct Lens<'a> {
    /// What makes a group whole.
    pub membership: Membership,
    /// Proofs.
    pub verdicts: &'a dyn Verdicts,
    /// The time.
    pub now: SystemTime,
}

/// The past of one deployment (of one UID).
#[derive(Debug, Default)]
pub struct Past {
    /// By target.
    pub(crate) groups: HashMap<GroupKey, Memory>,
    /// How long the last replacement took.
    pub(crate) last_replacement: Option<Duration>,
    /// Served names by role, as last learned.
    pub(crate) names: BTreeMap<Str, Vec<Str>>,
}

/// One target of a deployment.
#[derive(Debug, Clone)]
pub struct Target {
    /// As published.
    pub group: Arc<ReplicaGroup>,
    /// Its role; `None` for a router, which stands for all of them.
    pub role: Option<Str>,
    /// Served names that its engine listed.
    pub learned: Option<Arc<[Str]>>,
    /// Served names in its command line.
    pub declared: Vec<Str>,
    /// The probe should look at it.
    pub probe: bool,
}

/// The targets of one deployment, by role (in the order of the spec), ordinal and rank.
pub fn targets(index: &Index, deployment: &DeploymentFact, past: &mut Past, lens: &Lens<'_>) -> Vec<Target> {
    let mut before = std::mem::take(&mut past.groups);
    let mut targets = Vec::new();
    let mut builder = Builder { deployment, before: &mut before, past, lens, targets: &mut targets };
    if deployment.router.is_some() {
        let service = index.service_of(&deployment.uid, &operator::router_service_name(&deployment.name));
        builder.router(service.map(|service| &**service));
    } else {
        for role in &deployment.roles {
            let service = index.service_of(&deployment.uid, &operator::role_service_name(&deployment.name, &role.name));
            builder.role(role, service.map(|service| &**service), &by_ordinal(index.pods_of(&deployment.uid), &role.name));
        }
    }
    targets
}

/// The name of a deployment.
pub fn reference(deployment: &DeploymentFact) -> DeploymentRef {
    DeploymentRef { namespace: deployment.namespace.to_string(), name: deployment.name.to_string() }
}

struct Builder<'a> {
    deployment: &'a DeploymentFact,
    before: &'a mut HashMap<GroupKey, Memory>,
    past: &'a mut Past,
    lens: &'a Lens<'a>,
    targets: &'a mut Vec<Target>,
}

type Ordinals<'a> = BTreeMap<u32, Vec<&'a Arc<PodFact>>>;

impl Builder<'_> {
    fn role(&mut self, role: &RoleFact, service: Option<&ServiceFact>, ordinals: &Ordinals<'_>) {
        // Slots that should exist are shown before their Pods do: something is coming there.
        let wanted = if self.deployment.deleting { 0 } else { role.replicas };
        let next_to_go = self.next_to_go(role, ordinals);
        let every = (0..wanted).chain(ordinals.keys().copied().filter(|ordinal| *ordinal >= wanted));
        for ordinal in every {
            let members = ordinals.get(&ordinal).map(Vec::as_slice).unwrap_or_default();
            let replica = Replica { deployment: self.deployment, role, service, ordinal, members, seat: 0 };
            let next = next_to_go == Some(ordinal);
            if every_rank(role, service, members) {
                let ranks = crate::observe::shape(members).total;
                // A total is a label's word; no replica of the operator has more than 64 members.
                for rank in 0..ranks.min(64) {
                    self.target(&Replica { seat: rank, ..replica }, Some(rank), next);
                }
            } else {
                self.target(&replica, None, next);
            }
        }
    }

    /// The highest ordinal whose Pods are older than the rollout that runs (contract 4.1: highest first).
    fn next_to_go(&self, role: &RoleFact, ordinals: &Ordinals<'_>) -> Option<u32> {
        let since = self.deployment.rollout?;
        let old = |members: &[&Arc<PodFact>]| members.iter().any(|pod| pod.created < since && pod.deletion.is_none());
        let in_slot = |ordinal: u32| self.deployment.slots.iter().any(|slot| slot.role == role.name && slot.ordinal == ordinal);
        ordinals.iter().rev().find(|(ordinal, members)| old(members) && !in_slot(**ordinal)).map(|(ordinal, _)| *ordinal)
    }

    fn target(&mut self, replica: &Replica<'_>, rank: Option<u32>, next_to_go: bool) {
        let key = self.key(replica, rank);
        let mut memory = Memory::advance(self.before.remove(&key), &key, replica.members, self.lens.now);
        let observed = observe(replica, self.lens.membership);
        let verdict = self.lens.verdicts.verdict(&memory.id);
        let (phase, reasons) = phase_of(&observed, &verdict, memory.served, memory.restarted);
        let going = phase == GroupPhase::Draining;
        memory.leaving_since = going.then(|| leaving_since(memory.leaving_since, replica.members, self.lens.now));
        let group = ReplicaGroup {
            key: key.clone(),
            id: memory.id.clone(),
            ordinal: Some(replica.ordinal),
            phase,
            reasons,
            leader: observed.leader.and_then(|leader| self.leader(replica, leader)),
            members: replica.members.iter().map(|pod| member(pod)).collect(),
            managed: managed(replica, &observed),
            drain: memory.leaving_since.and_then(|since| self.drain(replica, &observed, since)),
            next_to_go: next_to_go && !going,
            broken: observed.broken,
            proof: memory.proof(verdict.proof),
        };
        let learned = memory.learned(verdict.models);
        self.remember(key, memory, group.serving());
        self.targets.push(Target {
            probe: wants_probe(&observed, self.past.groups.get(&group.key).is_some_and(|memory| memory.served)) && group.leader.is_some(),
            role: Some(replica.role.name.clone()),
            learned,
            declared: observed.leader.map(|leader| leader.declared_names.clone()).unwrap_or_default(),
            group: Arc::new(group),
        });
    }

    /// How the group ends, if it was told to go.
    fn drain(&self, replica: &Replica<'_>, observed: &Observed<'_>, since: SystemTime) -> Option<DrainBudget> {
        let leader = observed.leader.filter(|_| !observed.leaving.is_empty())?;
        // A replica that lost a member in the middle of its retirement may hang now: its streams do not wait for the deadline.
        let retiring = !observed.broken && observed.leaving.iter().all(|reason| *reason == Reason::Retiring);
        let deadline = self.deployment.retirement.as_ref().and_then(|retirement| retirement.deadline);
        Some(drain_budget(since, leader, replica.members.len(), retiring.then(|| deadline.unwrap_or(since + RETIREMENT))))
    }

    fn router(&mut self, service: Option<&ServiceFact>) {
        let key = GroupKey(format!("{}/{}/router", self.deployment.namespace, self.deployment.name).into());
        let id = router::incarnation(&key, service);
        let mut memory = self.before.remove(&key).filter(|memory| memory.id == id).unwrap_or_else(|| Memory::of_service(id));
        let verdict = self.lens.verdicts.verdict(&memory.id);
        let group = router::group(self.deployment, service, router::Past { key: &key, memory: &mut memory, now: self.lens.now }, &verdict);
        let learned = memory.learned(verdict.models);
        self.remember(key, memory, group.serving());
        self.targets.push(Target {
            probe: group.leader.is_some() && !self.deployment.deleting,
            role: None,
            learned,
            declared: Vec::new(),
            group: Arc::new(group),
        });
    }

    fn remember(&mut self, key: GroupKey, mut memory: Memory, serving: bool) {
        if serving && let Some(took) = memory.serves(self.lens.now) {
            self.past.last_replacement = Some(took);
        }
        self.past.groups.insert(key, memory);
    }

    fn key(&self, replica: &Replica<'_>, rank: Option<u32>) -> GroupKey {
        let DeploymentFact { namespace, name, .. } = self.deployment;
        let place = format!("{namespace}/{name}/{}/{}", replica.role.name, replica.ordinal);
        GroupKey(rank.map_or_else(|| place.clone(), |rank| format!("{place}/{rank}")).into())
    }

    fn leader(&self, replica: &Replica<'_>, pod: &PodFact) -> Option<Leader> {
        let first_role = self.deployment.roles.first().is_some_and(|role| role.name == replica.role.name);
        let port = replica.service.and_then(|service| service.target_on(pod)).or_else(|| pod.ports.first().map(|(_, number)| *number))?;
        let https = pod.https || first_role && self.deployment.endpoint_https;
        Some(Leader { pod: pod.name.clone(), uid: Some(pod.uid.clone()), address: Address { https, host: pod.ip.clone()?, port } })
    }
}

/// What is deployed decides; before there is a Pod, what will be (contract 3.3).
fn managed(replica: &Replica<'_>, observed: &Observed<'_>) -> bool {
    let any = observed.leader.or_else(|| replica.members.first().copied());
    any.map_or(!replica.role.take_over, |pod| pod.managed)
}

fn member(pod: &Arc<PodFact>) -> Member {
    Member {
        pod: pod.name.clone(),
        uid: pod.uid.clone(),
        index: pod.seat().unwrap_or(u32::MAX),
        ready: pod.ready,
        deleting: pod.deletion.is_some(),
    }
}
