//! What the gateway is shown, and when: snapshots behind delayed watch events.
//!
//! Owns: the delay line of each incarnation (its own events in order, those of different incarnations in any order, so that a new one can be
//! seen before the old one is gone), and the table's rebuilds. Stands where `discovery::publish` and `app::follow` stand.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use discovery::snapshot::{GroupId, Outlook, Pool, ReplicaGroup, Snapshot};
use gateway::gateway::Gateway;
use gateway::groups::state::GroupState;
use tokio::time::{Instant, sleep_until};

use crate::leader::Scene;

/// The served name.
pub(crate) const MODEL: &str = "m";

/// See the module.
#[derive(Debug)]
pub(crate) struct Views {
    scene: Arc<Scene>,
    gateway: Arc<Gateway>,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    /// By place and incarnation: the order of a pool.
    shown: BTreeMap<(usize, GroupId), Arc<ReplicaGroup>>,
    /// When the last event of an incarnation arrives.
    last: BTreeMap<GroupId, Instant>,
    generation: u64,
    /// The deployment is deleted, as far as the snapshot says.
    absent: bool,
    /// A group that was absent comes back with another state.
    states: BTreeMap<(GroupId, usize), Arc<GroupState>>,
}

impl Views {
    /// Nothing shown yet.
    pub(crate) fn new(scene: Arc<Scene>, gateway: Arc<Gateway>) -> Arc<Self> {
        Arc::new(Self { scene, gateway, inner: Mutex::default() })
    }

    /// The wall clock of the run.
    pub(crate) fn wall(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000) + self.scene.journal.now()
    }

    /// Shows `group` of an incarnation (`None`: it is gone) after `delay`, and never before what was shown of it earlier.
    pub(crate) fn show(self: &Arc<Self>, (slot, id): (usize, &GroupId), group: Option<ReplicaGroup>, delay: Duration) {
        let at = {
            let mut inner = self.inner();
            let last = inner.last.entry(id.clone()).or_insert_with(Instant::now);
            *last = (*last).max(Instant::now() + delay);
            *last
        };
        let (views, id) = (self.clone(), id.clone());
        self.scene.tasks.spawn(async move {
            sleep_until(at).await;
            views.apply((slot, id), group);
        });
    }

    /// Run-time state of every incarnation that was ever shown.
    pub(crate) fn states(&self) -> Vec<Arc<GroupState>> {
        self.inner().states.values().cloned().collect()
    }

    fn apply(&self, place: (usize, GroupId), group: Option<ReplicaGroup>) {
        let mut inner = self.inner();
        let says = group.as_ref().map_or("gone".to_owned(), |g| format!("{} {:?} proof {}", g.phase.as_str(), g.reasons, g.proof));
        self.scene.journal.note(format_args!("shown: {} {says}", place.1.0));
        let id = place.1.clone();
        match group {
            Some(group) => _ = inner.shown.insert(place, Arc::new(group)),
            None => _ = inner.shown.remove(&place),
        }
        self.publish(&mut inner);
        self.scene.arrivals.news(&id, self.scene.journal.now());
    }

    /// Takes the deployment out of the snapshot, or puts it back.
    pub(crate) fn set_absent(&self, absent: bool) {
        let mut inner = self.inner();
        self.scene.journal.note(format_args!("shown: deployment {}", if absent { "deleted" } else { "back" }));
        inner.absent = absent;
        self.publish(&mut inner);
        for state in inner.states.values() {
            self.scene.arrivals.news(&state.id, self.scene.journal.now());
        }
    }

    fn publish(&self, inner: &mut Inner) {
        inner.generation += 1;
        let snapshot = self.snapshot(inner);
        self.gateway.tables.rebuild(Arc::new(snapshot), &self.gateway.config.load(), self.wall());
        for state in self.gateway.tables.load().groups() {
            inner.states.insert((state.id.clone(), Arc::as_ptr(state) as usize), state.clone());
        }
    }

    fn snapshot(&self, inner: &Inner) -> Snapshot {
        let model: Arc<str> = MODEL.into();
        let pool = Pool {
            model: model.clone(),
            deployment: None,
            groups: inner.shown.values().cloned().collect(),
            outlook: Outlook::Coming,
            last_replacement: None,
        };
        Snapshot {
            generation: inner.generation,
            source: "simulation",
            published: Some(self.wall()),
            pools: if inner.absent { BTreeMap::new() } else { BTreeMap::from([(model, Arc::new(pool))]) },
            ..Snapshot::default()
        }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
