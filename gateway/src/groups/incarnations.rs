//! The run-time states of incarnations, carried from one table to the next.
//!
//! Owns: which incarnations have state, and when that state ends. Must not: pair them with pools (`table` does). A new snapshot costs a few
//! atomic stores for each group of the pools that are as they were, and look-ups only for the groups of those that changed. Next step:
//! `table`.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::SystemTime;

use discovery::snapshot::{GroupId, Pool, ReplicaGroup, Snapshot};

use crate::groups::state::GroupState;
use crate::groups::table::Table;

/// By incarnation.
pub(super) type States = HashMap<GroupId, Arc<GroupState>>;

/// Makes states and keeps sight of those that still have requests.
#[derive(Debug)]
pub(super) struct Incarnations {
    workers: usize,
    /// Incarnations that left the snapshot while requests still ran there.
    retired: Mutex<HashMap<GroupId, Weak<GroupState>>>,
}

impl Incarnations {
    /// `workers`: threads that keep idle connections.
    pub(super) fn new(workers: usize) -> Self {
        Self { workers, retired: Mutex::default() }
    }

    /// The states of every incarnation of `snapshot`, brought up to date, and those of `previous` that it has no more, in the order of the
    /// previous snapshot. `now`: what drain budgets are measured by.
    pub(super) fn carry(&self, previous: &Table, snapshot: &Snapshot, now: SystemTime) -> (States, Vec<Arc<GroupState>>) {
        let mut states = previous.states().clone();
        for (entry, pool) in previous.pools().filter_map(|entry| Some((entry, snapshot.pools.get(&entry.pool.model)?))) {
            if Arc::ptr_eq(&entry.pool, pool) {
                pool.groups.iter().zip(&entry.members).for_each(|(group, state)| state.update(group, now));
            }
        }
        let mut present = HashSet::new();
        for group in differing(snapshot, &previous.snapshot) {
            if present.insert(&group.id) {
                self.bring(&mut states, group, now);
            }
        }
        let mut going: Vec<&GroupId> =
            differing(&previous.snapshot, snapshot).map(|group| &group.id).filter(|id| !present.contains(id)).collect();
        if !going.is_empty() {
            let wanted: HashSet<&GroupId> = going.iter().copied().collect();
            // A group that lost one of its names stays where it has others.
            let elsewhere: HashSet<&GroupId> = groups_of(snapshot).map(|group| &group.id).filter(|id| wanted.contains(id)).collect();
            going.retain(|id| !elsewhere.contains(id));
        }
        let gone = going.into_iter().filter_map(|id| states.remove(id)).collect();
        (states, gone)
    }

    /// Tells these that they are gone. Those of earlier times whose last request has ended are forgotten.
    pub(super) fn retire(&self, gone: &[Arc<GroupState>]) {
        let mut retired = self.retired.lock().unwrap_or_else(PoisonError::into_inner);
        // Once, not for each one that goes: when a whole source goes, they are thousands.
        retired.retain(|_, group| group.strong_count() > 0);
        for state in gone {
            state.retire();
            retired.insert(state.id.clone(), Arc::downgrade(state));
        }
    }

    /// Wakes the requests at incarnations that are in no snapshot any more.
    pub(super) fn nudge_retired(&self) {
        let retired = self.retired.lock().unwrap_or_else(PoisonError::into_inner);
        retired.values().filter_map(Weak::upgrade).for_each(|group| group.nudge());
    }

    /// Those that are kept in sight, also such whose last request has ended since.
    #[cfg(test)]
    pub(super) fn retired(&self) -> usize {
        self.retired.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    fn bring(&self, states: &mut States, group: &Arc<ReplicaGroup>, now: SystemTime) {
        match states.get(&group.id).cloned().or_else(|| self.come_back(&group.id)) {
            Some(state) => {
                state.update(group, now);
                states.insert(group.id.clone(), state);
            }
            None => {
                states.insert(group.id.clone(), Arc::new(GroupState::new(group, self.workers, now)));
            }
        }
    }

    /// An incarnation that was gone and is shown again while its requests still run: they are told that nothing is lost.
    fn come_back(&self, id: &GroupId) -> Option<Arc<GroupState>> {
        self.retired.lock().unwrap_or_else(PoisonError::into_inner).remove(id)?.upgrade()
    }
}

/// Groups of the pools of `one` that `other` does not have as the same object. Pools without a name are few and always among them.
fn differing<'a>(one: &'a Snapshot, other: &'a Snapshot) -> impl Iterator<Item = &'a Arc<ReplicaGroup>> {
    let same = |pool: &&Arc<Pool>| other.pools.get(&pool.model).is_some_and(|theirs| Arc::ptr_eq(theirs, pool));
    one.pools.values().filter(move |pool| !same(pool)).chain(&one.unnamed).flat_map(|pool| &pool.groups)
}

fn groups_of(snapshot: &Snapshot) -> impl Iterator<Item = &Arc<ReplicaGroup>> {
    snapshot.pools.values().chain(&snapshot.unnamed).flat_map(|pool| &pool.groups)
}
