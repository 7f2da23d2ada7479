//! What is known of the cluster, by UID: a pure reducer over changes, and the answer to "which deployments did that touch".
//!
//! Owns: the facts and their look-ups by owner; the side buffer in which a relist grows until its end. Must not: judge, read a clock, or
//! do IO. Bounds: one fact an object of the API server; nothing else is kept. Next step: `view`.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use crate::fact::{DeploymentFact, Fact, Kind, PodFact, ServiceFact, Str};

/// One list-watch: a relist replaces what the same scope said before and nothing else. A namespace, `*` for all, or a folder.
pub type Scope = Str;

/// One thing that a source saw.
#[derive(Debug, Clone)]
pub enum Change {
    /// A list of this kind began; what an unfinished one gathered is forgotten.
    RelistBegin(Kind),
    /// An object of the list that runs.
    RelistItem(Fact),
    /// An object of the list that runs could not be read: what was known of it stays.
    RelistKeep(Kind, Str),
    /// The list is complete: objects of this scope that it did not name are gone.
    RelistEnd(Kind),
    /// Added or modified.
    Upsert(Fact),
    /// Deleted.
    Remove(Kind, Str),
}

/// UIDs of deployments whose view has to be computed again.
pub type Touched = HashSet<Str>;

/// All facts.
#[derive(Debug, Default)]
pub struct Index {
    deployments: HashMap<Str, Arc<DeploymentFact>>,
    pods: HashMap<Str, Arc<PodFact>>,
    services: HashMap<Str, Arc<ServiceFact>>,
    pods_of: HashMap<Str, BTreeSet<Str>>,
    services_of: HashMap<Str, BTreeSet<Str>>,
    /// Deployments by namespace and name: a recreated one is there twice until the old one is gone.
    namesakes: HashMap<(Str, Str), BTreeSet<Str>>,
    /// Which scope vouches for an object.
    scopes: HashMap<(Kind, Scope), HashSet<Str>>,
    relists: HashMap<(Kind, Scope), HashMap<Str, Fact>>,
    /// Scopes of which a list of a kind was completed at least once.
    listed: HashSet<(Kind, Scope)>,
}

impl Index {
    /// Takes in one change.
    pub fn apply(&mut self, scope: &Scope, change: Change, touched: &mut Touched) {
        match change {
            Change::RelistBegin(kind) => {
                self.relists.insert((kind, scope.clone()), HashMap::new());
            }
            Change::RelistItem(fact) => {
                let buffer = self.relists.entry((fact.kind(), scope.clone())).or_default();
                buffer.insert(fact.uid().clone(), fact);
            }
            Change::RelistKeep(kind, uid) => {
                if let Some(fact) = self.known(kind, &uid) {
                    self.relists.entry((kind, scope.clone())).or_default().insert(uid, fact);
                }
            }
            Change::RelistEnd(kind) => self.finish(kind, scope, touched),
            Change::Upsert(fact) => self.upsert(scope, fact, touched),
            Change::Remove(kind, uid) => self.remove(scope, kind, &uid, touched),
        }
    }

    /// Whether every kind of `scope` was listed completely at least once.
    pub fn listed(&self, scope: &Scope) -> bool {
        Kind::ALL.iter().all(|kind| self.listed.contains(&(*kind, scope.clone())))
    }

    /// UID of every deployment.
    pub fn deployments(&self) -> impl Iterator<Item = &Str> {
        self.deployments.keys()
    }

    /// Whether no younger deployment has the same namespace and name.
    pub fn is_latest(&self, deployment: &DeploymentFact) -> bool {
        let namesakes = self.namesakes.get(&(deployment.namespace.clone(), deployment.name.clone()));
        let mut others = namesakes.into_iter().flatten().filter_map(|uid| self.deployments.get(uid));
        others.all(|other| (other.created, &other.uid) <= (deployment.created, &deployment.uid))
    }

    /// One deployment.
    pub fn deployment(&self, uid: &str) -> Option<&Arc<DeploymentFact>> {
        self.deployments.get(uid)
    }

    /// Pods whose controller is the deployment with this UID, by Pod UID.
    pub fn pods_of(&self, uid: &str) -> impl Iterator<Item = &Arc<PodFact>> {
        self.pods_of.get(uid).into_iter().flatten().filter_map(|pod| self.pods.get(pod))
    }

    /// The Service of this name whose controller is the deployment with this UID.
    pub fn service_of(&self, uid: &str, name: &str) -> Option<&Arc<ServiceFact>> {
        self.services_of.get(uid)?.iter().filter_map(|service| self.services.get(service)).find(|service| &*service.name == name)
    }

    /// Objects of each kind: deployments, Pods, Services.
    pub fn sizes(&self) -> [usize; 3] {
        [self.deployments.len(), self.pods.len(), self.services.len()]
    }

    fn known(&self, kind: Kind, uid: &str) -> Option<Fact> {
        match kind {
            Kind::Deployment => self.deployments.get(uid).cloned().map(Fact::Deployment),
            Kind::Pod => self.pods.get(uid).cloned().map(Fact::Pod),
            Kind::Service => self.services.get(uid).cloned().map(Fact::Service),
        }
    }

    fn finish(&mut self, kind: Kind, scope: &Scope, touched: &mut Touched) {
        let key = (kind, scope.clone());
        let Some(buffer) = self.relists.remove(&key) else { return };
        let gone: Vec<Str> = self.scopes.get(&key).into_iter().flatten().filter(|uid| !buffer.contains_key(*uid)).cloned().collect();
        for uid in gone {
            self.remove(scope, kind, &uid, touched);
        }
        for fact in buffer.into_values() {
            self.upsert(scope, fact, touched);
        }
        self.listed.insert(key);
    }

    fn upsert(&mut self, scope: &Scope, fact: Fact, touched: &mut Touched) {
        self.scopes.entry((fact.kind(), scope.clone())).or_default().insert(fact.uid().clone());
        match fact {
            Fact::Deployment(new) => {
                if self.deployments.get(&new.uid) != Some(&new) {
                    let namesakes = self.namesakes.entry((new.namespace.clone(), new.name.clone())).or_default();
                    namesakes.insert(new.uid.clone());
                    touched.extend(namesakes.iter().cloned());
                    self.deployments.insert(new.uid.clone(), new);
                }
            }
            Fact::Pod(new) => {
                if self.pods.get(&new.uid) == Some(&new) {
                    return;
                }
                let old = self.pods.insert(new.uid.clone(), new.clone());
                let owners = Owners { before: old.and_then(|old| old.owner.clone()), after: new.owner.clone() };
                owners.relink(&mut self.pods_of, &new.uid, touched);
            }
            Fact::Service(new) => {
                if self.services.get(&new.uid) == Some(&new) {
                    return;
                }
                let old = self.services.insert(new.uid.clone(), new.clone());
                let owners = Owners { before: old.and_then(|old| old.owner.clone()), after: new.owner.clone() };
                owners.relink(&mut self.services_of, &new.uid, touched);
            }
        }
    }

    fn remove(&mut self, scope: &Scope, kind: Kind, uid: &Str, touched: &mut Touched) {
        if let Some(known) = self.scopes.get_mut(&(kind, scope.clone())) {
            known.remove(uid);
        }
        match kind {
            Kind::Deployment => {
                let Some(old) = self.deployments.remove(uid) else { return };
                touched.insert(uid.clone());
                let name = (old.namespace.clone(), old.name.clone());
                if let Some(namesakes) = self.namesakes.get_mut(&name) {
                    namesakes.remove(uid);
                    touched.extend(namesakes.iter().cloned());
                    if namesakes.is_empty() {
                        self.namesakes.remove(&name);
                    }
                }
            }
            Kind::Pod => {
                let before = self.pods.remove(uid).and_then(|old| old.owner.clone());
                Owners { before, after: None }.relink(&mut self.pods_of, uid, touched);
            }
            Kind::Service => {
                let before = self.services.remove(uid).and_then(|old| old.owner.clone());
                Owners { before, after: None }.relink(&mut self.services_of, uid, touched);
            }
        }
    }
}

/// The controller of an object before and after a change.
struct Owners {
    before: Option<Str>,
    after: Option<Str>,
}

impl Owners {
    fn relink(self, links: &mut HashMap<Str, BTreeSet<Str>>, uid: &Str, touched: &mut Touched) {
        if let Some(before) = self.before.filter(|before| Some(before) != self.after.as_ref()) {
            if let Some(owned) = links.get_mut(&before) {
                owned.remove(uid);
                if owned.is_empty() {
                    links.remove(&before);
                }
            }
            touched.insert(before);
        }
        if let Some(after) = self.after {
            links.entry(after.clone()).or_default().insert(uid.clone());
            touched.insert(after);
        }
    }
}

#[cfg(test)]
#[path = "index_tests.rs"]
mod tests;
