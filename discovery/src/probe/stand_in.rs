//! Light rounds that requests make needless.
//!
//! Owns: which of them are left out. Why: a leader that has just answered a request well has shown more than `/health` can, and a round is a new
//! connection and two requests to the engine's one HTTP process. Must not: judge (`record` does), or leave out what only a round shows: every
//! sixth is asked in any case, for the names.

use std::sync::{Arc, OnceLock, Weak};

use crate::snapshot::GroupId;

/// What requests show of leaders, as far as probes look at it.
pub trait Traffic: std::fmt::Debug + Send + Sync {
    /// How many answers of the model at `id` have ended well since the incarnation was first seen; 0 for an unknown one. Must not block.
    fn good_answers(&self, id: &GroupId) -> u64;
}

/// Where to look; empty until somebody serves requests.
pub(super) type Shared = Arc<OnceLock<Weak<dyn Traffic>>>;

/// Rounds in a row that are left out at most.
const IN_A_ROW: u32 = 5;

/// What stands in for the rounds of one incarnation.
#[derive(Debug)]
pub(super) struct StandIn {
    traffic: Shared,
    seen: u64,
    in_a_row: u32,
}

impl StandIn {
    pub(super) fn new(traffic: Shared) -> Self {
        Self { traffic, seen: 0, in_a_row: 0 }
    }

    /// Whether answers since the last call stand in for the light round that is due now.
    pub(super) fn covers(&mut self, id: &GroupId) -> bool {
        let good = self.traffic.get().and_then(Weak::upgrade).map_or(0, |traffic| traffic.good_answers(id));
        let more = good > std::mem::replace(&mut self.seen, good);
        let covers = more && self.in_a_row < IN_A_ROW;
        self.in_a_row = if covers { self.in_a_row + 1 } else { 0 };
        covers
    }

    /// The next round is asked whatever requests show.
    pub(super) fn ask_next(&mut self) {
        self.in_a_row = IN_A_ROW;
    }
}
