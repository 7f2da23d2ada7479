//! Clocks of a try: connect, first event, silence, whole answer; no total one (reports 4, 13, 84, 101).

use std::time::Duration;

use tests::Outcome;

use crate::support::engine::ScriptedEngine;
use crate::support::gateway::over;
use crate::support::h2::{Ended, H2};
use crate::support::message::End;
use crate::support::script::{EVENTS, Step, answer, chunk, event, send, whole_stream};
use crate::support::wire::{CHAT, STREAM, Wire, post};

const PROBES: &str = "probe: {warming_interval: 50ms, serving_interval: 1h}\n";

/// Asks a leader that does `steps`, under one clock that is short.
async fn late(clock: &str, body: &str, steps: Vec<Step>) -> Outcome<(crate::support::wire::Answer, ScriptedEngine)> {
    let engine = ScriptedEngine::start(move |_| steps.clone())?;
    let config = format!("clocks: {{{clock}: 300ms}}\n{PROBES}");
    let gateway = over(&[engine.leader("m")], &config).await?;
    let answer = Wire::ask(&gateway, post("", body)).await?;
    engine.wait_gone(1).await?;
    Ok((answer, engine))
}

/// The last event of a stream that a clock ended.
fn check_late(answer: &crate::support::wire::Answer, before: &str) {
    let text = answer.text();
    let error = text.rsplit("data: ").next().unwrap_or_default();
    assert_eq!((answer.status(), answer.end), (200, End::Cut), "{text}");
    assert!(text.starts_with(before) && error.contains("leader_timeout"), "{text}");
    assert!(!text.contains("[DONE]"), "{text}");
}

/// Comments again and again.
fn comments() -> Step {
    Step::Drip(chunk(": still here\n\n"), Duration::from_millis(20))
}

#[tokio::test]
async fn p16_a_head_that_never_comes_is_504() -> Outcome<()> {
    for (clock, body) in [("first_event", STREAM), ("response", CHAT)] {
        let (answer, engine) = late(clock, body, vec![Step::Hold]).await?;
        assert_eq!((answer.status(), answer.code()?.as_str()), (504, "leader_timeout"), "{clock}");
        assert!(answer.text().contains(clock), "it says which clock: {}", answer.text());
        assert_eq!(engine.received().len(), 1, "{clock}: a leader that may be working is not overtaken by another try");
    }
    Ok(())
}

#[tokio::test]
async fn half_an_answer_is_late_too() -> Outcome<()> {
    let half = Step::Send(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n{".to_vec());
    let (answer, _engine) = late("response", CHAT, vec![half, Step::Hold]).await?;
    assert_eq!((answer.status(), answer.code()?.as_str()), (504, "leader_timeout"));
    Ok(())
}

/// Headers and comments prove nothing.
#[tokio::test]
async fn the_first_event_is_not_a_comment() -> Outcome<()> {
    let (answer, _engine) = late("first_event", STREAM, vec![Step::Send(EVENTS.into()), comments()]).await?;
    check_late(&answer, ": still here");
    Ok(())
}

#[tokio::test]
async fn silence_between_events_is_not_broken_by_comments() -> Outcome<()> {
    let steps = vec![Step::Send([EVENTS.as_bytes(), &chunk(event("a"))].concat()), comments()];
    let (answer, _engine) = late("idle", STREAM, steps).await?;
    check_late(&answer, &event("a"));
    Ok(())
}

/// By HTTP/2 the same end is a reset of the stream.
#[tokio::test]
async fn t7_a_late_stream_is_reset() -> Outcome<()> {
    let engine = ScriptedEngine::start(|_| vec![Step::Send([EVENTS.as_bytes(), &chunk(event("a"))].concat()), Step::Hold])?;
    let gateway = over(&[engine.leader("m")], &format!("clocks: {{idle: 300ms}}\n{PROBES}")).await?;
    let mut h2 = H2::connect(&gateway).await?;
    h2.post(1, &[], STREAM).await?;
    let answer = h2.answer(1).await?;
    assert!(matches!(answer.ended, Ended::Reset(_)), "{:?}", answer.ended);
    assert!(String::from_utf8(answer.body)?.contains("leader_timeout"));
    Ok(())
}

/// A stream that lasts many times longer than each clock passes, as long as events come.
#[tokio::test]
async fn report_101_no_clock_runs_over_a_whole_stream() -> Outcome<()> {
    let tick = chunk(event("tick"));
    let engine = ScriptedEngine::start(move |_| vec![Step::Send(EVENTS.into()), Step::Drip(tick.clone(), Duration::from_millis(20))])?;
    let config = format!("clocks: {{first_event: 1s, idle: 1s, response: 1s}}\n{PROBES}");
    let gateway = over(&[engine.leader("m")], &config).await?;
    let mut wire = Wire::open(&gateway).await?;
    wire.send(post("", STREAM)).await?;
    wire.head().await?;
    // At 20 ms each, three times as long as the clocks.
    for _ in 0..150 {
        wire.until("tick").await?;
    }
    Ok(())
}

/// Reports 4 and 13: a node that drops every SYN costs the connect clock; a healthy peer answers.
#[tokio::test]
async fn report_13_a_black_hole_is_passed_over() -> Outcome<()> {
    let hole = ScriptedEngine::start(|_| send(answer(200, "", "{}")))?;
    let peer = ScriptedEngine::start(|_| vec![Step::Send(whole_stream("peer"))])?;
    let config = format!("clocks: {{connect: 300ms}}\n{PROBES}");
    let leaders = format!("{},http://{}", hole.leader("m"), peer.address());
    let gateway = over(&[leaders, hole.leader("alone")], &config).await?;
    let _fillers = hole.become_black_hole().await?;
    for n in 0..6 {
        let answer = Wire::ask(&gateway, post("", STREAM)).await?;
        assert_eq!((answer.status(), answer.end), (200, End::Whole), "request {n}: {}", answer.text());
    }
    assert_eq!((hole.received().len(), peer.received().len()), (0, 6));
    Ok(())
}

#[tokio::test]
async fn p16_a_black_hole_alone_is_502() -> Outcome<()> {
    let hole = ScriptedEngine::start(|_| send(answer(200, "", "{}")))?;
    let gateway = over(&[hole.leader("m")], &format!("clocks: {{connect: 300ms}}\nretry: {{attempts: 1}}\n{PROBES}")).await?;
    let _fillers = hole.become_black_hole().await?;
    let answer = Wire::ask(&gateway, post("", CHAT)).await?;
    assert_eq!((answer.status(), answer.code()?.as_str()), (502, "leader_unreachable"));
    Ok(())
}

/// A client that stops in the middle of its body is told so, and closed.
#[tokio::test]
async fn a_body_that_stops_is_408() -> Outcome<()> {
    let engine = ScriptedEngine::start(|_| send(answer(200, "", "{}")))?;
    let gateway = over(&[engine.leader("m")], "limits: {body_timeout: 200ms}\n").await?;
    let mut wire = Wire::open(&gateway).await?;
    wire.send("POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\ncontent-length: 100\r\n\r\n{\"model\"").await?;
    let answer = wire.answer().await?;
    assert_eq!((answer.status(), answer.code()?.as_str()), (408, "invalid_request"));
    wire.closed().await?;
    Ok(())
}

/// `limits.header_timeout` bounds a slow head, `limits.idle_timeout` a connection that says nothing.
#[tokio::test]
async fn slow_heads_and_idle_connections_are_closed() -> Outcome<()> {
    let engine = ScriptedEngine::start(|_| send(answer(200, "", "{}")))?;
    let slow = over(&[engine.leader("m")], "limits: {header_timeout: 200ms}\n").await?;
    let half = "POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\n";
    let mut fresh = Wire::open(&slow).await?;
    fresh.send(half).await?;
    let mut used = Wire::open(&slow).await?;
    used.send(post("", CHAT)).await?;
    assert_eq!(used.answer().await?.status(), 200);
    used.send(half).await?;
    fresh.0.rest().await?;
    used.0.rest().await?;
    let idle = over(&[engine.leader("m")], "limits: {idle_timeout: 200ms}\n").await?;
    let mut fresh = Wire::open(&idle).await?;
    let mut used = Wire::open(&idle).await?;
    used.send(post("", CHAT)).await?;
    assert_eq!(used.answer().await?.status(), 200);
    fresh.closed().await?;
    used.closed().await?;
    Ok(())
}
