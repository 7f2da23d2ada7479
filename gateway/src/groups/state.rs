//! What the gateway keeps of one incarnation of a replica group: requests running, health, idle connections, signs of its end.
//!
//! Lives from the first snapshot that shows the incarnation until the last request of it ends (invariant 3: never by name or IP).

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use discovery::snapshot::{GroupId, GroupKey, Reason, ReplicaGroup};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::groups::health::Health;
use crate::telemetry::labels::Route;
use crate::upstream::pool::IdlePool;

/// What is known of a group's end, as bits of one byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Signs(u8);

impl Signs {
    const LEAVING: u8 = 1;
    const BROKEN: u8 = 2;
    const DYING: u8 = 4;

    /// From a snapshot's view of the group.
    pub fn of(group: &ReplicaGroup) -> Self {
        let mut bits = 0;
        if group.drain.is_some() {
            bits |= Self::LEAVING;
        }
        // An engine that refuses connections or says that it is ill serves nothing, whatever its Pod says (engine fact 4).
        let ill = [Reason::ProbeRefused, Reason::HealthFailed];
        if group.broken || group.reasons.iter().any(|reason| ill.contains(reason)) {
            bits |= Self::BROKEN;
        }
        let ends = [
            Reason::MemberDeleting,
            Reason::MemberMissing,
            Reason::ReplacementCleanup,
            Reason::DeploymentDeleting,
            Reason::ContainerRestarted,
        ];
        if group.reasons.iter().any(|reason| ends.contains(reason)) {
            bits |= Self::DYING;
        }
        Self(bits)
    }

    /// The incarnation is no longer in the snapshot.
    pub fn gone() -> Self {
        Self(Self::LEAVING | Self::BROKEN | Self::DYING)
    }

    /// Silence of a running stream means that it is lost (leaving, a member gone, restarted or NotReady, the leader refusing or ill).
    pub fn silence_is_loss(self) -> bool {
        self.0 & (Self::LEAVING | Self::BROKEN) != 0
    }

    fn broken(self) -> bool {
        self.0 & Self::BROKEN != 0
    }

    /// The group's end was announced: a move away from it is a planned one.
    pub fn leaving(self) -> bool {
        self.0 & Self::LEAVING != 0
    }

    /// Members are being deleted, gone or restarted: the first try can do nothing any more.
    pub fn dying(self) -> bool {
        self.0 & Self::DYING != 0
    }
}

/// One incarnation at run time.
///
/// With thousands of leaders all of this has left the processor's caches since the leader's last request, and each line of 64 bytes that is touched
/// costs as much as a hundred instructions. So the order of the fields is that of their use: what a pick reads and a permit writes fills one line
/// with the counts of the `Arc` in front (16 bytes), what a try needs comes next, what only people, drains and moves need is last.
#[derive(Debug)]
#[repr(C)]
pub struct GroupState {
    /// What we saw of it.
    pub health: Health,
    proof: AtomicU64,
    in_flight: AtomicU32,
    signs: AtomicU8,
    attempts: AtomicU64,
    good: AtomicU64,
    changed: Arc<Notify>,
    /// Milliseconds from which silence counts as loss, at least 1; 0: it does not.
    silence_counts_from: AtomicU64,
    /// Idle connections to the leader.
    pub idle: IdlePool,
    /// The place.
    pub key: GroupKey,
    /// Smoothed microseconds to the first event; 0: none yet.
    first_token: AtomicU64,
    failures: AtomicU64,
    /// The incarnation.
    pub id: GroupId,
    /// When the incarnation was first seen here: the zero of `silence_counts_from`.
    seen: Instant,
    published: ArcSwap<ReplicaGroup>,
}

impl GroupState {
    /// Fresh counters for a new incarnation. `workers`: how many threads keep idle connections; `now`: the clock of the group's drain budget.
    pub fn new(group: &Arc<ReplicaGroup>, workers: usize, now: SystemTime) -> Self {
        Self {
            health: Health::default(),
            proof: AtomicU64::new(group.proof),
            in_flight: AtomicU32::new(0),
            signs: AtomicU8::new(Signs::of(group).0),
            attempts: AtomicU64::new(0),
            good: AtomicU64::new(0),
            changed: Arc::new(Notify::new()),
            silence_counts_from: AtomicU64::new(silence_counts_from(group, 1, now)),
            idle: IdlePool::new(workers),
            key: group.key.clone(),
            first_token: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            id: group.id.clone(),
            seen: Instant::now(),
            published: ArcSwap::new(group.clone()),
        }
    }

    /// The group as the newest snapshot that has it shows it.
    pub fn published(&self) -> Arc<ReplicaGroup> {
        self.published.load_full()
    }

    /// When an answer that has not begun counts as lost: `stall` after the moment from which the group can no longer be working on it
    /// (a managed group that drains still works; one that lost a member or got SIGTERM does not). `None`: while the group is whole.
    pub fn lost_after(&self, stall: Duration) -> Option<Instant> {
        let from = self.silence_counts_from.load(Ordering::Relaxed);
        (from != 0).then(|| self.seen + Duration::from_millis(from) + stall)
    }

    /// Requests running now.
    pub fn in_flight(&self) -> u32 {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// Attempts begun, and those that failed by the leader's fault, since the incarnation was first seen.
    pub fn attempts(&self) -> (u64, u64) {
        (self.attempts.load(Ordering::Relaxed), self.failures.load(Ordering::Relaxed))
    }

    /// A request by `route` was answered well: this ends a row of server errors, and shows that the engine works if its model ran.
    pub fn answered_well(&self, route: Route) {
        self.health.success();
        if route.runs_the_model() {
            self.good.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Answers of its model that ended well, since the incarnation was first seen.
    pub fn good_answers(&self) -> u64 {
        self.good.load(Ordering::Relaxed)
    }

    /// A request failed by the leader's fault.
    pub fn failed(&self) {
        self.failures.fetch_add(1, Ordering::Relaxed);
    }

    /// A stream's first event came `after` it was sent. Two at once may lose one: it is a smoothed figure for people.
    pub fn first_token(&self, after: Duration) {
        let micros = u64::try_from(after.as_micros()).unwrap_or(u64::MAX).max(1);
        let before = self.first_token.load(Ordering::Relaxed);
        let smoothed = if before == 0 { micros } else { before - before / 8 + micros / 8 };
        self.first_token.store(smoothed.max(1), Ordering::Relaxed);
    }

    /// Smoothed time to the first event.
    pub fn smoothed_first_token(&self) -> Option<Duration> {
        let micros = self.first_token.load(Ordering::Relaxed);
        (micros > 0).then(|| Duration::from_micros(micros))
    }

    /// Newest proof that discovery published.
    pub fn proof(&self) -> u64 {
        self.proof.load(Ordering::Relaxed)
    }

    /// Whether our own observations allow new requests.
    pub fn trusted(&self) -> bool {
        self.health.trusted(self.proof())
    }

    /// Signs of its end.
    pub fn signs(&self) -> Signs {
        Signs(self.signs.load(Ordering::Relaxed))
    }

    /// Wakes whoever watches a running request when the signs change.
    pub fn changed(&self) -> &Arc<Notify> {
        &self.changed
    }

    /// Takes over what a new snapshot says. `now` as in [`GroupState::new`].
    pub fn update(&self, group: &Arc<ReplicaGroup>, now: SystemTime) {
        if !Arc::ptr_eq(&self.published.load(), group) {
            self.published.store(group.clone());
        }
        self.proof.store(group.proof, Ordering::Relaxed);
        self.set_signs(Signs::of(group), silence_counts_from(group, self.age_ms(), now));
    }

    /// The leader refused a connection: running streams need not wait until a probe has seen it too. Holds until the next snapshot.
    pub fn refused(&self) {
        self.set_signs(Signs(self.signs().0 | Signs::BROKEN), self.age_ms());
    }

    /// The incarnation left the snapshot: idle connections are closed, running requests are told.
    pub fn retire(&self) {
        self.set_signs(Signs::gone(), self.age_ms());
        self.idle.clear();
    }

    fn set_signs(&self, signs: Signs, counts_from: u64) {
        let before = self.silence_counts_from.load(Ordering::Relaxed);
        // The earliest moment stands, unless the group is whole again.
        let from = if before == 0 || counts_from == 0 { counts_from } else { before.min(counts_from) };
        self.silence_counts_from.store(from, Ordering::Relaxed);
        if self.signs.swap(signs.0, Ordering::Relaxed) != signs.0 || from != before {
            self.changed.notify_waiters();
        }
    }

    /// Wakes whoever watches, without any new sign (the gateway itself is ending).
    pub fn nudge(&self) {
        self.changed.notify_waiters();
    }

    /// At least 1: 0 means "not".
    fn age_ms(&self) -> u64 {
        u64::try_from(self.seen.elapsed().as_millis()).unwrap_or(u64::MAX).max(1)
    }

    pub(crate) fn enter(&self) {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        self.attempts.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn leave(&self) {
        self.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

/// `age`: milliseconds since the incarnation was first seen.
fn silence_counts_from(group: &ReplicaGroup, age: u64, now: SystemTime) -> u64 {
    if Signs::of(group).broken() && group.drain.is_none() {
        return age;
    }
    let Some(drain) = &group.drain else { return 0 };
    let until = drain.followers_until.map_or(drain.streams_until, |followers| followers.min(drain.streams_until));
    let left = until.duration_since(now).unwrap_or_default();
    age.saturating_add(u64::try_from(left.as_millis()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    fn signs(edit: impl FnOnce(&mut ReplicaGroup)) -> Signs {
        let mut group = testing::group(0);
        edit(&mut group);
        Signs::of(&group)
    }

    #[test]
    fn silence_is_a_loss_where_the_group_cannot_serve() {
        assert!(!Signs::default().silence_is_loss());
        assert!(signs(|g| g.broken = true).silence_is_loss());
        assert!(signs(|g| g.reasons = vec![Reason::ProbeRefused]).silence_is_loss());
        assert!(signs(|g| g.reasons = vec![Reason::HealthFailed]).silence_is_loss());
        assert!(!signs(|g| g.reasons = vec![Reason::ProbeTimeout]).silence_is_loss(), "a busy engine is slow to answer probes");
    }

    /// See [`GroupState`]: the counts of the `Arc` come first.
    #[test]
    fn what_a_pick_reads_lies_in_one_line() {
        let counts = 2 * size_of::<usize>();
        assert_eq!(counts + std::mem::offset_of!(GroupState, changed), 64);
        assert!(counts + std::mem::offset_of!(GroupState, first_token) <= 128, "what a try needs lies in the second");
        // jemalloc's places between 128 and 256 bytes come in steps of 32; those of 192 begin with a line.
        let place = (counts + size_of::<GroupState>()).next_multiple_of(32);
        assert_eq!(place, 192);
    }

    #[test]
    fn a_refused_connection_counts_until_the_next_snapshot() {
        let now = SystemTime::now();
        let group = Arc::new(testing::group(0));
        let state = GroupState::new(&group, 1, now);
        assert!(state.lost_after(Duration::ZERO).is_none());
        state.refused();
        assert!(state.signs().silence_is_loss() && state.lost_after(Duration::ZERO).is_some());
        state.update(&group, now);
        assert!(!state.signs().silence_is_loss());
    }
}
