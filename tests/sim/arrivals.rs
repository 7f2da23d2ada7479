//! Which request reached which leader, when, and how that ended: the leaders' own log.
//!
//! Owns: the list. `leader` writes it, `judge` reads it. Each entry also keeps what the gateway could know of the group at that moment, since
//! that is what its rules go by.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use discovery::snapshot::GroupId;
use gateway::gateway::Gateway;

use crate::plan::Break;

/// How a request ended at a leader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum How {
    /// Answered to its end.
    Complete,
    /// Refused, nothing executed.
    Refused,
    /// The engine broke it.
    Broken(Break),
    /// The gateway closed the connection.
    Left {
        /// The engine was at work on it.
        working: bool,
    },
}

/// What the gateway was told of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Told {
    /// Takes new requests.
    pub(crate) serving: bool,
    /// Leaving or gone.
    pub(crate) leaving: bool,
    /// Silence counts as loss.
    pub(crate) silence_is_loss: bool,
    /// Members deleting, gone or restarted.
    pub(crate) dying: bool,
}

/// One request at one leader.
#[derive(Debug, Clone)]
pub(crate) struct Arrival {
    /// `X-Request-Id`.
    pub(crate) request: String,
    /// Where.
    pub(crate) leader: GroupId,
    /// When it was read.
    pub(crate) at: Duration,
    /// The engine had been proven by then.
    pub(crate) proven: bool,
    /// Known then.
    pub(crate) told: Told,
    /// Events with data that were written whole.
    pub(crate) events: usize,
    /// When and how it ended, and what was known then.
    pub(crate) end: Option<(Duration, How, Told)>,
}

/// First moments of a leader's end.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Ends {
    /// Its port stopped to accept.
    pub(crate) closed: Option<Duration>,
    /// The gateway was told that it dies.
    pub(crate) dying: Option<Duration>,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Arrivals {
    list: Mutex<Vec<Arrival>>,
    ends: Mutex<BTreeMap<GroupId, Ends>>,
    gateway: OnceLock<Arc<Gateway>>,
}

impl Arrivals {
    /// Whose knowledge is noted.
    pub(crate) fn watch(&self, gateway: &Arc<Gateway>) {
        // Set once, before the first request.
        let _ = self.gateway.set(gateway.clone());
    }

    /// What the gateway is told of a group now.
    pub(crate) fn told(&self, id: &GroupId) -> Told {
        let gone = Told { serving: false, leaving: true, silence_is_loss: true, dying: true };
        let Some(gateway) = self.gateway.get() else { return gone };
        let table = gateway.tables.load();
        let Some(state) = table.group(id) else { return gone };
        let signs = state.signs();
        let serving = table.pools().flat_map(|pool| &pool.pool.groups).any(|group| group.id == *id && group.serving());
        Told { serving, leaving: signs.leaving(), silence_is_loss: signs.silence_is_loss(), dying: signs.dying() }
    }

    /// A request was read; its number.
    pub(crate) fn begin(&self, at: Duration, request: &str, leader: &GroupId, proven: bool) -> usize {
        let told = self.told(leader);
        let mut list = self.list();
        list.push(Arrival { request: request.to_owned(), leader: leader.clone(), at, proven, told, events: 0, end: None });
        list.len() - 1
    }

    /// An event was written.
    pub(crate) fn event(&self, number: usize) {
        if let Some(arrival) = self.list().get_mut(number) {
            arrival.events += 1;
        }
    }

    /// It ended.
    pub(crate) fn end(&self, number: usize, at: Duration, how: How) {
        let mut list = self.list();
        let Some(arrival) = list.get_mut(number) else { return };
        let id = arrival.leader.clone();
        arrival.end = Some((at, how, self.told(&id)));
    }

    /// The port of a leader stopped to accept.
    pub(crate) fn closed(&self, id: &GroupId, at: Duration) {
        self.ends.lock().unwrap_or_else(PoisonError::into_inner).entry(id.clone()).or_default().closed.get_or_insert(at);
    }

    /// The gateway may have been told something new of a group.
    pub(crate) fn news(&self, id: &GroupId, at: Duration) {
        if self.told(id).dying {
            self.ends.lock().unwrap_or_else(PoisonError::into_inner).entry(id.clone()).or_default().dying.get_or_insert(at);
        }
    }

    /// How leaders ended.
    pub(crate) fn ends(&self) -> BTreeMap<GroupId, Ends> {
        self.ends.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// All of them.
    pub(crate) fn all(&self) -> Vec<Arrival> {
        self.list().clone()
    }

    fn list(&self) -> std::sync::MutexGuard<'_, Vec<Arrival>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
