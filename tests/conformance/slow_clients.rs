//! A slow client slows only its own stream, by backpressure, and costs bounded memory (RFC 9113 6.9; rule T9).

use tests::Outcome;
use tests::gateway::GatewayHandle;

use crate::support::engine::ScriptedEngine;
use crate::support::gateway::{over, wait_idle};
use crate::support::h2::{DATA, Ended, H2, HEADERS};
use crate::support::message::find;
use crate::support::script::{EVENTS, FINISH, LAST, Step, chunk, event};
use crate::support::wire::{Wire, post};

const TIMES: usize = 2000;

/// About 16 KiB, in events of usual size.
fn piece() -> Vec<u8> {
    chunk(event("word ").repeat(100))
}

/// All bytes of the stream's body.
fn expected() -> Vec<u8> {
    [event("word ").repeat(100 * TIMES), FINISH.to_owned()].concat().into_bytes()
}

fn flood() -> Outcome<ScriptedEngine> {
    ScriptedEngine::start(|_| {
        vec![Step::Send(EVENTS.into()), Step::Flood(piece(), TIMES), Step::Send([chunk(FINISH), LAST.into()].concat())]
    })
}

/// Two leaders that write 30 MB as fast as it is taken, one for the slow and one for the fast client.
async fn two() -> Outcome<(GatewayHandle, ScriptedEngine, ScriptedEngine)> {
    let (slow, fast) = (flood()?, flood()?);
    // One worker: both streams share a thread.
    let gateway = over(&[slow.leader("slow"), fast.leader("fast")], "workers: 1\nprobe: {serving_interval: 1h}\n").await?;
    Ok((gateway, slow, fast))
}

fn ask(model: &str) -> String {
    format!(r#"{{"model":"{model}","stream":true,"messages":[]}}"#)
}

/// What may lie in buffers of sockets and hyper between a leader and a client that does not read: far below the whole stream.
fn check_bounded(slow: &ScriptedEngine) {
    let (written, whole) = (slow.flooded(), TIMES * piece().len());
    assert!(written < whole / 2, "{written} of {whole} bytes were taken from the leader for a client that reads nothing");
}

#[tokio::test]
async fn t9_a_client_that_does_not_read_stops_only_its_own_leader() -> Outcome<()> {
    let (gateway, slow, _fast) = two().await?;
    let mut lazy = Wire::narrow(&gateway).await?;
    lazy.send(post("", &ask("slow"))).await?;
    slow.wait_received(1).await?;
    let eager = Wire::ask(&gateway, post("", &ask("fast"))).await?;
    assert!(eager.body == expected(), "the fast client got {} bytes", eager.body.len());
    check_bounded(&slow);
    let late = lazy.answer().await?;
    assert!(late.body == expected(), "the slow client got {} bytes in the end", late.body.len());
    Ok(())
}

#[tokio::test]
async fn t9_a_stream_without_a_window_stops_only_its_own_leader() -> Outcome<()> {
    let (gateway, slow, _fast) = two().await?;
    let mut h2 = H2::connect(&gateway).await?;
    h2.greedy = false;
    h2.open_window(0, 1 << 30).await?;
    h2.post(1, &[], &ask("slow")).await?;
    h2.wait(|frame| frame.stream == 1 && frame.kind == HEADERS).await?;
    h2.post(3, &[], &ask("fast")).await?;
    h2.open_window(3, 1 << 30).await?;
    let mut held = Vec::new();
    let mut eager = Vec::new();
    while find(&eager[eager.len().saturating_sub(64)..], b"[DONE]").is_none() {
        let frame = h2.wait(|frame| frame.kind == DATA).await?;
        if frame.stream == 1 { held.extend(frame.payload) } else { eager.extend(frame.payload) }
    }
    assert!(eager == expected(), "the fast stream got {} bytes", eager.len());
    assert!(held.len() <= 65_535, "more than the window: {}", held.len());
    check_bounded(&slow);
    h2.open_window(1, 1 << 30).await?;
    let rest = h2.answer(1).await?;
    assert_eq!(rest.ended, Ended::Clean);
    assert!([held, rest.body].concat() == expected(), "the slow stream is whole in the end");
    Ok(())
}

/// A client that takes nothing for `limits.write_timeout` is let go, and so is what it holds, also while its leader's answer is whole already.
#[tokio::test]
async fn a_client_that_takes_nothing_is_let_go() -> Outcome<()> {
    let engine = flood()?;
    let gateway = over(&[engine.leader("m")], "limits: {write_timeout: 300ms}\nprobe: {serving_interval: 1h}\n").await?;
    let mut lazy = Wire::narrow(&gateway).await?;
    lazy.send(post("", &ask("m"))).await?;
    let line = gateway.wait_access("cancelled").await?;
    assert_eq!(line["status"], 200);
    engine.wait_gone(1).await?;
    wait_idle(&gateway).await
}
