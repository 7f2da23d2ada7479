//! The last changes, for watches: a bounded ring. A watch that asks for what has left the ring is too old, as at a real server.

use std::collections::VecDeque;
use std::sync::Arc;

use serde_json::Value;

use super::refusal::Refusal;
use super::store::Key;

/// Changes kept. Enough for a demo's minutes; a watch that falls behind by more lists anew.
const KEPT: usize = 4096;

/// One change of one object.
#[derive(Debug)]
pub(super) struct Change {
    pub(super) revision: u64,
    pub(super) key: Key,
    /// `None`: it was created.
    pub(super) before: Option<Arc<Value>>,
    /// The object as it is now, or as it was when it was removed (with the version of its removal).
    pub(super) after: Arc<Value>,
    pub(super) removed: bool,
}

/// The ring.
#[derive(Debug, Default)]
pub(super) struct Log {
    changes: VecDeque<Arc<Change>>,
    /// Changes up to this revision are forgotten.
    floor: u64,
}

impl Log {
    pub(super) fn push(&mut self, change: Change) {
        if self.changes.len() >= KEPT
            && let Some(oldest) = self.changes.pop_front()
        {
            self.floor = oldest.revision;
        }
        self.changes.push_back(Arc::new(change));
    }

    /// What came after `revision`, oldest first.
    pub(super) fn after(&self, revision: u64) -> Result<Vec<Arc<Change>>, Refusal> {
        if revision < self.floor {
            return Err(Refusal::expired());
        }
        let start = self.changes.partition_point(|change| change.revision <= revision);
        Ok(self.changes.range(start..).cloned().collect())
    }

    /// Forgets everything up to `revision`.
    pub(super) fn forget(&mut self, revision: u64) {
        self.changes.retain(|change| change.revision > revision);
        self.floor = self.floor.max(revision);
    }
}
