//! What is scraped, what the alerts ask for and what the dashboard draws must be the same names; `promtool` judges form and rules.

// A test program: its helpers stand outside of test functions, and a failure in one of them is a failure of the test.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use discovery::snapshot::{GroupId, GroupKey, GroupPhase, Outlook, Pool, ReplicaGroup, Snapshot};
use gateway::telemetry::labels::*;
use gateway::telemetry::metrics::{Format, Metrics, StreamTimes};
use gateway::telemetry::view::{DiscoveryStats, GroupView, Readiness, Tally, View};

struct Full(Arc<Snapshot>);

impl View for Full {
    fn snapshot(&self) -> Arc<Snapshot> {
        self.0.clone()
    }
    fn snapshot_age(&self) -> Duration {
        Duration::from_secs(1)
    }
    fn group(&self, _id: &GroupId) -> GroupView {
        GroupView::default()
    }
    fn waiting(&self, _model: &str) -> usize {
        1
    }
    fn retry_budget(&self, _model: &str) -> Option<f64> {
        Some(10.0)
    }
    fn certificates(&self) -> Vec<(&'static str, i64)> {
        vec![("engines", 4_000_000_000)]
    }
    fn readiness(&self) -> Readiness {
        Readiness::default()
    }
    fn discovery(&self) -> DiscoveryStats {
        let one = |what| vec![Tally { what, result: "ok", count: 1 }];
        DiscoveryStats { probes: one("health"), watch_restarts: one("pods"), lists: one("pods") }
    }
}

fn pool() -> Arc<Pool> {
    let group = ReplicaGroup {
        key: GroupKey(Arc::from("ns/d/w/0")),
        id: GroupId(Arc::from("id")),
        ordinal: Some(0),
        phase: GroupPhase::Serving,
        reasons: vec![],
        leader: None,
        members: vec![],
        managed: true,
        drain: None,
        next_to_go: false,
        broken: false,
        proof: 1,
    };
    let last_replacement = Some(Duration::from_secs(40));
    let (model, groups) = (Arc::from("m"), vec![Arc::new(group)]);
    Arc::new(Pool { model, deployment: None, groups, outlook: Outlook::Coming, last_replacement })
}

/// Metrics of which every family has a series.
fn full() -> Arc<Metrics> {
    let metrics = Metrics::new().unwrap();
    let mut snapshot = Snapshot { generation: 1, ..Snapshot::default() };
    snapshot.pools.insert(Arc::from("m"), pool());
    metrics.observe(Arc::new(Full(Arc::new(snapshot)))).unwrap();
    let handle = metrics.pool(&pool());
    for outcome in Outcome::ALL {
        handle.request(Route::ChatCompletions, *outcome);
    }
    handle.attempt(AttemptOutcome::Complete);
    handle.retried(RetryCause::GroupDying);
    handle.resumed(ResumeCause::Stalled, ResumeWay::Continue, ResumeResult::Resumed);
    handle.ending(Ending::Complete);
    handle.tokens(TokenKind::Completion, 5);
    handle.bytes(Direction::Response, 5);
    handle.client_cancelled(Some(Duration::from_millis(1)));
    let now = Instant::now();
    let mut times = StreamTimes::new(handle, now);
    times.event(now + Duration::from_millis(5));
    times.event(now + Duration::from_millis(9));
    metrics.rejected("queue_full");
    metrics
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// `promtool` of Debian's package `prometheus`, which the test command installs.
fn promtool(args: &[&str], folder: &Path, input: &str) -> String {
    let mut child = Command::new("promtool")
        .args(args)
        .current_dir(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool is installed (Debian package `prometheus`)");
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let out = child.wait_with_output().unwrap();
    let said = format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert!(out.status.success(), "promtool {args:?}: {said}");
    said
}

/// Names of series in a scrape.
fn scraped(text: &str) -> BTreeSet<String> {
    let names = text.lines().filter(|l| !l.starts_with('#')).map(|l| l.split(['{', ' ']).next().unwrap_or(""));
    names.map(str::to_owned).collect()
}

/// Names in expressions: the words that begin as our families do.
fn asked(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|w| (w.starts_with("leadgate_") || w.starts_with("process_")) && w.len() > 9).map(str::to_owned).collect()
}

#[test]
fn promtool_finds_nothing_to_say_of_a_scrape() {
    for mirror in [false, true] {
        let said = promtool(&["check", "metrics"], &root(), &full().scrape(Format::Prometheus, mirror));
        assert_eq!(said, "");
    }
}

#[test]
fn alert_rules_hold_what_they_promise() {
    let folder = root().join("deploy/alerts");
    promtool(&["check", "rules", "leadgate.rules.yaml"], &folder, "");
    promtool(&["test", "rules", "leadgate.rules.test.yaml"], &folder, "");
}

#[test]
fn every_alert_is_tested_and_documented() {
    let read = |path: &str| std::fs::read_to_string(root().join(path)).unwrap();
    let (rules, tests, docs) =
        (read("deploy/alerts/leadgate.rules.yaml"), read("deploy/alerts/leadgate.rules.test.yaml"), read("docs/operations.md"));
    let names: Vec<_> = rules.lines().filter_map(|l| l.trim().strip_prefix("- alert: ")).collect();
    assert!(!names.is_empty());
    for name in names {
        assert!(tests.contains(&format!("alertname: {name}\n        exp_alerts")), "{name} is never seen to fire");
        assert!(tests.contains(&format!("alertname: {name}}}")), "{name} is never seen to be quiet");
        assert!(docs.contains(&format!("### {name}")), "{name} is not in docs/operations.md");
    }
}

#[test]
fn alerts_and_dashboard_ask_for_what_is_scraped() {
    let scraped = scraped(&full().scrape(Format::Prometheus, false));
    let dashboard = std::fs::read_to_string(root().join("deploy/dashboards/leadgate.json")).unwrap();
    let json: serde_json::Value = serde_json::from_str(&dashboard).unwrap();
    let mut expressions = String::new();
    for target in json["panels"].as_array().unwrap().iter().flat_map(|p| p["targets"].as_array().into_iter().flatten()) {
        expressions.push_str(target["expr"].as_str().unwrap());
        expressions.push('\n');
    }
    let rules = std::fs::read_to_string(root().join("deploy/alerts/leadgate.rules.yaml")).unwrap();
    for (asker, text) in [("dashboard", &expressions), ("alerts", &rules)] {
        let missing: Vec<_> = asked(text).into_iter().filter(|n| !scraped.contains(n)).collect();
        assert!(missing.is_empty(), "{asker}: {missing:?}");
    }
}

#[test]
fn every_family_is_documented() {
    let text = full().scrape(Format::Prometheus, true);
    let docs = std::fs::read_to_string(root().join("docs/operations.md")).unwrap();
    let families = text.lines().filter_map(|l| l.strip_prefix("# TYPE ")?.split(' ').next());
    let missing: Vec<_> = families.filter(|f| !docs.contains(&format!("`{f}`"))).collect();
    assert!(missing.is_empty(), "not in docs/operations.md: {missing:?}");
}
