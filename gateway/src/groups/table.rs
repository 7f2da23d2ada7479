//! The routing table: one snapshot paired with the gateway's run-time state, replaced whole when either the snapshot or the configuration
//! changes.
//!
//! Owns: which pools have state, and when that state ends (`incarnations` does so for groups). Readers load one `Arc<Table>` and route by it;
//! the only writer is `Tables::rebuild`. Must not: pick (see `proxy::pick`).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use arc_swap::ArcSwap;
use config::{Config, PoolSettings};
use discovery::snapshot::{GroupId, Outlook, Pool, Snapshot};
use tokio::sync::watch;

use crate::groups::budget::RetryBudget;
use crate::groups::incarnations::{Incarnations, States};
use crate::groups::queue::Queue;
use crate::groups::state::GroupState;
use crate::telemetry::metrics::{Metrics, PoolMetrics};

/// What a pool keeps from snapshot to snapshot.
#[derive(Debug)]
pub struct PoolState {
    /// Requests that wait for a leader.
    pub queue: Arc<Queue>,
    /// Second tries.
    pub budget: RetryBudget,
    /// Resolved handles of its series.
    pub metrics: Arc<PoolMetrics>,
    outlook: watch::Sender<Outlook>,
}

impl PoolState {
    fn new(settings: &PoolSettings, metrics: Arc<PoolMetrics>) -> Self {
        Self { queue: Arc::default(), budget: RetryBudget::new(&settings.retry), metrics, outlook: watch::Sender::new(Outlook::Coming) }
    }

    /// Whether waiting makes sense, with changes.
    pub fn outlook(&self) -> watch::Receiver<Outlook> {
        self.outlook.subscribe()
    }

    fn set_outlook(&self, outlook: Outlook) {
        self.outlook.send_if_modified(|now| std::mem::replace(now, outlook) != outlook);
    }
}

/// One pool of the table.
#[derive(Debug)]
pub struct PoolEntry {
    /// As published.
    pub pool: Arc<Pool>,
    /// How it is configured.
    pub settings: Arc<PoolSettings>,
    /// Kept between snapshots.
    pub state: Arc<PoolState>,
    /// State of each of the pool's groups, in their order.
    pub(super) members: Vec<Arc<GroupState>>,
    /// Take new requests as far as discovery knows, and are not about to go.
    pub preferred: Vec<Arc<GroupState>>,
    /// Take new requests, but are likely the next to be replaced.
    pub next_to_go: Vec<Arc<GroupState>>,
}

impl PoolEntry {
    /// Serving groups that our own observations trust.
    pub fn available(&self) -> usize {
        self.preferred.iter().chain(&self.next_to_go).filter(|group| group.trusted()).count()
    }

    /// At least one.
    pub fn any_available(&self) -> bool {
        self.preferred.iter().chain(&self.next_to_go).any(|group| group.trusted())
    }
}

/// Immutable; see the module.
#[derive(Debug, Default)]
pub struct Table {
    /// What it was built from.
    pub snapshot: Arc<Snapshot>,
    pools: HashMap<Arc<str>, Arc<PoolEntry>>,
    groups: States,
}

impl Table {
    /// The pool that serves `model`: its own, else the one that takes every name.
    pub fn pool(&self, model: &str) -> Option<&Arc<PoolEntry>> {
        self.pools.get(model).or_else(|| self.pools.get("*"))
    }

    /// The served name behind `namespace/deployment`.
    pub fn deployment(&self, name: &str) -> Option<&Arc<str>> {
        self.snapshot.deployments.get(name)
    }

    /// The only pool, where there is exactly one.
    pub fn only_pool(&self) -> Option<&Arc<PoolEntry>> {
        let mut all = self.pools.values();
        all.next().filter(|_| all.next().is_none())
    }

    /// Run-time state of an incarnation.
    pub fn group(&self, id: &GroupId) -> Option<&Arc<GroupState>> {
        self.groups.get(id)
    }

    pub(super) fn states(&self) -> &States {
        &self.groups
    }

    /// All incarnations.
    pub fn groups(&self) -> impl Iterator<Item = &Arc<GroupState>> {
        self.groups.values()
    }

    /// All pools.
    pub fn pools(&self) -> impl Iterator<Item = &Arc<PoolEntry>> {
        self.pools.values()
    }
}

/// The current table and its writer.
#[derive(Debug)]
pub struct Tables {
    current: ArcSwap<Table>,
    changed: watch::Sender<u64>,
    incarnations: Incarnations,
    metrics: Arc<Metrics>,
    /// Pool state outlives a pool's absence while somebody waits.
    pools: Mutex<HashMap<Arc<str>, Arc<PoolState>>>,
}

impl Tables {
    /// An empty table. `workers`: threads that keep idle connections.
    pub fn new(workers: usize, metrics: Arc<Metrics>) -> Self {
        let incarnations = Incarnations::new(workers);
        Self { current: ArcSwap::default(), changed: watch::Sender::new(0), incarnations, metrics, pools: Mutex::default() }
    }

    /// The table to route one request by.
    pub fn load(&self) -> arc_swap::Guard<Arc<Table>> {
        self.current.load()
    }

    /// Changes whenever a new table is in place.
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Builds the table of `snapshot` and `config`, puts it in place, tells leaving groups and releases waiters. `now`: what drain budgets
    /// are measured by.
    pub fn rebuild(&self, snapshot: Arc<Snapshot>, config: &Config, now: SystemTime) {
        let previous = self.current.load_full();
        let (groups, gone) = self.incarnations.carry(&previous, &snapshot, now);
        let mut pools = HashMap::with_capacity(snapshot.pools.len());
        let mut states = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
        for (model, pool) in &snapshot.pools {
            let settings = config.pool(model);
            let state = states.entry(model.clone()).or_insert_with(|| Arc::new(PoolState::new(settings, self.metrics.pool(pool)))).clone();
            let entry = reuse(&previous, pool, settings).unwrap_or_else(|| Arc::new(entry(pool, settings, &state, &groups)));
            pools.insert(model.clone(), entry);
        }
        self.current.store(Arc::new(Table { snapshot, pools, groups }));
        let table = self.current.load_full();
        // Whoever is told looks at the table: the new one has to be there.
        self.incarnations.retire(&gone);
        states.retain(|model, state| tell(&table, model, state));
        drop(states);
        self.changed.send_modify(|n| *n += 1);
    }

    /// Wakes every running request, also those at incarnations that are in no snapshot any more.
    pub fn nudge(&self) {
        self.current.load().groups().for_each(|group| group.nudge());
        self.incarnations.nudge_retired();
    }
}

/// The previous entry, where neither the pool nor its settings changed.
fn reuse(previous: &Table, pool: &Arc<Pool>, settings: &Arc<PoolSettings>) -> Option<Arc<PoolEntry>> {
    let entry = previous.pools.get(&pool.model)?;
    (Arc::ptr_eq(&entry.pool, pool) && Arc::ptr_eq(&entry.settings, settings)).then(|| entry.clone())
}

fn entry(pool: &Arc<Pool>, settings: &Arc<PoolSettings>, state: &Arc<PoolState>, groups: &States) -> PoolEntry {
    // Every group of the snapshot has a state, so this drops none.
    let members: Vec<_> = pool.groups.iter().filter_map(|group| groups.get(&group.id).cloned()).collect();
    let serving = pool.groups.iter().zip(&members).filter(|(group, _)| group.serving());
    let (next_to_go, preferred): (Vec<_>, Vec<_>) = serving.partition(|(group, _)| group.next_to_go);
    let states = |groups: Vec<(_, &Arc<GroupState>)>| groups.into_iter().map(|(_, state)| state.clone()).collect();
    let (preferred, next_to_go) = (states(preferred), states(next_to_go));
    PoolEntry { pool: pool.clone(), settings: settings.clone(), state: state.clone(), members, preferred, next_to_go }
}

/// Tells a pool's waiters where they stand; false when the state may be forgotten.
fn tell(table: &Table, model: &Arc<str>, state: &Arc<PoolState>) -> bool {
    match table.pools.get(model) {
        Some(entry) => {
            state.set_outlook(entry.pool.outlook);
            if !state.queue.is_empty() {
                state.queue.open(entry.available(), entry.settings.hold.release);
            }
            true
        }
        None => {
            state.set_outlook(Outlook::Nothing);
            state.queue.open(0, 1);
            !state.queue.is_empty() || Arc::strong_count(state) > 1
        }
    }
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;
