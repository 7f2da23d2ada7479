//! A second try needs proof that the first did nothing or can do nothing any more, and retries never multiply load
//! (RFC 9110 9.2.2; rule P12; reports 84 to 86, 88).

use std::time::Duration;

use loadtest::engine::{Engine, EngineConfig, EngineHandle, Pace, Persona, expected_text};
use serde_json::{Value, json};
use tests::Outcome;
use tests::poll::{PATIENCE, eventually};

use crate::support::engine::ScriptedEngine;
use crate::support::gateway::over;
use crate::support::own_address;
use crate::support::script::{Step, answer, send};
use crate::support::wire::{CHAT, STREAM, Wire, post};

const PROBES: &str = "probe: {warming_interval: 50ms, serving_interval: 1h}\n";

fn total(engines: &[ScriptedEngine]) -> usize {
    engines.iter().map(|engine| engine.received().len()).sum()
}

fn leaders(engines: &[ScriptedEngine]) -> Vec<String> {
    let urls: Vec<String> = engines.iter().map(|engine| format!("http://{}", engine.address())).collect();
    vec![format!("m={}", urls.join(","))]
}

/// A long prompt that a slow leader may be working on is not given to the next one as well.
#[tokio::test]
async fn report_84_a_late_leader_is_not_overtaken() -> Outcome<()> {
    let engines = [ScriptedEngine::start(|_| vec![Step::Hold])?, ScriptedEngine::start(|_| vec![Step::Hold])?];
    let gateway = over(&leaders(&engines), &format!("clocks: {{first_event: 300ms, response: 300ms}}\n{PROBES}")).await?;
    for (n, body) in [STREAM, CHAT].into_iter().enumerate() {
        let answer = Wire::ask(&gateway, post("", body)).await?;
        assert_eq!((answer.status(), answer.code()?.as_str()), (504, "leader_timeout"));
        assert_eq!(total(&engines), n + 1);
    }
    Ok(())
}

/// Attempts of one request are bounded, and so are the retries of all of them together.
#[tokio::test]
async fn report_86_retries_do_not_multiply() -> Outcome<()> {
    let full = |_: &_| send(answer(503, "", r#"{"full":1}"#));
    let engines = [ScriptedEngine::start(full)?, ScriptedEngine::start(full)?, ScriptedEngine::start(full)?];
    let gateway = over(&leaders(&engines), &format!("retry: {{attempts: 2, burst: 5, ratio: 0}}\n{PROBES}")).await?;
    let refused = Wire::ask(&gateway, post("", CHAT)).await?;
    assert_eq!((refused.status(), refused.text().as_str()), (503, r#"{"full":1}"#));
    assert_eq!(total(&engines), 2, "attempts of one request");
    for _ in 1..20 {
        assert_eq!(Wire::ask(&gateway, post("", CHAT)).await?.status(), 503);
    }
    assert_eq!(total(&engines), 20 + 5, "the budget of all");
    Ok(())
}

/// One leader that takes an hour for the first token, one that takes no time.
async fn slow_and_fast() -> Outcome<[EngineHandle; 2]> {
    let start = async |first_token| {
        let pace = Pace::steady(first_token, Duration::ZERO);
        Engine::start(EngineConfig { listen: own_address(), pace, ..EngineConfig::fast("m") }).await
    };
    Ok([start(Duration::from_secs(3600)).await?, start(Duration::ZERO).await?])
}

/// A leader that died before its first event can do nothing any more.
#[tokio::test]
async fn a_request_whose_leader_dies_goes_to_another_one() -> Outcome<()> {
    for stream in [false, true] {
        let [slow, fast] = slow_and_fast().await?;
        let config = "probe: {generation: false, warming_interval: 50ms, serving_interval: 1h}\n";
        let gateway = over(&[format!("m={},{}", slow.url(), fast.url())], config).await?;
        let body =
            json!({"model": "m", "stream": stream, "temperature": 0, "max_tokens": 20, "messages": [{"role": "user", "content": "dies"}]});
        let mut moved = false;
        // Either leader may be picked; until it was the slow one.
        while !moved {
            let before = fast.stats().generations;
            let mut wire = Wire::open(&gateway).await?;
            wire.send(post("", &body.to_string())).await?;
            eventually(PATIENCE, "a leader at work", || async {
                let seen = (slow.stats().running, fast.stats().generations);
                if seen.0 == 1 || seen.1 > before { Ok(()) } else { Err(format!("{seen:?}")) }
            })
            .await?;
            if slow.stats().running == 1 {
                slow.kill();
                moved = true;
            }
            let answer = wire.answer().await?;
            assert_eq!((answer.status(), text(&answer.text())?), (200, expected_text(&body, &Persona::named("m"))), "stream: {stream}");
        }
    }
    Ok(())
}

/// The text of an answer, streamed or not.
fn text(body: &str) -> Outcome<String> {
    if let Ok(whole) = serde_json::from_str::<Value>(body) {
        return Ok(whole["choices"][0]["message"]["content"].as_str().unwrap_or(body).to_owned());
    }
    let mut text = String::new();
    for data in body.split("\n\n").filter_map(|event| event.strip_prefix("data: ")).filter(|data| *data != "[DONE]") {
        let event: Value = serde_json::from_str(data)?;
        text.push_str(event["choices"][0]["delta"]["content"].as_str().unwrap_or_default());
    }
    Ok(text)
}

/// What is counted and paid for is a second try, not the wish for one: else a pool's budget is gone when another leader could be asked.
#[tokio::test]
async fn only_second_tries_are_counted() -> Outcome<()> {
    for leaders_of_pool in 1..=3 {
        let full = |_: &_| send(answer(503, "", r#"{"full":1}"#));
        let engines = (0..leaders_of_pool).map(|_| ScriptedEngine::start(full)).collect::<Outcome<Vec<_>>>()?;
        let gateway = over(&leaders(&engines), &format!("retry: {{attempts: 4, burst: 100, ratio: 0}}\n{PROBES}")).await?;
        for _ in 0..5 {
            assert_eq!(Wire::ask(&gateway, post("", CHAT)).await?.status(), 503);
        }
        let second = total(&engines) - 5;
        assert_eq!(second, 5 * (leaders_of_pool - 1), "each leader was asked once");
        let metrics = gateway.metrics().await?;
        let counted: usize = metrics
            .lines()
            .filter(|line| line.starts_with("leadgate_retries_total{"))
            .filter_map(|line| line.rsplit(' ').next()?.parse::<usize>().ok())
            .sum();
        assert_eq!(counted, second, "{leaders_of_pool} leaders");
        let left = metrics.lines().find_map(|line| line.strip_prefix(r#"leadgate_retry_budget{pool="m"} "#)).map(str::parse::<f64>);
        assert_eq!(left, Some(Ok((100 - second) as f64)), "{leaders_of_pool} leaders");
    }
    Ok(())
}
