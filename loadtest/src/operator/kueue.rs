//! A stand-in for Kueue: one Workload for each whole group of gated Pods, admitted after a while; finalizers that outlive a deletion
//! until the Workload is gone. Pure; time comes in.
//!
//! Next: `run` carries out what [`Kueue::admissions`] and [`Kueue::releases`] name.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Pod;

use super::keys;
use super::render;
use super::view::{self, Workload};

/// Namespace and group name.
pub(super) type GroupRef = (String, String);

/// All Workloads.
#[derive(Debug, Default)]
pub(super) struct Kueue {
    workloads: BTreeMap<GroupRef, Entry>,
    held_until: Option<Instant>,
    created: u64,
}

#[derive(Debug)]
struct Entry {
    /// UID of the deployment.
    owner: String,
    workload: Workload,
    since: Instant,
}

impl Kueue {
    /// Takes note of the Pods that stand: a whole group without a Workload gets one. A group that is past its gates is taken as admitted
    /// (the simulator was restarted).
    pub(super) fn observe(&mut self, pods: &[Pod], now: Instant) {
        for (group, pods) in groups(pods) {
            let total = pods.iter().map(|pod| render::group_total(pod)).max().unwrap_or(1);
            if self.workloads.contains_key(&group) || u32::try_from(pods.len()) != Ok(total) {
                continue;
            }
            self.created += 1;
            let workload = Workload {
                uid: format!("workload-{}-{}", std::process::id(), self.created),
                members: pods.iter().map(|pod| view::uid(pod).to_owned()).collect(),
                admitted: !pods.iter().any(|pod| view::is_gated(pod)),
            };
            let owner = pods.first().and_then(|pod| owner_uid(pod)).unwrap_or_default();
            self.workloads.insert(group, Entry { owner, workload, since: now });
        }
    }

    /// Groups whose time has come and whose Pods are still gated.
    pub(super) fn admissions<'a>(&self, pods: &'a [Pod], now: Instant, delay: Duration) -> Vec<(GroupRef, Vec<&'a Pod>)> {
        if self.held_until.is_some_and(|until| now < until) {
            return vec![];
        }
        let due = |group: &GroupRef| {
            self.workloads.get(group).is_some_and(|entry| !entry.workload.admitted && now.duration_since(entry.since) >= delay)
        };
        groups(pods).into_iter().filter(|(group, _)| due(group)).collect()
    }

    /// Records that every Pod of the group has passed its gate.
    pub(super) fn admitted(&mut self, group: &GroupRef) {
        if let Some(entry) = self.workloads.get_mut(group) {
            entry.workload.admitted = true;
        }
    }

    /// Nothing is admitted before `until`.
    pub(super) fn hold(&mut self, until: Instant) {
        self.held_until = Some(until);
    }

    /// The operator deletes a Workload.
    pub(super) fn drop_workload(&mut self, namespace: &str, group: &str) {
        self.workloads.remove(&(namespace.to_owned(), group.to_owned()));
    }

    /// Terminating Pods whose finalizer is free to go.
    pub(super) fn releases<'a>(&self, pods: &'a [Pod]) -> Vec<&'a Pod> {
        let held = |pod: &Pod| {
            let member = |entry: &Entry| entry.workload.members.contains(view::uid(pod));
            group_ref(pod).is_some_and(|group| self.workloads.get(&group).is_some_and(member))
        };
        let finalized = |pod: &Pod| pod.metadata.finalizers.as_ref().is_some_and(|all| all.iter().any(|one| one == keys::POD_FINALIZER));
        pods.iter().filter(|pod| view::is_deleting(pod) && finalized(pod) && !held(pod)).collect()
    }

    /// The Workloads of one deployment, by group name.
    pub(super) fn of_owner(&self, uid: &str) -> BTreeMap<String, Workload> {
        let own = self.workloads.iter().filter(|(_, entry)| entry.owner == uid);
        own.map(|((_, group), entry)| (group.clone(), entry.workload.clone())).collect()
    }
}

fn owner_uid(pod: &Pod) -> Option<String> {
    let owners = pod.metadata.owner_references.as_ref()?;
    owners.iter().find(|owner| owner.controller == Some(true)).map(|owner| owner.uid.clone())
}

/// Pods that are there to stay, by group.
fn groups(pods: &[Pod]) -> BTreeMap<GroupRef, Vec<&Pod>> {
    let mut groups: BTreeMap<GroupRef, Vec<&Pod>> = BTreeMap::new();
    for pod in pods.iter().filter(|pod| !view::is_deleting(pod) && !view::is_ended(pod)) {
        if let Some(group) = group_ref(pod) {
            groups.entry(group).or_default().push(pod);
        }
    }
    groups
}

fn group_ref(pod: &Pod) -> Option<GroupRef> {
    Some((pod.metadata.namespace.clone()?, view::label(pod, keys::GROUP_NAME)?.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::super::testing::deployment;
    use super::*;
    use serde_json::json;

    fn gated(uid: &str, member: u32) -> Pod {
        let deployment = deployment(json!({"size": 2}));
        let mut pod = render::pod(&deployment, &deployment.spec.roles[0], render::Seat { ordinal: 0, member }).pod;
        pod["metadata"]["uid"] = json!(uid);
        serde_json::from_value(pod).unwrap()
    }

    #[test]
    fn only_a_whole_group_is_admitted_and_only_after_the_delay() {
        let (mut kueue, now, delay) = (Kueue::default(), Instant::now(), Duration::from_secs(2));
        let mut pods = vec![gated("a", 0)];
        kueue.observe(&pods, now);
        assert!(kueue.of_owner("owner").is_empty());
        pods.push(gated("b", 1));
        kueue.observe(&pods, now);
        assert!(kueue.admissions(&pods, now, delay).is_empty());
        let later = now + delay;
        let (group, members) = kueue.admissions(&pods, later, delay).remove(0);
        assert_eq!(members.len(), 2);
        kueue.hold(later + delay);
        assert!(kueue.admissions(&pods, later, delay).is_empty());
        kueue.admitted(&group);
        assert!(kueue.of_owner("owner").values().all(|workload| workload.admitted));
    }

    #[test]
    fn finalizers_stay_until_the_workload_goes() {
        let mut kueue = Kueue::default();
        let mut pods = vec![gated("a", 0), gated("b", 1)];
        kueue.observe(&pods, Instant::now());
        let group = group_ref(&pods[0]).unwrap().1;
        pods[0].metadata.deletion_timestamp =
            Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(k8s_openapi::jiff::Timestamp::UNIX_EPOCH));
        assert!(kueue.releases(&pods).is_empty());
        kueue.drop_workload("ns", &group);
        assert_eq!(kueue.releases(&pods).len(), 1);
    }
}
