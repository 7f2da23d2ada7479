use serde_json::{Value, json};

use super::*;
use crate::fact::Kind;
use crate::source::decode::{self, Decoded};

fn fact(kind: Kind, value: Value) -> Option<Fact> {
    match decode::value(kind, value) {
        Decoded::Fact(fact) => Some(fact),
        Decoded::Foreign => None,
        Decoded::Unreadable(error) => panic!("{error}"),
    }
}

fn pod(edit: impl FnOnce(&mut Value)) -> Arc<PodFact> {
    let mut value = json!({"metadata": {"uid": "u", "labels": {"app.kubernetes.io/name": "model-deployment"}}});
    edit(&mut value);
    match fact(Kind::Pod, value) {
        Some(Fact::Pod(pod)) => pod,
        other => panic!("{other:?}"),
    }
}

fn deployment(value: Value) -> Arc<DeploymentFact> {
    let mut whole = json!({"metadata": {"uid": "u", "name": "d"}});
    for (key, part) in value.as_object().unwrap() {
        whole[key] = part.clone();
    }
    match fact(Kind::Deployment, whole) {
        Some(Fact::Deployment(deployment)) => deployment,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_bare_object_is_read_and_a_foreign_one_is_not() {
    let bare = pod(|_| {});
    assert_eq!((bare.phase, bare.ready, bare.grace, &*bare.namespace), (PodPhase::Pending, false, DEFAULT_GRACE, "default"));
    assert!(fact(Kind::Pod, json!({"metadata": {"uid": "u"}})).is_none());
    assert!(fact(Kind::Pod, json!({"metadata": {"labels": {"app.kubernetes.io/name": "model-deployment"}}})).is_none(), "no UID");
    assert!(fact(Kind::Service, json!({"metadata": {"uid": "u"}})).is_none());
    assert!(fact(Kind::Deployment, json!({"metadata": {"uid": "u"}})).is_none(), "no name");
}

#[test]
fn numbers_in_labels_may_be_nonsense() {
    let check = |text: Option<&str>, expect: Numeral| assert_eq!(numeral(text), expect, "{text:?}");
    check(None, Numeral::Absent);
    check(Some("0"), Numeral::Is(0));
    check(Some("17"), Numeral::Is(17));
    for text in ["", "-1", "+1", "x", "1.0", " 1", "99999999999999999999"] {
        check(Some(text), Numeral::Unreadable);
    }
}

#[test]
fn a_grace_beyond_reason_is_bounded() {
    let grace = |seconds: i64| pod(|value| value["spec"] = json!({"terminationGracePeriodSeconds": seconds})).grace;
    assert_eq!(grace(45), Duration::from_secs(45));
    assert_eq!(grace(i64::MAX), MAX_GRACE);
    assert_eq!(grace(-1), DEFAULT_GRACE);
    let deleted = pod(|value| {
        value["spec"] = json!({"terminationGracePeriodSeconds": 45});
        value["metadata"]["deletionGracePeriodSeconds"] = json!(2);
    });
    assert_eq!(deleted.grace, Duration::from_secs(2), "the delete's own grace counts");
}

#[test]
fn the_owner_is_the_controlling_model_deployment_of_any_version() {
    let owner = |version: &str, kind: &str, controller: Value| {
        pod(|value| {
            value["metadata"]["ownerReferences"] = json!([{"apiVersion": version, "kind": kind, "uid": "o", "controller": controller}])
        })
        .owner
        .clone()
    };
    assert_eq!(owner("worker.gpustack.ai/v1alpha1", "ModelDeployment", json!(true)).as_deref(), Some("o"));
    assert_eq!(owner("worker.gpustack.ai/v1", "ModelDeployment", json!(true)).as_deref(), Some("o"));
    assert_eq!(owner("worker.gpustack.ai/v1", "ModelDeployment", json!(null)), None);
    assert_eq!(owner("apps/v1", "ReplicaSet", json!(true)), None);
    assert_eq!(owner("evil.ai/v1", "ModelDeployment", json!(true)), None);
}

#[test]
fn router_pods_are_no_members() {
    let router = pod(|value| {
        value["metadata"]["labels"]["app.kubernetes.io/component"] = json!("x");
        value["metadata"]["labels"]["modeldeployment.gpustack.ai/router"] = json!("llm-d-router");
    });
    assert_eq!(router.role, None);
}

#[test]
fn roles_of_every_spelling() {
    let kind = |kind: Value| deployment(json!({"spec": {"roles": [{"name": "r", "kind": kind}]}})).roles[0].kind;
    for server in [json!(null), json!("Server"), json!("server")] {
        assert_eq!(kind(server), RoleKind::Server);
    }
    for other in ["Prefill", "Decode", "Encode", "prefill", "SomethingNew"] {
        assert_eq!(kind(json!(other)), RoleKind::Disaggregated);
    }
}

#[test]
fn load_balance_comes_from_the_role_of_the_same_name() {
    let read = |balance: Value| {
        let status = json!({"roles": [{"name": "other", "parallelism": {"loadBalance": "External"}}, {"name": "r", "parallelism": {"loadBalance": balance}}]});
        deployment(json!({"spec": {"roles": [{"name": "r"}]}, "status": status})).roles[0].load_balance
    };
    assert_eq!(read(json!("External")), LoadBalance::EveryRank);
    assert_eq!(read(json!("Hybrid")), LoadBalance::EveryRank);
    assert_eq!(read(json!("Internal")), LoadBalance::Leader);
    assert_eq!(read(json!("MultiPort")), LoadBalance::Leader);
    assert_eq!(read(json!("Unknown")), LoadBalance::Unknown);
    assert_eq!(read(json!(null)), LoadBalance::Unknown);
}

#[test]
fn containers_of_every_kind_belong_to_the_incarnation() {
    let read = |restarts: u64, init: &str| {
        pod(|value| {
            value["status"] = json!({
                "containerStatuses": [{"name": "main", "restartCount": restarts, "containerID": "c"}],
                "initContainerStatuses": [{"name": "proxy", "restartCount": 0, "containerID": init}],
            });
        })
        .containers
        .clone()
    };
    assert_eq!(read(0, "i"), read(0, "i"));
    assert_ne!(read(0, "i"), read(1, "i"));
    assert_ne!(read(0, "i"), read(0, "j"));
}

#[test]
fn only_tcp_ports_serve() {
    let ports = json!([{"port": 1, "protocol": "UDP"}, {"port": 2}, {"port": 3, "targetPort": 0}, {"port": 70000}, {"port": 4, "targetPort": "named"}]);
    let value = json!({"metadata": {"uid": "u", "labels": {"app.kubernetes.io/name": "model-deployment"}}, "spec": {"ports": ports, "clusterIP": "None"}});
    let Some(Fact::Service(service)) = fact(Kind::Service, value) else { panic!("a service") };
    let targets: Vec<(u16, TargetPort)> = service.ports.iter().map(|port| (port.port, port.target.clone())).collect();
    assert_eq!(targets, [(2, TargetPort::Number(2)), (3, TargetPort::Number(3)), (4, TargetPort::Named("named".into()))]);
    assert_eq!(service.cluster_ip, None);
}
