//! The admin port over real sockets, with a gateway that stands still behind it.

use std::io;
use std::sync::Mutex;
use std::time::{Duration, UNIX_EPOCH};

use config::{DeploymentRef, LogFormat};
use discovery::snapshot::{Address, GroupId, GroupKey, GroupPhase, Leader, Member, Outlook, Pool, Reason, ReplicaGroup, Snapshot};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

use super::*;
use crate::cli;
use crate::telemetry::logs::LineWriter;
use crate::telemetry::recent::{Kind, Note};
use crate::telemetry::view::{DiscoveryStats, GroupView, Health, Readiness, Tally};

struct Still {
    snapshot: Arc<Snapshot>,
    readiness: Mutex<Readiness>,
}

impl View for Still {
    fn snapshot(&self) -> Arc<Snapshot> {
        self.snapshot.clone()
    }
    fn snapshot_age(&self) -> Duration {
        Duration::from_millis(1500)
    }
    fn group(&self, id: &GroupId) -> GroupView {
        let health = if &*id.0 == "id-2" { Health::Open } else { Health::Closed };
        GroupView { in_flight: 4, health, ..GroupView::default() }
    }
    fn waiting(&self, _model: &str) -> usize {
        2
    }
    fn readiness(&self) -> Readiness {
        *self.readiness.lock().unwrap()
    }
    fn discovery(&self) -> DiscoveryStats {
        DiscoveryStats { probes: vec![Tally { what: "health", result: "ok", count: 7 }], ..DiscoveryStats::default() }
    }
}

fn group(ordinal: u32, phase: GroupPhase, reasons: Vec<Reason>) -> Arc<ReplicaGroup> {
    Arc::new(ReplicaGroup {
        key: GroupKey(Arc::from(format!("ns/d/worker/{ordinal}"))),
        id: GroupId(Arc::from(format!("id-{ordinal}"))),
        ordinal: Some(ordinal),
        phase,
        reasons,
        leader: Some(Leader {
            pod: Arc::from("d-m0"),
            uid: Some(Arc::from("uid-7")),
            address: Address { https: false, host: Arc::from("127.0.0.9"), port: 8000 },
        }),
        members: vec![Member { pod: Arc::from("d-m0"), uid: Arc::from("uid-7"), index: 0, ready: true, deleting: false }],
        managed: true,
        drain: None,
        next_to_go: ordinal == 3,
        broken: false,
        proof: 1,
    })
}

fn snapshot() -> Arc<Snapshot> {
    let deployment = DeploymentRef { namespace: "ns".into(), name: "d".into() };
    let pool = Pool {
        model: Arc::from("qwen"),
        deployment: Some(deployment),
        groups: vec![
            group(0, GroupPhase::Serving, vec![]),
            group(1, GroupPhase::Draining, vec![Reason::MemberDeleting, Reason::ReplacementCleanup]),
            group(2, GroupPhase::Serving, vec![]),
            group(3, GroupPhase::Serving, vec![]),
        ],
        outlook: Outlook::Coming,
        last_replacement: Some(Duration::from_secs(40)),
    };
    let mut snapshot = Snapshot { generation: 5, source: "kubernetes", ..Snapshot::default() };
    snapshot.deployments.insert(Arc::from("ns/d"), Arc::from("qwen"));
    snapshot.pools.insert(Arc::from("qwen"), Arc::new(pool));
    Arc::new(snapshot)
}

struct Running {
    url: String,
    view: Arc<Still>,
    admin: Arc<Admin>,
    _stop: oneshot::Sender<()>,
    _server: tokio::task::JoinSet<()>,
}

async fn run() -> Running {
    let readiness = Mutex::new(Readiness { config_loaded: true, first_list: true, lame_duck: false });
    let view = Arc::new(Still { snapshot: snapshot(), readiness });
    let metrics = Metrics::new().unwrap();
    metrics.observe(view.clone()).unwrap();
    let writer = LineWriter::start(io::sink(), metrics.log_lines_dropped.clone()).unwrap();
    let logs = Logs::detached(writer, LogFormat::Json);
    let admin = Admin { metrics, view: view.clone(), recent: Recent::new(), logs, mirror_names: true, started: UNIX_EPOCH };
    let admin = Arc::new(admin);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (stop, stopped) = oneshot::channel::<()>();
    let mut server = tokio::task::JoinSet::new();
    server.spawn(serve(listener, admin.clone(), async move { drop(stopped.await) }));
    Running { url, view, admin, _stop: stop, _server: server }
}

impl Running {
    async fn ask(&self, request: &str) -> String {
        let mut socket = TcpStream::connect(self.url.trim_start_matches("http://")).await.unwrap();
        socket.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).await.unwrap();
        answer
    }

    async fn get(&self, path: &str) -> String {
        self.ask(&format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")).await
    }
}

fn body(answer: &str) -> &str {
    answer.split_once("\r\n\r\n").map_or("", |(_, body)| body)
}

#[tokio::test]
async fn readiness_names_what_is_missing() {
    let running = run().await;
    assert!(running.get("/readyz").await.starts_with("HTTP/1.1 200"));
    *running.view.readiness.lock().unwrap() = Readiness { config_loaded: true, first_list: false, lame_duck: true };
    let answer = running.get("/readyz").await;
    assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
    assert_eq!(body(&answer), "first list of the discovery source not done\nshutting down\n");
    assert!(running.get("/livez").await.starts_with("HTTP/1.1 200"));
}

#[tokio::test]
async fn snapshot_has_the_documented_shape() {
    let running = run().await;
    let answer = running.get("/debug/snapshot").await;
    let json: serde_json::Value = serde_json::from_str(body(&answer)).unwrap();
    assert_eq!(json["generation"], 5);
    assert_eq!(json["age_seconds"], 1.5);
    assert_eq!(json["source"], "kubernetes");
    let pool = &json["pools"][0];
    assert_eq!((&pool["model"], &pool["deployment"], &pool["waiting"]), (&"qwen".into(), &"ns/d".into(), &2.into()));
    let group = &pool["groups"][1];
    assert_eq!(group["key"], "ns/d/worker/1");
    assert_eq!(group["ordinal"], 1);
    assert_eq!(group["phase"], "Draining");
    assert_eq!(group["reasons"], serde_json::json!(["member_deleting", "replacement_cleanup"]));
    assert_eq!(group["leader"], serde_json::json!({"pod": "d-m0", "uid": "uid-7", "address": "http://127.0.0.9:8000"}));
    assert_eq!(group["members"][0], serde_json::json!({"pod": "d-m0", "uid": "uid-7", "index": 0, "ready": true, "deleting": false}));
    assert_eq!((&group["in_flight"], &group["health"]), (&4.into(), &"closed".into()));
}

#[tokio::test]
async fn metrics_show_groups_without_identities() {
    let running = run().await;
    let text = running.get("/metrics").await;
    assert!(text.contains(r#"leadgate_groups{phase="Draining",pool="qwen",reason="member_deleting"} 1"#), "{text}");
    assert!(text.contains(r#"leadgate_groups{phase="Serving",pool="qwen",reason="none"} 3"#));
    assert!(text.contains(r#"leadgate_waiting{pool="qwen"} 2"#));
    assert!(text.contains(r#"leadgate_probes_total{probe="health",result="ok"} 7"#));
    assert!(text.contains("leadgate_snapshot_age_seconds 1.5"));
    assert!(text.contains(r#"inference_pool_ready_pods{name="qwen"} 3"#), "{text}");
    assert!(!text.contains("uid-7") && !text.contains("127.0.0.9") && !text.contains("worker/1"));
    let open = running.ask("GET /metrics HTTP/1.1\r\nHost: a\r\nAccept: application/openmetrics-text\r\nConnection: close\r\n\r\n").await;
    assert!(open.contains("content-type: application/openmetrics-text") && open.ends_with("# EOF\n"), "{open}");
}

#[tokio::test]
async fn explains_each_group() {
    let running = run().await;
    for name in ["qwen", "ns/d"] {
        let args = cli::ExplainArgs { model: name.into(), headers: vec![], admin: running.url.clone() };
        let mut out = Vec::new();
        assert!(cli::explain(&args, &mut out).await.unwrap());
        let text = String::from_utf8(out).unwrap();
        assert!(text.starts_with("The request would go to ns/d/worker/0.\n"), "{text}");
        assert!(text.contains("phase_draining,member_deleting") && text.contains("health_open") && text.contains("avoided"), "{text}");
    }
    let args = cli::ExplainArgs { model: "no such".into(), headers: vec![], admin: running.url.clone() };
    let mut out = Vec::new();
    assert!(!cli::explain(&args, &mut out).await.unwrap());
    assert!(String::from_utf8(out).unwrap().contains("Refusal: model_not_found"));
}

#[tokio::test]
async fn topology_prints_the_snapshot() {
    let running = run().await;
    for (output, expect) in [(cli::Output::Table, "qwen   ns/d/worker/1   Draining"), (cli::Output::Json, "\"generation\":5")] {
        let args = cli::TopologyArgs { admin: running.url.clone(), watch: false, output };
        let mut out = Vec::new();
        cli::topology(&args, &mut out).await.unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.contains(expect), "{text}");
    }
}

#[tokio::test]
async fn log_level_changes_by_put() {
    let running = run().await;
    let put = |level: &str| {
        format!("PUT /debug/log-level HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{level}", level.len())
    };
    assert!(running.ask(&put("info,gateway=trace")).await.starts_with("HTTP/1.1 200"));
    assert!(running.ask(&put("!!=nonsense=")).await.starts_with("HTTP/1.1 400"));
    assert_eq!(body(&running.get("/debug/log-level").await), "info,gateway=trace\n");
    assert_eq!(running.admin.logs.level(), "info,gateway=trace");
}

#[tokio::test]
async fn other_paths_and_methods_are_refused() {
    let running = run().await;
    assert!(running.get("/v1/chat/completions").await.starts_with("HTTP/1.1 404"));
    let answer = running.ask("POST /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 0\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 405") && answer.contains("allow: GET, HEAD"), "{answer}");
    assert!(running.get("/debug/explain").await.starts_with("HTTP/1.1 400"));
}

#[tokio::test]
async fn recent_events_are_listed() {
    let running = run().await;
    let note = Note { detail: Arc::from("queue_full"), ..Note::default() };
    running.admin.recent.note(Kind::Refused, note, UNIX_EPOCH);
    let answer = running.get("/debug/recent").await;
    let json: serde_json::Value = serde_json::from_str(body(&answer)).unwrap();
    assert_eq!((&json[0]["kind"], &json[0]["detail"]), (&"refused".into(), &"queue_full".into()));
}
