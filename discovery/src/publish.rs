//! The one place where a snapshot becomes visible.
//!
//! Owns: the current `Arc<Snapshot>` and its generation. The writer and the reader are different types; there is one writer. Must not:
//! decide what a snapshot holds. Readers: the gateway's routing table, the admin port.

use std::sync::Arc;
use std::time::SystemTime;

use arc_swap::ArcSwap;
use tokio::sync::watch;

use crate::snapshot::{Generation, Snapshot};

/// The writing side.
#[derive(Debug)]
pub struct Publisher {
    current: Arc<ArcSwap<Snapshot>>,
    generation: watch::Sender<Generation>,
}

/// The reading side; clones are cheap.
#[derive(Debug, Clone)]
pub struct SnapshotReader {
    current: Arc<ArcSwap<Snapshot>>,
    generation: watch::Receiver<Generation>,
}

/// A writer and a reader of an empty snapshot of generation 0. Nobody knows yet what is served, so names are pending.
pub fn channel(source: &'static str) -> (Publisher, SnapshotReader) {
    let current = Arc::new(ArcSwap::from_pointee(Snapshot { source, names_pending: true, ..Snapshot::default() }));
    let (sender, receiver) = watch::channel(0);
    (Publisher { current: current.clone(), generation: sender }, SnapshotReader { current, generation: receiver })
}

impl Publisher {
    /// Makes `next` the current snapshot under the next generation, which is returned. Whatever generation it carries is replaced.
    pub fn publish(&mut self, mut next: Snapshot, now: SystemTime) -> Generation {
        let generation = *self.generation.borrow() + 1;
        next.generation = generation;
        next.published = Some(now);
        // The snapshot first: a reader that is woken must find what it was woken for.
        self.current.store(Arc::new(next));
        self.generation.send_replace(generation);
        generation
    }

    /// What is visible now.
    pub fn current(&self) -> Arc<Snapshot> {
        self.current.load_full()
    }
}

impl SnapshotReader {
    /// The current snapshot; never blocks.
    pub fn load(&self) -> Arc<Snapshot> {
        self.current.load_full()
    }

    /// Wakes at each new generation. The generation seen is a lower bound of what [`SnapshotReader::load`] then gives.
    pub fn subscribe(&self) -> watch::Receiver<Generation> {
        self.generation.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generations_grow_whatever_a_snapshot_says() {
        let (mut publisher, reader) = channel("test");
        let seen = reader.subscribe();
        assert!(reader.load().generation == 0 && reader.load().names_pending);
        for expect in 1..4 {
            assert_eq!(publisher.publish(Snapshot { generation: 1, ..Snapshot::default() }, SystemTime::UNIX_EPOCH), expect);
            assert_eq!((reader.load().generation, *seen.borrow()), (expect, expect));
        }
    }
}
