//! One replica as the API server shows it: whole or not, leaving or not, selected or not. Pure.
//!
//! Owns: the reading of members, slots, retirements and the live Service selector against each other (operator contract 11.1, 11.2).
//! Must not: decide a phase (`group` does), look at probes or at the past. Next step: `group`.

use std::collections::BTreeMap;
use std::sync::Arc;

use config::Membership;

use crate::fact::{DeploymentFact, Numeral, PodFact, RoleFact, RoleKind, Selection, ServiceFact, SlotPhase, Str, TermKind};
use crate::snapshot::Reason;

/// What belongs to one target: the Pods of one ordinal and the member that answers.
#[derive(Debug, Clone, Copy)]
pub struct Replica<'a> {
    /// The deployment.
    pub deployment: &'a DeploymentFact,
    /// The role in its spec.
    pub role: &'a RoleFact,
    /// The role's live Service; `None` when it does not exist.
    pub service: Option<&'a ServiceFact>,
    /// The ordinal.
    pub ordinal: u32,
    /// Every Pod that claims the ordinal.
    pub members: &'a [&'a Arc<PodFact>],
    /// The member that answers: 0, or the rank of External DP.
    pub seat: u32,
}

/// The signs, sorted by what follows from them.
#[derive(Debug, Default)]
pub struct Observed<'a> {
    /// The member that answers, if it exists.
    pub leader: Option<&'a Arc<PodFact>>,
    /// It is on its way out.
    pub leaving: Vec<Reason>,
    /// It may not be used however well it is.
    pub barred: Vec<Reason>,
    /// It is not whole, or the Service does not select it.
    pub lacking: Vec<Reason>,
    /// True without consequence.
    pub remarks: Vec<Reason>,
    /// A member is gone, not Ready or deleting.
    pub broken: bool,
}

/// How many members a replica was built with, and whether the members agree about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Group total, at least 1.
    pub total: u32,
    /// Totals agree, seats are distinct, readable and below the total.
    pub readable: bool,
    /// As many seats are taken as the total says.
    pub complete: bool,
}

/// Reads the shape of the members themselves, never of the spec: after a size edit old replicas keep their size (contract 3.1).
pub fn shape(members: &[&Arc<PodFact>]) -> Shape {
    let totals: Vec<Option<u32>> = members.iter().map(|pod| total(pod)).collect();
    let first = totals.first().copied().flatten();
    let agree = totals.iter().all(|total| *total == first && total.is_some());
    let total = first.unwrap_or(1);
    let mut seats: Vec<Option<u32>> = members.iter().map(|pod| pod.seat()).collect();
    seats.sort_unstable();
    seats.dedup();
    let distinct = seats.len() == members.len() && seats.iter().all(|seat| seat.is_some_and(|seat| seat < total));
    let unlabelled = members.iter().any(|pod| pod.index == Numeral::Absent);
    let readable = members.is_empty() || agree && distinct && !(unlabelled && total > 1);
    Shape { total, readable, complete: seats.len() == total as usize }
}

/// Whether every member of the ordinal answers by itself (External or Hybrid data parallelism).
///
/// The operator says so in the role's status; while that is unknown, the gate says it: all members eligible and a selector that asks for
/// eligibility but not for the leader (contract 11.1 step 5).
pub fn every_rank(role: &RoleFact, service: Option<&ServiceFact>, members: &[&Arc<PodFact>]) -> bool {
    use crate::fact::LoadBalance;
    match role.load_balance {
        LoadBalance::EveryRank => true,
        LoadBalance::Leader => false,
        LoadBalance::Unknown => {
            members.len() > 1
                && members.iter().all(|pod| pod.eligible)
                && service.is_some_and(|service| service.has_term(TermKind::Eligibility) && !service.has_term(TermKind::Member))
        }
    }
}

/// Collects every sign about a replica.
pub fn observe<'a>(replica: &Replica<'a>, membership: Membership) -> Observed<'a> {
    let mut observed = Observed { leader: leader(replica), ..Observed::default() };
    bars(replica, &mut observed);
    if replica.deployment.deleting {
        observed.leaving.push(Reason::DeploymentDeleting);
    }
    match membership {
        Membership::Strict => {
            let (leaving, waiting) = intents(replica, &mut observed.remarks);
            observed.leaving.extend(leaving);
            observed.lacking.extend(waiting);
            members(replica, &mut observed);
        }
        Membership::Service => {
            let (leaving, waiting) = intents(replica, &mut observed.remarks);
            observed.remarks.extend(leaving.into_iter().chain(waiting));
            leader_alone(replica, &mut observed);
        }
    }
    selection(replica, &mut observed);
    observed
}

fn total(pod: &PodFact) -> Option<u32> {
    match pod.total {
        Numeral::Absent => Some(1),
        Numeral::Is(total) if total > 0 => Some(total),
        Numeral::Is(_) | Numeral::Unreadable => None,
    }
}

/// The one member on the seat; two that claim it are none.
fn leader<'a>(replica: &Replica<'a>) -> Option<&'a Arc<PodFact>> {
    let mut on_seat = replica.members.iter().filter(|pod| pod.seat() == Some(replica.seat));
    on_seat.next().filter(|_| on_seat.next().is_none()).copied()
}

fn bars(replica: &Replica<'_>, observed: &mut Observed<'_>) {
    let disaggregated = replica.deployment.roles.iter().any(|role| role.kind == RoleKind::Disaggregated);
    if disaggregated {
        observed.barred.push(Reason::NotServable);
    }
    if replica.role.elastic && replica.ordinal != 0 {
        observed.barred.push(Reason::ElasticFollower);
    }
}

/// What the operator says that it will do: (leaving, waiting).
fn intents(replica: &Replica<'_>, remarks: &mut Vec<Reason>) -> (Vec<Reason>, Vec<Reason>) {
    let (mut leaving, mut waiting) = (Vec::new(), Vec::new());
    for slot in replica.deployment.slots.iter().filter(|slot| slot.role == replica.role.name && slot.ordinal == replica.ordinal) {
        match slot.phase {
            // Without a UID match the record speaks of an occupant that is gone already.
            SlotPhase::Cleanup if named(&slot.members, replica) => leaving.push(Reason::ReplacementCleanup),
            SlotPhase::WaitingForAdmission if replica.members.is_empty() || named(&slot.members, replica) => {
                waiting.push(Reason::ReplacementWaiting);
            }
            SlotPhase::Cleanup | SlotPhase::WaitingForAdmission => {}
        }
    }
    if let Some(retirement) = &replica.deployment.retirement
        && retirement.role == replica.role.name
        && retirement.ordinal == replica.ordinal
        && named(&retirement.members, replica)
    {
        if retirement.aborted {
            remarks.push(Reason::RetirementAborted);
        } else {
            leaving.push(Reason::Retiring);
        }
    }
    (leaving, waiting)
}

/// A record that names nobody speaks of whoever holds the ordinal.
fn named(uids: &[Str], replica: &Replica<'_>) -> bool {
    uids.is_empty() || replica.members.iter().any(|pod| uids.contains(&pod.uid))
}

fn members(replica: &Replica<'_>, observed: &mut Observed<'_>) {
    let shape = shape(replica.members);
    let any = |test: fn(&PodFact) -> bool| replica.members.iter().any(|pod| test(pod));
    if any(|pod| pod.deletion.is_some()) {
        observed.leaving.push(Reason::MemberDeleting);
    }
    let signs = [
        (!shape.readable, Reason::ShapeUnreadable),
        (shape.readable && (replica.members.is_empty() || !shape.complete), Reason::MemberMissing),
        (any(|pod| !pod.running()), Reason::MemberNotRunning),
        (any(|pod| pod.running() && !pod.ready), Reason::MemberNotReady),
    ];
    observed.lacking.extend(signs.into_iter().filter_map(|(holds, reason)| holds.then_some(reason)));
    observed.broken = !replica.members.is_empty() && (!observed.lacking.is_empty() || any(|pod| pod.deletion.is_some()));
}

/// `membership: service`: followers make remarks, the leader decides.
fn leader_alone(replica: &Replica<'_>, observed: &mut Observed<'_>) {
    let mut whole = Observed::default();
    members(replica, &mut whole);
    observed.broken = whole.broken;
    let Some(leader) = observed.leader else {
        observed.lacking.push(if replica.members.len() > 1 { Reason::ShapeUnreadable } else { Reason::MemberMissing });
        return;
    };
    if leader.deletion.is_some() {
        observed.leaving.push(Reason::MemberDeleting);
    }
    if !leader.running() {
        observed.lacking.push(Reason::MemberNotRunning);
    } else if !leader.ready {
        observed.lacking.push(Reason::MemberNotReady);
    }
    let known: Vec<Reason> = observed.leaving.iter().chain(&observed.lacking).copied().collect();
    observed.remarks.extend(whole.leaving.into_iter().chain(whole.lacking).filter(|reason| !known.contains(reason)));
}

/// The role Service's live selector; without a Service the operator's identity rule, which is the leader (contract 11.1 step 3).
fn selection(replica: &Replica<'_>, observed: &mut Observed<'_>) {
    let Some(leader) = observed.leader else { return };
    let selection = match replica.service {
        Some(service) => service.selects(leader),
        None if replica.seat == 0 => Selection::Selected,
        None => Selection::NotSelected,
    };
    match selection {
        Selection::Selected => {}
        Selection::NotEligible => observed.lacking.push(Reason::NotEligible),
        Selection::NotSelected => observed.lacking.push(Reason::NotSelected),
    }
}

/// The Pods of a role by ordinal. A deleting Pod whose seat has a new occupant belongs to no replica any more; a Pod without a readable
/// ordinal claims none (contract 3.1).
pub fn by_ordinal<'a>(pods: impl Iterator<Item = &'a Arc<PodFact>>, role: &str) -> BTreeMap<u32, Vec<&'a Arc<PodFact>>> {
    let mut ordinals: BTreeMap<u32, Vec<&Arc<PodFact>>> = BTreeMap::new();
    for pod in pods.filter(|pod| pod.role.as_deref() == Some(role)) {
        if let Numeral::Is(ordinal) = pod.ordinal {
            ordinals.entry(ordinal).or_default().push(pod);
        }
    }
    for members in ordinals.values_mut() {
        let staying: Vec<Option<u32>> = members.iter().filter(|pod| pod.deletion.is_none()).map(|pod| pod.seat()).collect();
        members.retain(|pod| pod.deletion.is_none() || !staying.contains(&pod.seat()));
        members.sort_by(|a, b| (a.seat(), &a.uid).cmp(&(b.seat(), &b.uid)));
    }
    ordinals
}
