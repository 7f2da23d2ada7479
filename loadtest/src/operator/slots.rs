//! Replacement of replicas, slot by slot: the operator's rollout. Pure.
//!
//! Delete first, then create in the same slot; at most one unresolved replacement of a role; broken replicas first, then outdated ones,
//! highest ordinal first; the next slot waits for *admission*, never for readiness. The record is an annotation, written before the
//! first delete.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::plan::Action;
use super::render::{self, Seat};
use super::spec::Role;
use super::view::{Replica, View, is_deleting, name, uid};

/// Value of the annotation: role name → open slot.
pub(super) type Slots = BTreeMap<String, Slot>;

/// One replacement under way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Slot {
    pub(super) role: String,
    pub(super) ordinal: u32,
    pub(super) phase: Phase,
    #[serde(rename = "memberUIDs", default, skip_serializing_if = "Vec::is_empty")]
    pub(super) member_uids: Vec<String>,
    #[serde(rename = "workloadUID", default, skip_serializing_if = "Option::is_none")]
    pub(super) workload_uid: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) member_hashes: Vec<String>,
    #[serde(rename = "currentMemberUIDs", default, skip_serializing_if = "Vec::is_empty")]
    pub(super) current_member_uids: Vec<String>,
    #[serde(rename = "currentWorkloadUID", default, skip_serializing_if = "Option::is_none")]
    pub(super) current_workload_uid: Option<String>,
}

/// How far the replacement is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Phase {
    /// The old members are going.
    Cleanup,
    /// The new members stand behind the scheduling gate.
    WaitingForAdmission,
}

/// One step of a role: its slot afterwards, and what is to be done once the slot is written.
pub(super) fn advance(view: &View, role: &Role, slot: Option<Slot>) -> (Option<Slot>, Vec<Action>) {
    match slot {
        Some(slot) if slot.phase == Phase::Cleanup => clean_up(view, role, slot),
        Some(slot) => await_admission(view, role, slot),
        None => match victim(view, role) {
            Some(ordinal) => clean_up(view, role, open(&view.replica(&role.name, ordinal), role)),
            None => (None, create_absent(view, role)),
        },
    }
}

fn open(replica: &Replica<'_>, role: &Role) -> Slot {
    Slot {
        role: role.name.clone(),
        ordinal: replica.ordinal,
        phase: Phase::Cleanup,
        member_uids: replica.uids(),
        workload_uid: replica.workload.map(|workload| workload.uid.clone()),
        member_hashes: vec![],
        current_member_uids: vec![],
        current_workload_uid: None,
    }
}

/// The replica to replace next, if the rules allow one now.
fn victim(view: &View, role: &Role) -> Option<u32> {
    let replicas: Vec<_> = (0..role.replicas).rev().map(|ordinal| view.replica(&role.name, ordinal)).collect();
    let broken = |replica: &&Replica<'_>| !replica.pods.is_empty() && !replica.is_complete() && !replica.is_forming();
    if let Some(replica) = replicas.iter().find(broken) {
        return Some(replica.ordinal);
    }
    let outdated = |replica: &&Replica<'_>| replica.is_complete() && replica.is_outdated(&view.deployment, role);
    if let Some(replica) = replicas.iter().filter(outdated).find(|replica| !replica.is_admitted()) {
        return Some(replica.ordinal);
    }
    let all_admitted = replicas.iter().all(Replica::is_admitted);
    replicas.iter().find(outdated).filter(|_| all_admitted).map(|replica| replica.ordinal)
}

fn clean_up(view: &View, role: &Role, slot: Slot) -> (Option<Slot>, Vec<Action>) {
    let replica = view.replica(&role.name, slot.ordinal);
    if !replica.pods.is_empty() || replica.workload.is_some() {
        let actions = remove(view, role, &replica);
        return (Some(slot), actions);
    }
    if slot.ordinal >= role.replicas {
        return (None, vec![]);
    }
    let seats = (0..role.size).map(|member| Seat { ordinal: slot.ordinal, member });
    let rendered: Vec<_> = seats.map(|seat| render::pod(&view.deployment, role, seat)).collect();
    let waiting = Slot {
        phase: Phase::WaitingForAdmission,
        member_uids: vec![],
        workload_uid: None,
        member_hashes: rendered.iter().map(|rendered| rendered.hash.clone()).collect(),
        ..slot
    };
    (Some(waiting), rendered.into_iter().map(|rendered| Action::CreatePod(rendered.pod)).collect())
}

fn await_admission(view: &View, role: &Role, slot: Slot) -> (Option<Slot>, Vec<Action>) {
    let replica = view.replica(&role.name, slot.ordinal);
    if slot.ordinal >= role.replicas || (replica.is_complete() && replica.is_admitted()) {
        return (None, vec![]);
    }
    // A new edit supersedes the waiting replacement; so does the loss of one of its members.
    let broken = !replica.is_complete() && !replica.is_forming();
    if !replica.pods.is_empty() && (broken || replica.is_outdated(&view.deployment, role)) {
        return clean_up(view, role, open(&replica, role));
    }
    let creates = create(view, role, &replica);
    let current_workload_uid = replica.workload.map(|workload| workload.uid.clone());
    (Some(Slot { current_member_uids: replica.uids(), current_workload_uid, ..slot }), creates)
}

/// Scale-up, first creation and what a failed create left: lowest ordinal first, all at once, without a slot.
fn create_absent(view: &View, role: &Role) -> Vec<Action> {
    let replicas = (0..role.replicas).map(|ordinal| view.replica(&role.name, ordinal));
    replicas.filter(|replica| replica.is_forming() && !replica.is_complete()).flat_map(|replica| create(view, role, &replica)).collect()
}

fn create(view: &View, role: &Role, replica: &Replica<'_>) -> Vec<Action> {
    let seats = replica.missing(role.size).into_iter().map(|member| Seat { ordinal: replica.ordinal, member });
    seats.map(|seat| Action::CreatePod(render::pod(&view.deployment, role, seat).pod)).collect()
}

/// Deletes every member, each by its UID, and the Workload.
pub(super) fn remove(view: &View, role: &Role, replica: &Replica<'_>) -> Vec<Action> {
    let members = replica.pods.iter().filter(|pod| !is_deleting(pod));
    let mut actions: Vec<_> = members.map(|pod| Action::DeletePod { name: name(pod).to_owned(), uid: uid(pod).to_owned() }).collect();
    if replica.workload.is_some() {
        actions.push(Action::DropWorkload(render::group_name(&view.deployment, &role.name, replica.ordinal)));
    }
    actions
}

#[cfg(test)]
mod tests {
    use super::super::testing::{deployment, stand, view};
    use super::*;
    use serde_json::{Value, json};

    fn edited() -> Value {
        json!({"size": 2, "replicas": 2, "command": ["x"], "env": [{"name": "A", "value": "2"}]})
    }

    /// Two old replicas of two, and a spec that has moved on.
    fn outdated() -> View {
        let old = deployment(json!({"size": 2, "replicas": 2, "command": ["x"]}));
        let mut view = view(deployment(edited()));
        stand(&mut view, &old, 0);
        stand(&mut view, &old, 1);
        view
    }

    fn step(view: &View, slot: Option<Slot>) -> (Option<Slot>, Vec<Action>) {
        advance(view, &view.deployment.spec.roles[0], slot)
    }

    fn deleted(actions: &[Action]) -> Vec<&str> {
        let name = |action: &'_ Action| matches!(action, Action::DeletePod { .. });
        actions
            .iter()
            .filter(|action| name(action))
            .map(|action| if let Action::DeletePod { name, .. } = action { name.as_str() } else { "" })
            .collect()
    }

    #[test]
    fn highest_outdated_ordinal_goes_first_with_all_its_members() {
        let view = outdated();
        let (slot, actions) = step(&view, None);
        let slot = slot.unwrap();
        assert_eq!((slot.ordinal, slot.phase, slot.member_uids.len()), (1, Phase::Cleanup, 2));
        assert_eq!(deleted(&actions), ["demo-server-r1-m0", "demo-server-r1-m1"]);
        assert!(matches!(actions.last(), Some(Action::DropWorkload(_))));
    }

    #[test]
    fn a_broken_replica_goes_before_an_outdated_one() {
        let mut view = outdated();
        view.pods.remove(1);
        let (slot, _) = step(&view, None);
        assert_eq!(slot.unwrap().ordinal, 0);
    }

    #[test]
    fn nothing_is_created_before_everything_of_the_slot_is_gone() {
        let mut view = outdated();
        let (slot, _) = step(&view, None);
        view.workloads.retain(|_, workload| workload.uid != "workload-1");
        view.pods.pop();
        let (slot, actions) = step(&view, slot);
        assert_eq!(slot.as_ref().unwrap().phase, Phase::Cleanup);
        assert!(!actions.iter().any(|action| matches!(action, Action::CreatePod(_))));
        view.pods.pop();
        let (slot, actions) = step(&view, slot);
        assert_eq!(slot.unwrap().phase, Phase::WaitingForAdmission);
        assert_eq!(actions.len(), 2);
    }

    #[test]
    fn the_next_slot_waits_for_admission_and_not_for_readiness() {
        let mut view = outdated();
        view.pods.truncate(2);
        let new = view.deployment.clone();
        stand(&mut view, &new, 1);
        for pod in &mut view.pods[2..] {
            pod.status = None;
        }
        let group = render::group_name(&new, "server", 1);
        view.workloads.get_mut(&group).unwrap().admitted = false;
        assert_eq!(step(&view, None).0, None);
        view.workloads.get_mut(&group).unwrap().admitted = true;
        assert_eq!(step(&view, None).0.unwrap().ordinal, 0);
    }

    #[test]
    fn an_admitted_replacement_closes_the_slot_and_a_new_edit_supersedes_it() {
        let mut view = outdated();
        view.pods.truncate(2);
        let new = view.deployment.clone();
        stand(&mut view, &new, 1);
        let waiting = Slot { phase: Phase::WaitingForAdmission, ..open(&view.replica("server", 1), &new.spec.roles[0]) };
        assert_eq!(step(&view, Some(waiting.clone())).0, None);
        view.workloads.values_mut().for_each(|workload| workload.admitted = false);
        view.deployment = deployment(json!({"size": 2, "replicas": 2, "command": ["y"]}));
        assert_eq!(step(&view, Some(waiting)).0.unwrap().phase, Phase::Cleanup);
    }

    #[test]
    fn creation_and_scale_up_need_no_slot() {
        let view = view(deployment(edited()));
        let (slot, actions) = step(&view, None);
        assert_eq!((slot, actions.len()), (None, 4));
    }
}
