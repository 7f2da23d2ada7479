//! The gateway's own end (issue: Shutdown; RFC 9112 9.6, RFC 9113 6.8; report 100).

use std::time::Duration;

use tests::Outcome;
use tests::gateway::GatewayHandle;
use tests::http;
use tests::poll::{PATIENCE, eventually};
use tokio::net::TcpStream;

use crate::support::engine::ScriptedEngine;
use crate::support::gateway::over;
use crate::support::h2::{DATA, Ended, GOAWAY, H2};
use crate::support::message::{Chunk, End};
use crate::support::script::{EVENTS, FINISH, Gate, LAST, Step, answer, chunk, event, gate};
use crate::support::wire::{CHAT, STREAM, Wire, get, post};

/// An engine whose answers go on when the gate opens; a stream shows its first event before.
fn gated(gate: &Gate) -> Outcome<ScriptedEngine> {
    let passes = gate.clone();
    ScriptedEngine::start(move |received| {
        if received.body == CHAT.as_bytes() {
            return vec![Step::Wait(passes.clone()), Step::Send(answer(200, "", "{}"))];
        }
        let first = [EVENTS.as_bytes(), &chunk(event("first"))].concat();
        vec![Step::Send(first), Step::Wait(passes.clone()), Step::Send([chunk(FINISH), LAST.into()].concat())]
    })
}

async fn up(engine: &ScriptedEngine, settle: &str, grace: &str) -> Outcome<GatewayHandle> {
    over(&[engine.leader("m")], &format!("shutdown: {{settle: {settle}, grace: {grace}}}\nprobe: {{serving_interval: 1h}}\n")).await
}

/// A stream that has shown its first event.
async fn streaming(gateway: &GatewayHandle) -> Outcome<Wire> {
    let mut wire = Wire::open(gateway).await?;
    wire.send(post("", STREAM)).await?;
    wire.head().await?;
    wire.until("first").await?;
    Ok(wire)
}

async fn not_ready(gateway: &GatewayHandle) -> Outcome<()> {
    eventually(PATIENCE, "/readyz says 503", || async {
        match http::get(&gateway.admin_url("/readyz")).await {
            Ok(answer) if answer.status == 503 => Ok(()),
            Ok(answer) => Err(answer.status.to_string()),
            Err(error) => Err(error.to_string()),
        }
    })
    .await
}

async fn not_accepting(gateway: &GatewayHandle) -> Outcome<()> {
    eventually(PATIENCE, "no accept", || async {
        match TcpStream::connect(gateway.listen()).await {
            Ok(_) => Err("it accepts".to_owned()),
            Err(_) => Ok(()),
        }
    })
    .await
}

/// Not ready, and yet everything is served for the settle time; a second signal ends it at once, cleanly when nothing runs.
#[tokio::test]
async fn after_sigterm_it_is_not_ready_and_still_accepts() -> Outcome<()> {
    let open = gate();
    let engine = gated(&open)?;
    let gateway = up(&engine, "1h", "1h").await?;
    gateway.signal("TERM")?;
    not_ready(&gateway).await?;
    open.add_permits(1);
    assert_eq!(Wire::ask(&gateway, post("", CHAT)).await?.status(), 200);
    assert_eq!(http::get(&gateway.admin_url("/livez")).await?.status, 200);
    gateway.signal("TERM")?;
    assert_eq!(gateway.wait(PATIENCE).await?, 0, "{}", gateway.log());
    Ok(())
}

#[tokio::test]
async fn h16_running_answers_say_close_and_end() -> Outcome<()> {
    let open = gate();
    let engine = gated(&open)?;
    let gateway = up(&engine, "0s", "1h").await?;
    let mut idle = Wire::open(&gateway).await?;
    idle.send(get("/v1/models", "")).await?;
    assert_eq!(idle.answer().await?.head.get("connection"), None);
    let mut stream = streaming(&gateway).await?;
    let mut whole = Wire::open(&gateway).await?;
    whole.send(post("", CHAT)).await?;
    engine.wait_received(2).await?;
    gateway.signal("TERM")?;
    not_accepting(&gateway).await?;
    idle.closed().await?;
    open.add_permits(2);
    let answer = whole.answer().await?;
    assert_eq!((answer.status(), answer.head.get("connection")), (200, Some("close")));
    whole.closed().await?;
    assert_eq!(String::from_utf8(stream.until("[DONE]").await?)?, FINISH);
    assert_eq!(stream.0.chunk().await?, Chunk::Last(String::new()));
    stream.closed().await?;
    assert_eq!(gateway.wait(PATIENCE).await?, 0, "{}", gateway.log());
    Ok(())
}

/// GOAWAY first; the stream that runs is answered to its end; then the connection closes.
#[tokio::test]
async fn t8_goaway_comes_and_running_streams_end() -> Outcome<()> {
    let open = gate();
    let engine = gated(&open)?;
    let gateway = up(&engine, "0s", "1h").await?;
    let mut h2 = H2::connect(&gateway).await?;
    h2.post(1, &[], STREAM).await?;
    h2.wait(|frame| frame.kind == DATA).await?;
    gateway.signal("TERM")?;
    let first = h2.wait(|frame| frame.kind == GOAWAY).await?;
    assert_eq!((first.number(0) & 0x7fff_ffff, first.error_code()), (0x7fff_ffff, 0), "the largest id, no error");
    let last = h2.wait(|frame| frame.kind == GOAWAY).await?;
    assert_eq!((last.number(0), last.error_code()), (1, 0), "then the id of the last stream");
    open.add_permits(1);
    let answer = h2.answer(1).await?;
    assert_eq!((answer.ended, String::from_utf8(answer.body)?.as_str()), (Ended::Clean, FINISH));
    assert!(h2.next().await?.is_none());
    assert_eq!(gateway.wait(PATIENCE).await?, 0, "{}", gateway.log());
    Ok(())
}

/// The rest of a stream that was cut: one error event that says why.
fn check_cut(text: &str) {
    assert!(text.starts_with("data: {\"error\":{") && text.ends_with("}\n\n") && text.contains("shutting_down"), "{text:?}");
}

/// Report 100: an endless stream does not block the end for ever.
#[tokio::test]
async fn report_100_an_endless_stream_is_cut_after_the_grace() -> Outcome<()> {
    let engine = gated(&gate())?;
    let gateway = up(&engine, "0s", "200ms").await?;
    let mut wire = streaming(&gateway).await?;
    let mut h2 = H2::connect(&gateway).await?;
    h2.post(1, &[], STREAM).await?;
    h2.wait(|frame| frame.kind == DATA).await?;
    let mut whole = Wire::open(&gateway).await?;
    whole.send(post("", CHAT)).await?;
    engine.wait_received(3).await?;
    gateway.signal("TERM")?;
    let (rest, end) = wire.0.body(&chunked_head(), false).await?;
    assert_eq!(end, End::Cut);
    check_cut(&String::from_utf8(rest)?);
    let answer = h2.answer(1).await?;
    assert!(matches!(answer.ended, Ended::Reset(_)), "{:?}", answer.ended);
    check_cut(&String::from_utf8(answer.body)?);
    let refused = whole.answer().await?;
    assert_eq!((refused.status(), refused.code()?.as_str()), (503, "shutting_down"));
    engine.wait_gone(0).await?;
    // The cut came from the gateway: nobody counts as a client that left.
    let line = gateway.wait_access("refused").await?;
    assert_eq!((&line["status"], &line["reason"]), (&503.into(), &"shutting_down".into()), "{line}");
    assert_eq!(gateway.wait(PATIENCE).await?, 1, "{}", gateway.log());
    assert!(!gateway.log().contains(r#""outcome":"cancelled""#), "{}", gateway.log());
    Ok(())
}

fn chunked_head() -> crate::support::message::Head {
    crate::support::message::Head { fields: vec![("transfer-encoding".into(), "chunked".into())], ..Default::default() }
}

#[tokio::test]
async fn a_second_signal_ends_at_once() -> Outcome<()> {
    for settle in ["0s", "1h"] {
        let engine = gated(&gate())?;
        let gateway = up(&engine, settle, "1h").await?;
        let mut wire = streaming(&gateway).await?;
        gateway.signal("TERM")?;
        if settle == "0s" {
            not_accepting(&gateway).await?;
        } else {
            not_ready(&gateway).await?;
        }
        gateway.signal("INT")?;
        let (rest, end) = wire.0.body(&chunked_head(), false).await?;
        assert_eq!(end, End::Cut, "{settle}");
        check_cut(&String::from_utf8(rest)?);
        assert_eq!(gateway.wait(Duration::from_secs(30)).await?, 1, "{}", gateway.log());
    }
    Ok(())
}

#[tokio::test]
async fn sigint_without_requests_ends_cleanly() -> Outcome<()> {
    let engine = gated(&gate())?;
    let gateway = up(&engine, "0s", "1h").await?;
    gateway.signal("INT")?;
    assert_eq!(gateway.wait(PATIENCE).await?, 0, "{}", gateway.log());
    Ok(())
}
