//! The load client against the simulated engine: a good run is all good, and each fault is seen for what it is.

#![allow(missing_docs, clippy::unwrap_used)]

use std::sync::Arc;
use std::time::Duration;

use loadtest::client::{Client, End, Expectation, Observation, Problem, Target, TextFault};
use loadtest::engine::{Engine, EngineConfig, EngineHandle, Fault, Hang, Outcome, Pace, Persona, Rule, Template};
use loadtest::flood::FloodArgs;
use loadtest::plan::{Arrival, Plan, PlanSpec};
use loadtest::report::Report;
use loadtest::resume_check::{self, ResumeCheckArgs, Way};
use loadtest::run::{RunOptions, run};
use serde_json::json;
use tokio::time::Instant;

const PATIENCE: Duration = Duration::from_secs(30);

async fn engine() -> EngineHandle {
    let engine = Engine::start(EngineConfig::fast("tiny")).await.unwrap();
    engine.listening().await;
    engine
}

fn client(engine: &EngineHandle) -> Client {
    Client::new(Target::at(engine.addr()))
}

fn arrival(streamed: bool) -> Arrival {
    let mut request = json!({
        "model": "tiny", "temperature": 0, "max_tokens": 60,
        "messages": [{"role": "user", "content": "Tell me. #kind=prose #sentences=20"}]
    });
    if streamed {
        request["stream"] = true.into();
        request["stream_options"] = json!({"include_usage": true});
    }
    Arrival { number: 0, id: "one".to_owned(), at: Duration::ZERO, request, cancel_after: None }
}

async fn observe(client: &Client, arrival: &Arrival, due: &Expectation) -> Observation {
    client.observe(arrival, Instant::now(), Some(due), PATIENCE).await
}

async fn struck(fault: Fault, streamed: bool) -> Observation {
    let engine = engine().await;
    engine.fault(Rule::once(fault));
    let (client, due) = (client(&engine), Expectation::of(engine.persona().clone()));
    let seen = observe(&client, &arrival(streamed), &due).await;
    let next = observe(&client, &arrival(streamed), &due).await;
    assert!(next.is_good(), "{}", next.story());
    seen
}

#[tokio::test]
async fn a_good_engine_gets_a_good_report() {
    let engine = engine().await;
    let spec = PlanSpec { seed: 5, rate: 400.0, duration: Duration::from_millis(300), sampled: 30, variety: 40, ..PlanSpec::default() };
    let due = Some(Arc::new(Expectation::of(engine.persona().clone())));
    let planned = Plan::new(spec.clone()).count() as u64;
    let record = run(Arc::new(client(&engine)), Plan::new(spec), RunOptions { due, ..RunOptions::default() }).await;
    let report = Report { title: "a run".to_owned(), setup: json!({}), record };
    assert_eq!((report.record.sent, report.record.good), (planned, planned), "{}", report.text());
    assert_eq!(report.json()["bad"], 0);
    assert!(report.html().contains("<svg") && report.html().contains("no request failed"));
    assert!(report.record.events > planned && !report.record.gap.is_empty());
}

#[tokio::test]
async fn ends_are_told_apart() {
    let end = |fault, streamed| async move { struck(fault, streamed).await.end };
    assert!(matches!(end(Fault::FinAfter { events: 9 }, true).await, End::Cut { .. }));
    assert!(matches!(end(Fault::ResetAfter { events: 9 }, true).await, End::Cut { .. }));
    assert!(matches!(end(Fault::ResetAt { byte: 20 }, true).await, End::Unanswered { .. }));
    assert!(matches!(end(Fault::ErrorAfter { events: 9 }, true).await, End::ErrorEvent { .. }));
    assert!(matches!(end(Fault::BadChunkAfter { events: 9 }, true).await, End::Cut { .. }));
    assert!(matches!(end(Fault::LengthLong { by: 5 }, false).await, End::Cut { .. }));
    assert!(matches!(end(Fault::Status { status: 503 }, true).await, End::Refused { status: 503, .. }));
    for unfinished in [Fault::AbortAfter { events: 9 }, Fault::EndAfter { events: 9 }, Fault::DoneAfter { events: 9 }, Fault::NoDone] {
        assert_eq!(end(unfinished.clone(), true).await, End::Unfinished, "{unfinished:?}");
    }
    assert_eq!(end(Fault::AbortAfter { events: 9 }, false).await, End::Unfinished);
}

#[tokio::test]
async fn silence_ends_the_patience() {
    let engine = engine().await;
    engine.hang(Hang::Engine);
    let due = Expectation::of(engine.persona().clone());
    let seen = client(&engine).observe(&arrival(true), Instant::now(), Some(&due), Duration::from_millis(50)).await;
    assert_eq!(seen.end, End::TimedOut);
}

#[tokio::test]
async fn malformed_events_are_problems() {
    let seen = struck(Fault::MalformedAfter { events: 3 }, true).await;
    assert_eq!((seen.end, seen.problems), (End::Complete, vec![Problem::NotJson]));
}

#[tokio::test]
async fn another_text_is_seen() {
    let engine = engine().await;
    let mut due = Expectation::of(engine.persona().clone());
    due.persona.weights = 1;
    let seen = observe(&client(&engine), &arrival(true), &due).await;
    assert!(seen.problems.iter().any(|problem| matches!(problem, Problem::Text(TextFault::Changed { .. }))), "{}", seen.story());
    assert!(!seen.is_good() && seen.differs.is_some());
}

#[tokio::test]
async fn a_planned_cancel_is_seen_by_the_engine() {
    let engine = engine().await;
    engine.fault(Rule::always(Fault::SilenceAfter { events: 5 }));
    let due = Expectation::of(engine.persona().clone());
    let seen = observe(&client(&engine), &Arrival { cancel_after: Some(4), ..arrival(true) }, &due).await;
    assert!(seen.is_good() && seen.end == End::Cancelled, "{}", seen.story());
    let noticed = async {
        while engine.requests()[0].outcome.is_none() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, noticed).await.unwrap();
    assert_ne!(engine.requests()[0].outcome, Some(Outcome::Complete));
}

#[derive(Debug, clap::Parser)]
struct Flood {
    #[command(flatten)]
    args: FloodArgs,
}

#[tokio::test]
async fn a_flood_counts_what_a_canned_engine_writes() {
    let config = EngineConfig { canned: true, pace: Pace { batch: 4, ..Pace::none() }, ..EngineConfig::default() };
    let engine = Engine::start(config).await.unwrap();
    engine.listening().await;
    for (more, events_each) in [(&["--stream", "--max-tokens", "11"][..], 13), (&[][..], 1)] {
        let url = engine.url();
        let always = ["flood", "--url", &url, "--connections", "3", "--requests", "5", "--warmup", "0"];
        let flood = <Flood as clap::Parser>::try_parse_from(always.iter().chain(more)).unwrap();
        let seen = loadtest::flood::flood(&flood.args, engine.addr()).await;
        // A stream is its role event, eleven tokens and the mark.
        assert_eq!((seen.good, seen.bad, seen.events), (15, 0, 15 * events_each));
    }
}

#[tokio::test]
async fn a_canned_answer_has_the_form_of_a_real_one() {
    let engine = Engine::start(EngineConfig { canned: true, pace: Pace::none(), ..EngineConfig::default() }).await.unwrap();
    engine.listening().await;
    for streamed in [true, false] {
        let seen = client(&engine).observe(&arrival(streamed), Instant::now(), None, PATIENCE).await;
        assert!(seen.is_good(), "{}", seen.story());
    }
}

#[derive(Debug, clap::Parser)]
struct Check {
    #[command(flatten)]
    args: ResumeCheckArgs,
}

#[tokio::test]
async fn ways_to_carry_on_are_as_exact_as_with_real_engines() {
    for template in [Template::Plain, Template::Trim] {
        let persona = Persona { template, ..Persona::default() };
        let config = || EngineConfig { persona: persona.clone(), pace: Pace::none(), ..EngineConfig::default() };
        let (one, two) = (Engine::start(config()).await.unwrap(), Engine::start(config()).await.unwrap());
        one.listening().await;
        two.listening().await;
        let check = <Check as clap::Parser>::try_parse_from(["check", "--first", &one.url(), "--cuts", "8", "--prompts", "4"]).unwrap();
        let tallies = resume_check::check(&check.args, &client(&one), &client(&two)).await.unwrap();
        for safe in [Way::LetterSpace, Way::IdsWithText, Way::Replay] {
            let tally = tallies[&safe];
            assert!(tally.exact >= 30 && tally.short == 0 && tally.wrong == 0, "{template:?} {safe:?} {tally:?}");
        }
        // Ids that end inside a character leak the prompt; white space is only lost where the template trims.
        assert!(tallies[&Way::Ids].wrong > 0, "{tallies:?}");
        assert_eq!(tallies[&Way::Continue].wrong > 0, template == Template::Trim, "{tallies:?}");
    }
}
