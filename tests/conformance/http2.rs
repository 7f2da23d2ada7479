//! HTTP/2 from clients (RFC 9113): fields, malformed messages, bounds.

use tests::Outcome;
use tests::gateway::GatewayHandle;

use crate::support::engine::ScriptedEngine;
use crate::support::gateway::{over, strict};
use crate::support::h2::{DATA, END_STREAM, Ended, GOAWAY, H2, HEADERS, PING, POST, RST_STREAM};
use crate::support::script::{Step, answer, send};
use crate::support::wire::CHAT;

/// Error codes (RFC 9113 7).
const PROTOCOL_ERROR: u32 = 1;
const REFUSED_STREAM: u32 = 7;
const ENHANCE_YOUR_CALM: u32 = 11;

async fn echo() -> Outcome<(GatewayHandle, ScriptedEngine)> {
    strict(|_| send(answer(200, "connection: x-hop\r\nx-hop: 1\r\nkeep-alive: 5\r\n", "{\"a\":1}"))).await
}

#[tokio::test]
async fn t1_t3_t4_fields_are_made_fit_for_http_1() -> Outcome<()> {
    let (gateway, engine) = echo().await?;
    let mut h2 = H2::connect(&gateway).await?;
    let fields = [
        ("cookie", "a=1"),
        ("te", "trailers"),
        ("cookie", "b=2; c=3"),
        ("x-a", "1"),
        ("x-a", "2"),
        ("host", "other.test"),
        ("cookie", "d=4"),
    ];
    h2.post(1, &fields, CHAT).await?;
    let answer = h2.answer(1).await?;
    assert_eq!((answer.status, answer.ended, answer.body.as_slice()), (200, Ended::Clean, &b"{\"a\":1}"[..]));
    let seen = engine.last()?.head;
    assert_eq!(seen.all("cookie"), ["a=1; b=2; c=3; d=4"]);
    assert_eq!(seen.all("host"), ["gateway.test"], ":authority wins over Host");
    assert_eq!((seen.get("te"), seen.all("x-a")), (None, vec!["1", "2"]));
    assert_eq!(seen.start, "POST /v1/chat/completions HTTP/1.1");
    assert!(seen.all("via").iter().any(|via| via.starts_with("2.0 leadgate-")), "{:?}", seen.all("via"));
    assert!(!seen.fields.iter().any(|(name, _)| name.starts_with(':')));
    Ok(())
}

#[tokio::test]
async fn t4_without_authority_host_counts() -> Outcome<()> {
    let (gateway, engine) = echo().await?;
    let mut h2 = H2::connect(&gateway).await?;
    let mut fields: Vec<(&str, &str)> = POST.into_iter().filter(|(name, _)| *name != ":authority").collect();
    fields.push(("host", "host.test"));
    h2.headers(1, &fields, false).await?;
    h2.frame(DATA, END_STREAM, 1, CHAT.as_bytes()).await?;
    assert_eq!(h2.answer(1).await?.status, 200);
    assert_eq!(engine.last()?.head.all("host"), ["host.test"]);
    Ok(())
}

/// Malformed requests are errors of their stream, or of the connection (5.4.2 leaves that open), and reach no leader.
#[tokio::test]
async fn t1_t2_malformed_requests_are_reset() -> Outcome<()> {
    let (gateway, engine) = echo().await?;
    let mut h2 = H2::connect(&gateway).await?;
    let with = |field: (&'static str, &'static str)| -> Vec<(&str, &str)> { POST.into_iter().chain([field]).collect() };
    let without = |name: &str| -> Vec<(&str, &str)> { POST.into_iter().filter(|(n, _)| *n != name).collect() };
    let cases = [
        ("length larger than the data", with(("content-length", "1000"))),
        ("length smaller than the data", with(("content-length", "3"))),
        ("length is no number", with(("content-length", "x"))),
        ("connection", with(("connection", "close"))),
        ("transfer-encoding", with(("transfer-encoding", "chunked"))),
        ("keep-alive", with(("keep-alive", "5"))),
        ("proxy-connection", with(("proxy-connection", "close"))),
        ("upgrade", with(("upgrade", "websocket"))),
        ("te", with(("te", "gzip"))),
        ("upper case", with(("X-Upper", "1"))),
        ("pseudo field behind", with((":path", "/v1/models"))),
        ("unknown pseudo field", with((":what", "1"))),
        ("no method", without(":method")),
        ("no path", without(":path")),
        ("no scheme", without(":scheme")),
        ("line end in a value", with(("x-a", "1\r\nx-b: 2"))),
    ];
    let mut connections = 1;
    for (n, (name, fields)) in cases.iter().enumerate() {
        let stream = u32::try_from(2 * n + 1)?;
        h2.headers(stream, fields, false).await?;
        // The gateway may have reset the stream already.
        h2.frame(DATA, END_STREAM, stream, CHAT.as_bytes()).await?;
        let answer = h2.answer(stream).await?;
        let error = matches!(answer.ended, Ended::Reset(PROTOCOL_ERROR) | Ended::Gone(Some(PROTOCOL_ERROR)));
        assert!(error || answer.status == 400, "{name}: {answer:?}");
        assert_eq!(engine.received().len(), 0, "{name}");
        if matches!(answer.ended, Ended::Gone(_)) {
            h2 = H2::connect(&gateway).await?;
            connections += 1;
        }
    }
    assert!(connections < cases.len() / 2, "{connections} connections: most errors must be those of a stream");
    let next = u32::try_from(2 * cases.len() + 1)?;
    h2.post(next, &[], CHAT).await?;
    assert_eq!(h2.answer(next).await?.status, 200, "the connection lives on");
    Ok(())
}

/// What closes an HTTP/1.1 connection ends only a stream here, and no connection-specific field is sent.
#[tokio::test]
async fn t1_refusals_leave_the_connection_alone() -> Outcome<()> {
    let engine = ScriptedEngine::start(|_| send(answer(200, "connection: close\r\n", "{}")))?;
    let gateway = over(&[engine.leader("m")], "limits: {body_bytes: 1MiB}\nprobe: {serving_interval: 1h}\n").await?;
    let mut h2 = H2::connect(&gateway).await?;
    h2.headers(1, &POST.into_iter().chain([("content-length", "2000000")]).collect::<Vec<_>>(), false).await?;
    let refused = h2.answer(1).await?;
    assert_eq!(refused.status, 413, "{refused:?}");
    let fields: Vec<(&str, &str)> =
        POST.into_iter().map(|(name, value)| (name, if name == ":path" { "/unknown" } else { value })).collect();
    h2.headers(3, &fields, true).await?;
    assert_eq!(h2.answer(3).await?.status, 404);
    for stream in [5, 7] {
        h2.post(stream, &[], CHAT).await?;
        let passed = h2.answer(stream).await?;
        assert_eq!((passed.status, passed.ended), (200, Ended::Clean));
    }
    Ok(())
}

#[tokio::test]
async fn t10_concurrent_streams_are_capped() -> Outcome<()> {
    let engine = ScriptedEngine::start(|_| vec![Step::Hold])?;
    let gateway = over(&[engine.leader("m")], "limits: {h2_streams: 4}\nprobe: {serving_interval: 1h}\n").await?;
    let (mut h2, settings) = H2::open(&gateway).await?;
    let said = settings.payload.chunks(6).find(|setting| setting[..2] == [0, 3]).map(|setting| setting[2..].to_vec());
    assert_eq!(said, Some(vec![0, 0, 0, 4]), "SETTINGS_MAX_CONCURRENT_STREAMS");
    for n in 0..5 {
        h2.post(2 * n + 1, &[], CHAT).await?;
    }
    let refused = h2.wait(|frame| frame.kind == RST_STREAM).await?;
    assert_eq!((refused.stream, refused.error_code()), (9, REFUSED_STREAM));
    engine.wait_received(4).await?;
    // A stream that ends makes room.
    h2.cancel(1).await?;
    engine.wait_gone(1).await?;
    h2.post(11, &[], CHAT).await?;
    engine.wait_received(5).await
}

#[tokio::test]
async fn t10_header_lists_are_bounded() -> Outcome<()> {
    let (gateway, engine) = echo().await?;
    let (mut h2, settings) = H2::open(&gateway).await?;
    let said = settings.payload.chunks(6).find(|setting| setting[..2] == [0, 6]).map(|setting| setting[2..].to_vec());
    assert_eq!(said, Some((64u32 * 1024).to_be_bytes().to_vec()), "SETTINGS_MAX_HEADER_LIST_SIZE");
    let value = "a".repeat(15_000);
    let fields: Vec<(&str, &str)> =
        POST.into_iter().chain(["x-a", "x-b", "x-c", "x-d", "x-e"].map(|name| (name, value.as_str()))).collect();
    // One frame is 16 KiB at most, so the block goes on in CONTINUATION frames.
    let block = crate::support::h2::block(&fields);
    let pieces: Vec<&[u8]> = block.chunks(16_000).collect();
    for (n, piece) in pieces.iter().enumerate() {
        let last = if n + 1 == pieces.len() { 4 } else { 0 };
        let kind = if n == 0 { HEADERS } else { 9 };
        let end = if n == 0 { END_STREAM } else { 0 };
        h2.frame(kind, last | end, 1, piece).await?;
    }
    let answer = h2.answer(1).await?;
    assert!(answer.status == 431 || answer.ended != Ended::Clean, "{answer:?}");
    assert_eq!(engine.received().len(), 0);
    Ok(())
}

/// Rapid reset: the connection of a client that opens and resets streams without end is ended; others are served.
#[tokio::test]
async fn t10_rapid_reset_is_bounded() -> Outcome<()> {
    let (gateway, engine) = echo().await?;
    let mut h2 = H2::connect(&gateway).await?;
    let mut refused = false;
    for n in 0..20_000u32 {
        let stream = 2 * n + 1;
        let sent = async {
            h2.headers(stream, &POST, false).await?;
            h2.cancel(stream).await
        };
        if sent.await.is_err() {
            refused = true;
            break;
        }
    }
    if !refused {
        let goaway = h2.wait(|frame| frame.kind == GOAWAY).await?;
        assert_eq!(goaway.error_code(), ENHANCE_YOUR_CALM);
    }
    let mut other = H2::connect(&gateway).await?;
    other.post(1, &[], CHAT).await?;
    assert_eq!(other.answer(1).await?.status, 200);
    assert_eq!(engine.received().len(), 1);
    Ok(())
}

/// Streams of one connection are answered side by side.
#[tokio::test]
async fn streams_do_not_wait_for_each_other() -> Outcome<()> {
    let engine =
        ScriptedEngine::start(|received| if received.body == CHAT.as_bytes() { send(answer(200, "", "{}")) } else { vec![Step::Hold] })?;
    let gateway = over(&[engine.leader("m")], "probe: {serving_interval: 1h}\n").await?;
    let mut h2 = H2::connect(&gateway).await?;
    h2.post(1, &[], r#"{"model":"m","hold":1}"#).await?;
    engine.wait_received(1).await?;
    for n in 1..50 {
        h2.post(2 * n + 1, &[], CHAT).await?;
        assert_eq!(h2.answer(2 * n + 1).await?.status, 200);
    }
    h2.frame(PING, 0, 0, &[1; 8]).await?;
    h2.wait(|frame| frame.kind == PING && frame.payload == [1; 8]).await.map(drop)
}
