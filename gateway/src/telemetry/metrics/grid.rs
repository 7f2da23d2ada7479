//! Counters over two or three closed sets that become series on first use and cost one atomic addition afterwards.
//!
//! Owns: the cells. Must not: know which family it is; the caller resolves a missing cell.

use std::sync::OnceLock;

use prometheus::IntCounter;

/// A fixed number of counters, each resolved on first use.
#[derive(Debug)]
pub(super) struct Grid {
    cells: Box<[OnceLock<IntCounter>]>,
}

impl Grid {
    /// `size`: the product of the label sets' sizes.
    pub(super) fn new(size: usize) -> Self {
        Self { cells: (0..size).map(|_| OnceLock::new()).collect() }
    }

    /// The counter of a cell; `resolve` is called once. `place` is below the size by how callers compute it; beyond it the counter is
    /// resolved each time.
    pub(super) fn at(&self, place: usize, resolve: impl Fn() -> IntCounter) -> IntCounter {
        match self.cells.get(place) {
            Some(cell) => cell.get_or_init(resolve).clone(),
            None => resolve(),
        }
    }

    /// What a cell has counted; 0 while it was not used.
    pub(super) fn value(&self, place: usize) -> u64 {
        self.cells.get(place).and_then(OnceLock::get).map_or(0, IntCounter::get)
    }
}
