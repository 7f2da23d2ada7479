//! The truth about one incarnation of a replica group, and what discovery would publish of it.
//!
//! Owns: the step from signs to phase, in the form that `discovery` publishes. Pure; when it becomes visible is `views`' matter.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use discovery::snapshot::{Address, DrainBudget, GroupId, GroupKey, GroupPhase, Leader, Member, Reason, ReplicaGroup};

/// Followers of a deleted group are gone after this time (operator contract, section 5).
pub(crate) const FOLLOWERS_GONE: Duration = Duration::from_secs(5);
/// The drain hook of a managed role ends this long before the grace period does.
pub(crate) const HOOK_ENDS: Duration = Duration::from_secs(5);

/// See the module.
#[derive(Debug, Clone)]
pub(crate) struct Truth {
    /// The incarnation.
    pub(crate) id: GroupId,
    /// The ordinal.
    pub(crate) slot: usize,
    /// Pods.
    pub(crate) members: usize,
    /// Managed role.
    pub(crate) managed: bool,
    /// All members Ready.
    pub(crate) ready: bool,
    /// The engine is proven now.
    pub(crate) proven: bool,
    /// Good proofs.
    pub(crate) proof: u64,
    /// First sign of leaving, its reason, and the grace period.
    pub(crate) leaving: Option<(SystemTime, Reason, Duration)>,
    /// A member is gone or NotReady after it served.
    pub(crate) broken: bool,
    /// It is next in a rollout.
    pub(crate) next_to_go: bool,
}

/// Where the leader of a slot answers in its `life`-th life.
pub(crate) fn host(slot: usize, life: usize) -> Arc<str> {
    format!("10.0.{slot}.{life}").into()
}

impl Truth {
    /// An incarnation whose Pods have just been made.
    pub(crate) fn forming(slot: usize, life: usize, members: usize, managed: bool) -> Self {
        Self {
            id: GroupId(format!("ns/m/server/{slot}@{life}").into()),
            slot,
            members,
            managed,
            ready: false,
            proven: false,
            proof: 0,
            leaving: None,
            broken: false,
            next_to_go: false,
        }
    }

    fn phase(&self) -> (GroupPhase, Vec<Reason>) {
        match (&self.leaving, self.broken, self.ready, self.proven) {
            (Some((_, reason, _)), ..) => (GroupPhase::Draining, vec![*reason]),
            (None, true, ..) => (GroupPhase::Draining, vec![Reason::MemberNotReady]),
            (None, false, false, _) => (GroupPhase::Forming, vec![Reason::MemberNotReady]),
            (None, false, true, false) if self.proof > 0 => (GroupPhase::Warming, vec![Reason::FaultReported]),
            (None, false, true, false) => (GroupPhase::Warming, vec![Reason::NotProven]),
            (None, false, true, true) => (GroupPhase::Serving, Vec::new()),
        }
    }

    /// As published, the leader being at `host`.
    pub(crate) fn published(&self, host: &Arc<str>) -> ReplicaGroup {
        let (phase, reasons) = self.phase();
        let pod: Arc<str> = format!("m-server-{}-0", self.slot).into();
        let member = |index: usize| Member {
            pod: format!("m-server-{}-{index}", self.slot).into(),
            uid: format!("{}#{index}", self.id.0).into(),
            index: u32::try_from(index).unwrap_or(0),
            ready: self.ready,
            deleting: self.leaving.is_some(),
        };
        ReplicaGroup {
            key: GroupKey(format!("ns/m/server/{}", self.slot).into()),
            id: self.id.clone(),
            ordinal: u32::try_from(self.slot).ok(),
            phase,
            reasons,
            leader: Some(Leader { pod, uid: None, address: Address { https: false, host: host.clone(), port: 80 } }),
            members: (0..self.members).map(member).collect(),
            managed: self.managed,
            drain: self.leaving.map(|(since, reason, grace)| self.budget(since, reason, grace)),
            next_to_go: self.next_to_go,
            broken: self.broken,
            proof: self.proof,
        }
    }

    fn budget(&self, since: SystemTime, reason: Reason, grace: Duration) -> DrainBudget {
        // A retirement deletes nothing yet.
        let works_on = self.managed || reason == Reason::Retiring;
        let streams_until = if works_on { since + grace.saturating_sub(HOOK_ENDS) } else { since };
        let followers = self.members > 1 && reason != Reason::Retiring;
        DrainBudget { since, grace, streams_until, followers_until: followers.then(|| since + FOLLOWERS_GONE) }
    }
}
