//! Connections to leaders are used again, and never for a request that was accepted already or that a dying one would swallow
//! (RFC 9112 9.3, 9.5, 9.6; RFC 9110 9.2.2; reports 70, 71, 72, 84).

use tests::Outcome;
use tests::poll::{PATIENCE, eventually};

use crate::support::engine::ScriptedEngine;
use crate::support::gateway::{STRICT, over, strict, wait_trusted};
use crate::support::script::{LAST, Step, answer, chunk, send};
use crate::support::wire::{CHAT, Wire, post, post_to};

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

/// How an answer says where it ends.
fn framed(way: &str, status: u16, body: &str) -> Vec<Step> {
    let head = |fields: &str| format!("HTTP/1.1 {status} Status\r\ncontent-type: application/json\r\n{fields}\r\n").into_bytes();
    let halves = body.split_at(body.len() / 2);
    let chunks: Vec<u8> = [halves.0, halves.1].into_iter().filter(|half| !half.is_empty()).flat_map(chunk).collect();
    match way {
        "length" => send(answer(status, "", body)),
        "length, piece by piece" => {
            let pieces = [head(&format!("content-length: {}\r\n", body.len())), halves.0.into(), halves.1.into()];
            pieces.into_iter().flat_map(send).collect()
        }
        "chunks" => send([head("transfer-encoding: chunked\r\n"), chunks, LAST.into()].concat()),
        "last chunk alone" => [send([head("transfer-encoding: chunked\r\n"), chunks].concat()), send(LAST)].concat(),
        _ => [send([head("connection: close\r\n"), body.into()].concat()), vec![Step::Fin]].concat(),
    }
}

/// An answer that is passed on as it comes ends where its framing ends, also where nobody asks for more: it counts as what it was, and its
/// connection is used again.
#[tokio::test]
async fn answers_that_are_no_streams_end_with_their_last_byte() -> Outcome<()> {
    let text = |len: usize| format!(r#"{{"text":"{}"}}"#, "x".repeat(len));
    // The last one is too long to be read whole first.
    let answers = [
        ("/v1/embeddings", 200, text(10)),
        ("/v1/rerank", 200, text(300_000)),
        ("/tokenize", 200, text(1)),
        ("/v1/score", 200, String::new()),
        ("/v1/chat/completions", 404, text(20)),
        ("/v1/chat/completions", 422, text(100_000)),
        ("/v1/chat/completions", 200, text(5_000_000)),
    ];
    for way in ["length", "length, piece by piece", "chunks", "last chunk alone", "close"] {
        let scripted = answers.clone();
        let engine = ScriptedEngine::start(move |received| {
            let nth: usize = received.head.get("nth").and_then(|nth| nth.parse().ok()).unwrap_or_default();
            scripted.get(nth).map_or_else(Vec::new, |(_, status, body)| framed(way, *status, body))
        })?;
        let gateway = over(&[engine.leader("m")], "workers: 1\nprobe: {serving_interval: 1h}\n").await?;
        for (nth, (path, status, body)) in answers.iter().enumerate() {
            let got = Wire::ask(&gateway, post_to(path, &format!("nth: {nth}\r\n"), CHAT)).await?;
            assert_eq!((got.status(), got.text() == *body), (*status, true), "{way}, {path}");
        }
        let used: Vec<usize> = engine.received().iter().map(|seen| seen.connection).collect();
        let fresh = if way == "close" { 1 } else { 0 };
        assert_eq!(used, [0, 1, 2, 3, 4, 5, 6].map(|nth| nth * fresh), "{way}");
        let counted = [
            r#"leadgate_requests_total{outcome="ok",pool="m",route="embeddings"} 1"#,
            r#"leadgate_requests_total{outcome="ok",pool="m",route="rerank"} 1"#,
            r#"leadgate_requests_total{outcome="ok",pool="m",route="tokenize"} 1"#,
            r#"leadgate_requests_total{outcome="ok",pool="m",route="score"} 1"#,
            r#"leadgate_requests_total{outcome="client_error",pool="m",route="chat_completions"} 2"#,
            r#"leadgate_requests_total{outcome="ok",pool="m",route="chat_completions"} 1"#,
            r#"leadgate_attempts_total{outcome="complete",pool="m"} 5"#,
            r#"leadgate_attempts_total{outcome="status_4xx",pool="m"} 2"#,
        ];
        eventually(PATIENCE, "all of them counted", || async {
            let metrics = gateway.metrics().await.map_err(|error| error.to_string())?;
            let missing = counted.iter().find(|line| !metrics.contains(**line));
            missing.map_or(Ok(()), |line| Err(format!("{way}: no {line}")))
        })
        .await?;
        assert!(!gateway.metrics().await?.contains(r#"outcome="cancelled""#), "{way}");
    }
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
