//! One test for each row of section 11.2 of the operator contract that discovery answers (the rows about requests are the gateway's), and
//! for the candidate rules of 11.1.

use std::time::Duration;

use config::Membership;
use serde_json::{Value, json};

use super::cluster::{Cluster, DEMO, R0M0, R0M1, R1M0, R1M1, deleting, ready, values};
use crate::probe::Verdict;
use crate::snapshot::{Outlook, Reason};

const R0: &str = "http://10.244.1.10:8000";
const R1: &str = "http://10.244.2.10:8000";
const SERVICE: &str = "6086712b-537a-480d-a119-25a388255a6f";
const NOTHING: [&str; 0] = [];

fn routable(cluster: &Cluster) -> Vec<String> {
    cluster.routable("demo-chat")
}

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

fn retirement(state: &str) -> impl FnOnce(&mut Value) + '_ {
    move |object| {
        object["status"]["retirement"] =
            json!({"roleName": "server", "replicaOrdinal": 1, "targetMemberUIDs": [R1M0, R1M1], "state": state});
    }
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

/// Turns the eligibility gate on; `eligible` carry the label.
fn gate(cluster: &mut Cluster, eligible: &[&str]) {
    for uid in eligible {
        cluster.edit(uid, |pod| pod["metadata"]["labels"]["modeldeployment.gpustack.ai/endpoint-eligible"] = json!("true"));
    }
    cluster.edit(SERVICE, |service| service["spec"]["selector"]["modeldeployment.gpustack.ai/endpoint-eligible"] = json!("true"));
}

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
fn missing_service_falls_back_to_the_leader() {
    let mut cluster = Cluster::steady();
    cluster.delete(SERVICE);
    cluster.refresh();
    assert_eq!(routable(&cluster), [R0, R1], "container port 8000");
}

#[test]
fn serving_port_is_the_services_target_by_number_or_name() {
    let mut cluster = Cluster::steady();
    let port = |target: Value| {
        move |service: &mut Value| {
            service["spec"]["ports"] = json!([{"name": "kv", "port": 5557}, {"name": "http", "port": 80, "targetPort": target}])
        }
    };
    cluster.edit(SERVICE, port(json!(9000)));
    assert_eq!(routable(&cluster), ["http://10.244.1.10:9000", "http://10.244.2.10:9000"]);
    cluster.edit(SERVICE, port(json!("http")));
    assert_eq!(routable(&cluster), [R0, R1]);
}

#[test]
fn new_port_of_the_same_name_is_used() {
    let mut cluster = Cluster::steady();
    cluster.delete(SERVICE);
    cluster.edit(R0M0, |pod| pod["spec"]["containers"][0]["ports"][0]["containerPort"] = json!(8123));
    assert_eq!(routable(&cluster), ["http://10.244.1.10:8123", R1]);
}

#[test]
fn unproven_engine_gets_nothing_and_a_proof_is_a_gain() {
    let mut cluster = Cluster::steady();
    let id = cluster.group("server/1").id.clone();
    let lost = cluster.verdict(&id, Verdict { proven: false, reason: Some(Reason::ProbeTimeout), ..Verdict::default() });
    assert!(lost.loss);
    assert_eq!(cluster.shows("server/1"), "Warming probe_timeout");
    let delta = cluster.verdict(&id, Verdict { proven: true, proof: 2, ..Verdict::default() });
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

fn rollout(since: &str) -> impl FnOnce(&mut Value) + '_ {
    move |object| {
        object["status"]["conditions"] =
            json!([{"type": "ReplicasUpToDate", "status": "False", "reason": "RolloutInProgress", "lastTransitionTime": since}]);
    }
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
    assert!(!delta.any && !delta.loss && !delta.targets);
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
fn https_by_the_status_of_the_first_role_or_by_the_command_line() {
    let mut cluster = Cluster::steady();
    cluster.edit(DEMO, |object| object["status"]["endpoint"] = json!("https://demo-mh.gpustack-elastic.svc:8000"));
    assert_eq!(routable(&cluster), ["https://10.244.1.10:8000", "https://10.244.2.10:8000"]);
    let mut cluster = Cluster::steady();
    cluster.edit(R0M0, |pod| pod["spec"]["containers"][0]["args"] = json!(["--ssl-certfile", "/tls/crt"]));
    assert_eq!(routable(&cluster), ["https://10.244.1.10:8000", R1]);
}

#[test]
fn shape_that_contradicts_itself_is_not_used() {
    let labels = |key: &'static str, value: Value| move |pod: &mut Value| pod["metadata"]["labels"][key] = value;
    let member = "modeldeployment.gpustack.ai/member-index";
    for broken in ["1", "7", "x", "-1"] {
        let mut cluster = Cluster::steady();
        cluster.edit(R0M0, labels(member, json!(broken)));
        assert_eq!(routable(&cluster), [R1], "{broken}");
        assert!(cluster.group("server/0").reasons.contains(&Reason::ShapeUnreadable), "{broken}");
    }
    let mut cluster = Cluster::steady();
    cluster.edit(R0M1, |pod| pod["metadata"]["annotations"]["kueue.x-k8s.io/pod-group-total-count"] = json!("3"));
    assert_eq!(cluster.shows("server/0"), "Draining shape_unreadable");
}

#[test]
fn size_comes_from_the_members_never_from_the_spec() {
    let mut cluster = Cluster::steady();
    cluster.edit(DEMO, |object| object["spec"]["roles"][0]["size"] = json!(4));
    assert_eq!(routable(&cluster), [R0, R1]);
}

#[test]
fn pod_with_the_labels_but_another_owner_gets_nothing() {
    let mut cluster = Cluster::steady();
    let mut pod = cluster.object(R0M0);
    pod["metadata"]["uid"] = json!("stranger");
    pod["metadata"]["ownerReferences"][0]["uid"] = json!("somebody");
    pod["status"]["podIP"] = json!("10.9.9.9");
    cluster.put(pod);
    cluster.refresh();
    assert_eq!(routable(&cluster), [R0, R1]);
    let mut orphan = cluster.object(R0M0);
    orphan["metadata"]["uid"] = json!("orphan");
    orphan["metadata"]["ownerReferences"][0]["controller"] = json!(false);
    cluster.put(orphan);
    cluster.refresh();
    assert_eq!(routable(&cluster), [R0, R1]);
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
fn elastic_role_answers_at_ordinal_zero_only() {
    let mut cluster = Cluster::steady();
    cluster.edit(DEMO, |object| object["spec"]["roles"][0]["elasticEp"] = json!({"width": 2}));
    assert_eq!(routable(&cluster), [R0]);
    assert!(cluster.group("server/1").reasons.contains(&Reason::ElasticFollower));
    assert!(cluster.state.probe_targets().iter().all(|target| !target.key.0.ends_with("/1")));
}

fn every_rank(cluster: &mut Cluster, load_balance: &str) {
    cluster.edit(SERVICE, |service| {
        service["spec"]["selector"].as_object_mut().unwrap().shift_remove("modeldeployment.gpustack.ai/member-index");
    });
    cluster.edit(DEMO, |object| object["status"]["roles"][0]["parallelism"]["loadBalance"] = json!(load_balance));
}

#[test]
fn external_and_hybrid_data_parallelism_publish_every_rank() {
    for load_balance in ["External", "Hybrid"] {
        let mut cluster = Cluster::steady();
        every_rank(&mut cluster, load_balance);
        assert_eq!(routable(&cluster), [R0, "http://10.244.1.11:8000", R1, "http://10.244.2.11:8000"]);
        let rank = cluster.group("server/0/1");
        assert_eq!(&*rank.key.0, "gpustack-elastic/demo-mh/server/0/1");
        assert_eq!(rank.members.len(), 2);
        cluster.edit(R0M0, |pod| deleting(pod, "2027-01-15T08:00:30Z"));
        assert_eq!(routable(&cluster), [R1, "http://10.244.2.11:8000"], "the replica goes as a whole");
    }
}

#[test]
fn rank_that_the_service_does_not_select_is_not_routed() {
    let mut cluster = Cluster::steady();
    cluster.edit(DEMO, |object| object["status"]["roles"][0]["parallelism"]["loadBalance"] = json!("External"));
    assert_eq!(routable(&cluster), [R0, R1], "the selector is still narrowed to member 0");
}

#[test]
fn internal_role_never_gets_requests_at_a_follower() {
    let mut cluster = Cluster::steady();
    every_rank(&mut cluster, "Internal");
    gate(&mut cluster, &[R0M0, R0M1, R1M0, R1M1]);
    assert_eq!(routable(&cluster), [R0, R1]);
}

#[test]
fn eligible_members_behind_an_open_selector_are_all_ranks() {
    let mut cluster = Cluster::steady();
    every_rank(&mut cluster, "Unknown");
    assert_eq!(routable(&cluster), [R0, R1]);
    gate(&mut cluster, &[R0M0, R0M1, R1M0, R1M1]);
    assert_eq!(routable(&cluster).len(), 4);
}

#[test]
fn disaggregated_roles_without_a_router_are_not_servable() {
    let mut cluster = Cluster::steady();
    for kind in ["Prefill", "Decode", "Encode"] {
        cluster.edit(DEMO, |object| object["spec"]["roles"][0]["kind"] = json!(kind));
        assert!(cluster.group("server/0").reasons.contains(&Reason::NotServable), "{kind}");
        assert!(cluster.snapshot().pools.is_empty(), "{kind}");
        assert!(cluster.state.probe_targets().is_empty(), "{kind}");
    }
}

#[test]
fn router_without_service_is_not_ready() {
    let mut cluster = Cluster::of(&["62-prefill-decode-router"]);
    cluster.refresh();
    let service = cluster.uid("Service", "demo-pd-router");
    let deployment = cluster.uid("ModelDeployment", "demo-pd");
    cluster.delete(&service);
    cluster.refresh();
    assert_eq!(cluster.routable("demo-org/demo-chat"), ["http://demo-pd-router.gpustack-elastic.svc:8081"], "as announced in the status");
    cluster.edit(&deployment, |object| {
        object["status"].as_object_mut().unwrap().shift_remove("router");
    });
    assert_eq!(cluster.shows("demo-pd/router"), "Draining router_not_ready", "it served before");
    assert_eq!(cluster.pool("demo-org/demo-chat").outlook, Outlook::Coming);

    let mut cluster = Cluster::of(&["62-prefill-decode-router"]);
    cluster.delete(&service);
    cluster.edit(&deployment, |object| {
        object["status"].as_object_mut().unwrap().shift_remove("router");
    });
    assert_eq!(cluster.shows("demo-pd/router"), "Forming router_not_ready");
}

#[test]
fn headless_router_is_reached_by_name_and_target_port() {
    let mut cluster = Cluster::of(&["62-prefill-decode-router"]);
    cluster.refresh();
    let service = cluster.uid("Service", "demo-pd-router");
    cluster.edit(&service, |service| {
        service["spec"]["clusterIP"] = json!("None");
        service["spec"]["ports"][0]["targetPort"] = json!(8082);
    });
    assert_eq!(cluster.routable("demo-org/demo-chat"), ["http://demo-pd-router.gpustack-elastic.svc:8082"]);
}

#[test]
fn router_that_does_not_answer_names_its_reason() {
    let mut cluster = Cluster::of(&["62-prefill-decode-router"]);
    cluster.prove_nothing();
    cluster.refresh();
    assert_eq!(cluster.shows("demo-pd/router"), "Warming not_proven");
    let deployment = cluster.uid("ModelDeployment", "demo-pd");
    cluster.edit(&deployment, |object| {
        object["status"]["conditions"] = json!([{"type": "RouterReady", "status": "False", "reason": "NoReadyReplicas"}])
    });
    assert_eq!(cluster.shows("demo-pd/router"), "Forming router_not_ready,not_proven");
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
fn unchanged_groups_and_pools_keep_their_arcs() {
    let mut cluster = Cluster::steady();
    let (before, r0) = (cluster.pool("demo-chat"), cluster.group("server/0"));
    cluster.edit(R1M1, |pod| pod["metadata"]["resourceVersion"] = json!("999999"));
    assert!(std::sync::Arc::ptr_eq(&before, &cluster.pool("demo-chat")));
    cluster.edit(R1M1, |pod| ready(pod, "False"));
    assert!(std::sync::Arc::ptr_eq(&r0, &cluster.group("server/0")));
}
