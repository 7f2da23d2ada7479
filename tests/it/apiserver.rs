//! The harness's own ground: what the tests take for granted of the real API server.

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::ListParams;
use serde_json::json;
use tests::Outcome;
use tests::apiserver::{ApiServer, Options};
use tests::cluster::{self, Cluster};
use tests::fixture::{Fixture, Key};
use tests::service_account;

const ONE: &str = r#"
apiVersion: worker.gpustack.ai/v1alpha1
kind: ModelDeployment
metadata:
  name: demo
  uid: owner-1
  annotations: {slots: '{"memberUIDs":["pod-1"]}'}
spec: {model: {name: m}, engine: {name: vLLM}, roles: [{name: server}]}
status: {phase: Ready}
---
apiVersion: v1
kind: Pod
metadata:
  name: demo-0
  uid: pod-1
  ownerReferences: [{apiVersion: worker.gpustack.ai/v1alpha1, kind: ModelDeployment, name: demo, uid: owner-1, controller: true}]
  finalizers: [kueue.x-k8s.io/managed]
spec:
  nodeName: node-0
  runtimeClassName: nvidia
  containers: [{name: main, image: none}]
status:
  phase: Running
  podIP: 10.244.1.10
  conditions: [{type: Ready, status: 'True'}]
"#;

#[tokio::test]
async fn fixture_gets_the_servers_uids_and_loopback_addresses() -> Outcome<()> {
    let mut cluster = Cluster::new("fixture").await?;
    let fixture = Fixture::parse(ONE)?;
    cluster.show(&fixture).await?;
    let owner = cluster.api("ModelDeployment").get("demo").await?;
    assert_eq!(owner.data["status"]["phase"], "Ready");
    let pods = cluster::pods(cluster.client(), cluster.namespace()).await?;
    let pod = &pods["demo-0"];
    let references = pod.metadata.owner_references.clone().unwrap_or_default();
    assert_eq!(Some(references[0].uid.as_str()), owner.metadata.uid.as_deref());
    let noted = owner.metadata.annotations.unwrap_or_default();
    assert!(noted["slots"].contains(cluster.real("pod-1")), "{noted:?}");
    let address = pod.status.as_ref().and_then(|status| status.pod_ip.clone()).unwrap_or_default();
    assert!(address.starts_with("127."), "{address}");
    Ok(())
}

#[tokio::test]
async fn deleted_pod_lingers_until_it_is_replaced_by_a_new_uid() -> Outcome<()> {
    let mut cluster = Cluster::new("replay").await?;
    cluster.show(&Fixture::parse(ONE)?).await?;
    let before = cluster.real("pod-1").to_owned();
    let terminating = ONE.replace("  uid: pod-1\n", "  uid: pod-1\n  deletionTimestamp: '2026-11-30T10:00:00Z'\n");
    cluster.show(&Fixture::parse(&terminating)?).await?;
    let pods = cluster::pods(cluster.client(), cluster.namespace()).await?;
    assert!(pods["demo-0"].metadata.deletion_timestamp.is_some());
    cluster.show(&Fixture::parse(&ONE.replace("pod-1", "pod-2"))?).await?;
    let pods = cluster::pods(cluster.client(), cluster.namespace()).await?;
    assert_ne!(pods["demo-0"].metadata.uid.as_deref(), Some(before.as_str()));
    cluster.remove(&Key { kind: "Pod".into(), name: "demo-0".into() }).await?;
    assert!(cluster::pods(cluster.client(), cluster.namespace()).await?.is_empty());
    Ok(())
}

#[tokio::test]
async fn service_account_has_the_rights_it_is_given_and_no_others() -> Outcome<()> {
    let cluster = Cluster::new("rights").await?;
    let (client, namespace) = (cluster.client(), cluster.namespace());
    service_account::create_service_account(client, namespace, "gateway").await?;
    let kubeconfig = service_account::kubeconfig(cluster.server(), client, namespace, "gateway").await?;
    let pods = Api::<Pod>::namespaced(cluster.server().client_with(&kubeconfig).await?, namespace);
    let refused = pods.list(&ListParams::default()).await.map(drop).unwrap_err().to_string();
    assert!(refused.contains("cannot list resource \"pods\""), "{refused}");
    service_account::grant(client, namespace, "gateway", service_account::GATEWAY_RULES).await?;
    tests::poll::eventually(tests::poll::PATIENCE, "granted list", || async {
        pods.list(&ListParams::default()).await.map_err(|error| error.to_string())
    })
    .await?;
    let refused = pods.delete("x", &kube::api::DeleteParams::default()).await.map(drop).unwrap_err().to_string();
    assert!(refused.contains("cannot delete resource \"pods\""), "{refused}");
    Ok(())
}

#[tokio::test]
async fn objects_outlive_a_restart_of_the_server() -> Outcome<()> {
    let server = ApiServer::start(Options::default()).await?;
    let client = server.client().await?;
    let namespaces = Api::<k8s_openapi::api::core::v1::Namespace>::all(client);
    namespaces.create(&kube::api::PostParams::default(), &serde_json::from_value(json!({"metadata": {"name": "kept"}}))?).await?;
    server.stop().await?;
    assert!(namespaces.get("kept").await.is_err());
    server.restart().await?;
    namespaces.get("kept").await?;
    Ok(())
}
