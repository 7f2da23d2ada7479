use std::future::Future;
use std::time::Duration;

use futures_util::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::{Node, Pod, Service};
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams, PostParams, Preconditions, WatchEvent,
    WatchParams,
};
use serde_json::{Value, json};

use super::*;

/// Only a hang reaches it.
const DEADLINE: Duration = Duration::from_secs(20);

async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(DEADLINE, what).await.expect("in time")
}

struct Bench {
    server: StandIn,
    pods: Api<Pod>,
}

impl Bench {
    async fn new() -> Self {
        let server = StandIn::start().await.unwrap();
        let pods = Api::namespaced(server.client().unwrap(), "a");
        Self { server, pods }
    }

    fn deployments(&self) -> Api<DynamicObject> {
        let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("worker.gpustack.ai", "v1alpha1", "ModelDeployment"));
        Api::namespaced_with(self.server.client().unwrap(), "a", &kind)
    }

    async fn pod(&self, name: &str, extra: Value) -> Pod {
        let mut body = json!({"metadata": {"name": name}, "spec": {"containers": []}});
        object::merge(&mut body, extra);
        self.pods.create(&PostParams::default(), &serde_json::from_value(body).unwrap()).await.unwrap()
    }

    async fn bound(&self, name: &str) -> Pod {
        self.pod(name, json!({"spec": {"nodeName": "n", "terminationGracePeriodSeconds": 45}})).await
    }

    async fn merge(&self, name: &str, patch: Value) -> kube::Result<Pod> {
        self.pods.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await
    }
}

fn code<T: std::fmt::Debug>(result: kube::Result<T>) -> u16 {
    let error = result.unwrap_err();
    let kube::Error::Api(status) = &error else { panic!("no status: {error}") };
    status.code
}

fn version(pod: &Pod) -> &str {
    pod.metadata.resource_version.as_deref().unwrap()
}

/// `ADDED p`, `BOOKMARK`, `ERROR 410`.
fn shown(event: &WatchEvent<Pod>) -> String {
    let name = |pod: &Pod| pod.metadata.name.clone().unwrap();
    match event {
        WatchEvent::Added(pod) => format!("ADDED {}", name(pod)),
        WatchEvent::Modified(pod) => format!("MODIFIED {}", name(pod)),
        WatchEvent::Deleted(pod) => format!("DELETED {}", name(pod)),
        WatchEvent::Bookmark(_) => "BOOKMARK".to_owned(),
        WatchEvent::Error(status) => format!("ERROR {}", status.code),
    }
}

async fn take(stream: &mut (impl futures_util::Stream<Item = kube::Result<WatchEvent<Pod>>> + Unpin), count: usize) -> Vec<String> {
    let mut events = Vec::new();
    for _ in 0..count {
        events.push(shown(&soon(stream.next()).await.expect("an event").unwrap()));
    }
    events
}

#[tokio::test]
async fn the_kubeconfig_leads_to_it() {
    let server = StandIn::start().await.unwrap();
    let file = kube::config::Kubeconfig::read_from(server.kubeconfig()).unwrap();
    let config = kube::Config::from_custom_kubeconfig(file, &kube::config::KubeConfigOptions::default()).await.unwrap();
    let client = kube::Client::try_from(config).unwrap();
    assert_eq!(client.apiserver_version().await.unwrap().major, "1");
    assert!(Api::<Node>::all(client).list(&ListParams::default()).await.unwrap().items.is_empty());
}

#[tokio::test]
async fn creating_sets_what_the_server_sets() {
    let bench = Bench::new().await;
    let unnamed = serde_json::from_value(json!({"metadata": {"generateName": "p-"}})).unwrap();
    let made = bench.pods.create(&PostParams::default(), &unnamed).await.unwrap();
    assert!(made.metadata.name.as_ref().unwrap().starts_with("p-") && made.metadata.name.as_ref().unwrap().len() == 7);
    assert_eq!(made.metadata.uid.as_ref().unwrap().len(), 36);
    assert!(made.metadata.creation_timestamp.is_some());
    assert_eq!(made.status.unwrap().phase.as_deref(), Some("Pending"));
    bench.pod("twice", json!({})).await;
    let again = serde_json::from_value(json!({"metadata": {"name": "twice"}})).unwrap();
    assert_eq!(code(bench.pods.create(&PostParams::default(), &again).await), 409);
    let services = Api::<Service>::namespaced(bench.server.client().unwrap(), "a");
    let service = serde_json::from_value(json!({"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}})).unwrap();
    let service = services.create(&PostParams::default(), &service).await.unwrap();
    assert!(service.spec.unwrap().cluster_ip.unwrap().starts_with("127.96."));
}

#[tokio::test]
async fn a_stale_version_conflicts_and_status_is_apart() {
    let bench = Bench::new().await;
    let made = bench.pod("p", json!({})).await;
    let labelled = bench.merge("p", json!({"metadata": {"labels": {"l": "1"}}})).await.unwrap();
    assert_ne!(version(&made), version(&labelled));
    assert_eq!(code(bench.pods.replace("p", &PostParams::default(), &made).await), 409);
    let stale = json!({"metadata": {"resourceVersion": version(&made), "labels": {"l": "2"}}});
    assert_eq!(code(bench.merge("p", stale).await), 409);
    let status = Patch::Merge(json!({"metadata": {"labels": {"l": "3"}}, "status": {"phase": "Running", "podIP": "127.0.0.9"}}));
    let running = bench.pods.patch_status("p", &PatchParams::default(), &status).await.unwrap();
    assert_eq!(running.status.as_ref().unwrap().pod_ip.as_deref(), Some("127.0.0.9"));
    assert_eq!(running.metadata.labels.as_ref().unwrap()["l"], "1", "the status patch changes the status alone");
    let same = bench.merge("p", json!({"metadata": {"labels": {"l": "1"}}})).await.unwrap();
    assert_eq!(version(&same), version(&running), "no change, no version");
    assert_eq!(code(bench.merge("absent", json!({})).await), 404);
    let strategic = Patch::Strategic(json!({"metadata": {}}));
    assert_eq!(code(bench.pods.patch("p", &PatchParams::default(), &strategic).await), 415);
}

#[tokio::test]
async fn a_bound_pod_goes_in_two_steps_and_an_unbound_one_at_once() {
    let bench = Bench::new().await;
    let pod = bench.bound("p").await;
    let marked = bench.pods.delete("p", &DeleteParams::default()).await.unwrap().left().unwrap();
    assert_eq!(marked.metadata.deletion_grace_period_seconds, Some(45));
    assert!(marked.metadata.deletion_timestamp.is_some());
    let other = Preconditions { uid: Some("other".into()), resource_version: None };
    assert_eq!(code(bench.pods.delete("p", &DeleteParams::default().grace_period(0).preconditions(other)).await), 409);
    let same = Preconditions { uid: pod.metadata.uid.clone(), resource_version: None };
    bench.pods.delete("p", &DeleteParams::default().grace_period(0).preconditions(same)).await.unwrap();
    assert!(bench.pods.get_opt("p").await.unwrap().is_none());
    bench.pod("free", json!({})).await;
    bench.pods.delete("free", &DeleteParams::default()).await.unwrap();
    assert!(bench.pods.get_opt("free").await.unwrap().is_none());
}

#[tokio::test]
async fn a_finalizer_holds_until_it_is_taken_away() {
    let bench = Bench::new().await;
    bench.pod("p", json!({"metadata": {"finalizers": ["kueue.x-k8s.io/managed"]}})).await;
    bench.pods.delete("p", &DeleteParams::default().grace_period(0)).await.unwrap();
    assert!(bench.pods.get("p").await.unwrap().metadata.deletion_timestamp.is_some());
    bench.merge("p", json!({"metadata": {"finalizers": null}})).await.unwrap();
    assert!(bench.pods.get_opt("p").await.unwrap().is_none());
}

#[tokio::test]
async fn what_is_owned_goes_with_its_last_owner() {
    let bench = Bench::new().await;
    let deployments = bench.deployments();
    let mut owners = Vec::new();
    for name in ["one", "two"] {
        let body = serde_json::from_value(json!({"metadata": {"name": name}, "spec": {}})).unwrap();
        let made = deployments.create(&PostParams::default(), &body).await.unwrap();
        owners
            .push(json!({"apiVersion": "worker.gpustack.ai/v1alpha1", "kind": "ModelDeployment", "name": name, "uid": made.metadata.uid}));
    }
    bench.pod("of-one", json!({"metadata": {"ownerReferences": [owners[0]]}})).await;
    bench.pod("of-both", json!({"metadata": {"ownerReferences": owners}})).await;
    bench.pod("draining", json!({"metadata": {"ownerReferences": [owners[0]]}, "spec": {"nodeName": "n"}})).await;
    bench.pod("of-nobody", json!({})).await;
    deployments.delete("one", &DeleteParams::default()).await.unwrap().right().expect("gone at once");
    let left = bench.pods.list(&ListParams::default()).await.unwrap().items;
    let left: Vec<_> = left.iter().map(|pod| (pod.metadata.name.as_deref().unwrap(), pod.metadata.deletion_timestamp.is_some())).collect();
    assert_eq!(left, [("draining", true), ("of-both", false), ("of-nobody", false)]);
}

#[tokio::test]
async fn a_list_comes_in_pages_and_by_label() {
    let bench = Bench::new().await;
    for n in 0..5 {
        bench.pod(&format!("p{n}"), json!({"metadata": {"labels": {"odd": (n % 2).to_string()}}})).await;
    }
    let mut page = bench.pods.list(&ListParams::default().limit(2)).await.unwrap();
    let first_version = page.metadata.resource_version.clone();
    let mut sizes = vec![page.items.len()];
    let mut all: Vec<_> = page.items.iter().map(|pod| pod.metadata.name.clone().unwrap()).collect();
    while let Some(token) = page.metadata.continue_.clone().filter(|token| !token.is_empty()) {
        page = bench.pods.list(&ListParams::default().limit(2).continue_token(&token)).await.unwrap();
        assert_eq!(page.metadata.resource_version, first_version);
        sizes.push(page.items.len());
        all.extend(page.items.iter().map(|pod| pod.metadata.name.clone().unwrap()));
    }
    assert_eq!((sizes, all), (vec![2, 2, 1], (0..5).map(|n| format!("p{n}")).collect()));
    assert_eq!(bench.pods.list(&ListParams::default().labels("odd=1")).await.unwrap().items.len(), 2);
    let elsewhere: Api<Pod> = Api::namespaced(bench.server.client().unwrap(), "b");
    assert!(elsewhere.list(&ListParams::default()).await.unwrap().items.is_empty());
    assert_eq!(Api::<Pod>::all(bench.server.client().unwrap()).list(&ListParams::default()).await.unwrap().items.len(), 5);
}

#[tokio::test]
async fn a_watch_tells_changes_in_order_and_only_those_after_its_version() {
    let bench = Bench::new().await;
    let first = bench.pod("first", json!({"metadata": {"labels": {"l": "1"}}})).await;
    let mut all = bench.pods.watch(&WatchParams::default(), "0").await.unwrap().boxed();
    let mut later = bench.pods.watch(&WatchParams::default(), version(&first)).await.unwrap().boxed();
    let mut labelled = bench.pods.watch(&WatchParams::default().labels("l=1"), version(&first)).await.unwrap().boxed();
    bench.bound("second").await;
    bench.merge("second", json!({"metadata": {"labels": {"l": "1"}}})).await.unwrap();
    bench.merge("first", json!({"metadata": {"labels": {"l": "2"}}})).await.unwrap();
    bench.pods.delete("second", &DeleteParams::default()).await.unwrap();
    bench.pods.delete("second", &DeleteParams::default().grace_period(0)).await.unwrap();
    let changes = ["ADDED second", "MODIFIED second", "MODIFIED first", "MODIFIED second", "DELETED second"];
    assert_eq!(take(&mut all, 6).await, [&["ADDED first"][..], &changes[..]].concat());
    assert_eq!(take(&mut later, 5).await, changes);
    assert_eq!(take(&mut labelled, 4).await, ["ADDED second", "DELETED first", "MODIFIED second", "DELETED second"]);
}

#[tokio::test]
async fn a_watch_bookmarks_and_ends_by_its_timeout() {
    let bench = Bench::new().await;
    bench.server.faults().bookmarks_every(Duration::from_millis(5));
    let params = WatchParams::default().timeout(1);
    let stream = bench.pods.watch(&params, &bench.server.store().revision().to_string()).await.unwrap();
    let events: Vec<_> = soon(stream.try_collect()).await.unwrap();
    assert!(events.len() > 1 && events.iter().all(|event| shown(event) == "BOOKMARK"));
    assert_eq!(bench.server.activity().of(Kind::Pod).opened, 1);
    soon(bench.server.activity().until(Kind::Pod, |counts| counts.open == 0)).await;
}

#[tokio::test]
async fn a_version_that_is_too_old_expires_in_band_or_by_status() {
    let bench = Bench::new().await;
    let old = version(&bench.pod("p", json!({})).await).to_owned();
    bench.pod("q", json!({})).await;
    bench.server.store().expire();
    let mut stream = bench.pods.watch(&WatchParams::default(), &old).await.unwrap().boxed();
    assert_eq!(take(&mut stream, 1).await, ["ERROR 410"]);
    assert!(soon(stream.next()).await.is_none(), "and ends");
    bench.server.faults().expiry_by_status(true);
    assert_eq!(code(bench.pods.watch(&WatchParams::default(), &old).await.map(|_| ())), 410);
    let now = bench.server.store().revision().to_string();
    let mut fresh = bench.pods.watch(&WatchParams::default(), &now).await.unwrap().boxed();
    bench.server.faults().cut_watches(Cut::Expired);
    assert_eq!(take(&mut fresh, 1).await, ["ERROR 410"]);
}

#[tokio::test]
async fn a_watch_that_falls_out_of_the_log_expires() {
    let bench = Bench::new().await;
    let old = version(&bench.pod("p", json!({})).await).to_owned();
    let key = Key::new(Kind::Pod, "a", "p");
    for n in 0..5000 {
        bench.server.store().patch(&key, json!({"metadata": {"labels": {"n": n.to_string()}}})).unwrap();
    }
    let mut stream = bench.pods.watch(&WatchParams::default(), &old).await.unwrap().boxed();
    assert_eq!(take(&mut stream, 1).await, ["ERROR 410"]);
}

#[tokio::test]
async fn watches_can_be_cut_and_silenced() {
    let bench = Bench::new().await;
    let now = bench.server.store().revision().to_string();
    let mut reset = bench.pods.watch(&WatchParams::default(), &now).await.unwrap().boxed();
    bench.server.faults().cut_watches(Cut::Reset);
    assert!(soon(reset.next()).await.is_none_or(|event| event.is_err()), "kube shows a broken body as an error or as the end");
    let mut clean = bench.pods.watch(&WatchParams::default(), &now).await.unwrap().boxed();
    bench.server.faults().cut_watches(Cut::Clean);
    assert!(soon(clean.next()).await.is_none());
    bench.server.faults().quiet_watches(true);
    let mut quiet = bench.pods.watch(&WatchParams::default(), &now).await.unwrap().boxed();
    bench.pod("p", json!({})).await;
    assert!(futures_util::poll!(quiet.next()).is_pending());
    assert_eq!(bench.pods.list(&ListParams::default()).await.unwrap().items.len(), 1, "lists are answered");
    bench.server.faults().heal();
    assert_eq!(take(&mut quiet, 1).await, ["ADDED p"]);
}

#[tokio::test]
async fn requests_can_be_refused_and_the_server_be_gone() {
    let bench = Bench::new().await;
    bench.server.faults().refuse(Verb::List, Some(Kind::Pod), 403);
    let kube::Error::Api(status) = bench.pods.list(&ListParams::default()).await.unwrap_err() else { panic!("no status") };
    assert_eq!((status.code, status.reason.as_str()), (403, "Forbidden"));
    assert!(status.message.contains("cannot list resource \"pods\" in API group \"\" in the namespace \"a\""), "{}", status.message);
    bench.deployments().list(&ListParams::default()).await.unwrap();
    bench.server.faults().heal();
    bench.pods.list(&ListParams::default()).await.unwrap();
    let now = bench.server.store().revision().to_string();
    let mut watch = bench.pods.watch(&WatchParams::default(), &now).await.unwrap().boxed();
    bench.server.faults().gone(true);
    assert!(soon(watch.next()).await.is_none_or(|event| event.is_err()));
    assert!(!matches!(bench.pods.list(&ListParams::default()).await, Ok(_) | Err(kube::Error::Api(_))), "no answer at all");
    bench.server.faults().gone(false);
    bench.pods.list(&ListParams::default()).await.unwrap();
}
