//! Streams that break are carried on: one stream, every character once, one id (issue: no client notices a rollout).

use std::time::Duration;

use loadtest::engine::{Ending, Engine, EngineConfig, EngineHandle, Fault, Pace, Persona, Rule, expected_text};
use serde_json::{Value, json};
use tests::Outcome;
use tests::gateway::GatewayHandle;
use tests::http::Events;
use tests::poll::{PATIENCE, eventually};

use crate::support::gateway::over;
use crate::support::own_address;

/// Two leaders of one model, and a gateway with its own settings for carrying on.
struct Pair {
    engines: [EngineHandle; 2],
    gateway: GatewayHandle,
}

async fn engine(pace: Pace) -> Outcome<EngineHandle> {
    Ok(Engine::start(EngineConfig { listen: own_address(), pace, ..EngineConfig::fast("m") }).await?)
}

impl Pair {
    async fn up(pace: Pace, config: &str) -> Outcome<Self> {
        let engines = [engine(pace.clone()).await?, engine(pace).await?];
        let gateway = over(&[format!("m={},{}", engines[0].url(), engines[1].url())], config).await?;
        Ok(Self { engines, gateway })
    }

    /// The leader that runs a request, once one does.
    async fn busy(&self) -> Outcome<&EngineHandle> {
        eventually(PATIENCE, "a busy leader", || async {
            self.engines.iter().find(|engine| engine.stats().running > 0).ok_or_else(|| "none".to_owned())
        })
        .await
    }
}

fn ask(prompt: &str, more: Value) -> Value {
    let mut body = json!({"model": "m", "stream": true, "temperature": 0, "max_tokens": 120, "ignore_eos": true,
        "messages": [{"role": "user", "content": prompt}]});
    for (name, value) in more.as_object().into_iter().flatten() {
        body[name] = value.clone();
    }
    body
}

/// What a client saw of one stream.
#[derive(Debug, Default)]
struct Seen {
    text: String,
    ids: Vec<String>,
    roles: usize,
    finish: Option<String>,
    usage: Option<Value>,
}

async fn read(events: &mut Events, seen: &mut Seen) -> Outcome<()> {
    while let Some(event) = events.next_data().await? {
        note(&event, seen)?;
    }
    Ok(())
}

fn note(event: &Value, seen: &mut Seen) -> Outcome<()> {
    if !event["error"].is_null() {
        return Err(format!("error event: {event}").into());
    }
    let id = event["id"].as_str().unwrap_or_default();
    if seen.ids.last().is_none_or(|last| last != id) {
        seen.ids.push(id.to_owned());
    }
    let choice = &event["choices"][0];
    seen.roles += usize::from(choice["delta"]["role"].is_string());
    seen.text.push_str(choice["delta"]["content"].as_str().unwrap_or_default());
    seen.finish = choice["finish_reason"].as_str().map(str::to_owned).or(seen.finish.take());
    if event["usage"].is_object() {
        seen.usage = Some(event["usage"].clone());
    }
    Ok(())
}

fn check(name: &str, body: &Value, seen: &Seen) {
    assert_eq!(seen.text, expected_text(body, &Persona::named("m")), "{name}");
    assert_eq!((seen.ids.len(), seen.roles, seen.finish.as_deref()), (1, 1, Some("length")), "{name}: {seen:?}");
}

/// A fault behind so many events.
type Behind = fn(u64) -> Fault;

/// Endings of one request at its first leader, each behind several numbers of events.
#[tokio::test]
async fn a_stream_that_breaks_is_carried_on_exactly() -> Outcome<()> {
    let pair = Pair::up(Pace::none(), "probe: {warming_interval: 50ms, serving_interval: 1h}\nretry: {burst: 1000}\n").await?;
    let endings: [(&str, Behind); 7] = [
        ("reset", |events| Fault::ResetAfter { events }),
        ("fin", |events| Fault::FinAfter { events }),
        ("abort", |events| Fault::AbortAfter { events }),
        ("error", |events| Fault::ErrorAfter { events }),
        ("end", |events| Fault::EndAfter { events }),
        ("done", |events| Fault::DoneAfter { events }),
        ("bad chunk", |events| Fault::BadChunkAfter { events }),
    ];
    for (name, fault) in endings {
        for events in [2, 17, 60] {
            broken_once(&pair, &format!("{name} behind {events}"), fault(events)).await?;
        }
    }
    Ok(())
}

/// Asks until the leader with the fault was the one that was picked; each answer is exact, broken or not.
async fn broken_once(pair: &Pair, name: &str, fault: Fault) -> Outcome<()> {
    let struck = |engine: &EngineHandle| engine.stats().faults.values().sum::<u64>();
    let before = struck(&pair.engines[0]);
    assert!(pair.engines[0].fault(Rule { streamed: Some(true), ..Rule::once(fault) }));
    for turn in 0..64 {
        let body = ask(&format!("{name} {turn}"), json!({"stream_options": {"include_usage": true}}));
        let mut events = Events::start(&pair.gateway.url("/v1/chat/completions"), &body).await?;
        let mut seen = Seen::default();
        read(&mut events, &mut seen).await.map_err(|error| format!("{name}: {error}"))?;
        check(name, &body, &seen);
        assert_eq!(seen.usage.ok_or("no usage")?["completion_tokens"], json!(120), "{name}");
        if struck(&pair.engines[0]) > before {
            return Ok(());
        }
    }
    Err(format!("{name}: the leader with the fault was never picked").into())
}

/// A leader that is killed in the middle.
#[tokio::test]
async fn a_killed_leaders_streams_are_carried_on() -> Outcome<()> {
    let pace = Pace::steady(Duration::ZERO, Duration::from_millis(10));
    let pair = Pair::up(pace, "probe: {warming_interval: 50ms, serving_interval: 1h}\n").await?;
    let body = ask("killed", json!({}));
    let mut events = Events::start(&pair.gateway.url("/v1/chat/completions"), &body).await?;
    let mut seen = Seen::default();
    for _ in 0..10 {
        note(&events.next_data().await?.ok_or("it ended")?, &mut seen)?;
    }
    pair.busy().await?.kill();
    read(&mut events, &mut seen).await?;
    check("killed", &body, &seen);
    Ok(())
}

/// Both measured endings of a SIGTERM that say something, in the middle of streams.
#[tokio::test]
async fn a_terminated_leaders_streams_are_carried_on() -> Outcome<()> {
    for ending in [Ending::Abort, Ending::Error] {
        let pace = Pace::steady(Duration::ZERO, Duration::from_millis(10));
        let pair = Pair::up(pace, "probe: {warming_interval: 50ms, serving_interval: 1h}\n").await?;
        let body = ask("terminated", json!({}));
        let mut events = Events::start(&pair.gateway.url("/v1/chat/completions"), &body).await?;
        let mut seen = Seen::default();
        for _ in 0..10 {
            note(&events.next_data().await?.ok_or("it ended")?, &mut seen)?;
        }
        pair.busy().await?.sigterm_with(ending);
        read(&mut events, &mut seen).await?;
        check(&format!("{ending:?}"), &body, &seen);
    }
    Ok(())
}

/// With carrying on switched off the same break is an error event.
#[tokio::test]
async fn switched_off_it_is_an_error_event() -> Outcome<()> {
    let pair = Pair::up(Pace::none(), "resume: {enabled: false}\n").await?;
    pair.engines.iter().for_each(|engine| assert!(engine.fault(Rule::once(Fault::FinAfter { events: 5 }))));
    let mut events = Events::start(&pair.gateway.url("/v1/chat/completions"), &ask("off", json!({}))).await?;
    let error = read(&mut events, &mut Seen::default()).await;
    assert!(error.is_err_and(|error| error.to_string().contains("not_resumable") || error.to_string().contains("leader_reset")));
    Ok(())
}
