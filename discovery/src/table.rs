//! Who owns which served name, and the pool behind each: kept up to date deployment by deployment.
//!
//! Owns: claims, owners, conflicts, pins and merges. Must not: judge groups, or publish (`publish` does). A change of one deployment
//! rebuilds the pools of its own names only. Next step: `publish`.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use config::{DeploymentRef, NameRules, Pin};

use crate::fact::Str;
use crate::snapshot::{NameConflict, Outlook, Pool, Reason, ReplicaGroup, Snapshot};

/// What the table keeps of a deployment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its name.
    pub reference: DeploymentRef,
    /// Deployments that leave or can never serve stand behind all others.
    pub yields: bool,
    /// Age decides among the rest.
    pub created: SystemTime,
    /// Its served names, primary first.
    pub names: Vec<Str>,
    /// Some of its names are not known yet.
    pub pending: bool,
    /// Whether waiting for it makes sense.
    pub outlook: Outlook,
    /// Length of its last replacement.
    pub last_replacement: Option<Duration>,
    /// Its groups, each with the names it serves (`None`: all of the deployment's).
    pub groups: Vec<(Arc<ReplicaGroup>, Option<Vec<Str>>)>,
}

/// By precedence: the first of a name's claims owns it.
type Claim = (bool, SystemTime, DeploymentRef, Str);

/// All deployments and the pools made of them.
#[derive(Debug, Default)]
pub struct Table {
    rules: NameRules,
    entries: HashMap<Str, Entry>,
    claims: BTreeMap<Str, BTreeSet<Claim>>,
    owners: BTreeMap<Str, Vec<Str>>,
    pools: BTreeMap<Str, Arc<Pool>>,
    conflicts: BTreeMap<Str, NameConflict>,
    reached_by: BTreeMap<Str, Str>,
    unnamed: BTreeMap<DeploymentRef, Arc<Pool>>,
    pending: BTreeSet<Str>,
}

impl Table {
    /// An empty table under these rules.
    pub fn new(rules: NameRules) -> Self {
        Self { rules, ..Self::default() }
    }

    /// Puts a deployment in, or takes it out. Whether that changed anything.
    pub fn set(&mut self, uid: &Str, entry: Option<Entry>) -> bool {
        let before = match &entry {
            Some(entry) => self.entries.insert(uid.clone(), entry.clone()),
            None => self.entries.remove(uid),
        };
        if before == entry {
            return false;
        }
        let mut names: BTreeSet<Str> = BTreeSet::new();
        if let Some(before) = &before {
            self.withdraw(uid, before);
            names.extend(before.names.iter().cloned());
        }
        if let Some(entry) = &entry {
            for name in &entry.names {
                self.claims.entry(name.clone()).or_default().insert(claim(uid, entry));
            }
            names.extend(entry.names.iter().cloned());
            if entry.pending {
                self.pending.insert(uid.clone());
            }
        }
        let mut affected: BTreeSet<Str> = BTreeSet::from([uid.clone()]);
        for name in &names {
            affected.extend(self.claims.get(name).into_iter().flatten().map(|(.., uid)| uid.clone()));
            self.settle(name);
        }
        for uid in &affected {
            self.reach(uid);
        }
        true
    }

    /// Whether names of some deployment are not known yet.
    pub fn names_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// The pools of the present, in the form of a snapshot without generation.
    pub fn snapshot(&self, source: &'static str) -> Snapshot {
        Snapshot {
            source,
            pools: self.pools.clone(),
            deployments: self.reached_by.clone(),
            unnamed: self.unnamed.values().cloned().collect(),
            names_pending: self.names_pending(),
            conflicts: self.conflicts.values().cloned().collect(),
            ..Snapshot::default()
        }
    }

    fn withdraw(&mut self, uid: &Str, before: &Entry) {
        for name in &before.names {
            if let Some(claims) = self.claims.get_mut(name) {
                claims.remove(&claim(uid, before));
                if claims.is_empty() {
                    self.claims.remove(name);
                }
            }
        }
        self.reached_by.remove(&*before.reference.to_string());
        self.unnamed.remove(&before.reference);
        self.pending.remove(uid);
    }

    /// Decides who owns `name` and builds its pool.
    fn settle(&mut self, name: &Str) {
        let owners = self.owners_of(name);
        let refused: Vec<DeploymentRef> = self
            .claims
            .get(name)
            .into_iter()
            .flatten()
            .filter(|(.., uid)| !owners.contains(uid))
            .map(|(_, _, reference, _)| reference.clone())
            .collect();
        let pool = self.pool(name, &owners);
        let owner = owners.first().and_then(|uid| self.entries.get(uid)).map(|entry| entry.reference.clone());
        let conflict = owner.filter(|_| !refused.is_empty()).map(|owner| NameConflict { model: name.clone(), owner, refused });
        if let Some(conflict) = &conflict
            && self.conflicts.get(name) != Some(conflict)
        {
            let NameConflict { model, owner, refused } = conflict;
            let refused: Vec<String> = refused.iter().map(ToString::to_string).collect();
            tracing::warn!(%model, %owner, refused = refused.join(","), "several deployments claim one served name");
        }
        replace(&mut self.conflicts, name, conflict);
        replace(&mut self.owners, name, (!owners.is_empty()).then_some(owners));
        replace(&mut self.pools, name, pool);
    }

    /// UIDs of the owners, the first one first; several only where the configuration merges them.
    fn owners_of(&self, name: &Str) -> Vec<Str> {
        let Some(claims) = self.claims.get(name) else { return Vec::new() };
        if let Some(merged) = self.rules.merge.iter().find(|merged| merged.model == **name) {
            return claims
                .iter()
                .filter(|(_, _, reference, _)| merged.deployments.contains(reference))
                .map(|(.., uid)| uid.clone())
                .collect();
        }
        let allowed = |reference: &DeploymentRef| match self.rules.pins.get(&**name) {
            None => true,
            Some(Pin::Namespace(namespace)) => reference.namespace == *namespace,
            Some(Pin::Deployment(pinned)) => reference == pinned,
        };
        claims.iter().find(|(_, _, reference, _)| allowed(reference)).map(|(.., uid)| uid.clone()).into_iter().collect()
    }

    fn pool(&self, name: &Str, owners: &[Str]) -> Option<Arc<Pool>> {
        let entries: Vec<&Entry> = owners.iter().filter_map(|uid| self.entries.get(uid)).collect();
        let first = entries.first()?;
        let serves = |names: &Option<Vec<Str>>| names.as_ref().is_none_or(|names| names.contains(name));
        let groups: Vec<Arc<ReplicaGroup>> =
            entries.iter().flat_map(|entry| &entry.groups).filter(|(_, names)| serves(names)).map(|(group, _)| group.clone()).collect();
        let coming = entries.iter().any(|entry| entry.outlook == Outlook::Coming);
        let pool = Pool {
            model: name.clone(),
            deployment: Some(first.reference.clone()),
            groups,
            outlook: if coming { Outlook::Coming } else { Outlook::Nothing },
            last_replacement: entries.iter().filter_map(|entry| entry.last_replacement).max(),
        };
        Some(reuse(self.pools.get(name), pool))
    }

    /// By which name a deployment is reached; without one its groups are only shown.
    fn reach(&mut self, uid: &Str) {
        let Some(entry) = self.entries.get(uid) else { return };
        let owned = entry.names.iter().find(|name| self.owners.get(*name).is_some_and(|owners| owners.contains(uid))).cloned();
        let shown = owned.is_none().then(|| {
            let refused = !entry.names.is_empty();
            let groups = entry.groups.iter().map(|(group, _)| if refused { in_conflict(group) } else { group.clone() }).collect();
            let pool = Pool {
                model: Str::from(""),
                deployment: Some(entry.reference.clone()),
                groups,
                outlook: entry.outlook,
                last_replacement: entry.last_replacement,
            };
            reuse(self.unnamed.get(&entry.reference), pool)
        });
        let reference = entry.reference.clone();
        replace(&mut self.reached_by, &Str::from(reference.to_string()), owned);
        replace(&mut self.unnamed, &reference, shown);
    }
}

fn claim(uid: &Str, entry: &Entry) -> Claim {
    (entry.yields, entry.created, entry.reference.clone(), uid.clone())
}

fn in_conflict(group: &Arc<ReplicaGroup>) -> Arc<ReplicaGroup> {
    let mut group = ReplicaGroup::clone(group);
    group.reasons.insert(0, Reason::NameConflict);
    Arc::new(group)
}

/// An unchanged pool keeps its `Arc`, so that readers can compare pointers.
fn reuse(before: Option<&Arc<Pool>>, pool: Pool) -> Arc<Pool> {
    match before {
        Some(before) if **before == pool => before.clone(),
        _ => Arc::new(pool),
    }
}

fn replace<K: Ord + Clone, V>(map: &mut BTreeMap<K, V>, key: &K, value: Option<V>) {
    match value {
        Some(value) => map.insert(key.clone(), value),
        None => map.remove(key),
    };
}

#[cfg(test)]
impl Table {
    /// Sizes of everything that is kept, by name.
    pub(crate) fn held(&self) -> Vec<(&'static str, usize)> {
        vec![
            ("entries", self.entries.len()),
            ("claims", self.claims.values().map(BTreeSet::len).sum()),
            ("names claimed", self.claims.len()),
            ("owners", self.owners.values().map(Vec::len).sum()),
            ("pools", self.pools.len()),
            ("conflicts", self.conflicts.len()),
            ("reached by", self.reached_by.len()),
            ("unnamed", self.unnamed.len()),
            ("pending", self.pending.len()),
        ]
    }
}
