//! What is known of a group beats what its leader says: silent streams of a group that lost a member, or that is leaving, are moved
//! (issue: group truth beats engine truth; reports 19 and 23).
//!
//! The objects are those of the operator's examples, read from files; two simulated engines stand at the leaders' addresses.

use loadtest::engine::{Ending, EngineHandle, Persona, expected_text};
use serde_json::json;
use tests::Outcome;
use tests::http::Events;

use crate::support::deployment::{DELETING, Deployment, MODEL, NOT_READY, Sign, places, simulated};

const CONFIG: &str = "resume: {stall: 300ms}\nprobe: {warming_interval: 50ms, serving_interval: 1h}\n";

/// A stream whose leader falls silent and stays so; `sign` is what the cluster says of a member of its group.
async fn moved(name: &str, (member, sign): (usize, Sign), falls_silent: fn(&EngineHandle)) -> Outcome<()> {
    let engines = simulated().await?;
    let mut deployment = Deployment::up(places(&engines), CONFIG, &[]).await?;
    deployment.wait("Serving", &[0, 1]).await?;
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
    let busy = engines.iter().position(|engine| engine.stats().running > 0).ok_or("no leader is busy")?;
    falls_silent(&engines[busy]);
    deployment.show((busy, member), sign)?;
    while let Some(event) = events.next_data().await? {
        take(&event);
    }
    assert_eq!(text, expected_text(&body, &Persona::named(MODEL)), "{name}");
    ids.dedup();
    assert_eq!(ids.len(), 1, "{name}: one id");
    // The silent leader's connection is closed, which lets a stopped engine exit.
    tests::poll::eventually(tests::poll::PATIENCE, "a closed stream at the silent leader", || async {
        let running = engines[busy].stats().running;
        if running == 0 { Ok(()) } else { Err(format!("{running} run")) }
    })
    .await
}

#[tokio::test]
async fn report_19_streams_of_a_group_with_a_dead_follower_are_moved() -> Outcome<()> {
    moved("a follower died and the leader hangs", (1, NOT_READY), |engine| engine.end_running_with(Ending::Silence)).await
}

#[tokio::test]
async fn streams_of_a_group_whose_follower_is_deleted_are_moved() -> Outcome<()> {
    moved("a follower is deleted", (1, DELETING), |engine| engine.end_running_with(Ending::Silence)).await
}

/// The most frequent ending of a SIGTERM: the stream stays open and no byte ever comes.
#[tokio::test]
async fn streams_of_a_terminated_leader_that_stays_silent_are_moved() -> Outcome<()> {
    moved("the leader is deleted", (0, DELETING), |engine| engine.sigterm_with(Ending::Silence)).await
}
