//! The objects, their versions and the log of changes: the only writer.
//!
//! Owns: versions, conflicts, the order of changes, deletion until nothing holds an object. Must not: speak HTTP. What an object looks like
//! after a change is decided in `object`; who goes with its owner, in `garbage`.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use serde_json::Value;
use tokio::sync::watch;

use super::garbage;
use super::log::{Change, Log};
use super::object::{self, Fresh, meta};
use super::query::Selector;
use super::refusal::Refusal;
use super::route::{Kind, Part};

/// Names an object.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// Its kind.
    pub kind: Kind,
    /// Empty for kinds without.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
}

impl Key {
    /// A key of these parts.
    pub fn new(kind: Kind, namespace: &str, name: &str) -> Self {
        Self { kind, namespace: namespace.to_owned(), name: name.to_owned() }
    }
}

/// How an object is to be deleted.
#[derive(Debug, Clone, Default)]
pub struct Deletion {
    /// `gracePeriodSeconds`.
    pub grace: Option<u64>,
    /// Only if the object has this UID.
    pub uid: Option<String>,
    /// Only if the object has this version.
    pub version: Option<String>,
}

/// All objects of a stand-in.
#[derive(Debug)]
pub struct Store {
    state: Mutex<State>,
    revision: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct State {
    objects: BTreeMap<Key, Arc<Value>>,
    log: Log,
    revision: u64,
    cluster_ips: u16,
}

impl Default for Store {
    fn default() -> Self {
        let store = Self { state: Mutex::default(), revision: watch::Sender::new(0) };
        let namespace = serde_json::json!({"metadata": {"name": "default"}});
        // Nothing refuses a named object in an empty store.
        store.create(Kind::Namespace, "", namespace).ok();
        store
    }
}

impl Store {
    /// The object as it is now.
    pub fn get(&self, key: &Key) -> Result<Arc<Value>, Refusal> {
        self.state().get(key).cloned()
    }

    /// Creates an object: UID, times and version are made here, its status is the empty one.
    pub fn create(&self, kind: Kind, namespace: &str, body: Value) -> Result<Arc<Value>, Refusal> {
        let mut state = self.state();
        state.cluster_ips = state.cluster_ips.wrapping_add(1);
        let [high, low] = state.cluster_ips.to_be_bytes();
        let fresh = Fresh {
            uid: uid(rand::random()),
            now: time_in(0),
            suffix: format!("{:05x}", rand::random::<u32>() & 0xf_ffff),
            cluster_ip: Ipv4Addr::new(127, 96, high, low).to_string(),
        };
        let object = object::created(kind, namespace, body, fresh)?;
        let key = Key::new(kind, namespace, meta(&object, "name"));
        if state.objects.contains_key(&key) {
            return Err(Refusal::exists(kind, &key.name));
        }
        Ok(self.written(state.commit(key, object, false)))
    }

    /// Replaces the object or its status, if the body's version (where it has one) is the present one. No change, no new version.
    pub fn replace(&self, key: &Key, body: Value) -> Result<Arc<Value>, Refusal> {
        self.change(key, Part::Whole, |_| body)
    }

    /// Replaces the status.
    pub fn replace_status(&self, key: &Key, body: Value) -> Result<Arc<Value>, Refusal> {
        self.change(key, Part::Status, |_| body)
    }

    /// Merges a patch (RFC 7386) into the object.
    pub fn patch(&self, key: &Key, patch: Value) -> Result<Arc<Value>, Refusal> {
        self.change(key, Part::Whole, |old| merged(old, patch))
    }

    /// Merges a patch into the status; what it says of anything else is ignored.
    pub fn patch_status(&self, key: &Key, patch: Value) -> Result<Arc<Value>, Refusal> {
        self.change(key, Part::Status, |old| merged(old, patch))
    }

    /// Binds a Pod to a node; it must not be bound yet.
    pub fn bind(&self, key: &Key, node: &str) -> Result<Arc<Value>, Refusal> {
        if self.get(key)?["spec"]["nodeName"].as_str().is_some_and(|bound| !bound.is_empty()) {
            return Err(Refusal::conflict(key.kind, &key.name, "the Pod is already assigned to a node"));
        }
        self.patch(key, serde_json::json!({"spec": {"nodeName": node}}))
    }

    /// Deletes as a server does: a bound Pod and whatever has finalizers is only marked; dependants go with the last of their owners.
    /// Returns the object as it was left, or as it was last.
    pub fn delete(&self, key: &Key, deletion: &Deletion) -> Result<Arc<Value>, Refusal> {
        let mut state = self.state();
        let object = state.get(key)?.clone();
        let wrong = |wanted: &Option<String>, field| wanted.as_deref().is_some_and(|wanted| wanted != meta(&object, field));
        if wrong(&deletion.uid, "uid") || wrong(&deletion.version, "resourceVersion") {
            return Err(Refusal::conflict(key.kind, &key.name, "the precondition of the deletion does not hold"));
        }
        let left = state.delete(key.clone(), deletion.grace);
        Ok(self.written(left.unwrap_or(object)))
    }

    /// Every version until now becomes too old to watch from, as after a compaction.
    pub fn expire(&self) {
        let mut state = self.state();
        let now = state.revision;
        state.log.forget(now);
    }

    /// The present version.
    pub fn revision(&self) -> u64 {
        self.state().revision
    }

    /// The objects of a kind, ordered by namespace and name, and the version of this view.
    pub(super) fn list(&self, kind: Kind, namespace: Option<&str>, selector: &Selector) -> (Vec<(Key, Arc<Value>)>, u64) {
        let state = self.state();
        let all = state.objects.range(Key::new(kind, namespace.unwrap_or_default(), "")..);
        let here = all.take_while(|(key, _)| key.kind == kind && namespace.is_none_or(|namespace| key.namespace == namespace));
        let wanted = here.filter(|(_, object)| selector.matches(object));
        (wanted.map(|(key, object)| (key.clone(), object.clone())).collect(), state.revision)
    }

    /// What changed after a version.
    pub(super) fn changes_after(&self, revision: u64) -> Result<Vec<Arc<Change>>, Refusal> {
        self.state().log.after(revision)
    }

    /// Tells each new version.
    pub(super) fn revisions(&self) -> watch::Receiver<u64> {
        self.revision.subscribe()
    }

    fn change(&self, key: &Key, part: Part, make: impl FnOnce(&Value) -> Value) -> Result<Arc<Value>, Refusal> {
        let mut state = self.state();
        let old = state.get(key)?.clone();
        let new = make(&old);
        for field in ["resourceVersion", "uid"] {
            let sent = meta(&new, field);
            if !sent.is_empty() && sent != meta(&old, field) {
                return Err(Refusal::conflict(
                    key.kind,
                    &key.name,
                    "the object has been modified; please apply your changes to the latest version",
                ));
            }
        }
        let new = object::replaced(&old, new, part);
        if new == *old {
            return Ok(old);
        }
        Ok(self.written(state.put(key.clone(), new)))
    }

    /// Wakes watches; called while the state is locked, so that versions are told in order.
    fn written(&self, object: Arc<Value>) -> Arc<Value> {
        self.revision.send_modify(|revision| *revision += 1);
        object
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn get(&self, key: &Key) -> Result<&Arc<Value>, Refusal> {
        self.objects.get(key).ok_or_else(|| Refusal::not_found(key.kind, &key.name))
    }

    /// Stores a changed object, or removes it if this change was the last thing it waited for.
    fn put(&mut self, key: Key, object: Value) -> Arc<Value> {
        if !object::released(&object) {
            return self.commit(key, object, false);
        }
        let owner = meta(&object, "uid").to_owned();
        let last = self.commit(key, object, true);
        self.collect(&owner);
        last
    }

    fn delete(&mut self, key: Key, asked: Option<u64>) -> Option<Arc<Value>> {
        let standing = self.objects.get(&key)?.clone();
        let mut object = (*standing).clone();
        let grace = object::grace(key.kind, &object, asked);
        object::condemn(&mut object, grace, time_in(grace));
        // Already condemned, and not shortened by this one.
        if object == *standing { Some(standing) } else { Some(self.put(key, object)) }
    }

    /// Deletes the dependants of an owner that is gone. Depth is bounded by the objects: each step removes or marks one.
    fn collect(&mut self, owner: &str) {
        for key in garbage::orphaned(&self.objects, owner) {
            self.delete(key, None);
        }
    }

    fn commit(&mut self, key: Key, mut object: Value, removed: bool) -> Arc<Value> {
        self.revision += 1;
        object["metadata"]["resourceVersion"] = self.revision.to_string().into();
        let after = Arc::new(object);
        let before = if removed { self.objects.remove(&key) } else { self.objects.insert(key.clone(), after.clone()) };
        self.log.push(Change { revision: self.revision, key, before, after: after.clone(), removed });
        after
    }
}

fn merged(old: &Value, patch: Value) -> Value {
    let mut new = old.clone();
    object::merge(&mut new, patch);
    new
}

/// RFC 3339 in whole seconds, as Kubernetes prints times.
fn time_in(seconds: u64) -> String {
    let now = Timestamp::now();
    let then = now.checked_add(Duration::from_secs(seconds)).unwrap_or(now);
    then.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// A version 4 UUID of random bits.
fn uid(random: u128) -> String {
    let bits = (random & !(0xf << 76) & !(0b11 << 62)) | (0x4 << 76) | (0b10 << 62);
    let hex = format!("{bits:032x}");
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}
