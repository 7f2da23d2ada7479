//! The whole of discovery without IO: changes in, snapshot and probe targets out.
//!
//! Owns: the index, the past of every deployment, its present view, and the table of names. Must not: wait, spawn or read a clock (`mirror`
//! does). A change of one Pod costs the view of one deployment.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use config::Config;

use crate::announce;
use crate::fact::{DeploymentFact, RoleKind, Str};
use crate::index::{Change, Index, Scope, Touched};
use crate::names;
use crate::probe::ProbeTarget;
use crate::snapshot::{GroupId, GroupKey, Outlook, ReplicaGroup, Snapshot};
use crate::table::{Entry, Table};
use crate::view::{self, Lens, Past, Target};

/// What a refresh changed.
#[derive(Debug, Default)]
pub struct Delta {
    /// Something that a reader can see.
    pub any: bool,
    /// A group that took requests should get none, or is to be avoided now: publish at once.
    pub loss: bool,
    /// Targets that the probe did not have, or has otherwise.
    pub start: Vec<ProbeTarget>,
    /// Incarnations that are to be probed no more.
    pub stop: Vec<GroupId>,
}

/// Everything that is known.
#[derive(Debug)]
pub struct State {
    config: Arc<Config>,
    index: Index,
    scopes: Vec<Scope>,
    synced: bool,
    touched: Touched,
    pasts: HashMap<Str, Past>,
    views: HashMap<Str, View>,
    deployment_of: HashMap<GroupId, Str>,
    table: Table,
}

#[derive(Debug, Default)]
struct View {
    names: Vec<Str>,
    targets: Vec<Target>,
    probe: Vec<ProbeTarget>,
}

impl View {
    fn told(&self) -> announce::View<'_> {
        announce::View { names: &self.names, targets: &self.targets }
    }
}

impl State {
    /// Knows nothing; complete once every one of `scopes` was listed.
    pub fn new(config: Arc<Config>, scopes: Vec<Scope>) -> Self {
        let table = Table::new(config.names.clone());
        Self {
            config,
            index: Index::default(),
            scopes,
            synced: false,
            touched: Touched::default(),
            pasts: HashMap::new(),
            views: HashMap::new(),
            deployment_of: HashMap::new(),
            table,
        }
    }

    /// Takes in one change. Nothing is computed before [`State::refresh`].
    pub fn apply(&mut self, scope: &Scope, change: Change) {
        self.index.apply(scope, change, &mut self.touched);
    }

    /// The probe changed its mind about an incarnation.
    pub fn proof_changed(&mut self, id: &GroupId) {
        self.touched.extend(self.deployment_of.get(id).cloned());
    }

    /// A new configuration: everything is computed again.
    pub fn configure(&mut self, config: Arc<Config>) {
        if self.config.names != config.names {
            self.table = Table::new(config.names.clone());
        }
        self.config = config;
        self.touched.extend(self.index.deployments().cloned());
    }

    /// Every scope was listed completely at least once. Before that nothing may be published.
    pub fn synced(&mut self) -> bool {
        self.synced = self.synced || self.scopes.iter().all(|scope| self.index.listed(scope));
        self.synced
    }

    /// Computes what the changes since the last call touched.
    pub fn refresh(&mut self, lens: &Lens<'_>) -> Delta {
        let mut delta = Delta::default();
        let mut touched: Vec<Str> = std::mem::take(&mut self.touched).into_iter().collect();
        // Those that go come first: one that was created anew takes over the place that the old one leaves under the same name.
        touched.sort_by_key(|uid| self.stands(uid));
        for uid in touched {
            let new = self.view(&uid, lens, &mut delta);
            let old = match new {
                Some(view) => self.views.insert(uid.clone(), view),
                None => {
                    self.pasts.remove(&uid);
                    self.table.set(&uid, None);
                    self.views.remove(&uid)
                }
            };
            let new = self.views.get(&uid);
            compare(old.as_ref(), new, &mut delta);
            announce::changes(old.as_ref().map(View::told), new.map(View::told));
            for target in old.iter().flat_map(|view| &view.targets) {
                self.deployment_of.remove(&target.group.id);
            }
            for target in new.iter().flat_map(|view| &view.targets) {
                self.deployment_of.insert(target.group.id.clone(), uid.clone());
            }
        }
        delta
    }

    /// The pools as they are now, without a generation.
    pub fn snapshot(&self, source: &'static str) -> Snapshot {
        self.table.snapshot(source)
    }

    /// Everything that should be probed.
    pub fn probe_targets(&self) -> Vec<ProbeTarget> {
        self.views.values().flat_map(|view| view.probe.iter().cloned()).collect()
    }

    /// Objects known: deployments, Pods, Services.
    pub fn sizes(&self) -> [usize; 3] {
        self.index.sizes()
    }

    /// Whether the deployment exists and no younger one has its name.
    fn stands(&self, uid: &str) -> bool {
        self.index.deployment(uid).is_some_and(|deployment| self.index.is_latest(deployment))
    }

    fn view(&mut self, uid: &Str, lens: &Lens<'_>, delta: &mut Delta) -> Option<View> {
        if !self.stands(uid) {
            return None;
        }
        let deployment = self.index.deployment(uid)?.clone();
        let past = self.pasts.entry(uid.clone()).or_default();
        let mut targets = view::targets(&self.index, &deployment, past, lens);
        if let Some(before) = self.views.get(uid) {
            reuse(&before.targets, &mut targets);
        }
        let served = names::of_deployment(&deployment, &targets, &mut past.names);
        let groups = targets.iter().map(|target| (target.group.clone(), names::of_target(&deployment, target))).collect();
        let names = served.names.clone();
        let entry = Entry {
            reference: view::reference(&deployment),
            yields: deployment.deleting || unservable(&deployment),
            created: deployment.created,
            names: served.names,
            pending: served.pending,
            outlook: outlook(&deployment),
            last_replacement: past.last_replacement,
            groups,
        };
        let probe = targets.iter().filter(|target| target.probe).filter_map(|target| self.probe_target(target, &entry)).collect();
        delta.any |= self.table.set(uid, Some(entry));
        Some(View { names, targets, probe })
    }

    fn probe_target(&self, target: &Target, entry: &Entry) -> Option<ProbeTarget> {
        let group = &target.group;
        let hint = entry.names.first();
        let settings = hint.map_or(&self.config.defaults, |name| self.config.pool(name));
        Some(ProbeTarget {
            id: group.id.clone(),
            key: group.key.clone(),
            address: group.leader.as_ref()?.address.clone(),
            managed: group.managed,
            router: target.role.is_none(),
            model_hint: hint.cloned(),
            settings: settings.clone(),
        })
    }
}

/// A deployment that nothing can use as it is: disaggregated roles without a router (contract section 6).
fn unservable(deployment: &DeploymentFact) -> bool {
    deployment.router.is_none() && deployment.roles.iter().any(|role| role.kind == RoleKind::Disaggregated)
}

fn outlook(deployment: &DeploymentFact) -> Outlook {
    let replicas = deployment.roles.iter().any(|role| role.replicas > 0);
    if deployment.deleting || unservable(deployment) || !replicas { Outlook::Nothing } else { Outlook::Coming }
}

/// Groups that did not change keep their `Arc`.
fn reuse(before: &[Target], now: &mut [Target]) {
    let before: BTreeMap<&GroupKey, &Arc<ReplicaGroup>> = before.iter().map(|target| (&target.group.key, &target.group)).collect();
    for target in now {
        if let Some(old) = before.get(&target.group.key).filter(|old| ***old == target.group) {
            target.group = Arc::clone(old);
        }
    }
}

fn compare(old: Option<&View>, new: Option<&View>, delta: &mut Delta) {
    let empty = View::default();
    let (old, new) = (old.unwrap_or(&empty), new.unwrap_or(&empty));
    let good = |view: &View| -> HashSet<GroupId> {
        let good = view.targets.iter().filter(|target| target.group.serving() && !target.group.next_to_go && !target.group.broken);
        good.map(|target| target.group.id.clone()).collect()
    };
    delta.loss |= !good(old).is_subset(&good(new));
    delta.any |= old.targets.len() != new.targets.len();
    let known = |target: &ProbeTarget| old.probe.iter().any(|old| same(old, target));
    delta.start.extend(new.probe.iter().filter(|target| !known(target)).cloned());
    let wanted = |id: &GroupId| new.probe.iter().any(|target| target.id == *id);
    delta.stop.extend(old.probe.iter().filter(|target| !wanted(&target.id)).map(|target| target.id.clone()));
}

/// Told apart by the pointer of the settings: a new configuration hands every target to the probe again, which compares values.
fn same(old: &ProbeTarget, new: &ProbeTarget) -> bool {
    old.id == new.id
        && old.address == new.address
        && old.managed == new.managed
        && old.model_hint == new.model_hint
        && Arc::ptr_eq(&old.settings, &new.settings)
}

#[cfg(test)]
#[path = "state_tests.rs"]
mod tests;
