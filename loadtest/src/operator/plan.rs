//! One pass of the simulated operator over one deployment: view in, ordered actions out. Pure.
//!
//! Order matters: the slot annotation is written before the first delete, and status last. Next: `apply` carries the actions out and
//! stops at the first that fails; the next pass starts from what the API server then says.

use k8s_openapi::api::core::v1::{Pod, Service};
use serde_json::Value;

use super::retire::{self, Moment, Retirement};
use super::services::{self, Standing};
use super::slots::{self, Slots};
use super::spec::{Deployment, Role};
use super::view::{View, is_deleting, is_ended, name, uid};
use super::{eligibility, keys, render, status};

/// Something to do on the API server.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Action {
    /// Write the slot annotation; empty removes it.
    SetSlots(Slots),
    CreatePod(Value),
    /// Delete with a UID precondition.
    DeletePod {
        name: String,
        uid: String,
    },
    /// Kueue's object goes, and with it the finalizers of its Pods.
    DropWorkload(String),
    /// Set a runtime label to `"true"`, or take it away.
    SetLabel {
        name: String,
        key: &'static str,
        on: bool,
    },
    /// Create the Service or bring its selector and ports to this.
    ApplyService(Value),
    DeleteService(String),
    SetStatus(Value),
    /// Take or release the deployment's finalizer.
    HoldDeployment(bool),
}

/// What the simulated operator was told to do about optional parts.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rules {
    pub(super) moment: Moment,
    /// Qualify members of roles that can be gated.
    pub(super) eligibility: bool,
}

/// The actions of this pass.
pub(super) fn pass(view: &View, rules: Rules) -> Vec<Action> {
    let deployment = &view.deployment;
    if deployment.deleting {
        return take_down(view);
    }
    let mut actions = Vec::new();
    if !deployment.finalizers.iter().any(|finalizer| finalizer == keys::DEPLOYMENT_FINALIZER) {
        actions.push(Action::HoldDeployment(true));
    }
    let before = slots_of(deployment);
    let (slots, replacements) = advance_slots(view, &before);
    if slots != before {
        actions.push(Action::SetSlots(slots.clone()));
    }
    let (retirement, removals) = retire::advance(view, retirement_of(deployment), rules.moment);
    let verdicts = eligibility::judge(view, &slots, retirement.as_ref(), rules.eligibility);
    actions.extend(verdicts.labels.iter().cloned());
    actions.extend(service_actions(view, &|role| standing(view, role, verdicts.is_gated(&role.name))));
    actions.extend(replacements);
    let status = status::of(view, &slots, retirement.as_ref(), &verdicts);
    // A retirement is recorded before it deletes anything, as slots are.
    if status::differs(&deployment.status, &status) {
        actions.push(Action::SetStatus(status));
    }
    actions.extend(removals);
    actions
}

fn advance_slots(view: &View, before: &Slots) -> (Slots, Vec<Action>) {
    let (mut slots, mut actions) = (Slots::new(), Vec::new());
    for role in &view.deployment.spec.roles {
        let (slot, todo) = slots::advance(view, role, before.get(&role.name).cloned());
        slots.extend(slot.map(|slot| (role.name.clone(), slot)));
        actions.extend(todo);
    }
    (slots, actions)
}

fn slots_of(deployment: &Deployment) -> Slots {
    let text = deployment.annotations.get(keys::SLOTS).map(String::as_str).unwrap_or("{}");
    // A record that nobody can read is as good as none; the next pass writes it anew.
    serde_json::from_str(text).unwrap_or_default()
}

fn retirement_of(deployment: &Deployment) -> Option<Retirement> {
    serde_json::from_value(deployment.status["retirement"].clone()).ok()
}

/// What stands of a role, as far as its Services depend on it.
fn standing(view: &View, role: &Role, gated: bool) -> Standing {
    let multi: Vec<&Pod> = view.role_pods(&role.name).filter(|pod| render::group_total(pod) > 1 && !is_ended(pod)).collect();
    let highest = multi.iter().filter_map(|pod| render::number(pod, keys::ORDINAL)).max();
    Standing { multi: !multi.is_empty(), mixed_modes: view.mixed_modes(role), gated, peers_below: highest.map_or(0, |ordinal| ordinal + 1) }
}

fn service_actions(view: &View, standing: &dyn Fn(&Role) -> Standing) -> Vec<Action> {
    let wanted = services::wanted(&view.deployment, standing);
    let name_of = |service: &Service| service.metadata.name.clone().unwrap_or_default();
    let stale = view.services.iter().map(name_of).filter(|name| !wanted.iter().any(|wanted| wanted["metadata"]["name"] == **name));
    let removals: Vec<_> = stale.map(Action::DeleteService).collect();
    let changes = wanted.into_iter().filter(|wanted| {
        let standing = view.services.iter().find(|service| wanted["metadata"]["name"] == name_of(service));
        standing.is_none_or(|service| service_differs(service, wanted))
    });
    changes.map(Action::ApplyService).chain(removals).collect()
}

fn service_differs(standing: &Service, wanted: &Value) -> bool {
    let spec = serde_json::to_value(standing.spec.as_ref()).unwrap_or_default();
    let port = |spec: &Value, field: &str| spec["ports"][0][field].clone();
    let noted = standing.metadata.annotations.as_ref().is_some_and(|notes| notes.contains_key(keys::ELIGIBILITY_ACTIVE));
    let note_wanted = !wanted["metadata"]["annotations"][keys::ELIGIBILITY_ACTIVE].is_null();
    spec["selector"] != wanted["spec"]["selector"]
        || ["name", "port", "targetPort"].iter().any(|field| port(&spec, field) != port(&wanted["spec"], field))
        || noted != note_wanted
}

/// Deletion of the deployment: every Pod at once, no retirement; the finalizer goes when no Pod is left.
fn take_down(view: &View) -> Vec<Action> {
    let mut actions = Vec::new();
    let status = status::deleting(&view.deployment);
    if status::differs(&view.deployment.status, &status) {
        actions.push(Action::SetStatus(status));
    }
    actions.extend(view.workloads.keys().cloned().map(Action::DropWorkload));
    let standing = view.pods.iter().filter(|pod| !is_deleting(pod));
    actions.extend(standing.map(|pod| Action::DeletePod { name: name(pod).to_owned(), uid: uid(pod).to_owned() }));
    if view.pods.is_empty() {
        // The API server's garbage collector, which a bare API server does not have, would take the Services after this.
        actions.extend(view.services.iter().filter_map(|service| service.metadata.name.clone()).map(Action::DeleteService));
        actions.push(Action::HoldDeployment(false));
    }
    actions
}

#[cfg(test)]
mod tests {
    use super::super::testing::{deployment, stand, view};
    use super::*;
    use serde_json::json;

    fn rules() -> Rules {
        let moment = Moment { now: k8s_openapi::jiff::Timestamp::UNIX_EPOCH, time_scale: 1.0, confirmed: false };
        Rules { moment, eligibility: true }
    }

    fn position(actions: &[Action], matches: impl Fn(&Action) -> bool) -> usize {
        actions.iter().position(matches).unwrap_or(usize::MAX)
    }

    #[test]
    fn a_slot_is_written_before_anything_is_deleted() {
        let old = deployment(json!({"size": 2, "replicas": 2, "command": ["x"]}));
        let mut view = view(deployment(json!({"size": 2, "replicas": 2, "command": ["y"]})));
        stand(&mut view, &old, 0);
        stand(&mut view, &old, 1);
        let actions = pass(&view, rules());
        let written = position(&actions, |action| matches!(action, Action::SetSlots(_)));
        let deleted = position(&actions, |action| matches!(action, Action::DeletePod { .. }));
        assert!(written < deleted && deleted < actions.len(), "{actions:?}");
    }

    #[test]
    fn a_settled_deployment_asks_for_nothing_but_services_and_status() {
        let mut view = view(deployment(json!({"size": 2})));
        let old = view.deployment.clone();
        stand(&mut view, &old, 0);
        let actions = pass(&view, rules());
        let quiet = |action: &Action| matches!(action, Action::ApplyService(_) | Action::SetStatus(_));
        assert!(actions.iter().all(quiet), "{actions:?}");
    }

    #[test]
    fn the_deployment_is_released_when_its_last_pod_is_gone() {
        let mut view = view(deployment(json!({})));
        let old = view.deployment.clone();
        stand(&mut view, &old, 0);
        view.deployment.deleting = true;
        let released = |view: &View| pass(view, rules()).contains(&Action::HoldDeployment(false));
        assert!(!released(&view));
        view.pods.clear();
        assert!(released(&view));
    }

    #[test]
    fn only_whole_replicas_of_verified_engines_are_eligible() {
        let mut deployment = deployment(json!({"size": 2}));
        deployment.spec.engine.version = "0.29.0".to_owned();
        let mut view = view(deployment.clone());
        stand(&mut view, &deployment, 0);
        let label = |view: &View| {
            let labels = pass(view, rules()).into_iter().filter(|action| matches!(action, Action::SetLabel { .. }));
            labels.collect::<Vec<_>>()
        };
        let name = "demo-server-r0-m0".to_owned();
        assert_eq!(label(&view), [Action::SetLabel { name: name.clone(), key: keys::ELIGIBLE, on: true }]);
        if let Some(labels) = view.pods[0].metadata.labels.as_mut() {
            labels.insert(keys::ELIGIBLE.to_owned(), "true".to_owned());
        }
        assert_eq!(label(&view), []);
        view.pods[1].status = None;
        assert_eq!(label(&view), [Action::SetLabel { name, key: keys::ELIGIBLE, on: false }]);
    }
}
