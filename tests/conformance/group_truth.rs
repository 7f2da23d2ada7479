//! What is known of a group beats what its leader says: silent streams of a group that lost a member, or that is leaving, are moved
//! (issue: group truth beats engine truth; reports 19 and 23).
//!
//! The objects are those of the operator's examples, read from files; two simulated engines stand at the leaders' addresses.

use std::net::SocketAddr;
use std::time::Duration;

use loadtest::engine::{Ending, Engine, EngineConfig, EngineHandle, Pace, Persona, expected_text};
use serde_json::json;
use tempfile::TempDir;
use tests::gateway::{GatewayHandle, Options, Source};
use tests::http::Events;
use tests::{Outcome, binaries};

use crate::support::own_address;

const MODEL: &str = "demo-chat";

/// A deployment of two replicas of two members each.
struct Deployment {
    engines: [EngineHandle; 2],
    gateway: GatewayHandle,
    folder: TempDir,
    pods: Vec<String>,
}

fn fixture(name: &str) -> Outcome<String> {
    let path = binaries::in_tests("../discovery/tests/fixtures/operator").join(name);
    Ok(std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?)
}

async fn engine(listen: SocketAddr) -> Outcome<EngineHandle> {
    let pace = Pace::steady(Duration::ZERO, Duration::from_millis(10));
    Ok(Engine::start(EngineConfig { listen, pace, ..EngineConfig::fast(MODEL) }).await?)
}

impl Deployment {
    async fn up() -> Outcome<Self> {
        let first = engine(own_address()).await?;
        // The role has one port for all replicas; the second address is nobody else's, so that it is free there too.
        let port = first.addr().port();
        let second = engine(SocketAddr::new(own_address().ip(), port)).await?;
        let addresses = [("10.244.1.10", first.addr().ip()), ("10.244.2.10", second.addr().ip())];
        let placed = |text: String| {
            let text = addresses.iter().fold(text, |text, (from, to)| text.replace(from, &to.to_string()));
            text.replace("8000", &port.to_string())
        };
        let folder = tempfile::tempdir()?;
        for name in ["00-modeldeployment-steady.yaml", "02-services-endpointslices-steady.yaml"] {
            std::fs::write(folder.path().join(name), placed(fixture(name)?))?;
        }
        let pods = placed(fixture("01-pods-steady.yaml")?).split("\n---\n").map(str::to_owned).collect();
        let config = "resume: {stall: 300ms}\nprobe: {warming_interval: 50ms, serving_interval: 1h}\n";
        let options = Options::new(Source::Manifests(folder.path().to_owned())).config(config);
        let mut deployment = Self { engines: [first, second], gateway: GatewayHandle::start_ready(options).await?, folder, pods };
        deployment.edit("nobody", "", "")?;
        let keys = [0, 1].map(|ordinal| format!("gpustack-elastic/demo-mh/server/{ordinal}"));
        deployment.gateway.wait_groups("Serving", &keys).await?;
        Ok(deployment)
    }

    /// Replaces text in one Pod and writes all Pods anew, renamed into place.
    fn edit(&mut self, pod: &str, from: &str, to: &str) -> Outcome<()> {
        let name = format!("  name: {pod}\n");
        for document in self.pods.iter_mut().filter(|document| document.contains(&name)) {
            let edited = document.replacen(from, to, 1);
            assert_ne!(edited, *document, "{pod} has {from:?}");
            *document = edited;
        }
        let part = self.folder.path().join("pods.part");
        std::fs::write(&part, self.pods.join("\n---\n"))?;
        Ok(std::fs::rename(part, self.folder.path().join("pods.yaml"))?)
    }
}

/// What happens to the group: a Pod's place, and the text in it that changes.
type Sign = (usize, &'static str, &'static str);

const NOT_READY: (&str, &str) = ("- type: Ready\n    status: 'True'", "- type: Ready\n    status: 'False'");
const DELETING: (&str, &str) =
    ("  creationTimestamp:", "  deletionTimestamp: '2026-11-30T10:30:00Z'\n  deletionGracePeriodSeconds: 30\n  creationTimestamp:");

/// A stream whose leader falls silent and stays so; `sign` is what the cluster says.
async fn moved(name: &str, sign: Sign, falls_silent: fn(&EngineHandle)) -> Outcome<()> {
    let mut deployment = Deployment::up().await?;
    let body = json!({"model": MODEL, "stream": true, "temperature": 0, "max_tokens": 100, "ignore_eos": true,
        "messages": [{"role": "user", "content": name}]});
    let mut events = Events::start(&deployment.gateway.url("/v1/chat/completions"), &body).await?;
    let (mut text, mut ids) = (String::new(), Vec::new());
    let mut take = |event: &serde_json::Value| {
        assert!(event["error"].is_null(), "{name}: {event}");
        text.push_str(event["choices"][0]["delta"]["content"].as_str().unwrap_or_default());
        ids.push(event["id"].clone());
    };
    for _ in 0..10 {
        take(&events.next_data().await?.ok_or("it ended")?);
    }
    let busy = deployment.engines.iter().position(|engine| engine.stats().running > 0).ok_or("no leader is busy")?;
    falls_silent(&deployment.engines[busy]);
    let (member, from, to) = sign;
    deployment.edit(&format!("demo-mh-server-r{busy}-m{member}"), from, to)?;
    while let Some(event) = events.next_data().await? {
        take(&event);
    }
    assert_eq!(text, expected_text(&body, &Persona::named(MODEL)), "{name}");
    ids.dedup();
    assert_eq!(ids.len(), 1, "{name}: one id");
    // The silent leader's connection is closed, which lets a stopped engine exit.
    tests::poll::eventually(tests::poll::PATIENCE, "a closed stream at the silent leader", || async {
        let running = deployment.engines[busy].stats().running;
        if running == 0 { Ok(()) } else { Err(format!("{running} run")) }
    })
    .await
}

#[tokio::test]
async fn report_19_streams_of_a_group_with_a_dead_follower_are_moved() -> Outcome<()> {
    let sign = (1, NOT_READY.0, NOT_READY.1);
    moved("a follower died and the leader hangs", sign, |engine| engine.end_running_with(Ending::Silence)).await
}

#[tokio::test]
async fn streams_of_a_group_whose_follower_is_deleted_are_moved() -> Outcome<()> {
    moved("a follower is deleted", (1, DELETING.0, DELETING.1), |engine| engine.end_running_with(Ending::Silence)).await
}

/// The most frequent ending of a SIGTERM: the stream stays open and no byte ever comes.
#[tokio::test]
async fn streams_of_a_terminated_leader_that_stays_silent_are_moved() -> Outcome<()> {
    moved("the leader is deleted", (0, DELETING.0, DELETING.1), |engine| engine.sigterm_with(Ending::Silence)).await
}
