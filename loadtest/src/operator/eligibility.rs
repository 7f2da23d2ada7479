//! The eligibility gate and the api-answering label: runtime labels that narrow a role's Service to whole, unharmed replicas. Pure.
//!
//! Of the operator's five legs the forward probe is left out: a simulated engine that is Ready does generate.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;

use super::keys;
use super::plan::Action;
use super::render;
use super::retire::Retirement;
use super::slots::Slots;
use super::spec::Role;
use super::view::{View, is_deleting, is_ready, label, member, name};

/// What a pass decided about labels.
#[derive(Debug, Default)]
pub(super) struct Verdicts {
    /// Label changes to make.
    pub(super) labels: Vec<Action>,
    /// Replicas that pass, of each role whose gate is active.
    eligible: BTreeMap<String, u32>,
}

impl Verdicts {
    /// Whether the role's gate is active.
    pub(super) fn is_gated(&self, role: &str) -> bool {
        self.eligible.contains_key(role)
    }

    /// Replicas of the role that pass, if its gate is active.
    pub(super) fn eligible(&self, role: &str) -> Option<u32> {
        self.eligible.get(role).copied()
    }

    /// Whether any role is gated.
    pub(super) fn any(&self) -> bool {
        !self.eligible.is_empty()
    }
}

/// Judges every role.
pub(super) fn judge(view: &View, slots: &Slots, retirement: Option<&Retirement>, enabled: bool) -> Verdicts {
    let mut verdicts = Verdicts::default();
    for role in &view.deployment.spec.roles {
        let gated = enabled && view.deployment.can_be_gated(role);
        if gated {
            verdicts.eligible.insert(role.name.clone(), 0);
        }
        if gated || view.mixed_modes(role) {
            judge_role(view, role, &|ordinal| planned(role, ordinal, slots, retirement), &mut verdicts);
        }
    }
    verdicts
}

fn judge_role(view: &View, role: &Role, planned: &dyn Fn(u32) -> bool, verdicts: &mut Verdicts) {
    let (gated, mixed) = (verdicts.is_gated(&role.name), view.mixed_modes(role));
    for ordinal in view.ordinals(&role.name, role.replicas) {
        let replica = view.replica(&role.name, ordinal);
        let whole = replica.is_ready() && !planned(ordinal);
        if let Some(count) = verdicts.eligible.get_mut(&role.name) {
            *count += u32::from(whole);
        }
        for pod in replica.pods {
            let answers = member(pod) == 0 || role.every_rank_serves();
            let eligible = gated && answers && whole;
            verdicts.labels.extend(change(pod, keys::ELIGIBLE, eligible));
            let trusted = !gated || !render::is_managed(pod) || eligible;
            let answering = mixed && answers && trusted && is_ready(pod) && !is_deleting(pod) && !planned(ordinal);
            verdicts.labels.extend(change(pod, keys::API_ANSWERING, answering));
        }
    }
}

/// A replacement or a retirement (in any state) names this ordinal.
fn planned(role: &Role, ordinal: u32, slots: &Slots, retirement: Option<&Retirement>) -> bool {
    slots.get(&role.name).is_some_and(|slot| slot.ordinal == ordinal)
        || retirement.is_some_and(|retirement| retirement.role_name == role.name && retirement.replica_ordinal == ordinal)
}

fn change(pod: &Pod, key: &'static str, on: bool) -> Option<Action> {
    (label(pod, key).is_some() != on).then(|| Action::SetLabel { name: name(pod).to_owned(), key, on })
}
