//! Every fault of a list-watch, against a scripted API server on loopback.

mod fake;

use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::*;
use crate::index::{Index, Touched};
use crate::mirror::Event;
use crate::status::{SourceStatus, WatchReport};
use crate::tasks::TaskSet;
use fake::{FakeApi, Reply};

const LONG: Duration = Duration::from_secs(20);
const SCOPE: &str = "ns";

/// Reflectors of one namespace against a scripted API server, and the index that they fill.
struct Rig {
    api: FakeApi,
    events: mpsc::Receiver<Event>,
    index: Index,
    status: std::sync::Arc<SourceStatus>,
    tasks: TaskSet,
}

impl Rig {
    fn start(api: FakeApi) -> Self {
        Self::start_with(api, vec![Some(SCOPE.to_owned())])
    }

    fn start_with(api: FakeApi, namespaces: Vec<Option<String>>) -> Self {
        let timing = Timing {
            idle: Duration::from_millis(300),
            request: Duration::from_secs(2),
            backoff: Duration::from_millis(5),
            backoff_max: Duration::from_millis(50),
        };
        let mut access = Config::new(api.url());
        access.default_retry = false;
        let client = Client::try_from(access).expect("client");
        let (sender, events) = mpsc::channel(64);
        let status = std::sync::Arc::new(SourceStatus::new("kubernetes"));
        let feed = Feed { events: sender, status: status.clone(), tasks: TaskSet::new() };
        let tasks = feed.tasks.clone();
        watch(&client, namespaces, &feed, &timing);
        Self { api, events, index: Index::default(), status, tasks }
    }

    /// Takes events in until `holds`, or fails.
    async fn until(&mut self, what: &str, mut holds: impl FnMut(&Self) -> bool) {
        let wait = async {
            while !holds(self) {
                // Status changes without events count too, so the wait for an event is short.
                if let Ok(Some(event)) = timeout(Duration::from_millis(10), self.events.recv()).await {
                    self.index.apply(&event.scope, event.change, &mut Touched::default());
                }
            }
        };
        if timeout(LONG, wait).await.is_err() {
            panic!("{what}: pods {:?}, status {:?}", self.pods(), self.status.report());
        }
    }

    fn pods(&self) -> Vec<String> {
        let mut pods: Vec<String> = self.index.pods_of("owner").map(|pod| pod.name.to_string()).collect();
        pods.sort_unstable();
        pods
    }

    fn listed(&self) -> bool {
        self.index.listed(&SCOPE.into())
    }

    fn report(&self, kind: Kind) -> WatchReport {
        self.status.report().watches.get(&(SCOPE.into(), kind)).cloned().expect("the watch is known")
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.tasks.close();
    }
}

fn pod(name: &str, version: u32) -> Value {
    json!({
        "metadata": {
            "name": name, "namespace": SCOPE, "uid": format!("uid-{name}"), "resourceVersion": version.to_string(),
            "labels": {"app.kubernetes.io/name": "model-deployment", "app.kubernetes.io/component": "server"},
            "ownerReferences": [{"apiVersion": "worker.gpustack.ai/v1alpha1", "kind": "ModelDeployment", "uid": "owner", "controller": true}],
        },
        "spec": {"containers": [{"name": "main"}]},
    })
}

fn list(items: &[Value], version: u32) -> Reply {
    Reply::json(200, &json!({"metadata": {"resourceVersion": version.to_string()}, "items": items}))
}

fn event(kind: &str, object: &Value) -> String {
    format!("{}\n", json!({"type": kind, "object": object}))
}

fn status(code: u16, reason: &str) -> Value {
    json!({"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": format!("{reason} it is")})
}

#[tokio::test]
async fn lists_page_by_page_and_watches_from_there() {
    let api = FakeApi::start().await;
    api.script(
        "pods",
        "list",
        Reply::json(200, &json!({"metadata": {"resourceVersion": "7", "continue": "token"}, "items": [pod("a", 1)]})),
    );
    api.script("pods", "list", list(&[pod("b", 2)], 7));
    let stream = api.stream("pods");
    let mut rig = Rig::start(api);
    rig.until("both pages", |rig| rig.listed() && rig.pods() == ["a", "b"]).await;
    stream.send(event("ADDED", &pod("c", 8)));
    stream.send(event("DELETED", &pod("a", 9)));
    rig.until("events", |rig| rig.pods() == ["b", "c"]).await;
    let requests = rig.api.requests("pods");
    assert!(
        requests[0].starts_with("/api/v1/namespaces/ns/pods?")
            && requests[0].contains("labelSelector=app.kubernetes.io%2Fname%3Dmodel-deployment")
    );
    assert!(requests[1].contains("continue=token"));
    assert!(
        requests[2].contains("watch=true") && requests[2].contains("resourceVersion=7") && requests[2].contains("allowWatchBookmarks=true")
    );
    assert_eq!(
        rig.api.requests("modeldeployments")[0].split('?').next(),
        Some("/apis/worker.gpustack.ai/v1alpha1/namespaces/ns/modeldeployments")
    );
}

#[tokio::test]
async fn all_namespaces_is_one_watch_of_each_kind() {
    let api = FakeApi::start().await;
    let mut rig = Rig::start_with(api, vec![None]);
    rig.until("listed", |rig| rig.index.listed(&"*".into())).await;
    assert!(rig.api.requests("services")[0].starts_with("/api/v1/services?"));
}

#[tokio::test]
async fn a_dropped_watch_goes_on_from_the_last_version_bookmarks_among_them() {
    let api = FakeApi::start().await;
    api.script("pods", "list", list(&[pod("a", 1)], 5));
    let (first, second) = (api.stream("pods"), api.stream("pods"));
    let mut rig = Rig::start(api);
    rig.until("listed", Rig::listed).await;
    first.send(event("BOOKMARK", &json!({"metadata": {"resourceVersion": "42"}})));
    first.end();
    second.send(event("ADDED", &pod("b", 43)));
    rig.until("the second watch", |rig| rig.pods() == ["a", "b"]).await;
    let requests = rig.api.requests("pods");
    assert!(requests[2].contains("resourceVersion=42"), "{requests:?}");
    assert_eq!(rig.report(Kind::Pod).lists_done, 1, "no new list was needed");
    assert_eq!(rig.report(Kind::Pod).watch_restarts, 1);
}

#[tokio::test]
async fn expired_in_band_lists_again_and_drops_what_is_gone() {
    let api = FakeApi::start().await;
    api.script("pods", "list", list(&[pod("a", 1), pod("b", 1)], 5));
    api.script("pods", "list", list(&[pod("b", 1)], 50));
    let stream = api.stream("pods");
    let mut rig = Rig::start(api);
    rig.until("listed", |rig| rig.pods() == ["a", "b"]).await;
    stream.send(event("ERROR", &status(410, "Expired")));
    rig.until("the pod deleted meanwhile is gone", |rig| rig.pods() == ["b"]).await;
    let requests = rig.api.requests("pods");
    assert!(
        !requests[2].contains("watch=") && !requests[2].contains("resourceVersion="),
        "a new list, not the stale version again: {requests:?}"
    );
}

#[tokio::test]
async fn expired_by_status_lists_again() {
    let api = FakeApi::start().await;
    api.script("pods", "list", list(&[pod("a", 1)], 5));
    api.script("pods", "watch", Reply::json(410, &status(410, "Expired")));
    api.script("pods", "list", list(&[pod("b", 1)], 50));
    let mut rig = Rig::start(api);
    rig.until("relisted", |rig| rig.pods() == ["b"]).await;
}

#[tokio::test]
async fn expired_page_starts_the_list_anew() {
    let api = FakeApi::start().await;
    api.script(
        "pods",
        "list",
        Reply::json(200, &json!({"metadata": {"resourceVersion": "7", "continue": "token"}, "items": [pod("a", 1)]})),
    );
    api.script("pods", "list", Reply::json(410, &status(410, "Expired")));
    api.script("pods", "list", list(&[pod("b", 2)], 9));
    let mut rig = Rig::start(api);
    rig.until("listed", |rig| rig.listed() && rig.pods() == ["b"]).await;
}

#[tokio::test]
async fn a_quiet_watch_is_opened_again() {
    let api = FakeApi::start().await;
    api.script("pods", "list", list(&[pod("a", 1)], 5));
    let (silent, second) = (api.stream("pods"), api.stream("pods"));
    second.send(event("ADDED", &pod("b", 6)));
    let mut rig = Rig::start(api);
    rig.until("the second watch", |rig| rig.pods() == ["a", "b"]).await;
    assert!(rig.api.requests("pods")[2].contains("resourceVersion=5"));
    drop(silent);
}

#[tokio::test]
async fn a_watch_that_breaks_inside_an_event_loses_nothing() {
    let api = FakeApi::start().await;
    api.script("pods", "list", list(&[], 5));
    let (first, second) = (api.stream("pods"), api.stream("pods"));
    let mut rig = Rig::start(api);
    let line = event("ADDED", &pod("a", 6));
    first.send(line[..line.len() / 2].to_owned());
    first.cut();
    second.send(line);
    rig.until("the event", |rig| rig.pods() == ["a"]).await;
}

#[tokio::test]
async fn a_watch_that_is_ended_at_once_is_opened_again() {
    let api = FakeApi::start().await;
    for _ in 0..3 {
        api.stream("pods").end();
    }
    api.stream("pods").send(event("ADDED", &pod("a", 6)));
    let mut rig = Rig::start(api);
    rig.until("the last one", |rig| rig.pods() == ["a"]).await;
    assert_eq!(rig.report(Kind::Pod).lists_done, 1);
}

#[tokio::test]
async fn lists_that_fail_take_nothing_away() {
    let api = FakeApi::start().await;
    api.script("pods", "list", list(&[pod("a", 1)], 5));
    let stream = api.stream("pods");
    api.script("pods", "list", Reply::json(500, &status(500, "InternalError")));
    api.script("pods", "list", Reply::Drop);
    api.script("pods", "list", Reply::Truncated(r#"{"metadata":{"resourceVersion":"9"},"items":[]}"#.to_owned()));
    api.script("pods", "list", Reply::json(200, &json!({"metadata": {"resourceVersion": "9", "continue": "next"}, "items": []})));
    api.script("pods", "list", Reply::json(429, &status(429, "TooManyRequests")));
    api.script("pods", "list", list(&[pod("a", 1), pod("b", 8)], 10));
    let mut rig = Rig::start(api);
    rig.until("listed", Rig::listed).await;
    stream.send(event("ERROR", &status(410, "Expired")));
    rig.until("the good list", |rig| {
        assert!(rig.pods().first().is_some_and(|pod| pod == "a"), "a failed list emptied the view");
        rig.pods() == ["a", "b"]
    })
    .await;
    assert_eq!(rig.report(Kind::Pod).lists_failed, 4);
}

#[tokio::test]
async fn refused_verb_and_resource_are_named() {
    let api = FakeApi::start().await;
    api.script("pods", "list", Reply::json(403, &status(403, "Forbidden")));
    api.script("services", "watch", Reply::json(403, &status(403, "Forbidden")));
    api.hold("pods", "list");
    api.hold("services", "list");
    let mut rig = Rig::start(api);
    let text = |rig: &Rig, kind| rig.report(kind).denied.map(|denied| denied.to_string()).unwrap_or_default();
    rig.until("both", |rig| !text(rig, Kind::Pod).is_empty() || !text(rig, Kind::Service).is_empty()).await;
    rig.until("pods", |rig| {
        text(rig, Kind::Pod) == "not allowed to list pods in namespace ns: a Role with this verb and resource is missing"
    })
    .await;
    rig.until("services", |rig| text(rig, Kind::Service).starts_with("not allowed to watch services in namespace ns")).await;
    assert!(!rig.listed());
    assert!(rig.status.report().problem().is_some_and(|problem| problem.starts_with("not allowed to")));
}

#[tokio::test]
async fn a_missing_crd_is_said() {
    let api = FakeApi::start().await;
    api.script("modeldeployments", "list", Reply::json(404, &status(404, "NotFound")));
    api.hold("modeldeployments", "list");
    let mut rig = Rig::start(api);
    rig.until("the hint", |rig| {
        rig.report(Kind::Deployment)
            .last_error
            .is_some_and(|error| error.contains("modeldeployments.worker.gpustack.ai: is the operator's CRD installed?"))
    })
    .await;
}

#[tokio::test]
async fn an_object_that_cannot_be_read_keeps_its_last_state_and_costs_only_itself() {
    let broken = |name: &str| {
        let mut object = pod(name, 9);
        object["spec"] = json!("nonsense");
        object
    };
    let api = FakeApi::start().await;
    api.script("pods", "list", list(&[pod("a", 1)], 5));
    let stream = api.stream("pods");
    api.script("pods", "list", list(&[broken("a"), broken("new"), pod("b", 2)], 6));
    let mut rig = Rig::start(api);
    rig.until("listed", |rig| rig.pods() == ["a"]).await;
    stream.send(event("MODIFIED", &broken("a")));
    rig.until("counted", |rig| rig.report(Kind::Pod).unreadable == 1).await;
    assert_eq!(rig.pods(), ["a"]);
    stream.send(event("ERROR", &status(410, "Expired")));
    rig.until("relisted", |rig| rig.pods() == ["a", "b"]).await;
}

#[tokio::test]
async fn an_api_server_that_was_away_is_picked_up_again() {
    let api = FakeApi::start().await;
    api.script("pods", "list", list(&[pod("a", 1)], 5));
    let stream = api.stream("pods");
    let mut rig = Rig::start(api);
    rig.until("listed", |rig| rig.listed() && rig.pods() == ["a"]).await;
    rig.api.away(true);
    stream.cut();
    rig.until("the failure is shown", |rig| rig.report(Kind::Pod).last_error.is_some()).await;
    assert_eq!(rig.pods(), ["a"], "the last view goes on");
    let back = rig.api.stream("pods");
    back.send(event("ADDED", &pod("b", 6)));
    rig.api.away(false);
    rig.until("back", |rig| rig.pods() == ["a", "b"] && rig.report(Kind::Pod).last_error.is_none()).await;
}
