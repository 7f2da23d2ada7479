//! The status page in a real browser while a rollout goes on behind it.

// A test program: its helpers stand outside of test functions, and a failure in one of them is a failure of the test.
#![allow(missing_docs, unreachable_pub, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod browser;

use std::io;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use browser::Browser;
use config::{DeploymentRef, LogFormat};
use discovery::snapshot::{
    Address, DrainBudget, GroupId, GroupKey, GroupPhase, Leader, Member, NameConflict, Outlook, Pool, Reason, ReplicaGroup, Snapshot,
};
use gateway::admin::{Admin, serve};
use gateway::telemetry::changes::Changes;
use gateway::telemetry::labels::{Outcome, ResumeCause, ResumeResult, ResumeWay, Route};
use gateway::telemetry::logs::{LineWriter, Logs};
use gateway::telemetry::metrics::{Metrics, StreamTimes};
use gateway::telemetry::recent::{Kind, Note, Recent};
use gateway::telemetry::view::{GroupView, Health, Readiness, View};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

/// A gateway whose snapshot the test sets.
struct Staged {
    snapshot: Mutex<Arc<Snapshot>>,
    attempts: Mutex<u64>,
    waiting: Mutex<usize>,
}

impl View for Staged {
    fn snapshot(&self) -> Arc<Snapshot> {
        self.snapshot.lock().unwrap().clone()
    }
    fn snapshot_age(&self) -> Duration {
        Duration::from_secs(2)
    }
    fn group(&self, _id: &GroupId) -> GroupView {
        let attempts = *self.attempts.lock().unwrap();
        GroupView { in_flight: 7, health: Health::Closed, attempts, failures: 0, first_token: Some(Duration::from_millis(230)) }
    }
    fn waiting(&self, model: &str) -> usize {
        if model.starts_with("qwen") { *self.waiting.lock().unwrap() } else { 0 }
    }
    fn readiness(&self) -> Readiness {
        Readiness { config_loaded: true, first_list: true, lame_duck: false }
    }
}

fn group(deployment: &str, ordinal: u32, incarnation: u32, phase: GroupPhase) -> Arc<ReplicaGroup> {
    let gone = phase == GroupPhase::Forming;
    let draining = phase == GroupPhase::Draining;
    let now = SystemTime::now();
    let pod = |index| format!("{deployment}-worker-{ordinal}-m{index}");
    let member = |index| Member {
        pod: Arc::from(pod(index)),
        uid: Arc::from(format!("{deployment}-{ordinal}-{incarnation}-{index}")),
        index,
        ready: !gone,
        deleting: draining,
    };
    let address = Address { https: false, host: Arc::from(format!("127.10.{ordinal}.{incarnation}")), port: 8000 };
    Arc::new(ReplicaGroup {
        key: GroupKey(Arc::from(format!("inference/{deployment}/worker/{ordinal}"))),
        id: GroupId(Arc::from(format!("{deployment}-{ordinal}-{incarnation}"))),
        ordinal: Some(ordinal),
        phase,
        reasons: match phase {
            GroupPhase::Forming => vec![Reason::MemberMissing, Reason::ReplacementWaiting],
            GroupPhase::Warming => vec![Reason::NotProven],
            GroupPhase::Draining => vec![Reason::ReplacementCleanup, Reason::MemberDeleting],
            GroupPhase::Serving => vec![],
        },
        leader: (!gone).then(|| Leader { pod: Arc::from(pod(0)), uid: Some(Arc::from("u")), address }),
        members: (0..2).map(member).collect(),
        managed: false,
        drain: draining.then(|| DrainBudget {
            since: now,
            grace: Duration::from_secs(30),
            streams_until: now + Duration::from_secs(25),
            followers_until: Some(now + Duration::from_secs(5)),
        }),
        next_to_go: ordinal == 1 && phase == GroupPhase::Serving && incarnation == 0,
        broken: draining,
        proof: 1,
    })
}

fn snapshot(generation: u64, phases: [(u32, GroupPhase); 3]) -> Snapshot {
    let pool = |model: &str, deployment: &str, groups| Pool {
        model: Arc::from(model),
        deployment: Some(DeploymentRef { namespace: "inference".into(), name: deployment.into() }),
        groups,
        outlook: Outlook::Coming,
        last_replacement: Some(Duration::from_secs(41)),
    };
    let groups = phases.iter().zip(0..).map(|((incarnation, phase), ordinal)| group("qwen3", ordinal, *incarnation, *phase)).collect();
    let mut snapshot = Snapshot { generation, source: "kubernetes", ..Snapshot::default() };
    let small = vec![group("bge", 0, 0, GroupPhase::Serving)];
    for pool in [pool("qwen3-235b", "qwen3", groups), pool("bge-m3", "bge", small)] {
        snapshot.pools.insert(pool.model.clone(), Arc::new(pool));
    }
    snapshot.conflicts.push(NameConflict {
        model: Arc::from("qwen3-235b"),
        owner: DeploymentRef { namespace: "inference".into(), name: "qwen3".into() },
        refused: vec![DeploymentRef { namespace: "lab".into(), name: "qwen3-copy".into() }],
    });
    snapshot
}

/// The parts that the test moves.
struct Stage {
    view: Arc<Staged>,
    metrics: Arc<Metrics>,
    recent: Arc<Recent>,
    changes: Changes,
    generation: u64,
}

impl Stage {
    fn set(&mut self, phases: [(u32, GroupPhase); 3], waiting: usize) {
        self.generation += 1;
        let next = snapshot(self.generation, phases);
        self.changes.observe(&next, &self.recent, SystemTime::now());
        *self.view.snapshot.lock().unwrap() = Arc::new(next);
        *self.view.waiting.lock().unwrap() = waiting;
    }

    fn traffic(&self, requests: u32) {
        let snapshot = self.view.snapshot();
        for pool in snapshot.pools.values() {
            let metrics = self.metrics.pool(pool);
            for n in 0..requests {
                let started = std::time::Instant::now();
                let mut times = StreamTimes::new(metrics.clone(), started);
                for event in 0..20 {
                    times.event(started + Duration::from_millis(200 + u64::from(n % 5) * 40 + event * 20));
                }
                metrics.request(Route::ChatCompletions, Outcome::Ok);
            }
        }
        *self.view.attempts.lock().unwrap() += u64::from(requests);
    }

    fn resume(&self) {
        let snapshot = self.view.snapshot();
        for pool in snapshot.pools.values() {
            self.metrics.pool(pool).resumed(ResumeCause::Stalled, ResumeWay::Continue, ResumeResult::Resumed);
        }
        let note = Note {
            pool: Arc::from("qwen3-235b"),
            group: Arc::from("inference/qwen3/worker/2"),
            detail: Arc::from("stalled continue resumed"),
            request_id: Arc::from("req-81f3"),
            trace_id: Arc::from("0af7651916cd43dd8448eb211c80319c"),
        };
        self.recent.note(Kind::Resumed, note, SystemTime::now());
        let note = Note { detail: Arc::from("model_not_found"), request_id: Arc::from("req-2"), ..Note::default() };
        self.recent.note(Kind::Refused, note, SystemTime::now());
    }
}

async fn stage(tasks: &mut JoinSet<()>) -> (Stage, String) {
    let view = Arc::new(Staged { snapshot: Mutex::new(Arc::new(Snapshot::default())), attempts: Mutex::new(0), waiting: Mutex::new(0) });
    let metrics = Metrics::new().unwrap();
    let recent = Recent::new();
    let writer = LineWriter::start(io::sink(), metrics.log_lines_dropped.clone()).unwrap();
    let admin = Admin {
        metrics: metrics.clone(),
        view: view.clone(),
        recent: recent.clone(),
        logs: Logs::detached(writer, LogFormat::Json),
        mirror_names: false,
        started: SystemTime::now(),
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    tasks.spawn(serve(listener, Arc::new(admin), std::future::pending()));
    (Stage { view, metrics, recent, changes: Changes::default(), generation: 0 }, url)
}

const SERVING: (u32, GroupPhase) = (0, GroupPhase::Serving);

/// Names and roles that a screen reader is given.
fn spoken(browser: &mut Browser) -> String {
    let tree = browser.call("Accessibility.getFullAXTree", serde_json::json!({}));
    let nodes = tree["nodes"].as_array().unwrap().iter().filter(|n| n["ignored"] == false);
    let lines = nodes.map(|n| format!("{} {}", n["role"]["value"].as_str().unwrap_or(""), n["name"]["value"].as_str().unwrap_or("")));
    lines.collect::<Vec<_>>().join("\n")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rollout_is_seen_as_it_happens() {
    let mut tasks = JoinSet::new();
    let (mut stage, url) = stage(&mut tasks).await;
    stage.set([SERVING; 3], 0);
    tokio::task::spawn_blocking(move || rollout(&mut stage, &url)).await.unwrap();
}

fn rollout(stage: &mut Stage, url: &str) {
    let mut browser = Browser::start();
    browser.open(url, (1280, 900), "light");
    browser.wait("document.querySelectorAll('section.pool').length === 2");
    let row = "[...document.querySelectorAll('tr')].find(r => r.innerText.includes('qwen3/worker/2'))";
    browser.wait(&format!("{row}.innerText.includes('Serving')"));
    browser.wait("document.getElementById('notices').innerText.includes('lab/qwen3-copy')");

    stage.traffic(30);
    stage.set([SERVING, SERVING, (0, GroupPhase::Draining)], 0);
    stage.resume();
    browser.wait(&format!("{row}.innerText.includes('Draining') && {row}.innerText.includes('replacement cleanup')"));
    browser.wait("document.getElementById('recent').innerText.includes('0af7651916cd43dd8448eb211c80319c')");
    browser.wait("document.getElementById('recent').innerText.includes('Serving → Draining')");
    browser.picture("draining-light.png");

    // The rate of a group is drawn while it serves.
    let busy = "[...document.querySelectorAll('tr')].find(r => r.innerText.includes('qwen3/worker/0'))";
    stage.traffic(45);
    browser.wait(&format!("{busy}.querySelector('[data-label=\"Requests/s\"] path.line').getAttribute('d').includes('L')"));
    browser.wait(&format!("{busy}.querySelector('[data-label=\"First token\"] path.line').getAttribute('d').includes('L')"));
    stage.set([SERVING, SERVING, (1, GroupPhase::Forming)], 3);
    browser.wait(&format!("{row}.innerText.includes('member missing')"));
    browser.wait("document.querySelector('#pools').innerText.includes('3 waiting')");
    stage.traffic(25);
    stage.set([SERVING, SERVING, (1, GroupPhase::Warming)], 1);
    browser.wait(&format!("{row}.innerText.includes('Warming')"));
    stage.traffic(35);
    stage.set([SERVING, SERVING, (1, GroupPhase::Serving)], 0);
    browser.wait(&format!("{row}.innerText.includes('Serving')"));
    // All five phases since the test began, also those before the page was opened.
    browser.wait(&format!("{row}.querySelectorAll('svg.strip rect').length >= 5"));

    usable(&mut browser);
    looks(&mut browser, url);
    flooded(stage, &mut browser);
}

/// A flood of refusals leaves the resume in sight.
fn flooded(stage: &Stage, browser: &mut Browser) {
    for _ in 0..1000 {
        stage.recent.note(Kind::Refused, Note { detail: Arc::from("queue_full"), ..Note::default() }, SystemTime::now());
    }
    browser.wait("document.getElementById('recent').innerText.split('queue full').length === 51");
    assert_eq!(browser.eval("document.getElementById('recent').innerText.includes('0af7651916cd43dd8448eb211c80319c')"), true);
}

/// By keyboard and by ear.
fn usable(browser: &mut Browser) {
    let spoken = spoken(browser);
    for expect in ["heading qwen3-235b", "table Replica groups of qwen3-235b", "rowheader inference/qwen3/worker/2", "columnheader Phase"] {
        assert!(spoken.contains(expect), "{expect} is not in:\n{spoken}");
    }
    browser.eval("document.activeElement.blur(); window.focus()");
    let mut reached = Vec::new();
    for _ in 0..12 {
        browser.key("Tab");
        let focus = browser.eval("document.activeElement.id || document.activeElement.tagName + ' ' + document.activeElement.innerText");
        reached.push(focus.as_str().unwrap_or("").to_owned());
    }
    assert!(reached.iter().any(|f| f == "filter") && reached.iter().any(|f| f == "pause"), "{reached:?}");
    assert!(reached.iter().any(|f| f.starts_with("SUMMARY 2 of 2 ready")), "{reached:?}");
    // Focus survives the updates: rows are changed in place.
    browser.eval("document.querySelector('summary').focus()");
    browser.key("Enter");
    browser.wait("document.querySelector('details').open");
    let generation = browser.eval("latest.at_ms");
    browser.wait(&format!("latest.at_ms > {generation}"));
    assert_eq!(browser.eval("document.activeElement.tagName"), "SUMMARY");
    browser.eval("document.getElementById('filter').value = 'bge'; document.getElementById('filter').dispatchEvent(new Event('input'))");
    browser.wait("[...document.querySelectorAll('section.pool')].filter(s => s.offsetParent).length === 1");
    browser.eval("document.getElementById('filter').value = ''; document.getElementById('filter').dispatchEvent(new Event('input'))");
}

/// In both schemes, wide and as a phone: nothing is wider than the screen.
fn looks(browser: &mut Browser, url: &str) {
    browser.picture("after-light.png");
    for (size, scheme, name) in
        [((1280, 900), "dark", "wide-dark.png"), ((390, 844), "light", "phone-light.png"), ((390, 844), "dark", "phone-dark.png")]
    {
        browser.open(url, size, scheme);
        browser.wait("document.querySelectorAll('section.pool').length === 2");
        assert_eq!(browser.eval("document.documentElement.scrollWidth <= innerWidth"), true, "{name}");
        browser.picture(name);
    }
    // Nothing was loaded from anywhere else.
    let loaded =
        browser.eval("performance.getEntriesByType('resource').map(r => r.name).filter(n => !n.startsWith(location.origin)).length");
    assert_eq!(loaded, 0);
}
