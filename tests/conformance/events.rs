//! Streams go out event by event, byte for byte (WHATWG HTML 9.2.5; rules S13 to S16; reports 49, 51, 53).

use serde_json::json;
use tests::Outcome;
use tests::gateway::{GatewayHandle, Options, Source};

use crate::support::engine::ScriptedEngine;
use crate::support::gateway::{over, strict};
use crate::support::message::{Chunk, End};
use crate::support::script::{EVENTS, FINISH, LAST, Step, chunk, event, gate, whole_stream};
use crate::support::wire::{STREAM, Wire, post, post_to};

/// A stream of these pieces, each a chunk.
fn pieces(pieces: impl IntoIterator<Item = impl AsRef<[u8]>>) -> Vec<u8> {
    let chunks: Vec<u8> = pieces.into_iter().flat_map(chunk).collect();
    [EVENTS.as_bytes(), &chunks, LAST.as_bytes()].concat()
}

/// What a client gets of a stream of these pieces.
async fn passed(parts: &[Vec<u8>]) -> Outcome<Vec<u8>> {
    let stream = pieces(parts);
    let (gateway, _engine) = strict(move |_| vec![Step::Send(stream.clone())]).await?;
    let answer = Wire::ask(&gateway, post("", STREAM)).await?;
    assert_eq!((answer.status(), answer.end), (200, End::Whole), "{}", answer.text());
    Ok(answer.body)
}

/// The engine writes the next event only when the client has the one before: an event that waits for company never comes.
#[tokio::test]
async fn s13_events_go_out_as_they_come() -> Outcome<()> {
    let next = gate();
    let passes = next.clone();
    let (gateway, _engine) = strict(move |_| {
        let mut steps = vec![Step::Send(EVENTS.into())];
        for n in 0..20 {
            steps.extend([Step::Wait(passes.clone()), Step::Send(chunk(event(&n.to_string())))]);
        }
        steps.extend([Step::Wait(passes.clone()), Step::Send([chunk(FINISH), LAST.into()].concat())]);
        steps
    })
    .await?;
    let mut wire = Wire::open(&gateway).await?;
    wire.send(post("", STREAM)).await?;
    // The head comes before the first event.
    assert_eq!(wire.head().await?.get("content-type"), Some("text/event-stream; charset=utf-8"));
    for n in 0..20 {
        next.add_permits(1);
        assert_eq!(String::from_utf8(wire.until("\n\n").await?)?, event(&n.to_string()));
    }
    next.add_permits(1);
    assert_eq!(String::from_utf8(wire.until("[DONE]").await?)?, FINISH);
    Ok(())
}

/// Report 49 and 51: every cut of an event with a character of four bytes, raw and in each place of the stream.
#[tokio::test]
async fn s14_every_cut_of_an_event_passes() -> Outcome<()> {
    let whole = event("a 😀 é 漢");
    let mut parts: Vec<Vec<u8>> = Vec::new();
    for at in 1..whole.len() {
        parts.extend([whole.as_bytes()[..at].to_vec(), whole.as_bytes()[at..].to_vec()]);
    }
    parts.extend(whole.bytes().map(|byte| vec![byte]));
    parts.extend(FINISH.bytes().map(|byte| vec![byte]));
    assert_eq!(passed(&parts).await?, parts.concat());
    Ok(())
}

#[tokio::test]
async fn s1_to_s11_odd_events_pass_unchanged() -> Outcome<()> {
    let odd: [&[u8]; 12] = [
        b"\xef\xbb\xbf: a byte order mark\n\n",
        b": comment\r\n\r\n",
        b"id: 7\r\nretry: 10\r\nunknown: x\r\n\r\n",
        b"data\n\n",
        b"data:\n\n",
        b"data:{\"choices\":[]}\r\r",
        b"data: {\"choices\":\ndata: []}\n\n",
        b"event: message\r\ndata: {\"choices\":[]}\r\n\r\n",
        b"data: {\"choices\":[],\"raw\":\"\xff\xfe\"}\n\n",
        b"\n\r\n\r",
        b"field without colon\n\n",
        b"data: {\"choices\":[]}\r\n\r\n",
    ];
    let finish = FINISH.replace('\n', "\r\n");
    let whole = [odd.concat(), finish.into_bytes()].concat();
    assert_eq!(passed(std::slice::from_ref(&whole)).await?, whole, "in one piece");
    let bytes: Vec<Vec<u8>> = whole.iter().map(|byte| vec![*byte]).collect();
    assert_eq!(passed(&bytes).await?, whole, "byte by byte");
    Ok(())
}

/// The tail of a read waits for its end, whole events before it do not.
#[tokio::test]
async fn s13_the_incomplete_tail_is_held() -> Outcome<()> {
    let (next, whole) = (gate(), event("second"));
    let (passes, (start, rest)) = (next.clone(), whole.split_at(30));
    let first = [EVENTS.as_bytes(), &chunk(event("first") + start)].concat();
    let then = [chunk(rest), chunk(FINISH), LAST.into()].concat();
    let (gateway, _engine) = strict(move |_| vec![Step::Send(first.clone()), Step::Wait(passes.clone()), Step::Send(then.clone())]).await?;
    let mut wire = Wire::open(&gateway).await?;
    wire.send(post("", STREAM)).await?;
    wire.head().await?;
    assert_eq!(wire.0.chunk().await?, Chunk::Data(event("first").into_bytes()));
    next.add_permits(1);
    assert_eq!(String::from_utf8(wire.until("[DONE]").await?)?, whole.clone() + FINISH);
    Ok(())
}

/// At most 64 KiB of an incomplete event are held.
#[tokio::test]
async fn s13_a_long_event_is_not_held_whole() -> Outcome<()> {
    const HELD: usize = 64 * 1024;
    let next = gate();
    let passes = next.clone();
    let whole = event(&"é".repeat(200 * 1024));
    let (start, rest) = (whole[..300_000].to_owned(), whole[300_000..].to_owned());
    let first = [EVENTS.as_bytes(), &chunk(&start)].concat();
    let then = [chunk(rest), chunk(FINISH), LAST.into()].concat();
    let (gateway, _engine) = strict(move |_| vec![Step::Send(first.clone()), Step::Wait(passes.clone()), Step::Send(then.clone())]).await?;
    let mut wire = Wire::open(&gateway).await?;
    wire.send(post("", STREAM)).await?;
    wire.head().await?;
    let mut seen = Vec::new();
    while seen.len() < start.len() - HELD {
        match wire.0.chunk().await? {
            Chunk::Data(data) => seen.extend(data),
            end @ (Chunk::Last(_) | Chunk::Cut) => return Err(format!("{end:?}").into()),
        }
    }
    next.add_permits(1);
    seen.extend(wire.until("[DONE]").await?);
    assert_eq!(String::from_utf8(seen)?, whole + FINISH);
    Ok(())
}

/// Report 53: a stream that waits for a leader gets comments, and then the leader's events.
#[tokio::test]
async fn s15_a_waiting_stream_gets_comments_between_events() -> Outcome<()> {
    let engine = ScriptedEngine::start_unready(|_| vec![Step::Send(whole_stream("text"))])?;
    let config = "hold: {heartbeat_after: 20ms, heartbeat_interval: 20ms}\nprobe: {warming_interval: 50ms}\n";
    let options = Options::new(Source::Leaders(vec![engine.leader("m")])).config(config);
    let gateway = GatewayHandle::start_ready(options).await?;
    let mut wire = Wire::open(&gateway).await?;
    wire.send(post("", STREAM)).await?;
    let head = wire.head().await?;
    assert_eq!((head.status(), head.get("content-type")), (200, Some("text/event-stream; charset=utf-8")));
    let mut waiting = Vec::new();
    for _ in 0..3 {
        waiting.extend(wire.until("\n\n").await?);
    }
    engine.set_ready(true);
    let rest = [waiting, wire.until("[DONE]").await?].concat();
    let text = String::from_utf8(rest)?;
    let events: Vec<&str> = text.split_inclusive("\n\n").skip_while(|event| event.starts_with(": ")).collect();
    assert_eq!(events.concat(), event("text") + FINISH, "{text}");
    assert_eq!(wire.0.chunk().await?, Chunk::Last(String::new()));
    Ok(())
}

/// A failure behind the comments can only be an event; without a stream it is a status.
#[tokio::test]
async fn a_hold_that_ends_is_an_event_or_a_503() -> Outcome<()> {
    let engine = ScriptedEngine::start_unready(|_| vec![])?;
    let config = "hold: {heartbeat_after: 20ms, timeout: 300ms, timeout_unary: 300ms, timeout_nothing: 300ms}\n";
    let options = Options::new(Source::Leaders(vec![engine.leader("m")])).config(config);
    let gateway = GatewayHandle::start_ready(options).await?;
    let stream = Wire::ask(&gateway, post("", STREAM)).await?;
    let text = stream.text();
    let error = text.split("\n\n").find_map(|event| event.strip_prefix("data: ")).ok_or("no event")?;
    assert_eq!((stream.status(), stream.end), (200, End::Cut));
    assert_eq!(serde_json::from_str::<serde_json::Value>(error)?["error"]["code"], json!("no_serving_group"));
    let whole = Wire::ask(&gateway, post("", crate::support::wire::CHAT)).await?;
    assert_eq!((whole.status(), whole.code()?.as_str()), (503, "no_serving_group"));
    let after: u64 = whole.head.get("retry-after").ok_or("no Retry-After")?.parse()?;
    assert!((1..=60).contains(&after), "{after}");
    Ok(())
}

/// A client whose stream has had its last event is owed nothing more, whatever becomes of the leader's framing.
#[tokio::test]
async fn a_stream_is_complete_with_its_last_event() -> Outcome<()> {
    let named = |name: &str| format!("event: {name}\ndata: {{\"type\":\"{name}\"}}\n\n");
    let streams = [
        ("/v1/chat/completions", [event("well"), FINISH.to_owned()].concat()),
        ("/v1/messages", [named("message_start"), named("message_stop")].concat()),
        ("/v1/responses", [named("response.created"), named("response.completed")].concat()),
    ];
    for (path, stream) in streams {
        for end in [Step::Hold, Step::Fin, Step::Reset] {
            let steps = vec![Step::Send([EVENTS.as_bytes(), &chunk(&stream)].concat()), end.clone()];
            let engine = ScriptedEngine::start(move |_| steps.clone())?;
            // With resuming on, a break would be mended.
            let gateway = over(&[engine.leader("m")], "probe: {serving_interval: 1h}\n").await?;
            let answer = Wire::ask(&gateway, post_to(path, "", STREAM)).await?;
            assert_eq!((answer.status(), answer.end, answer.text()), (200, End::Whole, stream.clone()), "{path}, {end:?}");
            let line = gateway.wait_access("ok").await?;
            assert_eq!((&line["ending"], &line["attempts"]), (&"complete".into(), &1.into()), "{path}: {line}");
            assert!(line["resumes"].is_null(), "{path}: {line}");
        }
    }
    Ok(())
}
