//! Signs of leaving (operator contract 11.2): one test a row.

use std::time::Duration;

use serde_json::{Value, json};

use super::cluster::{
    Cluster, DEMO, NOTHING, R0, R0M0, R1, R1M0, R1M1, deleting, demo_routable as routable, gate, ready, retirement, rollout,
};
use crate::snapshot::{Outlook, Reason};

#[test]
fn any_deleting_member_takes_the_group_out_at_once() {
    for member in [R1M0, R1M1] {
        let mut cluster = Cluster::steady();
        let before = cluster.group("server/1").id.clone();
        let delta = cluster.edit(member, |pod| deleting(pod, "2027-01-15T08:00:30Z"));
        assert!(delta.loss, "a loss is published at once");
        assert_eq!(routable(&cluster), [R0]);
        assert_eq!(cluster.shows("server/1"), "Draining member_deleting");
        assert_eq!(cluster.group("server/1").id, before, "its streams belong to the same incarnation");
    }
}

#[test]
fn a_managed_drain_leaves_grace_minus_five_seconds_and_followers_go_first() {
    let mut cluster = Cluster::steady();
    for uid in [R1M0, R1M1] {
        cluster.edit(uid, |pod| {
            pod["metadata"]["annotations"]["prometheus.io/port"] = json!("8000");
            deleting(pod, "2027-01-15T08:00:30Z");
        });
    }
    let group = cluster.group("server/1");
    let drain = group.drain.clone().expect("a budget");
    assert!(group.managed);
    assert_eq!(drain.streams_until.duration_since(drain.since).unwrap(), Duration::from_secs(25));
    assert_eq!(drain.followers_until.unwrap().duration_since(drain.since).unwrap(), Duration::from_secs(5));
}

#[test]
fn a_group_that_drains_keeps_its_id_until_its_last_member_is_gone() {
    let mut cluster = Cluster::steady();
    let id = cluster.group("server/1").id.clone();
    for uid in [R1M0, R1M1] {
        cluster.edit(uid, |pod| deleting(pod, "2027-01-15T08:00:30Z"));
    }
    cluster.delete(R1M1);
    cluster.refresh();
    assert_eq!(cluster.group("server/1").id, id);
    assert_eq!(cluster.shows("server/1"), "Draining member_deleting,member_missing");
    cluster.delete(R1M0);
    cluster.refresh();
    assert_ne!(cluster.group("server/1").id, id);
    assert_eq!(cluster.shows("server/1"), "Forming member_missing");
    assert_eq!(cluster.pool("demo-chat").outlook, Outlook::Coming, "the slot is filled again");
}

#[test]
fn cleanup_counts_for_the_members_it_names_only() {
    let slots = |uids: &[&str]| json!({"server": {"role": "server", "ordinal": 1, "phase": "Cleanup", "memberUIDs": uids}}).to_string();
    let annotate = |text: String| {
        move |object: &mut Value| object["metadata"]["annotations"]["modeldeployment.gpustack.ai/replacement-slots"] = json!(text)
    };
    let mut cluster = Cluster::steady();
    assert!(cluster.edit(DEMO, annotate(slots(&[R1M0, R1M1]))).loss);
    assert_eq!(cluster.shows("server/1"), "Draining replacement_cleanup");
    cluster.edit(DEMO, annotate(slots(&["earlier"])));
    assert_eq!(cluster.shows("server/1"), "Serving", "the record speaks of an earlier occupant");
    cluster.edit(DEMO, annotate("not json".to_owned()));
    assert_eq!(cluster.shows("server/1"), "Serving", "what cannot be read takes nothing out");
}

#[test]
fn waiting_for_admission_is_coming_and_not_routed() {
    let mut cluster = Cluster::steady();
    let slots = json!({"server": {"ordinal": 1, "phase": "WaitingForAdmission", "currentMemberUIDs": [R1M0]}}).to_string();
    cluster.edit(DEMO, |object| object["metadata"]["annotations"] = json!({"modeldeployment.gpustack.ai/replacement-slots": slots}));
    assert_eq!(routable(&cluster), [R0]);
    assert!(cluster.group("server/1").reasons.contains(&Reason::ReplacementWaiting));
}

#[test]
fn every_state_of_a_retirement_but_aborted_drains() {
    for state in ["Admitted", "Disqualified", "Withdrawing", "Draining", "Deleting", "Settling"] {
        let mut cluster = Cluster::steady();
        assert!(cluster.edit(DEMO, retirement(state)).loss);
        assert_eq!(cluster.shows("server/1"), "Draining retiring", "{state}");
    }
}

#[test]
fn an_aborted_retirement_is_kept_as_the_service_has_it() {
    let mut cluster = Cluster::steady();
    cluster.edit(DEMO, retirement("Draining"));
    cluster.edit(DEMO, retirement("Aborted"));
    assert_eq!(cluster.shows("server/1"), "Serving retirement_aborted", "an ungated role's Service still selects it");
    assert!(cluster.group("server/1").drain.is_none());

    gate(&mut cluster, &[R0M0]);
    assert_eq!(cluster.shows("server/1"), "Draining not_eligible,retirement_aborted", "a gated role's label stays off");
}

#[test]
fn rollout_marks_the_highest_replica_that_is_still_old() {
    let mut cluster = Cluster::steady();
    assert!(!cluster.group("server/1").next_to_go);
    let delta = cluster.edit(DEMO, rollout("2026-11-30T11:00:00Z"));
    assert!(delta.loss, "an avoidable group is to be avoided at once");
    assert!(cluster.group("server/1").next_to_go && !cluster.group("server/0").next_to_go);
    assert_eq!(routable(&cluster), [R0, R1], "it still serves");
    for uid in [R1M0, R1M1] {
        cluster.edit(uid, |pod| pod["metadata"]["creationTimestamp"] = json!("2026-11-30T11:00:40Z"));
    }
    assert!(cluster.group("server/0").next_to_go && !cluster.group("server/1").next_to_go);
}

#[test]
fn new_generation_without_a_rollout_changes_nothing() {
    let mut cluster = Cluster::steady();
    let delta = cluster.edit(DEMO, |object| object["metadata"]["generation"] = json!(2));
    assert!(!delta.any && !delta.loss && delta.start.is_empty() && delta.stop.is_empty());
}

#[test]
fn deleting_deployment_admits_nothing_and_waiting_is_vain() {
    let mut cluster = Cluster::steady();
    assert!(cluster.edit(DEMO, |object| object["status"]["phase"] = json!("Deleting")).loss);
    assert_eq!(routable(&cluster), NOTHING);
    assert_eq!(cluster.shows("server/0"), "Draining deployment_deleting");
    assert_eq!(cluster.pool("demo-chat").outlook, Outlook::Nothing);
    cluster.delete(DEMO);
    cluster.refresh();
    assert!(cluster.snapshot().pools.is_empty());
}

#[test]
fn recreated_deployment_of_the_same_name_drops_the_old_pods() {
    let mut cluster = Cluster::steady();
    let mut new = cluster.object(DEMO);
    new["metadata"]["uid"] = json!("second");
    new["metadata"]["creationTimestamp"] = json!("2026-12-01T00:00:00Z");
    cluster.put(new);
    assert!(cluster.refresh().loss);
    assert_eq!(routable(&cluster), NOTHING, "also before the old object is gone");
    assert!(cluster.pool("demo-chat").groups.iter().all(|group| group.members.is_empty()));
    cluster.delete(DEMO);
    cluster.refresh();
    assert_eq!(cluster.pool("demo-chat").groups.len(), 2);
}

#[test]
fn length_of_a_replacement_is_remembered() {
    let mut cluster = Cluster::steady();
    assert_eq!(cluster.pool("demo-chat").last_replacement, None);
    for uid in [R1M0, R1M1] {
        cluster.delete(uid);
    }
    cluster.refresh();
    cluster.now += Duration::from_secs(90);
    cluster.prove_nothing();
    cluster.step("12-rollout-3-r1-ready-but-loading");
    cluster.now += Duration::from_secs(30);
    let id = cluster.group("server/1").id.clone();
    cluster.prove(&id, None);
    assert_eq!(cluster.pool("demo-chat").last_replacement, Some(Duration::from_secs(120)));
}

#[test]
fn a_retirement_cuts_no_stream_before_its_deadline() {
    let mut cluster = Cluster::steady_then("30-scale-down-retirement-disqualified");
    let budget = |cluster: &Cluster| cluster.group("server/1").drain.clone().expect("a budget");
    let deadline = std::time::SystemTime::from("2026-11-30T13:05:00Z".parse::<k8s_openapi::jiff::Timestamp>().unwrap());
    assert_eq!(budget(&cluster).streams_until, deadline);
    cluster.edit(R1M1, |pod| ready(pod, "False"));
    assert_eq!(budget(&cluster).streams_until, cluster.now, "it may hang without that member");
    cluster.edit(R1M1, |pod| ready(pod, "True"));
    cluster.edit(R1M0, |pod| deleting(pod, "2026-11-30T13:02:30Z"));
    assert_eq!(budget(&cluster).streams_until, deadline - Duration::from_secs(180), "the delete, for a take-over engine");
}
