//! One test for each row of the operator examples' README.

use config::Membership;

use super::cluster::{Cluster, NS, R0, R0M0, R1, has, values};
use crate::snapshot::{GroupPhase, Outlook, Reason};
use crate::source::file::documents;

#[test]
fn settled_deployment_has_two_leaders_under_the_name_of_its_command() {
    let cluster = Cluster::steady();
    assert_eq!(cluster.routable("demo-chat"), [R0, R1]);
    let snapshot = cluster.snapshot();
    assert_eq!(snapshot.pools.keys().map(|name| &**name).collect::<Vec<_>>(), ["demo-chat"]);
    assert_eq!(snapshot.deployments.get(format!("{NS}/demo-mh").as_str()).map(|name| &**name), Some("demo-chat"));
    assert!(!snapshot.names_pending);
    let group = cluster.group("server/0");
    assert_eq!(&*group.key.0, "gpustack-elastic/demo-mh/server/0");
    assert_eq!(
        group.members.iter().map(|member| (&*member.pod, member.index)).collect::<Vec<_>>(),
        [("demo-mh-server-r0-m0", 0), ("demo-mh-server-r0-m1", 1)]
    );
    assert!(!group.managed);
    assert_eq!(group.leader.as_ref().and_then(|leader| leader.uid.as_deref()), Some(R0M0));
}

#[test]
fn both_served_versions_of_a_deployment_are_one() {
    let text =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/operator/00-modeldeployment-steady.yaml")).unwrap();
    assert_eq!(values("00-modeldeployment-steady").len(), 2);
    let documents = documents(&text).unwrap();
    assert_eq!(documents.len(), 2, "both versions are accepted");
}

#[test]
fn slot_in_cleanup_drains() {
    let cluster = Cluster::steady_then("10-rollout-1-cleanup-r1");
    assert_eq!(cluster.routable("demo-chat"), [R0]);
    assert_eq!(cluster.shows("server/1"), "Draining replacement_cleanup,member_deleting");
    let drain = cluster.group("server/1").drain.clone().expect("a budget");
    assert_eq!(drain.grace.as_secs(), 30);
    assert_eq!(drain.streams_until, drain.since, "take-over engines get SIGTERM at once");
    assert!(cluster.group("server/1").broken);
}

#[test]
fn recreated_replica_that_waits_for_admission_is_coming() {
    let mut cluster = Cluster::steady_then("10-rollout-1-cleanup-r1");
    cluster.step("11-rollout-2-waiting-admission-r1");
    assert_eq!(cluster.routable("demo-chat"), [R0]);
    assert_eq!(cluster.shows("server/1"), "Forming replacement_waiting_for_admission,member_not_running");
    assert_eq!(cluster.pool("demo-chat").outlook, Outlook::Coming);
}

#[test]
fn ready_but_loading_replica_is_not_trusted_before_it_is_proven() {
    let mut cluster = Cluster::steady();
    let r0 = cluster.group("server/0").id.clone();
    cluster.prove_nothing();
    cluster.prove(&r0, Some(&["demo-chat"]));
    cluster.step("10-rollout-1-cleanup-r1");
    cluster.step("11-rollout-2-waiting-admission-r1");
    cluster.step("12-rollout-3-r1-ready-but-loading");
    assert_eq!(cluster.routable("demo-chat"), [R0]);
    assert_eq!(cluster.shows("server/1"), "Warming not_proven");
    assert!(cluster.state.probe_targets().iter().any(|target| target.id == cluster.group("server/1").id));
    let r1 = cluster.group("server/1").id.clone();
    cluster.prove(&r1, Some(&["demo-chat"]));
    assert_eq!(cluster.routable("demo-chat"), [R0, "http://10.244.2.20:8000"]);
}

#[test]
fn nothing_serves_while_one_loads_and_the_other_leaves() {
    let mut cluster = Cluster::steady();
    cluster.prove_nothing();
    cluster.step("13-rollout-4-cleanup-r0-zero-serving");
    assert_eq!(cluster.routable("demo-chat"), [""; 0]);
    assert!(has(&cluster.group("server/0"), GroupPhase::Draining, Reason::ReplacementCleanup));
    assert!(has(&cluster.group("server/1"), GroupPhase::Warming, Reason::NotProven));
    assert_eq!(cluster.pool("demo-chat").outlook, Outlook::Coming, "requests are held");
    assert!(!cluster.snapshot().names_pending, "the last known names outlive the gap");
}

#[test]
fn follower_not_ready_takes_its_group_out_in_strict_mode_only() {
    let mut cluster = Cluster::steady_then("20-follower-not-ready");
    assert_eq!(cluster.routable("demo-chat"), [R1]);
    assert_eq!(cluster.shows("server/0"), "Draining member_not_ready");
    assert!(cluster.group("server/0").broken);

    cluster = Cluster::steady();
    cluster.membership = Membership::Service;
    cluster.step("20-follower-not-ready");
    assert_eq!(cluster.routable("demo-chat"), [R0, R1]);
    assert_eq!(cluster.shows("server/0"), "Serving member_not_ready");
}

#[test]
fn retirement_drains() {
    let cluster = Cluster::steady_then("30-scale-down-retirement-disqualified");
    assert_eq!(cluster.routable("demo-chat"), [R0]);
    assert_eq!(cluster.shows("server/1"), "Draining retiring");
    assert!(!cluster.group("server/1").broken, "nothing is wrong with it");
}

#[test]
fn size_one_managed_with_and_without_member_index() {
    let mut cluster = Cluster::of(&["50-size1-managed"]);
    cluster.refresh();
    assert_eq!(cluster.routable("demo-org/demo-chat"), ["http://10.244.5.11:8000"]);
    let serving = cluster.group("server/0");
    assert_eq!(serving.leader.as_ref().map(|leader| &*leader.pod), Some("demo-one-server-7k2fz"));
    assert!(serving.managed);
    assert_eq!(cluster.shows("server/1"), "Forming member_not_ready");
}

#[test]
fn prefill_and_decode_behind_a_router_are_one_target() {
    let mut cluster = Cluster::of(&["62-prefill-decode-router"]);
    cluster.refresh();
    assert_eq!(cluster.routable("demo-org/demo-chat"), ["http://10.96.10.20:8081"]);
    let group = cluster.group("demo-pd/router");
    assert_eq!(&*group.key.0, "gpustack-elastic/demo-pd/router");
    assert_eq!(group.ordinal, None);
    assert_eq!(cluster.pool("demo-org/demo-chat").groups.len(), 1);
}

#[test]
fn pods_of_an_earlier_deployment_of_the_same_name_are_nothing() {
    let mut cluster = Cluster::of(&["00-modeldeployment-steady", "02-services-endpointslices-steady", "70-stale-owner-pods"]);
    cluster.refresh();
    assert_eq!(cluster.routable("demo-chat"), [""; 0]);
    assert!(cluster.pool("demo-chat").groups.iter().all(|group| group.members.is_empty()));

    let mut cluster =
        Cluster::of(&["00-modeldeployment-steady", "01-pods-steady", "02-services-endpointslices-steady", "70-stale-owner-pods"]);
    cluster.refresh();
    assert_eq!(cluster.routable("demo-chat"), [R0, R1]);
}
