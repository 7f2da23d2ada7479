//! Which Pods are candidates, and where they answer (operator contract 11.1).

use serde_json::{Value, json};

use super::cluster::{Cluster, DEMO, R0, R0M0, R0M1, R1, R1M0, R1M1, SERVICE, deleting, demo_routable as routable, every_rank, gate};
use crate::snapshot::{Outlook, Reason};

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
fn elastic_role_answers_at_ordinal_zero_only() {
    let mut cluster = Cluster::steady();
    cluster.edit(DEMO, |object| object["spec"]["roles"][0]["elasticEp"] = json!({"width": 2}));
    assert_eq!(routable(&cluster), [R0]);
    assert!(cluster.group("server/1").reasons.contains(&Reason::ElasticFollower));
    assert!(cluster.state.probe_targets().iter().all(|target| !target.key.0.ends_with("/1")));
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
