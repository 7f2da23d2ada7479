//! Requests whose head or framing is wrong are refused and their connection is closed; nothing ambiguous reaches a leader
//! (RFC 9112 2.2, 3.2, 5, 6, 7, 9; RFC 9110 5.5, 10.1.1).

use tests::Outcome;
use tests::gateway::GatewayHandle;

use crate::support::engine::ScriptedEngine;
use crate::support::gateway::{over, strict};
use crate::support::message::{End, find};
use crate::support::script::{answer, event, send, whole_stream};
use crate::support::wire::{CHAT, STREAM, Wire, get, post};

async fn echo() -> Outcome<(GatewayHandle, ScriptedEngine)> {
    strict(|_| send(answer(200, "", "{}"))).await
}

/// A request with `lines` in place of the fields that frame it, and `body` behind.
fn raw(version: &str, lines: &str, body: &str) -> String {
    format!("POST /v1/chat/completions {version}\r\n{lines}\r\n{body}")
}

/// Sends each request, with a smuggled one behind it: refused with one of these statuses, closed, nothing at the engine.
async fn refused(cases: &[(&str, String)], statuses: &[u16]) -> Outcome<()> {
    let (gateway, engine) = echo().await?;
    for (name, request) in cases {
        let mut wire = Wire::open(&gateway).await?;
        wire.send(request).await?;
        let answer = wire.answer().await.map_err(|error| format!("{name}: {error}"))?;
        assert!(statuses.contains(&answer.status()), "{name}: {:?}", answer.head);
        // What comes behind is no request any more. The gateway may have closed already.
        let _ = wire.send(post("x-smuggled: 1\r\n", CHAT)).await;
        wire.closed().await.map_err(|error| format!("{name}: {error}"))?;
        assert_eq!(engine.received().len(), 0, "{name}");
    }
    Ok(())
}

fn with_length(fields: &str) -> String {
    raw("HTTP/1.1", &format!("{fields}content-length: {}\r\n", CHAT.len()), CHAT)
}

#[tokio::test]
async fn h1_host_is_there_once_and_valid() -> Outcome<()> {
    let (gateway, engine) = echo().await?;
    let cases = [
        ("none", ""),
        ("two", "host: a\r\nhost: b\r\n"),
        ("two alike", "host: a\r\nhost: a\r\n"),
        ("with a space", "host: a b\r\n"),
        ("with a path", "host: a/b\r\n"),
        ("with user information", "host: u@a\r\n"),
    ];
    for (name, fields) in cases {
        let answer = Wire::ask(&gateway, with_length(fields)).await?;
        assert_eq!((answer.status(), answer.code()?.as_str()), (400, "invalid_request"), "{name}");
        for path in ["/v1/models", "/v1/chat/completions", "/unknown"] {
            let other = Wire::ask(&gateway, format!("GET {path} HTTP/1.1\r\n{fields}\r\n")).await?;
            assert_eq!(other.status(), 400, "{name}: {path}");
        }
    }
    assert_eq!(engine.received().len(), 0);
    Ok(())
}

#[tokio::test]
async fn h3_space_before_the_colon_is_refused() -> Outcome<()> {
    let cases = ["x-a : 1\r\n", "content-length : 0\r\n", " x-a: 1\r\n", "x-a\t: 1\r\n", ": 1\r\n", "no colon\r\n"];
    let cases: Vec<_> = cases.into_iter().map(|field| (field, with_length(&format!("host: a\r\n{field}")))).collect();
    refused(&cases, &[400]).await
}

#[tokio::test]
async fn h4_folded_lines_are_refused() -> Outcome<()> {
    let cases = ["x-a: 1\r\n 2\r\n", "x-a: 1\r\n\tcontent-length: 0\r\n"];
    let cases: Vec<_> = cases.into_iter().map(|field| (field, with_length(&format!("host: a\r\n{field}")))).collect();
    refused(&cases, &[400]).await
}

#[tokio::test]
async fn h5_p9_bare_cr_and_nul_are_refused() -> Outcome<()> {
    let cases = ["x-a: 1\r2\r\n", "x-a: 1\0\r\n", "x-a: \rcontent-length: 0\r\n"];
    let mut cases: Vec<_> = cases.into_iter().map(|field| (field, with_length(&format!("host: a\r\n{field}")))).collect();
    cases.push(("in the request line", with_length("host: a\r\n").replacen(" HTTP/1.1", "\r HTTP/1.1", 1)));
    refused(&cases, &[400]).await
}

#[tokio::test]
async fn h6_length_beside_coding_is_no_way_to_smuggle() -> Outcome<()> {
    let (gateway, engine) = echo().await?;
    let chunked = format!("{:x}\r\n{CHAT}\r\n0\r\n\r\n", CHAT.len());
    let orders = ["content-length: 4\r\ntransfer-encoding: chunked\r\n", "transfer-encoding: chunked\r\ncontent-length: 4\r\n"];
    for (n, fields) in orders.into_iter().enumerate() {
        let mut wire = Wire::open(&gateway).await?;
        let smuggled = String::from_utf8(post("x-smuggled: 1\r\n", CHAT))?;
        wire.send(raw("HTTP/1.1", &format!("host: a\r\n{fields}"), &chunked) + &smuggled).await?;
        let answer = wire.answer().await?;
        assert_eq!((answer.status(), answer.head.get("connection")), (200, Some("close")), "{fields}");
        wire.closed().await?;
        let seen = engine.received();
        assert_eq!(seen.len(), n + 1, "{fields}");
        let seen = engine.last()?;
        assert_eq!((seen.head.all("content-length"), seen.head.get("transfer-encoding")), (vec![CHAT.len().to_string().as_str()], None));
        assert_eq!(seen.body, CHAT.as_bytes());
    }
    Ok(())
}

#[tokio::test]
async fn h7_h8_codings_that_do_not_frame_are_refused() -> Outcome<()> {
    let chunked = format!("{:x}\r\n{CHAT}\r\n0\r\n\r\n", CHAT.len());
    let case = |version, coding: &str| raw(version, &format!("host: a\r\ntransfer-encoding: {coding}\r\n"), &chunked);
    let cases = [
        ("1.0", case("HTTP/1.0", "chunked")),
        ("gzip alone", case("HTTP/1.1", "gzip")),
        ("chunked is not last", case("HTTP/1.1", "chunked, gzip")),
        ("identity", case("HTTP/1.1", "identity")),
        ("misspelt", case("HTTP/1.1", "xchunked")),
        ("two lines", case("HTTP/1.1", "chunked\r\ntransfer-encoding: identity")),
    ];
    refused(&cases, &[400, 501]).await
}

#[tokio::test]
async fn h9_p7_bad_lengths_are_refused() -> Outcome<()> {
    let lengths = ["x", "+27", "-1", "0x1b", "27 27", "1e1", "", "99999999999999999999999999", "18446744073709551616", "27, 28", "27,"];
    let case = |value: &str| raw("HTTP/1.1", &format!("host: a\r\ncontent-length: {value}\r\n"), CHAT);
    let mut cases: Vec<_> = lengths.into_iter().map(|value| (value, case(value))).collect();
    cases.push(("two lines that differ", case("27\r\ncontent-length: 28")));
    refused(&cases, &[400, 413]).await
}

#[tokio::test]
async fn h10_a_body_that_breaks_off_never_reaches_a_leader() -> Outcome<()> {
    let (gateway, engine) = echo().await?;
    let cut = [
        raw("HTTP/1.1", &format!("host: a\r\ncontent-length: {}\r\n", CHAT.len() + 1), CHAT),
        raw("HTTP/1.1", "host: a\r\ntransfer-encoding: chunked\r\n", &format!("{:x}\r\n{CHAT}\r\n", CHAT.len())),
        raw("HTTP/1.1", "host: a\r\ntransfer-encoding: chunked\r\n", &format!("{:x}\r\n{CHAT}\r\n0\r\n", CHAT.len())),
    ];
    for request in cut {
        let mut wire = Wire::open(&gateway).await?;
        wire.send(request).await?;
        tokio::io::AsyncWriteExt::shutdown(&mut wire.0.stream).await?;
        // An answer or none: but the connection ends.
        wire.0.rest().await?;
    }
    assert_eq!(engine.received().len(), 0);
    Ok(())
}

#[tokio::test]
async fn h11_chunk_sizes_neither_overflow_nor_grow_without_bound() -> Outcome<()> {
    let case = |chunks: String| raw("HTTP/1.1", "host: a\r\ntransfer-encoding: chunked\r\n", &chunks);
    let cases = [
        ("overflow", case(format!("FFFFFFFFFFFFFFFFF\r\n{CHAT}\r\n0\r\n\r\n"))),
        ("wraps to the right size", case(format!("1000000000000001b\r\n{CHAT}\r\n0\r\n\r\n"))),
        ("not hexadecimal", case(format!("1g\r\n{CHAT}\r\n0\r\n\r\n"))),
        ("negative", case(format!("-1\r\n{CHAT}\r\n0\r\n\r\n"))),
        ("no line end behind the data", case(format!("{:x}\r\n{CHAT}0\r\n\r\n", CHAT.len()))),
        ("endless extensions", case(format!("1;{}\r\n", "x".repeat(256 * 1024)))),
    ];
    refused(&cases, &[400]).await
}

#[tokio::test]
async fn h13_pipelined_requests_are_answered_in_order() -> Outcome<()> {
    let (gateway, engine) = strict(|received| send(answer(200, "", &received.body))).await?;
    let bodies = [r#"{"model":"m","n":1}"#, r#"{"model":"m","n":2}"#, r#"{"model":"m","n":3}"#];
    let mut wire = Wire::open(&gateway).await?;
    wire.send(bodies.map(|body| post("", body)).concat()).await?;
    for body in bodies {
        assert_eq!(wire.answer().await?.text(), body);
    }
    assert_eq!(engine.received().len(), 3);
    Ok(())
}

#[tokio::test]
async fn h14_a_connection_with_http_1_0_is_not_kept() -> Outcome<()> {
    let (gateway, engine) =
        strict(|received| send(if find(&received.body, b"stream").is_some() { whole_stream("text") } else { answer(200, "", "{}") }))
            .await?;
    for body in [CHAT, STREAM] {
        let mut wire = Wire::open(&gateway).await?;
        let fields = format!("host: a\r\nconnection: keep-alive\r\ncontent-length: {}\r\n", body.len());
        wire.send(raw("HTTP/1.0", &fields, body)).await?;
        let answer = wire.answer().await?;
        assert_eq!((answer.status(), answer.head.get("transfer-encoding")), (200, None));
        assert!(body == CHAT || (answer.end == End::UntilClose && answer.text().starts_with(&event("text"))), "{}", answer.text());
        wire.closed().await?;
        assert!(engine.last()?.head.all("via").iter().any(|via| via.starts_with("1.0 leadgate-")));
    }
    let mut hostless = Wire::open(&gateway).await?;
    hostless.send(raw("HTTP/1.0", &format!("content-length: {}\r\n", CHAT.len()), CHAT)).await?;
    assert_eq!(hostless.answer().await?.status(), 200);
    Ok(())
}

#[tokio::test]
async fn p13_p14_continue_is_said_when_the_body_is_wanted() -> Outcome<()> {
    let (gateway, engine) = echo().await?;
    let mut wire = Wire::open(&gateway).await?;
    wire.send(raw("HTTP/1.1", &format!("host: a\r\nexpect: 100-continue\r\ncontent-length: {}\r\n", CHAT.len()), "")).await?;
    assert_eq!(wire.head().await?.status(), 100);
    wire.send(CHAT).await?;
    assert_eq!(wire.answer().await?.status(), 200);
    assert_eq!(engine.last()?.head.get("expect"), None);
    let mut old = Wire::open(&gateway).await?;
    old.send(raw("HTTP/1.0", &format!("expect: 100-continue\r\ncontent-length: {}\r\n", CHAT.len()), CHAT)).await?;
    assert_eq!(old.answer().await?.informational, [0; 0]);
    Ok(())
}

#[tokio::test]
async fn p13_a_refusal_comes_without_continue() -> Outcome<()> {
    let engine = ScriptedEngine::start(|_| send(answer(200, "", "{}")))?;
    let gateway = over(&[engine.leader("m")], "limits: {body_bytes: 1MiB}\n").await?;
    let cases = [("/v1/chat/completions", 2_000_000, 413), ("/v1/load_lora_adapter", 10, 404)];
    for (path, length, status) in cases {
        let mut wire = Wire::open(&gateway).await?;
        wire.send(format!("POST {path} HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\ncontent-length: {length}\r\n\r\n")).await?;
        let answer = wire.answer().await?;
        assert_eq!((answer.status(), answer.informational.as_slice()), (status, &[][..]), "{path}");
        wire.closed().await?;
    }
    Ok(())
}

#[tokio::test]
async fn header_sections_are_bounded() -> Outcome<()> {
    let (gateway, engine) = echo().await?;
    let long = format!("x-a: {}\r\n", "a".repeat(70 * 1024));
    let many: String = (0..200).map(|n| format!("x-{n}: 1\r\n")).collect();
    for fields in [long, many] {
        let mut wire = Wire::open(&gateway).await?;
        // The gateway may answer and close before it has read all of it.
        let _ = wire.send(get("/v1/models", &fields)).await;
        let (bytes, _) = wire.0.rest().await?;
        let text = String::from_utf8_lossy(&bytes);
        assert!(text.is_empty() || text.starts_with("HTTP/1.1 431"), "{text}");
    }
    let fits = format!("x-a: {}\r\n", "a".repeat(40 * 1024));
    assert_eq!(Wire::ask(&gateway, post(&fits, CHAT)).await?.status(), 200);
    assert_eq!(engine.received().len(), 1);
    Ok(())
}
