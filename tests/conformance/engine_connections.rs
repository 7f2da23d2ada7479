//! Connections to leaders are used again, and never for a request that was accepted already or that a dying one would swallow
//! (RFC 9112 9.3, 9.5, 9.6; RFC 9110 9.2.2; reports 70, 71, 72, 84).

use tests::Outcome;

use crate::support::engine::ScriptedEngine;
use crate::support::gateway::{STRICT, over, strict, wait_trusted};
use crate::support::script::{LAST, Step, answer, send};
use crate::support::wire::{CHAT, Wire, post};

#[tokio::test]
async fn connections_are_used_again_one_request_at_a_time() -> Outcome<()> {
    let engine = ScriptedEngine::start(|_| send(answer(200, "", "{}")))?;
    let gateway = over(&[engine.leader("m")], "workers: 1\nprobe: {serving_interval: 1h}\n").await?;
    for _ in 0..20 {
        assert_eq!(Wire::ask(&gateway, post("", CHAT)).await?.status(), 200);
    }
    let used: Vec<usize> = engine.received().iter().map(|seen| seen.connection).collect();
    assert_eq!(used, [0; 20]);
    Ok(())
}

/// Report 70: the leader closes right behind its answer, and the next request must not meet that connection.
#[tokio::test]
async fn report_70_a_connection_that_the_leader_closed_is_not_used() -> Outcome<()> {
    let endings: [(&str, &str, Step); 3] =
        [("FIN", "", Step::Fin), ("RST", "", Step::Reset), ("close said", "connection: close\r\n", Step::Fin)];
    for (name, fields, end) in endings {
        let steps = vec![Step::Send(answer(200, fields, "{}")), end];
        let (gateway, engine) = strict(move |_| steps.clone()).await?;
        let mut wire = Wire::open(&gateway).await?;
        for n in 1..=30 {
            wire.send(post("", CHAT)).await?;
            let answer = wire.answer().await?;
            assert_eq!(answer.status(), 200, "{name}, request {n}: {}", answer.text());
            engine.wait_ended(n).await?;
        }
        assert_eq!(engine.received().len(), 30, "{name}: each came once");
    }
    Ok(())
}

/// Report 70 and P12: a leader that took the request and closed may have executed it. It is not sent again.
#[tokio::test]
async fn p12_a_request_that_a_leader_has_read_is_not_sent_again() -> Outcome<()> {
    let read_and_close = |_: &_| vec![Step::Fin];
    let (one, two) = (ScriptedEngine::start(read_and_close)?, ScriptedEngine::start(read_and_close)?);
    let config = "retry: {attempts: 3}\nprobe: {warming_interval: 50ms, serving_interval: 1h}\n";
    let gateway = over(&[format!("{},http://{}", one.leader("m"), two.address())], config).await?;
    let answer = Wire::ask(&gateway, post("", CHAT)).await?;
    assert_eq!((answer.status(), answer.code()?.as_str()), (502, "leader_reset"));
    assert_eq!(one.received().len() + two.received().len(), 1);
    Ok(())
}

/// Report 72: engines close after five idle seconds, so the gateway must close first. This engine never closes by itself.
#[tokio::test]
async fn report_72_idle_connections_are_closed_by_the_gateway() -> Outcome<()> {
    let (gateway, engine) = strict(|_| send(answer(200, "", "{}"))).await?;
    Wire::ask(&gateway, post("", CHAT)).await?;
    engine.wait_gone(1).await?;
    assert_eq!(Wire::ask(&gateway, post("", CHAT)).await?.status(), 200);
    assert_eq!(engine.last()?.connection, 1);
    Ok(())
}

/// Bytes behind an answer belong to nobody: the connection is not used again.
#[tokio::test]
async fn h13_bytes_behind_an_answer_are_no_answer() -> Outcome<()> {
    let evil = answer(200, "", "\"evil\"");
    let short = [answer(200, "", "{}"), evil.clone()].concat();
    let chunks = [b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n", LAST.as_bytes(), &evil].concat();
    for bytes in [short, chunks] {
        let (gateway, engine) = strict(move |_| send(&bytes)).await?;
        let mut wire = Wire::open(&gateway).await?;
        for n in 0..5 {
            wire_trusted(&gateway, &engine).await?;
            wire.send(post("", CHAT)).await?;
            let answer = wire.answer().await?;
            assert_eq!((answer.status(), answer.text().as_str()), (200, "{}"), "request {n}");
        }
    }
    Ok(())
}

async fn wire_trusted(gateway: &tests::gateway::GatewayHandle, engine: &ScriptedEngine) -> Outcome<()> {
    wait_trusted(gateway, &engine.key()).await
}

/// A leader that answers early, before it has read the body, is heard (RFC 9112 9.5).
#[tokio::test]
async fn h15_an_early_error_answer_reaches_the_client() -> Outcome<()> {
    let listener = tokio::net::TcpListener::bind(crate::support::own_address()).await?;
    let address = listener.local_addr()?;
    let config =
        format!("{STRICT}\nlimits: {{body_bytes: 64MiB}}\n").replace("probe: {", "probe: {trust_managed: true, generation: false, ");
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(early(listener));
    let gateway = over(&[format!("m=http://{address}")], &config).await?;
    let body = format!(r#"{{"model":"m","x":"{}"}}"#, "x".repeat(20_000_000));
    let answer = Wire::ask(&gateway, post("", &body)).await?;
    assert_eq!((answer.status(), answer.text().as_str()), (413, "{\"early\":1}"));
    Ok(())
}

/// Answers probes, and any POST behind its head alone, without reading on; the connection stays open.
async fn early(listener: tokio::net::TcpListener) {
    let mut open = Vec::new();
    while let Ok((stream, _)) = listener.accept().await {
        let Ok(mut peer) = crate::support::message::Peer::new(stream) else { return };
        while let Ok(Some(head)) = peer.head().await {
            let post = head.start.starts_with("POST");
            let bytes = match post {
                true => answer(413, "connection: close\r\n", "{\"early\":1}"),
                false => answer(200, "", r#"{"object":"list","data":[{"id":"m","object":"model"}]}"#),
            };
            if peer.send(bytes).await.is_err() || post {
                break;
            }
        }
        open.push(peer);
    }
}
