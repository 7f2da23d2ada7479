//! Served names: learned, declared, remembered, contested, pinned and merged.

use std::sync::Arc;

use config::{Config, DeploymentRef, MergedPool, NameRules, Pin};
use serde_json::{Value, json};

use super::cluster::{Cluster, DEMO, NS, R0M0, R1M0, R1M1, deleting};
use crate::probe::Verdict;
use crate::snapshot::{GroupPhase, Reason};

const FILES: [&str; 3] = ["00-modeldeployment-steady", "01-pods-steady", "02-services-endpointslices-steady"];

fn names(cluster: &Cluster) -> Vec<String> {
    cluster.snapshot().pools.keys().map(|name| name.to_string()).collect()
}

/// Removes every sign of a served name from the deployment and its Pods.
fn nameless() -> Cluster {
    let mut cluster = Cluster::of(&FILES);
    cluster.prove_nothing();
    for uid in cluster.pods() {
        cluster.edit(&uid, |pod| pod["spec"]["containers"][0]["command"] = json!(["/opt/start"]));
    }
    cluster.edit(DEMO, |object| object["spec"]["roles"][0]["command"] = json!(["/opt/start"]));
    cluster
}

#[test]
fn unknown_names_are_pending_and_the_groups_are_shown() {
    let mut cluster = nameless();
    let snapshot = cluster.snapshot();
    assert!(snapshot.names_pending && snapshot.pools.is_empty());
    assert_eq!(snapshot.unnamed.len(), 1);
    assert_eq!(cluster.group("server/0").phase, GroupPhase::Warming);

    let id = cluster.group("server/0").id.clone();
    cluster.prove(&id, Some(&["learned", "adapter"]));
    assert_eq!(names(&cluster), ["adapter", "learned"]);
    let snapshot = cluster.snapshot();
    assert!(!snapshot.names_pending && snapshot.unnamed.is_empty());
    assert_eq!(snapshot.deployments.get(format!("{NS}/demo-mh").as_str()).map(|name| &**name), Some("learned"), "the primary name");
}

#[test]
fn learned_names_win_over_declared_ones_and_include_adapters() {
    let mut cluster = Cluster::steady();
    for key in ["server/0", "server/1"] {
        let id = cluster.group(key).id.clone();
        cluster.prove(&id, Some(&["real", "lora"]));
    }
    assert_eq!(names(&cluster), ["lora", "real"]);
}

#[test]
fn a_leaving_engine_is_not_taken_at_its_command_again() {
    let mut cluster = Cluster::steady();
    for key in ["server/0", "server/1"] {
        let id = cluster.group(key).id.clone();
        cluster.prove(&id, Some(&["real"]));
    }
    let id = cluster.group("server/1").id.clone();
    cluster.edit(R1M0, |pod| deleting(pod, "2027-01-15T08:00:30Z"));
    cluster.verdict(&id, Verdict::default());
    assert_eq!(names(&cluster), ["real"], "the probe forgets what leaves, its names stay known");
}

#[test]
fn an_adapter_that_one_leader_lacks_is_not_asked_of_it() {
    let mut cluster = Cluster::steady();
    for (key, models) in [("server/0", &["demo-chat"][..]), ("server/1", &["demo-chat", "lora"])] {
        let id = cluster.group(key).id.clone();
        cluster.prove(&id, Some(models));
    }
    assert_eq!(cluster.routable("demo-chat").len(), 2);
    assert_eq!(cluster.routable("lora"), ["http://10.244.2.10:8000"]);
}

#[test]
fn known_names_outlive_a_gap_in_which_nothing_serves() {
    let mut cluster = nameless();
    let id = cluster.group("server/0").id.clone();
    cluster.prove(&id, Some(&["learned"]));
    for uid in cluster.pods() {
        cluster.delete(&uid);
    }
    cluster.refresh();
    assert_eq!(names(&cluster), ["learned"]);
    assert!(!cluster.snapshot().names_pending);
    assert_eq!(cluster.pool("learned").groups.len(), 2, "both slots are coming");
}

#[test]
fn a_renamed_engine_takes_the_old_name_with_it() {
    let mut cluster = nameless();
    for key in ["server/0", "server/1"] {
        let id = cluster.group(key).id.clone();
        cluster.prove(&id, Some(&["old"]));
    }
    for key in ["server/0", "server/1"] {
        let id = cluster.group(key).id.clone();
        cluster.prove(&id, Some(&["new"]));
    }
    assert_eq!(names(&cluster), ["new"]);
}

#[test]
fn managed_role_is_its_models_name_whatever_the_engine_says() {
    let mut cluster = Cluster::of(&["50-size1-managed"]);
    cluster.refresh();
    let id = cluster.group("server/0").id.clone();
    cluster.prove(&id, Some(&["something-else"]));
    assert_eq!(names(&cluster), ["demo-org/demo-chat"]);
    cluster.prove(&id, Some(&["demo-org/demo-chat", "lora"]));
    assert_eq!(names(&cluster), ["demo-org/demo-chat", "lora"]);
}

#[test]
fn deployed_pods_decide_whether_a_role_is_managed() {
    let mut cluster = Cluster::of(&["50-size1-managed"]);
    let uid = cluster.uid("ModelDeployment", "demo-one");
    cluster.edit(&uid, |object| object["spec"]["roles"][0]["command"] = json!(["vllm", "--served-model-name", "next"]));
    assert_eq!(names(&cluster), ["demo-org/demo-chat"], "the Pods are still the operator's");
}

#[test]
fn command_of_the_spec_names_a_role_without_pods() {
    let mut cluster = Cluster::of(&["00-modeldeployment-steady", "02-services-endpointslices-steady"]);
    cluster.refresh();
    assert_eq!(names(&cluster), ["demo-chat"]);
}

/// A second deployment of the same served name, with the Pods of r1 as its own.
fn rival(created: &str, name: &str, namespace: &str) -> impl Fn(&mut Cluster) {
    let (created, name, namespace) = (json!(created), json!(name), json!(namespace));
    move |cluster| {
        let mut object = cluster.object(DEMO);
        object["metadata"]["uid"] = json!("rival");
        object["metadata"]["name"] = name.clone();
        object["metadata"]["namespace"] = namespace.clone();
        object["metadata"]["creationTimestamp"] = created.clone();
        cluster.put(object);
        for uid in [R1M0, R1M1] {
            cluster.edit(uid, |pod: &mut Value| {
                pod["metadata"]["ownerReferences"][0]["uid"] = json!("rival");
                pod["metadata"]["namespace"] = namespace.clone();
                pod["metadata"]["labels"]["modeldeployment.gpustack.ai/pod-ordinal"] = json!("0");
            });
        }
    }
}

fn contested(rules: NameRules, created: &str, namespace: &str) -> Cluster {
    let mut cluster = Cluster::with_config(Config { names: rules, ..Config::default() });
    for file in FILES {
        cluster.load(file);
    }
    cluster.sync();
    rival(created, "rival", namespace)(&mut cluster);
    cluster
}

const OLDER: &str = "2020-01-01T00:00:00Z";
const YOUNGER: &str = "2027-01-01T00:00:00Z";
const MINE: &str = "http://10.244.1.10:8000";
const RIVALS: &str = "http://10.244.2.10:8000";

#[test]
fn the_older_deployment_owns_a_contested_name_and_the_conflict_is_visible() {
    for (created, owner, loser, address) in [(YOUNGER, "demo-mh", "rival", MINE), (OLDER, "rival", "demo-mh", RIVALS)] {
        let cluster = contested(NameRules::default(), created, NS);
        assert_eq!(cluster.routable("demo-chat"), [address]);
        let snapshot = cluster.snapshot();
        let [conflict] = snapshot.conflicts.as_slice() else { panic!("one conflict") };
        assert_eq!((conflict.owner.name.as_str(), conflict.refused[0].name.as_str()), (owner, loser));
        let [shown] = snapshot.unnamed.as_slice() else { panic!("the loser is shown") };
        assert!(shown.groups.iter().all(|group| group.reasons.contains(&Reason::NameConflict)));
        assert!(!snapshot.deployments.contains_key(format!("{NS}/{loser}").as_str()), "it is not reached by the owner's pool");
    }
}

#[test]
fn the_name_passes_on_when_its_owner_leaves() {
    let mut cluster = contested(NameRules::default(), YOUNGER, NS);
    cluster.edit(DEMO, |object| object["metadata"]["deletionTimestamp"] = json!("2027-01-02T00:00:00Z"));
    assert_eq!(cluster.routable("demo-chat"), [RIVALS]);
    cluster.delete(DEMO);
    cluster.refresh();
    assert_eq!(cluster.routable("demo-chat"), [RIVALS]);
    let snapshot = cluster.snapshot();
    assert!(snapshot.conflicts.is_empty() && snapshot.unnamed.is_empty());
}

#[test]
fn a_pin_decides_by_namespace_or_deployment() {
    let pin = |pin: Pin| NameRules { pins: [("demo-chat".to_owned(), pin)].into(), ..NameRules::default() };
    let reference = |namespace: &str, name: &str| DeploymentRef { namespace: namespace.to_owned(), name: name.to_owned() };
    let cluster = contested(pin(Pin::Namespace("other".to_owned())), YOUNGER, "other");
    assert_eq!(cluster.routable("demo-chat"), [RIVALS]);
    let cluster = contested(pin(Pin::Deployment(reference("other", "rival"))), YOUNGER, "other");
    assert_eq!(cluster.routable("demo-chat"), [RIVALS]);
    let cluster = contested(pin(Pin::Deployment(reference("nowhere", "x"))), YOUNGER, "other");
    assert!(cluster.snapshot().pools.is_empty(), "nobody else may serve it");
}

#[test]
fn merged_deployments_are_one_pool() {
    let reference = |name: &str| DeploymentRef { namespace: NS.to_owned(), name: name.to_owned() };
    let merge = vec![MergedPool { model: "demo-chat".to_owned(), deployments: vec![reference("demo-mh"), reference("rival")] }];
    let cluster = contested(NameRules { merge, ..NameRules::default() }, YOUNGER, NS);
    assert_eq!(cluster.routable("demo-chat"), [MINE, RIVALS]);
    let snapshot = cluster.snapshot();
    assert!(snapshot.conflicts.is_empty() && snapshot.unnamed.is_empty());
    assert_eq!(snapshot.deployments.len(), 2);
}

#[test]
fn changed_rules_apply_to_what_is_known() {
    let mut cluster = contested(NameRules::default(), YOUNGER, "other");
    assert_eq!(cluster.routable("demo-chat"), [MINE]);
    let pins = [("demo-chat".to_owned(), Pin::Namespace("other".to_owned()))].into();
    cluster.state.configure(Arc::new(Config { names: NameRules { pins, ..NameRules::default() }, ..Config::default() }));
    cluster.refresh();
    assert_eq!(cluster.routable("demo-chat"), [RIVALS]);
}

#[test]
fn pool_settings_go_by_the_served_name() {
    let mut config = Config::default();
    let mut special = (*config.defaults).clone();
    special.probe.misses = 77;
    config.pools.insert("demo-chat".to_owned(), Arc::new(special));
    let mut cluster = Cluster::with_config(config);
    for file in FILES {
        cluster.load(file);
    }
    cluster.sync();
    cluster.refresh();
    let targets = cluster.state.probe_targets();
    assert_eq!(targets.len(), 2);
    assert!(targets.iter().all(|target| target.settings.probe.misses == 77 && target.model_hint.as_deref() == Some("demo-chat")));
    assert_eq!(cluster.group("server/0").members[0].uid.as_ref(), R0M0);
}
