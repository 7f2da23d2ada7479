//! The simulated operator on a real API server: does the cluster go through the states that the real operator's does?

use std::collections::{BTreeMap, BTreeSet};

use futures_util::StreamExt;
use k8s_openapi::api::core::v1::{Node, Service};
use kube::Api;
use kube::api::{DeleteParams, DynamicObject, ListParams, PostParams, WatchEvent, WatchParams};
use loadtest::operator::{Operator, OperatorConfig, OperatorError};
use serde_json::{Value, json};
use tests::Outcome;
use tests::apiserver::{ApiServer, Options};
use tests::cluster::{self, Cluster};
use tests::deployments::{self, Deployed, MODEL};
use tests::poll::{PATIENCE, eventually};

#[tokio::test]
async fn settled_deployment_has_the_operators_names_and_services() -> Outcome<()> {
    let cluster = Cluster::new("op-settled").await?;
    let deployed = Deployed::up(&cluster, deployments::take_over("demo", 2, 2), deployments::config(&cluster)).await?;
    let pods = cluster::pods(cluster.client(), cluster.namespace()).await?;
    let names: Vec<_> = pods.keys().map(String::as_str).collect();
    assert_eq!(names, ["demo-server-r0-m0", "demo-server-r0-m1", "demo-server-r1-m0", "demo-server-r1-m1"]);
    let services = Api::<Service>::namespaced(cluster.client().clone(), cluster.namespace()).list(&ListParams::default()).await?;
    let services: BTreeMap<_, _> =
        services.items.into_iter().map(|service| (service.metadata.name.unwrap_or_default(), service.spec.unwrap_or_default())).collect();
    assert_eq!(services.keys().map(String::as_str).collect::<Vec<_>>(), ["demo", "demo-server", "demo-server-r0", "demo-server-r1"]);
    let selector = services["demo-server"].selector.clone().unwrap_or_default();
    assert_eq!(selector["modeldeployment.gpustack.ai/member-index"], "0");
    let status = deployed.object().await?.data["status"].clone();
    assert_eq!((&status["roles"][0]["ready"], &status["roles"][0]["unmanaged"]), (&json!(2), &json!(true)));
    Ok(())
}

#[tokio::test]
async fn leader_answers_under_its_served_name_and_follower_counts_what_it_gets() -> Outcome<()> {
    let cluster = Cluster::new("op-serve").await?;
    let deployed = Deployed::up(&cluster, deployments::take_over("demo", 1, 2), deployments::config(&cluster)).await?;
    let leader = deployed.member(0, 0)?;
    let models = tests::http::get(&format!("http://{}:{}/v1/models", leader.address, leader.port)).await?.json()?;
    assert_eq!(models["data"][0]["id"], MODEL);
    assert_eq!(deployed.operator.misdirected(), 0);
    let follower = deployed.member(0, 1)?;
    tests::http::get(&format!("http://{}:{}/v1/models", follower.address, follower.port)).await?;
    eventually(PATIENCE, "counted fault", || async { if deployed.operator.misdirected() == 1 { Ok(()) } else { Err("not yet".into()) } })
        .await
}

#[tokio::test]
async fn rollout_goes_slot_by_slot_highest_first_and_records_before_it_deletes() -> Outcome<()> {
    let cluster = Cluster::new("op-roll").await?;
    let deployed = Deployed::up(&cluster, deployments::take_over("demo", 2, 2), deployments::config(&cluster)).await?;
    let before: BTreeSet<String> = deployed.operator.pods().into_iter().map(|pod| pod.uid).collect();
    let version = deployed.object().await?.metadata.resource_version.unwrap_or_default();
    let api = cluster.api("ModelDeployment");
    let mut events = api.watch(&WatchParams::default(), &version).await?.boxed();
    deployed.roll().await?;
    let (mut records, mut last) = (Vec::new(), None);
    while let Some(event) = events.next().await {
        let WatchEvent::Modified(object) = event? else { continue };
        let slot = slot(&object);
        if slot != last {
            records.push(slot.clone());
            last = slot;
        }
        if records.len() == 6 {
            break;
        }
    }
    let expected =
        [Some((1, "Cleanup")), Some((1, "WaitingForAdmission")), None, Some((0, "Cleanup")), Some((0, "WaitingForAdmission")), None];
    let records: Vec<_> = records.iter().map(|record| record.as_ref().map(|(ordinal, phase)| (*ordinal, phase.as_str()))).collect();
    assert_eq!(records, expected);
    deployed.wait_settled().await?;
    let after: BTreeSet<String> = deployed.operator.pods().into_iter().map(|pod| pod.uid).collect();
    assert!(before.is_disjoint(&after), "{before:?} {after:?}");
    Ok(())
}

fn slot(object: &DynamicObject) -> Option<(u64, String)> {
    let text = object.metadata.annotations.as_ref()?.get("modeldeployment.gpustack.ai/replacement-slots")?;
    let slots: Value = serde_json::from_str(text).ok()?;
    Some((slots["server"]["ordinal"].as_u64()?, slots["server"]["phase"].as_str()?.to_owned()))
}

#[tokio::test]
async fn size_one_pods_have_generated_names_that_change_with_a_replacement() -> Outcome<()> {
    let cluster = Cluster::new("op-one").await?;
    let deployed = Deployed::up(&cluster, deployments::managed("demo", 1, 1), deployments::config(&cluster)).await?;
    let before = deployed.member(0, 0)?.name;
    assert!(before.starts_with("demo-server-") && !before.contains("-r0"), "{before}");
    deployed.roll().await?;
    eventually(PATIENCE, "replaced Pod", || async {
        match deployed.member(0, 0) {
            Ok(pod) if pod.name != before => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await?;
    deployed.wait_settled().await
}

#[tokio::test]
async fn killed_follower_is_restarted_under_its_uid_and_takes_its_leader_along() -> Outcome<()> {
    let cluster = Cluster::new("op-kill").await?;
    let deployed = Deployed::up(&cluster, deployments::take_over("demo", 1, 2), deployments::config(&cluster)).await?;
    let (leader, follower) = (deployed.member(0, 0)?, deployed.member(0, 1)?);
    deployed.operator.kill(cluster.namespace(), &follower.name)?;
    eventually(PATIENCE, "both restarted", || async {
        let pods = cluster::pods(cluster.client(), cluster.namespace()).await.map_err(|error| error.to_string())?;
        let seen: Vec<_> = [&leader, &follower]
            .iter()
            .map(|member| (pods[&member.name].metadata.uid == Some(member.uid.clone()), restarts(&pods[&member.name])))
            .collect();
        if seen == [(true, 1), (true, 1)] { Ok(()) } else { Err(format!("{seen:?}")) }
    })
    .await
}

fn restarts(pod: &k8s_openapi::api::core::v1::Pod) -> i32 {
    let statuses = pod.status.as_ref().and_then(|status| status.container_statuses.as_ref());
    statuses.and_then(|statuses| statuses.first()).map_or(0, |status| status.restart_count)
}

#[tokio::test]
async fn lowered_replicas_end_aborted_and_a_deleted_deployment_takes_everything_along() -> Outcome<()> {
    let cluster = Cluster::new("op-scale").await?;
    let deployed = Deployed::up(&cluster, deployments::take_over("demo", 2, 1), deployments::config(&cluster)).await?;
    deployed.operator.scale(cluster.namespace(), "demo", "server", 1).await?;
    eventually(PATIENCE, "aborted retirement", || async {
        let status = deployed.object().await.map_err(|error| error.to_string())?.data["status"].clone();
        if status["retirement"]["state"] == "Aborted" { Ok(()) } else { Err(status.to_string()) }
    })
    .await?;
    assert_eq!(cluster::pods(cluster.client(), cluster.namespace()).await?.len(), 2);
    cluster.api("ModelDeployment").delete("demo", &DeleteParams::default()).await?;
    eventually(PATIENCE, "empty namespace", || async {
        let pods = cluster::pods(cluster.client(), cluster.namespace()).await.map_err(|error| error.to_string())?.len();
        let left = cluster.api("ModelDeployment").get_opt("demo").await.map_err(|error| error.to_string())?;
        if pods == 0 && left.is_none() { Ok(()) } else { Err(format!("{pods} Pods, {left:?}")) }
    })
    .await
}

#[tokio::test]
async fn confirmed_retirement_drains_and_takes_the_surplus_away() -> Outcome<()> {
    let cluster = Cluster::new("op-retire").await?;
    let config = OperatorConfig { confirm_retirement: true, ..deployments::config(&cluster) };
    let deployed = Deployed::up(&cluster, deployments::managed("demo", 2, 1), config).await?;
    let kept = deployed.member(0, 0)?.uid;
    deployed.operator.scale(cluster.namespace(), "demo", "server", 1).await?;
    eventually(PATIENCE, "one replica", || async {
        let pods = cluster::pods(cluster.client(), cluster.namespace()).await.map_err(|error| error.to_string())?;
        let status = deployed.object().await.map_err(|error| error.to_string())?.data["status"].clone();
        if pods.len() == 1 && status["retirement"].is_null() { Ok(()) } else { Err(format!("{} Pods, {status}", pods.len())) }
    })
    .await?;
    assert_eq!(deployed.member(0, 0)?.uid, kept);
    Ok(())
}

#[tokio::test]
async fn gated_role_is_selected_by_eligibility_and_loses_it_with_a_follower() -> Outcome<()> {
    let cluster = Cluster::new("op-gate").await?;
    let config = OperatorConfig { eligibility: true, ..deployments::config(&cluster) };
    let mut object = deployments::managed("demo", 1, 2);
    object["spec"]["engine"]["version"] = json!("0.29.0");
    let deployed = Deployed::up(&cluster, object, config).await?;
    let selected = |wanted: usize| {
        let client = cluster.client().clone();
        let namespace = cluster.namespace().to_owned();
        async move {
            let service = Api::<Service>::namespaced(client.clone(), &namespace).get("demo-server").await?;
            let terms: Vec<_> = service.spec.and_then(|spec| spec.selector).unwrap_or_default().into_iter().collect();
            let gated = terms.iter().any(|(key, _)| key == "modeldeployment.gpustack.ai/endpoint-eligible");
            let labels: Vec<_> = terms.iter().map(|(key, value)| format!("{key}={value}")).collect();
            let pods = Api::<k8s_openapi::api::core::v1::Pod>::namespaced(client, &namespace);
            let count = pods.list(&ListParams::default().labels(&labels.join(","))).await?.items.len();
            Ok::<_, kube::Error>((gated && count == wanted).then_some(()).ok_or(format!("{count} Pods by {labels:?}")))
        }
    };
    let wait = |wanted: usize| {
        eventually(PATIENCE, "selected Pods", move || {
            let look = selected(wanted);
            async move { look.await.map_err(|error| error.to_string())? }
        })
    };
    wait(1).await?;
    deployed.operator.set_ready(cluster.namespace(), "demo-server-r0-m1", false)?;
    wait(0).await?;
    deployed.operator.set_ready(cluster.namespace(), "demo-server-r0-m1", true)?;
    wait(1).await
}

#[tokio::test]
async fn nothing_is_admitted_while_admission_is_held() -> Outcome<()> {
    let cluster = Cluster::new("op-hold").await?;
    let deployed = Deployed::up(&cluster, deployments::take_over("demo", 1, 1), deployments::config(&cluster)).await?;
    // Ten seconds of real time: the slot is seen waiting well within them, and the test's patience is longer.
    deployed.operator.hold_admission(std::time::Duration::from_secs(500)).await;
    deployed.roll().await?;
    eventually(PATIENCE, "gated replacement", || async {
        let slot = slot(&deployed.object().await.map_err(|error| error.to_string())?);
        if slot == Some((0, "WaitingForAdmission".to_owned())) { Ok(()) } else { Err(format!("{slot:?}")) }
    })
    .await?;
    let pods = cluster::pods(cluster.client(), cluster.namespace()).await?;
    assert!(pods.values().all(|pod| pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_none())), "{pods:?}");
    deployed.wait_settled().await
}

#[tokio::test]
async fn a_cluster_with_nodes_is_refused() -> Outcome<()> {
    let server = ApiServer::start(Options::default()).await?;
    let client = server.client().await?;
    let node = serde_json::from_value(json!({"metadata": {"name": "real"}}))?;
    Api::<Node>::all(client.clone()).create(&PostParams::default(), &node).await?;
    let refused = Operator::start(client, OperatorConfig::default()).await.map(drop);
    assert!(matches!(refused, Err(OperatorError::HasNodes(1))), "{refused:?}");
    Ok(())
}

#[tokio::test]
async fn the_command_obeys_its_control_port_and_ends_by_sigterm() -> Outcome<()> {
    let cluster = Cluster::new("op-command").await?;
    cluster.api("ModelDeployment").create(&PostParams::default(), &serde_json::from_value(deployments::take_over("demo", 1, 1))?).await?;
    let dir = tempfile::tempdir()?;
    let kubeconfig = cluster.server().kubeconfig();
    let mut args: Vec<std::ffi::OsString> = ["operator", "--control", "127.0.0.1:0", "--time-scale", "0.02"].map(Into::into).into();
    args.extend(["--namespace".into(), cluster.namespace().into(), "--kubeconfig".into(), kubeconfig.into()]);
    let program = tests::binaries::loadtest().await?.to_owned();
    let spec = tests::process::Spec { program, args, env: vec![], log: dir.path().join("log"), litter: None };
    let process = tests::process::Process::start(spec)?;
    let control = eventually(PATIENCE, "control port", || async {
        let log = process.log();
        let (_, rest) = log.split_once("127.0.0.1:").ok_or_else(|| log.clone())?;
        Ok(format!("http://127.0.0.1:{}", rest.chars().take_while(char::is_ascii_digit).collect::<String>()))
    })
    .await?;
    let only_pod = || async {
        let text = tests::http::get(&format!("{control}/pods")).await.map_err(|error| error.to_string())?.text();
        let pods: Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
        let pod = pods.get(0).filter(|pod| pod["running"] == true).cloned();
        pod.ok_or(text)
    };
    let before = eventually(PATIENCE, "running Pod", only_pod).await?;
    let kill = format!("{control}/pods/{}/{}/kill", cluster.namespace(), before["name"].as_str().unwrap_or_default());
    assert_eq!(tests::http::post(&kill, &json!({})).await?.status, 200);
    eventually(PATIENCE, "restarted container", || async {
        let pod = only_pod().await?;
        if pod["restarts"] == 1 && pod["uid"] == before["uid"] { Ok(()) } else { Err(pod.to_string()) }
    })
    .await?;
    assert_eq!(tests::http::post(&format!("{control}/pods/nowhere/nobody/kill"), &json!({})).await?.status, 409);
    process.signal("TERM")?;
    assert_eq!(process.wait(PATIENCE).await?, 0);
    Ok(())
}
