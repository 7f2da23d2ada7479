//! What one pass of the simulated operator looks at: a deployment, its Pods, Services and Workloads. Pure.
//!
//! Pods belong to a deployment by label *and* controller UID, as the operator's own rule is. Next: `plan`.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Pod, Service};

use super::keys;
use super::render::{self, Seat};
use super::spec::{Deployment, Role};

/// A deployment and all that belongs to it.
pub(super) struct View {
    pub(super) deployment: Deployment,
    pub(super) pods: Vec<Pod>,
    pub(super) services: Vec<Service>,
    /// By group name.
    pub(super) workloads: BTreeMap<String, Workload>,
    /// UIDs of leaders whose engine has no work, of two reads in a row.
    pub(super) idle: BTreeSet<String>,
}

/// Kueue's object for one replica. It lives in the simulator's memory only: the gateway reads no Workloads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Workload {
    pub(super) uid: String,
    pub(super) members: BTreeSet<String>,
    pub(super) admitted: bool,
}

/// The Pods of one ordinal of a role.
pub(super) struct Replica<'a> {
    pub(super) ordinal: u32,
    pub(super) pods: Vec<&'a Pod>,
    pub(super) workload: Option<&'a Workload>,
}

impl View {
    /// Pods of a role, terminating ones too.
    pub(super) fn role_pods<'a>(&'a self, role: &'a str) -> impl Iterator<Item = &'a Pod> {
        self.pods.iter().filter(move |pod| label(pod, keys::COMPONENT) == Some(role))
    }

    /// One replica, present or not.
    pub(super) fn replica<'a>(&'a self, role: &'a str, ordinal: u32) -> Replica<'a> {
        let pods = self.role_pods(role).filter(|pod| render::number(pod, keys::ORDINAL) == Some(ordinal)).collect();
        let workload = self.workloads.get(&render::group_name(&self.deployment, role, ordinal));
        Replica { ordinal, pods, workload }
    }

    /// Ordinals that have at least one Pod or are declared, lowest first.
    pub(super) fn ordinals(&self, role: &str, replicas: u32) -> BTreeSet<u32> {
        let standing = self.role_pods(role).filter_map(|pod| render::number(pod, keys::ORDINAL));
        standing.chain(0..replicas).collect()
    }

    /// Whether some standing Pod's mode differs from the spec's.
    pub(super) fn mixed_modes(&self, role: &Role) -> bool {
        self.role_pods(&role.name).any(|pod| render::is_managed(pod) != role.managed() && is_running(pod))
    }
}

impl Replica<'_> {
    /// The size that it was built at; 1 when nothing stands.
    pub(super) fn total(&self) -> u32 {
        self.pods.iter().map(|pod| render::group_total(pod)).max().unwrap_or(1)
    }

    /// Members that are there to stay: neither deleting nor ended.
    pub(super) fn live(&self) -> impl Iterator<Item = &Pod> {
        self.pods.iter().copied().filter(|pod| !is_deleting(pod) && !is_ended(pod))
    }

    /// Every declared member is there to stay, each on a seat of its own.
    pub(super) fn is_complete(&self) -> bool {
        let seats: BTreeSet<u32> = self.live().map(member).collect();
        let total = self.total();
        seats.len() == self.pods.len() && u32::try_from(seats.len()) == Ok(total) && seats.iter().all(|seat| *seat < total)
    }

    /// Complete and every member Ready: what `status.roles[].ready` counts.
    pub(super) fn is_ready(&self) -> bool {
        self.is_complete() && self.pods.iter().all(|pod| is_ready(pod))
    }

    /// Its Workload is admitted.
    pub(super) fn is_admitted(&self) -> bool {
        self.workload.is_some_and(|workload| workload.admitted)
    }

    /// Nothing of it has ever been admitted or taken away: its creation may just go on.
    pub(super) fn is_forming(&self) -> bool {
        self.workload.is_none() && self.pods.iter().all(|pod| is_gated(pod) && !is_deleting(pod))
    }

    /// Some seat differs from what the spec renders for it now.
    pub(super) fn is_outdated(&self, deployment: &Deployment, role: &Role) -> bool {
        self.total() != role.size
            || self.live().any(|pod| {
                let seat = Seat { ordinal: self.ordinal, member: member(pod) };
                annotation(pod, keys::SPEC_HASH) != Some(render::pod(deployment, role, seat).hash.as_str())
            })
    }

    /// Members of the desired size that are missing.
    pub(super) fn missing(&self, size: u32) -> Vec<u32> {
        let seats: BTreeSet<u32> = self.pods.iter().map(|pod| member(pod)).collect();
        (0..size).filter(|seat| !seats.contains(seat)).collect()
    }

    /// UIDs of all its Pods, leader first.
    pub(super) fn uids(&self) -> Vec<String> {
        let mut pods: Vec<_> = self.pods.iter().map(|pod| (member(pod), uid(pod).to_owned())).collect();
        pods.sort();
        pods.into_iter().map(|(_, uid)| uid).collect()
    }
}

pub(super) fn uid(pod: &Pod) -> &str {
    pod.metadata.uid.as_deref().unwrap_or_default()
}

pub(super) fn name(pod: &Pod) -> &str {
    pod.metadata.name.as_deref().unwrap_or_default()
}

/// Seat inside the replica; absent reads as leader.
pub(super) fn member(pod: &Pod) -> u32 {
    render::number(pod, keys::MEMBER).unwrap_or(0)
}

pub(super) fn label<'a>(pod: &'a Pod, key: &str) -> Option<&'a str> {
    pod.metadata.labels.as_ref()?.get(key).map(String::as_str)
}

pub(super) fn annotation<'a>(pod: &'a Pod, key: &str) -> Option<&'a str> {
    pod.metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

pub(super) fn is_deleting(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some()
}

/// Phase Failed or Succeeded.
pub(super) fn is_ended(pod: &Pod) -> bool {
    matches!(phase(pod), Some("Failed" | "Succeeded"))
}

pub(super) fn is_running(pod: &Pod) -> bool {
    phase(pod) == Some("Running")
}

pub(super) fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.is_some_and(|conditions| conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True"))
}

pub(super) fn is_gated(pod: &Pod) -> bool {
    let gates = pod.spec.as_ref().and_then(|spec| spec.scheduling_gates.as_ref());
    gates.is_some_and(|gates| !gates.is_empty())
}

fn phase(pod: &Pod) -> Option<&str> {
    pod.status.as_ref()?.phase.as_deref()
}
