//! Answers of leaders that are no HTTP or break off never look like good ones (RFC 9112 5, 6.3, 7, 8; RFC 9113 8.1; reports 43 to 46, 74).

use tests::Outcome;
use tests::gateway::GatewayHandle;

use crate::support::engine::{Received, ScriptedEngine};
use crate::support::gateway::{strict, wait_trusted};
use crate::support::h2::{Ended, H2};
use crate::support::message::{Chunk, End};
use crate::support::script::{EVENTS, FINISH, LAST, Step, chunk, event};
use crate::support::wire::{CHAT, STREAM, Wire, post};

/// A gateway over an engine that answers request `n` with the steps of case `n`.
async fn cases(cases: Vec<Vec<Step>>) -> Outcome<(GatewayHandle, ScriptedEngine)> {
    let number = std::sync::atomic::AtomicUsize::new(0);
    strict(move |_: &Received| {
        let n = number.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        cases.get(n).cloned().unwrap_or_default()
    })
    .await
}

fn then_fin(bytes: impl AsRef<[u8]>) -> Vec<Step> {
    vec![Step::Send(bytes.as_ref().to_vec()), Step::Fin]
}

#[tokio::test]
async fn h3_h4_h5_h9_heads_that_are_wrong_are_502() -> Outcome<()> {
    let wrong = |fields: &str| format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n{fields}\r\n{{}}");
    let heads = [
        ("no HTTP", "SSH-2.0-OpenSSH_9.6\r\n".to_owned()),
        ("nothing", String::new()),
        ("half a head", "HTTP/1.1 200 OK\r\ncontent-".to_owned()),
        ("bad status", "HTTP/1.1 2x0 OK\r\ncontent-length: 2\r\n\r\n{}".to_owned()),
        ("bad length", wrong("content-length: two\r\n")),
        ("length with a sign", wrong("content-length: +2\r\n")),
        ("length beyond 64 bits", wrong("content-length: 18446744073709551618\r\n")),
        ("lengths that differ", wrong("content-length: 2\r\ncontent-length: 3\r\n")),
        ("folded line", wrong("content-length: 2\r\nx-a: 1\r\n 2\r\n")),
        ("bare CR", wrong("content-length: 2\r\nx-a: 1\r2\r\n")),
        ("NUL", wrong("content-length: 2\r\nx-a: 1\0\r\n")),
        ("too many fields", wrong(&(0..200).map(|n| format!("x-{n}: 1\r\n")).collect::<String>())),
    ];
    let (gateway, engine) = cases(heads.iter().map(|(_, head)| then_fin(head)).collect()).await?;
    for (n, (name, _)) in heads.iter().enumerate() {
        wait_trusted(&gateway, &engine.key()).await?;
        let answer = Wire::ask(&gateway, post("", CHAT)).await?;
        assert_eq!((answer.status(), answer.code()?.as_str()), (502, "leader_reset"), "{name}");
        assert_eq!(engine.received().len(), n + 1, "{name}: sent once");
    }
    Ok(())
}

/// Half an answer under a length or in chunks: 502 while nothing was sent on, a cut once something was.
#[tokio::test]
async fn h10_whole_answers_that_break_off_are_502() -> Outcome<()> {
    let bodies = [
        ("short of its length", then_fin("HTTP/1.1 200 OK\r\ncontent-length: 20\r\n\r\n{\"half\":")),
        ("reset", vec![Step::Send(b"HTTP/1.1 200 OK\r\ncontent-length: 20\r\n\r\n{\"half\":".to_vec()), Step::Reset]),
        ("no last chunk", then_fin("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n")),
        ("half a last chunk", then_fin("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n")),
        ("chunk size overflows", then_fin("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n10000000000000002\r\n{}\r\n0\r\n\r\n")),
        ("error answer, short", then_fin("HTTP/1.1 500 E\r\ncontent-length: 20\r\n\r\n{\"half\":")),
    ];
    let (gateway, engine) = cases(bodies.iter().map(|(_, steps)| steps.clone()).collect()).await?;
    for (n, (name, _)) in bodies.iter().enumerate() {
        wait_trusted(&gateway, &engine.key()).await?;
        let answer = Wire::ask(&gateway, post("", CHAT)).await?;
        assert_eq!((answer.status(), answer.code()?.as_str()), (502, "leader_reset"), "{name}");
        assert_eq!(engine.received().len(), n + 1, "{name}: sent once");
    }
    Ok(())
}

#[tokio::test]
async fn h10_an_answer_that_passes_as_it_comes_is_cut() -> Outcome<()> {
    let bodies = [
        ("length", "HTTP/1.1 400 B\r\ncontent-length: 20\r\n\r\n{\"half\":", 8),
        ("chunks", "HTTP/1.1 400 B\r\ntransfer-encoding: chunked\r\n\r\n8\r\n{\"half\":\r\n", 8),
    ];
    let (gateway, engine) = cases(bodies.iter().map(|(_, bytes, _)| then_fin(bytes)).collect()).await?;
    for (name, _, length) in bodies {
        wait_trusted(&gateway, &engine.key()).await?;
        let answer = Wire::ask(&gateway, post("", CHAT)).await?;
        assert_eq!((answer.status(), answer.body.len(), answer.end), (400, length, End::Cut), "{name}");
    }
    Ok(())
}

/// Each of them breaks behind one whole event.
fn broken_streams() -> Vec<(&'static str, Vec<Step>)> {
    let begun = |more: &[u8]| Step::Send([EVENTS.as_bytes(), &chunk(event("good")), more].concat());
    let with = |more: Vec<u8>, end: Step| vec![begun(&more), end];
    let half = &event("lost")[..20];
    let unfinished = event("good");
    let length =
        format!("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {}\r\n\r\n{unfinished}", unfinished.len() + 9);
    vec![
        ("no last chunk", with(vec![], Step::Fin)),
        ("reset", with(vec![], Step::Reset)),
        ("inside an event", with(chunk(half), Step::Fin)),
        ("inside a chunk", with(b"ff\r\ndata: {\"par".to_vec(), Step::Fin)),
        ("chunk size overflows", with(b"1ffffffffffffffff\r\nabc".to_vec(), Step::Fin)),
        ("chunk size is no number", with(b"zz\r\nabc\r\n".to_vec(), Step::Fin)),
        ("clean end without a finish", with(LAST.into(), Step::Fin)),
        ("the mark without a finish", with([chunk("data: [DONE]\n\n"), LAST.into()].concat(), Step::Fin)),
        ("short of its length", vec![Step::Send(length.into_bytes()), Step::Fin]),
    ]
}

/// `text` is the good event, then one error event, and nothing else.
fn check_events(name: &str, text: &str) -> Outcome<()> {
    let rest = text.strip_prefix(&event("good")).ok_or_else(|| format!("{name}: {text:?}"))?;
    let data = rest.strip_prefix("data: ").and_then(|rest| rest.strip_suffix("\n\n")).ok_or_else(|| format!("{name}: {rest:?}"))?;
    let error: serde_json::Value = serde_json::from_str(data).map_err(|error| format!("{name}: {error} in {data:?}"))?;
    assert!(error["error"]["code"].is_string() && error["error"]["message"].is_string(), "{name}: {error}");
    Ok(())
}

/// Reports 43 to 46: the error event first, then the cut; no `[DONE]`, no last chunk, and nothing of the half event.
#[tokio::test]
async fn h10_a_broken_stream_ends_in_an_error_event_and_a_cut() -> Outcome<()> {
    let streams = broken_streams();
    let (gateway, engine) = cases(streams.iter().map(|(_, steps)| steps.clone()).collect()).await?;
    for (n, (name, _)) in streams.iter().enumerate() {
        wait_trusted(&gateway, &engine.key()).await?;
        let answer = Wire::ask(&gateway, post("", STREAM)).await?;
        assert_eq!((answer.status(), answer.end), (200, End::Cut), "{name}: {}", answer.text());
        check_events(name, &answer.text())?;
        assert_eq!(engine.received().len(), n + 1, "{name}: sent once");
    }
    Ok(())
}

/// Report 74: the same by HTTP/2, where the cut is RST_STREAM and the connection lives on.
#[tokio::test]
async fn t7_a_broken_stream_ends_in_an_error_event_and_a_reset() -> Outcome<()> {
    let streams = broken_streams();
    let (gateway, engine) = cases(streams.iter().map(|(_, steps)| steps.clone()).collect()).await?;
    let mut h2 = H2::connect(&gateway).await?;
    for (n, (name, _)) in streams.iter().enumerate() {
        wait_trusted(&gateway, &engine.key()).await?;
        let stream = u32::try_from(2 * n + 1)?;
        h2.post(stream, &[], STREAM).await?;
        let answer = h2.answer(stream).await?;
        assert_eq!(answer.status, 200, "{name}");
        assert!(matches!(answer.ended, Ended::Reset(_)), "{name}: {:?}", answer.ended);
        check_events(name, &String::from_utf8(answer.body)?)?;
    }
    Ok(())
}

/// Rule S16 and report 44: behind half an event, which a long one shows, the blank line comes first.
#[tokio::test]
async fn s16_an_error_event_behind_half_an_event_begins_with_a_blank_line() -> Outcome<()> {
    let half = format!("data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{}", "x".repeat(200 * 1024));
    let steps = then_fin([EVENTS.as_bytes(), &chunk(event("good")), &chunk(&half)].concat());
    let (gateway, _engine) = cases(vec![steps]).await?;
    let answer = Wire::ask(&gateway, post("", STREAM)).await?;
    assert_eq!(answer.end, End::Cut);
    let text = answer.text();
    let rest = text.strip_prefix(&event("good")).unwrap_or_default();
    let (long, error) = rest.split_once("\n\n").ok_or("no blank line")?;
    assert!(half.starts_with(long), "only bytes of the engine come before the blank line");
    assert!(error.starts_with("data: {\"error\":{") && error.ends_with("}\n\n"), "{error:?}");
    Ok(())
}

/// The counter-check: a stream that is whole ends well on both versions.
#[tokio::test]
async fn whole_streams_end_well() -> Outcome<()> {
    let (gateway, _engine) =
        strict(|_| vec![Step::Send([EVENTS.as_bytes(), &chunk(event("good")), &chunk(FINISH), LAST.as_bytes()].concat())]).await?;
    let expected = event("good") + FINISH;
    let mut wire = Wire::open(&gateway).await?;
    wire.send(post("", STREAM)).await?;
    wire.head().await?;
    assert_eq!(String::from_utf8(wire.until("[DONE]").await?)?, expected);
    assert_eq!(wire.0.chunk().await?, Chunk::Last(String::new()));
    let mut h2 = H2::connect(&gateway).await?;
    h2.post(1, &[], STREAM).await?;
    let answer = h2.answer(1).await?;
    assert_eq!((answer.ended, String::from_utf8(answer.body)?), (Ended::Clean, expected));
    Ok(())
}
