//! Requests that wait for a leader: bounded, gone with their client, released at a pace, and ended with the gateway.

use tests::Outcome;
use tests::gateway::{GatewayHandle, Options, Source};
use tests::poll::{PATIENCE, eventually};

use crate::support::engine::ScriptedEngine;
use crate::support::gateway::over;
use crate::support::message::End;
use crate::support::script::{Step, answer, gate, send};
use crate::support::wire::{CHAT, STREAM, Wire, post, post_to};

const PROBES: &str = "probe: {warming_interval: 50ms, serving_interval: 1h}\n";

/// A gateway over a leader that does not serve yet.
async fn holding(engine: &ScriptedEngine, config: &str) -> Outcome<GatewayHandle> {
    GatewayHandle::start_ready(Options::new(Source::Leaders(vec![engine.leader("m")])).config(format!("{config}{PROBES}"))).await
}

async fn wait_waiting(gateway: &GatewayHandle, n: u64) -> Outcome<()> {
    let check = |snapshot: &serde_json::Value| {
        let waiting = &snapshot["pools"][0]["waiting"];
        if *waiting == n { Ok(()) } else { Err(format!("{waiting} wait instead of {n}")) }
    };
    gateway.wait_snapshot("waiting requests", check).await.map(drop)
}

#[tokio::test]
async fn a_full_queue_is_429_and_a_waiter_leaves_with_its_client() -> Outcome<()> {
    let engine = ScriptedEngine::start_unready(|_| send(answer(200, "", "{}")))?;
    let gateway = holding(&engine, "hold: {max_requests: 1}\n").await?;
    for body in [CHAT, STREAM] {
        let mut first = Wire::open(&gateway).await?;
        first.send(post("", body)).await?;
        wait_waiting(&gateway, 1).await?;
        let second = Wire::ask(&gateway, post("", body)).await?;
        assert_eq!((second.status(), second.code()?.as_str()), (429, "queue_full"));
        assert!(second.head.get("retry-after").is_some());
        drop(first);
        wait_waiting(&gateway, 0).await?;
    }
    let recent = tests::http::get(&gateway.admin_url("/debug/recent")).await?.text();
    assert_eq!(recent.matches(r#""kind":"held""#).count(), 2, "told once for each time that a queue begins: {recent}");
    assert_eq!(gateway.snapshot().await?["age_seconds"], 0.0, "fixed leaders do not grow stale");
    engine.set_ready(true);
    assert_eq!(Wire::ask(&gateway, post("", CHAT)).await?.status(), 200);
    assert_eq!(engine.received().len(), 1, "nothing is sent for clients that left");
    Ok(())
}

#[tokio::test]
async fn waiters_are_released_at_a_pace_and_in_order() -> Outcome<()> {
    let next = gate();
    let passes = next.clone();
    let engine = ScriptedEngine::start_unready(move |_| vec![Step::Wait(passes.clone()), Step::Send(answer(200, "", "{}"))])?;
    let gateway = holding(&engine, "hold: {release: 2}\n").await?;
    let mut clients = Vec::new();
    for n in 0..8 {
        let mut wire = Wire::open(&gateway).await?;
        wire.send(post(&format!("x-n: {n}\r\n"), CHAT)).await?;
        wait_waiting(&gateway, n + 1).await?;
        clients.push(wire);
    }
    engine.set_ready(true);
    engine.wait_received(2).await?;
    wait_waiting(&gateway, 6).await?;
    assert_eq!(engine.received().len(), 2, "two at once until one of them is answered");
    next.add_permits(8);
    for mut wire in clients {
        assert_eq!(wire.answer().await?.status(), 200);
    }
    let mut first: Vec<String> = engine.received()[..2].iter().filter_map(|seen| seen.head.get("x-n").map(str::to_owned)).collect();
    first.sort();
    assert_eq!(first, ["0", "1"]);
    Ok(())
}

#[tokio::test]
async fn waiters_are_told_when_the_gateway_ends() -> Outcome<()> {
    let engine = ScriptedEngine::start_unready(|_| vec![])?;
    let gateway =
        holding(&engine, "hold: {heartbeat_after: 20ms, heartbeat_interval: 20ms}\nshutdown: {settle: 0s, grace: 200ms}\n").await?;
    let mut whole = Wire::open(&gateway).await?;
    whole.send(post("", CHAT)).await?;
    let mut stream = Wire::open(&gateway).await?;
    stream.send(post("", STREAM)).await?;
    wait_waiting(&gateway, 2).await?;
    let head = stream.head().await?;
    gateway.signal("TERM")?;
    let refused = whole.answer().await?;
    assert_eq!((refused.status(), refused.code()?.as_str()), (503, "shutting_down"));
    let (events, end) = stream.0.body(&head, false).await?;
    let text = String::from_utf8(events)?;
    assert_eq!(end, End::Cut);
    assert!(text.rsplit("data: ").next().is_some_and(|error| error.contains("shutting_down")), "{text}");
    assert_eq!(gateway.wait(PATIENCE).await?, 1, "{}", gateway.log());
    Ok(())
}

/// What was sent is what the log says, also of a stream that had only comments.
#[tokio::test]
async fn a_waiter_that_leaves_after_its_head_is_logged_with_200() -> Outcome<()> {
    let engine = ScriptedEngine::start_unready(|_| vec![])?;
    let gateway = holding(&engine, "hold: {heartbeat_after: 20ms, heartbeat_interval: 20ms}\n").await?;
    let mut stream = Wire::open(&gateway).await?;
    stream.send(post("", STREAM)).await?;
    assert_eq!(stream.head().await?.status(), 200);
    stream.until(": waiting").await?;
    drop(stream);
    wait_waiting(&gateway, 0).await?;
    let line = gateway.wait_access("cancelled").await?;
    assert_eq!((&line["status"], &line["attempts"]), (&200.into(), &0.into()), "{line}");
    assert!(line["first_byte_ms"].is_number(), "{line}");
    Ok(())
}

#[tokio::test]
async fn requests_in_the_gateway_are_bounded() -> Outcome<()> {
    let engine = ScriptedEngine::start(|_| vec![Step::Hold])?;
    let gateway = over(&[engine.leader("m")], &format!("limits: {{requests: 1}}\n{PROBES}")).await?;
    let mut first = Wire::open(&gateway).await?;
    first.send(post("", CHAT)).await?;
    engine.wait_received(1).await?;
    let second = Wire::ask(&gateway, post("", CHAT)).await?;
    assert_eq!((second.status(), second.code()?.as_str()), (429, "queue_full"));
    Ok(())
}

/// A deployment whose names nobody knows: its command does not tell, and no Pod has answered.
const NAMELESS: &str = "apiVersion: worker.gpustack.ai/v1alpha1
kind: ModelDeployment
metadata: {name: demo, namespace: models, uid: 11111111-2222-3333-4444-555555555555, creationTimestamp: '2026-01-01T00:00:00Z'}
spec:
  model: {name: /models}
  engine: {name: vLLM}
  roles: [{name: server, kind: Server, replicas: 1, size: 1, command: [/opt/start]}]
";

/// While some names are not known, an unknown one may be among them: it waits and ends in 503, never in 404.
#[tokio::test]
async fn an_unknown_name_is_no_404_while_names_are_pending() -> Outcome<()> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("demo.yaml");
    std::fs::write(&file, NAMELESS)?;
    let options = Options::new(Source::Manifests(folder.path().to_owned())).config("hold: {timeout: 100ms, timeout_unary: 100ms}\n");
    let gateway = GatewayHandle::start_ready(options).await?;
    for body in [CHAT, STREAM] {
        let pending = Wire::ask(&gateway, post("", body)).await?;
        assert_eq!((pending.status(), pending.code()?.as_str()), (503, "no_serving_group"), "{}", pending.text());
    }
    // The deployment is gone: all names are known again, and this is none of them.
    std::fs::remove_file(file)?;
    eventually(PATIENCE, "404", || async {
        let answer = Wire::ask(&gateway, post("", CHAT)).await.map_err(|error| error.to_string())?;
        if answer.status() == 404 { Ok(()) } else { Err(answer.text()) }
    })
    .await
}

/// A pool that gets more requests than the first pace lets through must not stay behind for good.
#[tokio::test]
async fn warm_leaders_are_not_held_to_the_first_pace() -> Outcome<()> {
    let next = gate();
    let passes = next.clone();
    let engine = ScriptedEngine::start_unready(move |_| vec![Step::Wait(passes.clone()), Step::Send(answer(200, "", "{}"))])?;
    let gateway = holding(&engine, "hold: {release: 1}\n").await?;
    let mut clients = Vec::new();
    for n in 0..12 {
        let mut wire = Wire::open(&gateway).await?;
        wire.send(post("", CHAT)).await?;
        wait_waiting(&gateway, n + 1).await?;
        clients.push(wire);
    }
    engine.set_ready(true);
    for (answered, sent) in [(0, 1), (3, 4), (4, 6), (6, 10)] {
        next.add_permits(answered - (12 - clients.len()));
        while clients.len() > 12 - answered {
            assert_eq!(clients.remove(0).answer().await?.status(), 200);
        }
        engine.wait_received(sent).await?;
        wait_waiting(&gateway, 12 - sent as u64).await?;
        assert_eq!(engine.received().len(), sent, "behind {answered} answers");
    }
    next.add_permits(12);
    for mut wire in clients {
        assert_eq!(wire.answer().await?.status(), 200);
    }
    Ok(())
}

/// Streams that were told to wait, and the answer that a leader then gives: no stream, whole or never whole.
#[tokio::test]
async fn an_error_for_a_stream_that_waited_has_a_form_and_a_clock() -> Outcome<()> {
    let error = r#"{"error":{"message":"too long","type":"invalid_request_error","code":400}}"#;
    let half = b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{".to_vec();
    let cases = [
        (vec![Step::Send(answer(400, "", error))], "too long", "status_4xx"),
        (vec![Step::Send(half), Step::Hold], "leader_timeout", "timeout"),
    ];
    for (steps, says, attempt) in cases {
        for path in ["/v1/chat/completions", "/v1/messages", "/v1/responses"] {
            let steps = steps.clone();
            let engine = ScriptedEngine::start_unready(move |_| steps.clone())?;
            let config = "hold: {heartbeat_after: 20ms, heartbeat_interval: 20ms}\nclocks: {response: 500ms}\n";
            let gateway = holding(&engine, config).await?;
            let mut stream = Wire::open(&gateway).await?;
            stream.send(post_to(path, "", STREAM)).await?;
            let head = stream.head().await?;
            stream.until(": waiting").await?;
            engine.set_ready(true);
            let (events, end) = stream.0.body(&head, false).await?;
            let text = String::from_utf8(events)?;
            let last = text.rsplit("\n\n").find(|event| !event.is_empty()).unwrap_or_default();
            assert_eq!(end, End::Cut, "{path}: {text}");
            // The code of a timeout is in no field of the Messages API.
            assert!(last.contains(says) || (path == "/v1/messages" && last.contains("not answer in time")), "{path}: {last}");
            assert_eq!(last.contains("event: error\n"), path != "/v1/chat/completions", "{path}: {last}");
            let counted = format!(r#"leadgate_attempts_total{{outcome="{attempt}",pool="m"}} 1"#);
            eventually(PATIENCE, "its try counted", || async {
                let metrics = gateway.metrics().await.map_err(|error| error.to_string())?;
                if metrics.contains(&counted) { Ok(()) } else { Err(format!("{path}: no {counted}")) }
            })
            .await?;
        }
    }
    Ok(())
}
