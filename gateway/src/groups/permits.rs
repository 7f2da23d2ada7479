//! The right to one running request at one leader, released by drop (invariant 5).

use std::sync::Arc;

use crate::groups::state::GroupState;

/// One running request at one incarnation.
#[derive(Debug)]
pub struct Permit {
    group: Arc<GroupState>,
}

impl Permit {
    /// Counts a request in.
    pub fn take(group: &Arc<GroupState>) -> Self {
        group.enter();
        Self { group: group.clone() }
    }

    /// Where it runs.
    pub fn group(&self) -> &Arc<GroupState> {
        &self.group
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.group.leave();
    }
}
