//! The phase of a group, with every reason named. Pure.
//!
//! Owns: `phase_of`, and the budget of a group that leaves. Must not: read objects or clocks. Next step: `view` assembles the group.

use std::time::{Duration, SystemTime};

use crate::fact::PodFact;
use crate::observe::Observed;
use crate::probe::Verdict;
use crate::snapshot::{DrainBudget, GroupPhase, Reason};

/// The drain hook of managed roles ends this long before the grace does (contract section 5: SIGTERM by G−3, hook by G−5).
const HOOK_MARGIN: Duration = Duration::from_secs(5);
/// A whole retirement takes this at most (contract 4.3).
pub(crate) const RETIREMENT: Duration = Duration::from_secs(300);
/// Followers' hooks end after this; then a multi-Pod replica may break (contract section 5).
const FOLLOWERS_STAY: Duration = Duration::from_secs(5);

/// What follows from the signs, the engine's proof and the past.
///
/// Order: leaving beats everything, what may never be used stays Forming, a group that lacks something drains if it served before
/// (running streams go on) and forms otherwise; only a whole and selected group depends on the probe.
pub fn phase_of(observed: &Observed<'_>, verdict: &Verdict, served: bool, restarted: bool) -> (GroupPhase, Vec<Reason>) {
    let mut reasons: Vec<Reason> = observed.leaving.iter().chain(&observed.barred).chain(&observed.lacking).copied().collect();
    let phase = if !observed.leaving.is_empty() {
        GroupPhase::Draining
    } else if !observed.barred.is_empty() {
        GroupPhase::Forming
    } else if !observed.lacking.is_empty() {
        if served { GroupPhase::Draining } else { GroupPhase::Forming }
    } else if verdict.proven {
        reasons.extend(verdict.reason);
        GroupPhase::Serving
    } else {
        reasons.extend(restarted.then_some(Reason::ContainerRestarted));
        reasons.push(verdict.reason.unwrap_or(Reason::NotProven));
        GroupPhase::Warming
    };
    reasons.extend(&observed.remarks);
    (phase, reasons)
}

/// Whether the probe should look at the group: when its proof decides the phase, and while it may come back without a restart.
pub fn wants_probe(observed: &Observed<'_>, served: bool) -> bool {
    let up = observed.leader.is_some_and(|leader| leader.running() && leader.deletion.is_none());
    let retiring = observed.leaving.iter().all(|reason| *reason == Reason::Retiring);
    up && observed.barred.is_empty() && (observed.leaving.is_empty() && observed.lacking.is_empty() || served && retiring)
}

/// First sign of leaving: the time of the delete where the objects tell it, else when it was first seen.
pub fn leaving_since(before: Option<SystemTime>, members: &[&std::sync::Arc<PodFact>], now: SystemTime) -> SystemTime {
    let deleted = members.iter().filter_map(|pod| delete_time(pod)).min();
    before.into_iter().chain(deleted).min().unwrap_or(now)
}

/// How a group that drains ends (contract section 5). `retirement`: its deadline, where nothing but a retirement makes the group leave;
/// the operator deletes such a replica when it is idle, and keeps it if that takes too long (contract 4.3), so no stream is cut before.
pub fn drain_budget(since: SystemTime, leader: &PodFact, members: usize, retirement: Option<SystemTime>) -> DrainBudget {
    if let Some(deadline) = retirement {
        return DrainBudget { since, grace: leader.grace, streams_until: deadline, followers_until: None };
    }
    let delete = delete_time(leader).unwrap_or(since);
    let streams_until = if leader.managed { delete + leader.grace.saturating_sub(HOOK_MARGIN) } else { delete };
    let followers_go = if leader.managed { delete + FOLLOWERS_STAY } else { delete };
    let followers_until = (members > 1 && followers_go < streams_until).then_some(followers_go);
    DrainBudget { since, grace: leader.grace, streams_until, followers_until }
}

/// The API server sets deletionTimestamp to the time of the delete plus the grace.
fn delete_time(pod: &PodFact) -> Option<SystemTime> {
    pod.deletion.map(|end| end.checked_sub(pod.grace).unwrap_or(SystemTime::UNIX_EPOCH))
}
