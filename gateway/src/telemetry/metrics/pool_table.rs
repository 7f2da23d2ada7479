//! The bounded table of the pools' metrics.
//!
//! Owns: which `pool` label a model name gets. Must not: take a name that did not come from a snapshot's pool (`Metrics::pool` asks for
//! the pool itself). Names are never forgotten: a pool that comes back goes on counting, and the bound holds whatever comes and goes.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use dashmap::DashMap;

use super::families::Families;
use super::pool::{PoolFigures, PoolMetrics};

/// Pool names that get a label of their own; the ones after that share `other`.
pub const MOST_POOLS: usize = 1000;

/// The pools that have been seen, at most `MOST_POOLS` and the two shared ones.
#[derive(Debug)]
pub(super) struct PoolTable {
    /// `None`: requests are not counted.
    families: Option<Arc<Families>>,
    known: DashMap<Arc<str>, Arc<PoolMetrics>>,
    count: AtomicUsize,
    unknown: OnceLock<Arc<PoolMetrics>>,
    other: OnceLock<Arc<PoolMetrics>>,
}

impl PoolTable {
    pub(super) fn new(families: Option<Arc<Families>>) -> Self {
        Self { families, known: DashMap::new(), count: AtomicUsize::new(0), unknown: OnceLock::new(), other: OnceLock::new() }
    }

    /// Totals of every pool that was used, by name; the shared ones at the end.
    pub(super) fn figures(&self) -> Vec<PoolFigures> {
        let mut all: Vec<_> = self.known.iter().filter_map(|p| p.figures()).collect();
        all.sort_by(|a, b| a.pool.cmp(&b.pool));
        all.extend([&self.unknown, &self.other].into_iter().filter_map(OnceLock::get).filter_map(|p| p.figures()));
        all
    }

    // The shared ones begin at their first use: without it they are not worth their series.
    pub(super) fn unknown(&self) -> Arc<PoolMetrics> {
        self.shared(&self.unknown, "unknown")
    }

    fn shared(&self, place: &OnceLock<Arc<PoolMetrics>>, label: &str) -> Arc<PoolMetrics> {
        place.get_or_init(|| Arc::new(PoolMetrics::new(Arc::from(label), self.families.clone()))).clone()
    }

    /// The entry of a pool's name; `other` when the table is full.
    pub(super) fn known(&self, model: &Arc<str>) -> Arc<PoolMetrics> {
        if let Some(found) = self.known.get(model) {
            return found.clone();
        }
        // The count may run ahead of the table when two threads meet here for one new name; the bound still holds.
        if self.count.fetch_add(1, Ordering::Relaxed) >= MOST_POOLS {
            self.count.fetch_sub(1, Ordering::Relaxed);
            return self.shared(&self.other, "other");
        }
        let mut made = false;
        let entry = self.known.entry(model.clone()).or_insert_with(|| {
            made = true;
            Arc::new(PoolMetrics::new(model.clone(), self.families.clone()))
        });
        let found = entry.clone();
        drop(entry);
        if !made {
            self.count.fetch_sub(1, Ordering::Relaxed);
        }
        found
    }
}
