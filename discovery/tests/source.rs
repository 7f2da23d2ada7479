//! Discovery as a whole, from a source to a snapshot, with engines on loopback.

#![allow(clippy::expect_used, clippy::panic, reason = "helpers of tests fail by panicking")]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use config::{Config, GenerationProbe, Source, StaticLeaders};
use discovery::snapshot::Snapshot;
use discovery::{Discovery, Fault};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

const LONG: Duration = Duration::from_secs(20);

/// An engine that lists `model`.
async fn engine(model: &'static str) -> (u16, JoinSet<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((mut stream, _)) = listener.accept().await {
            connections.spawn(async move {
                let mut buffer = [0; 4096];
                while stream.read(&mut buffer).await.is_ok_and(|read| read > 0) {
                    let body = format!(r#"{{"object":"list","data":[{{"id":"{model}"}}]}}"#);
                    let head = format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n", body.len());
                    if stream.write_all((head + &body).as_bytes()).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    (port, tasks)
}

fn config(source: Source) -> Config {
    let mut config = Config { source, ..Config::default() };
    let mut settings = (*config.defaults).clone();
    settings.probe.generation = GenerationProbe::Off;
    settings.probe.warming_interval = Duration::from_millis(20);
    config.defaults = Arc::new(settings);
    config
}

async fn until(discovery: &Discovery, what: &str, holds: impl Fn(&Snapshot) -> bool) -> Arc<Snapshot> {
    let mut generations = discovery.snapshots.subscribe();
    let wait = async {
        loop {
            generations.borrow_and_update();
            let snapshot = discovery.snapshots.load();
            if holds(&snapshot) {
                return snapshot;
            }
            generations.changed().await.expect("discovery runs");
        }
    };
    match tokio::time::timeout(LONG, wait).await {
        Ok(snapshot) => snapshot,
        Err(_) => panic!("{what}: {:#?}\n{:#?}", discovery.snapshots.load(), discovery.status.report()),
    }
}

fn serving(snapshot: &Snapshot, model: &str) -> usize {
    snapshot.pools.get(model).map_or(0, |pool| pool.groups.iter().filter(|group| group.serving()).count())
}

/// One deployment of one Pod.
fn manifest(port: u16, ready: &str) -> String {
    let labels =
        "{app.kubernetes.io/name: model-deployment, app.kubernetes.io/component: server, modeldeployment.gpustack.ai/pod-ordinal: '0'}";
    format!(
        "apiVersion: worker.gpustack.ai/v1
kind: ModelDeployment
metadata: {{name: d, namespace: ns, uid: du}}
spec: {{model: {{name: /models}}, roles: [{{name: server, command: [/opt/start]}}]}}
---
apiVersion: v1
kind: Pod
metadata:
  name: d-server-x
  namespace: ns
  uid: pu
  labels: {labels}
  ownerReferences: [{{apiVersion: worker.gpustack.ai/v1alpha1, kind: ModelDeployment, uid: du, controller: true}}]
spec: {{containers: [{{name: main, ports: [{{name: http, containerPort: {port}}}]}}]}}
status: {{phase: Running, podIP: 127.0.0.1, conditions: [{{type: Ready, status: '{ready}'}}]}}
"
    )
}

async fn write(path: &Path, text: String) {
    tokio::fs::write(path, text).await.expect("the manifest is written");
}

#[tokio::test]
async fn manifests_become_a_pool_under_the_learned_name_and_follow_the_files() {
    let (port, _engine) = engine("learned").await;
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("all.yaml");
    write(&file, manifest(port, "False")).await;
    let (_sender, receiver) = watch::channel(Arc::new(config(Source::Manifests(dir.path().to_owned()))));
    let discovery = discovery::start(receiver).await.expect("it starts");
    let first = until(&discovery, "the first list", |snapshot| snapshot.generation > 0).await;
    assert!(first.names_pending && first.published.is_some());
    assert_eq!((first.generation, first.source, first.unnamed.len()), (1, "manifests", 1));
    write(&file, manifest(port, "True")).await;
    let served = until(&discovery, "the proof", |snapshot| serving(snapshot, "learned") == 1).await;
    assert_eq!(served.deployments.get("ns/d").map(|name| &**name), Some("learned"));
    write(&file, manifest(port, "False")).await;
    let gone = until(&discovery, "the loss", |snapshot| serving(snapshot, "learned") == 0).await;
    assert!(gone.generation > served.generation);
    assert!(gone.pools.contains_key("learned"), "the name outlives the gap");
    assert!(discovery.status.synced());
    discovery.shutdown().await;
}

#[tokio::test]
async fn a_reported_fault_takes_a_leader_out_until_it_is_proven_again() {
    let (port, engine) = engine("m").await;
    let leaders = vec![StaticLeaders { model: "m".to_owned(), urls: vec![format!("http://127.0.0.1:{port}")] }];
    let (_sender, receiver) = watch::channel(Arc::new(config(Source::Leaders(leaders))));
    let discovery = discovery::start(receiver).await.expect("it starts");
    let before = until(&discovery, "the proof", |snapshot| serving(snapshot, "m") == 1).await;
    let group = &before.pools["m"].groups[0];
    assert_eq!((&*group.key.0, before.source), (format!("static/127.0.0.1:{port}").as_str(), "leaders"));
    discovery.faults.report(&group.id, Fault::Reset);
    let again = until(&discovery, "a new proof", |snapshot| {
        snapshot.generation > before.generation && serving(snapshot, "m") == 1 && snapshot.pools["m"].groups[0].proof > group.proof
    })
    .await;
    drop(engine);
    discovery.faults.report(&again.pools["m"].groups[0].id, Fault::Refused);
    until(&discovery, "the loss", |snapshot| serving(snapshot, "m") == 0).await;
}

#[tokio::test]
async fn live_changes_of_the_configuration_are_applied() {
    let (port, _engine) = engine("learned").await;
    let dir = tempfile::tempdir().expect("a folder");
    write(&dir.path().join("all.yaml"), manifest(port, "True")).await;
    let first = config(Source::Manifests(dir.path().to_owned()));
    let (sender, receiver) = watch::channel(Arc::new(first.clone()));
    let discovery = discovery::start(receiver).await.expect("it starts");
    until(&discovery, "the proof", |snapshot| serving(snapshot, "learned") == 1).await;
    let mut next = first;
    next.names.pins.insert("learned".to_owned(), config::Pin::Namespace("other".to_owned()));
    sender.send(Arc::new(next)).expect("discovery listens");
    until(&discovery, "the pin", |snapshot| snapshot.pools.is_empty() && snapshot.unnamed.len() == 1).await;
}

#[tokio::test]
async fn a_folder_that_does_not_exist_is_refused() {
    let (_sender, receiver) = watch::channel(Arc::new(config(Source::Manifests("/nonexistent/folder".into()))));
    let error = discovery::start(receiver).await.expect_err("it cannot start");
    assert!(error.to_string().starts_with("manifests /nonexistent/folder:"), "{error}");
}

#[tokio::test]
async fn a_kubeconfig_that_does_not_exist_is_refused() {
    let cluster = config::KubernetesSource { kubeconfig: Some("/nonexistent/config".into()), ..Default::default() };
    let (_sender, receiver) = watch::channel(Arc::new(config(Source::Kubernetes(cluster))));
    let error = discovery::start(receiver).await.expect_err("it cannot start");
    assert!(error.to_string().starts_with("kubeconfig /nonexistent/config:"), "{error}");
}
