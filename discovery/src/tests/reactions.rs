//! Reactions of a group that stays (operator contract 11.2; rows about requests are the gateway's): one test a row.

use config::Membership;
use serde_json::{Value, json};

use super::cluster::{Cluster, NOTHING, R0, R0M0, R0M1, R1, R1M0, R1M1, SERVICE, deleting, demo_routable as routable, gate, ready, values};
use crate::probe::Verdict;
use crate::snapshot::Reason;

#[test]
fn leader_not_ready_leaves_new_picks() {
    let mut cluster = Cluster::steady();
    assert!(cluster.edit(R0M0, |pod| ready(pod, "False")).loss);
    assert_eq!(routable(&cluster), [R1]);
    assert_eq!(cluster.shows("server/0"), "Draining member_not_ready");
    cluster.edit(R0M0, |pod| ready(pod, "True"));
    assert_eq!(routable(&cluster), [R0, R1], "the same containers: the proof holds");
}

#[test]
fn unknown_readiness_is_not_ready() {
    let mut cluster = Cluster::steady();
    cluster.edit(R0M1, |pod| ready(pod, "Unknown"));
    assert_eq!(routable(&cluster), [R1]);
}

#[test]
fn follower_that_is_gone_takes_its_group_out_in_strict_mode() {
    let mut cluster = Cluster::steady();
    cluster.delete(R0M1);
    assert!(cluster.refresh().loss);
    assert_eq!(routable(&cluster), [R1]);
    assert_eq!(cluster.shows("server/0"), "Draining member_missing");

    let mut cluster = Cluster::steady();
    cluster.membership = Membership::Service;
    cluster.delete(R0M1);
    cluster.refresh();
    assert_eq!(routable(&cluster), [R0, R1]);
    assert!(cluster.group("server/0").broken, "its streams get resume.stall of silence all the same");
}

#[test]
fn mirror_mode_follows_the_leader_alone() {
    let mut cluster = Cluster::steady();
    cluster.membership = Membership::Service;
    cluster.edit(R1M1, |pod| deleting(pod, "2027-01-15T08:00:30Z"));
    assert_eq!(routable(&cluster), [R0, R1]);
    cluster.edit(R1M0, |pod| ready(pod, "False"));
    assert_eq!(routable(&cluster), [R0]);
    cluster.edit(R0M0, |pod| deleting(pod, "2027-01-15T08:00:30Z"));
    assert_eq!(routable(&cluster), NOTHING);
}

#[test]
fn eligibility_label_gone_takes_the_group_out_with_a_reason() {
    let mut cluster = Cluster::steady();
    gate(&mut cluster, &[R0M0, R1M0]);
    assert_eq!(routable(&cluster), [R0, R1]);
    let off = |pod: &mut Value| {
        pod["metadata"]["labels"].as_object_mut().unwrap().shift_remove("modeldeployment.gpustack.ai/endpoint-eligible");
    };
    assert!(cluster.edit(R1M0, off).loss);
    assert_eq!(cluster.shows("server/1"), "Draining not_eligible");
}

#[test]
fn selector_that_does_not_match_takes_the_group_out() {
    let mut cluster = Cluster::steady();
    let delta = cluster.edit(SERVICE, |service| service["spec"]["selector"]["modeldeployment.gpustack.ai/api-answering"] = json!("true"));
    assert!(delta.loss);
    assert_eq!(routable(&cluster), NOTHING);
    assert_eq!(cluster.shows("server/0"), "Draining not_selected");
    cluster.edit(R0M0, |pod| pod["metadata"]["labels"]["modeldeployment.gpustack.ai/api-answering"] = json!("true"));
    assert_eq!(routable(&cluster), [R0], "the key is read from the live selector, not known");
}

#[test]
fn unproven_engine_gets_nothing_and_a_proof_is_a_gain() {
    let mut cluster = Cluster::steady();
    let id = cluster.group("server/1").id.clone();
    let lost = cluster.verdict(&id, Verdict { proven: false, reason: Some(Reason::ProbeTimeout), ..Verdict::default() });
    assert!(lost.loss);
    assert_eq!(cluster.shows("server/1"), "Warming probe_timeout");
    let delta = cluster.verdict(&id, Verdict { proven: true, proof: 1, ..Verdict::default() });
    assert!(delta.any && !delta.loss);
    assert_eq!(cluster.group("server/1").proof, 2);
}

#[test]
fn container_restart_of_any_member_voids_the_proof() {
    for uid in [R0M0, R0M1] {
        let mut cluster = Cluster::steady();
        let before = cluster.group("server/0").id.clone();
        cluster.prove_nothing();
        let delta = cluster.edit(uid, |pod| {
            pod["status"]["containerStatuses"][0]["restartCount"] = json!(1);
            pod["status"]["containerStatuses"][0]["containerID"] = json!("containerd://new");
        });
        assert!(delta.loss);
        assert_ne!(cluster.group("server/0").id, before);
        assert_eq!(cluster.shows("server/0"), "Warming container_restarted,not_proven");
    }
}

#[test]
fn first_start_of_a_container_is_no_restart() {
    let mut cluster = Cluster::steady();
    cluster.prove_nothing();
    let start = |id: &str, phase: &str| {
        let mut pod = values("01-pods-steady").remove(0);
        pod["metadata"]["uid"] = json!("new");
        pod["status"]["phase"] = json!(phase);
        pod["status"]["containerStatuses"][0]["containerID"] = json!(id);
        pod
    };
    cluster.delete(R0M0);
    cluster.put(start("", "Pending"));
    cluster.refresh();
    cluster.put(start("containerd://one", "Running"));
    cluster.refresh();
    assert_eq!(cluster.shows("server/0"), "Warming not_proven");
}

#[test]
fn address_of_another_pod_is_another_incarnation() {
    let mut cluster = Cluster::steady();
    let before = cluster.group("server/0").id.clone();
    let mut pod = cluster.object(R0M0);
    cluster.delete(R0M0);
    pod["metadata"]["uid"] = json!("new-m0");
    cluster.put(pod);
    cluster.prove_nothing();
    cluster.refresh();
    assert_ne!(cluster.group("server/0").id, before, "same name and IP, new UID");
    assert_eq!(cluster.shows("server/0"), "Warming not_proven");
}

#[test]
fn unchanged_groups_and_pools_keep_their_arcs() {
    let mut cluster = Cluster::steady();
    let (before, r0) = (cluster.pool("demo-chat"), cluster.group("server/0"));
    cluster.edit(R1M1, |pod| pod["metadata"]["resourceVersion"] = json!("999999"));
    assert!(std::sync::Arc::ptr_eq(&before, &cluster.pool("demo-chat")));
    cluster.edit(R1M1, |pod| ready(pod, "False"));
    assert!(std::sync::Arc::ptr_eq(&r0, &cluster.group("server/0")));
}

#[test]
fn a_proof_count_does_not_fall_when_the_probe_begins_anew() {
    let mut cluster = Cluster::steady();
    let id = cluster.group("server/1").id.clone();
    let count = |cluster: &mut Cluster, proof| cluster.verdict(&id, Verdict { proven: proof > 0, proof, ..Verdict::default() });
    count(&mut cluster, 5);
    count(&mut cluster, 0);
    assert_eq!(cluster.group("server/1").proof, 5);
    count(&mut cluster, 1);
    assert_eq!(cluster.group("server/1").proof, 6);
}

#[test]
fn probing_starts_with_a_whole_group_and_stops_with_a_leaving_one() {
    let mut cluster = Cluster::steady();
    let id = cluster.group("server/1").id.clone();
    let delta = cluster.edit(R1M0, |pod| ready(pod, "False"));
    assert!(delta.start.is_empty() && delta.stop.is_empty(), "it served and may come back");
    let delta = cluster.edit(R1M1, |pod| deleting(pod, "2027-01-15T08:00:30Z"));
    assert_eq!(delta.stop, [id]);
    for uid in [R1M0, R1M1] {
        cluster.delete(uid);
    }
    cluster.refresh();
    cluster.load("12-rollout-3-r1-ready-but-loading");
    let delta = cluster.refresh();
    assert_eq!(delta.start.iter().map(|target| &*target.key.0).collect::<Vec<_>>(), ["gpustack-elastic/demo-mh/server/1"]);
}

#[test]
fn one_pod_event_asks_about_its_own_deployment_only() {
    let mut cluster =
        Cluster::of(&["00-modeldeployment-steady", "01-pods-steady", "02-services-endpointslices-steady", "50-size1-managed"]);
    cluster.refresh();
    cluster.asked.take();
    cluster.edit(R0M1, |pod| ready(pod, "False"));
    let asked = cluster.asked.take();
    assert!(!asked.is_empty() && asked.iter().all(|id| id.0.contains("/demo-mh/")), "{asked:?}");
}
