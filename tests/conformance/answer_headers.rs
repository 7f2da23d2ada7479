//! What a client gets of a leader's fields (RFC 9110 5.3, 6.5.1, 7.6.1, 8.6; RFC 9112 6.2).

use tests::Outcome;

use crate::support::gateway::strict;
use crate::support::message::{Chunk, End};
use crate::support::script::{EVENTS, FINISH, LAST, Step, answer, chunk, event, send};
use crate::support::wire::{CHAT, STREAM, Wire, post};

/// Reports 66, 67 and 68.
#[tokio::test]
async fn p1_p2_fields_of_the_leaders_hop_are_dropped() -> Outcome<()> {
    let fields = "Connection: X-Foo, keep-alive\r\nx-foo: 1\r\nx-bar: 2\r\nkeep-alive: timeout=5\r\nproxy-connection: close\r\nupgrade: h2c\r\nte: trailers\r\nserver: uvicorn\r\n";
    let (gateway, _engine) = strict(move |_| send(answer(200, fields, "{}"))).await?;
    let mut wire = Wire::open(&gateway).await?;
    wire.send(post("", CHAT)).await?;
    let seen = wire.answer().await?;
    for gone in ["x-foo", "keep-alive", "proxy-connection", "upgrade", "te", "connection", "transfer-encoding"] {
        assert_eq!(seen.head.get(gone), None, "{gone}");
    }
    assert_eq!((seen.head.get("x-bar"), seen.head.get("server")), (Some("2"), Some("uvicorn")));
    // A leader's `Connection` says nothing of the client's connection.
    wire.send(post("", CHAT)).await?;
    assert_eq!(wire.answer().await?.status(), 200);
    Ok(())
}

#[tokio::test]
async fn p10_set_cookie_is_not_joined() -> Outcome<()> {
    let fields = "set-cookie: a=1; Path=/\r\nx-a: 1\r\nSet-Cookie: b=2\r\nx-a: 2\r\n";
    let (gateway, _engine) = strict(move |_| send(answer(200, fields, "{}"))).await?;
    let seen = Wire::ask(&gateway, post("", CHAT)).await?;
    assert_eq!(seen.head.all("set-cookie"), ["a=1; Path=/", "b=2"]);
    assert_eq!(seen.head.all("x-a"), ["1", "2"]);
    Ok(())
}

#[tokio::test]
async fn p11_trailers_of_an_answer_become_no_fields() -> Outcome<()> {
    let last = "0\r\nx-t: 1\r\nset-cookie: evil=1\r\n\r\n";
    let head = EVENTS.replace("\r\n\r\n", "\r\ntrailer: x-t\r\n\r\n");
    let stream = [head.as_bytes(), &chunk(event("a")), &chunk(FINISH), last.as_bytes()].concat();
    let (gateway, _engine) = strict(move |_| send(&stream)).await?;
    let mut wire = Wire::open(&gateway).await?;
    wire.send(post("", STREAM)).await?;
    let head = wire.head().await?;
    assert_eq!((head.get("x-t"), head.get("set-cookie"), head.get("trailer")), (None, None, None));
    wire.until("[DONE]").await?;
    assert_eq!(wire.0.chunk().await?, Chunk::Last(String::new()));
    Ok(())
}

#[tokio::test]
async fn p14_informational_answers_are_not_taken_for_the_answer() -> Outcome<()> {
    let early = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n";
    let (gateway, _engine) = strict(move |_| send([early.as_bytes(), &answer(200, "", "{\"a\":1}")].concat())).await?;
    let seen = Wire::ask(&gateway, post("", CHAT)).await?;
    assert_eq!((seen.status(), seen.text().as_str(), seen.head.get("link")), (200, "{\"a\":1}", None));
    Ok(())
}

#[tokio::test]
async fn p8_an_answer_without_content_has_no_length() -> Outcome<()> {
    let bytes = "HTTP/1.1 204 No Content\r\ncontent-length: 0\r\nx-a: 1\r\n\r\n";
    let (gateway, _engine) = strict(move |_| send(bytes)).await?;
    let mut wire = Wire::open(&gateway).await?;
    for _ in 0..2 {
        wire.send(post("", CHAT)).await?;
        let head = wire.head().await?;
        assert_eq!((head.status(), head.get("content-length"), head.get("transfer-encoding")), (204, None, None));
        assert_eq!(head.get("x-a"), Some("1"));
    }
    Ok(())
}

#[tokio::test]
async fn h12_an_answer_has_a_length_or_a_coding() -> Outcome<()> {
    for status in [200, 400, 404] {
        let body = format!("{{\"status\":{status}}}");
        let both = format!(
            "HTTP/1.1 {status} S\r\ncontent-type: application/json\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n{}{LAST}",
            String::from_utf8(chunk(&body))?
        );
        let (gateway, _engine) = strict(move |_| send(&both)).await?;
        let seen = Wire::ask(&gateway, post("", CHAT)).await?;
        let framed = (seen.head.get("content-length").is_some(), seen.head.get("transfer-encoding").is_some());
        assert_ne!(framed, (true, true), "{:?}", seen.head);
        // Passed on by the coding, or refused as an invalid answer (RFC 9112 6.3); never by the length.
        let passed = seen.status() == status && seen.text() == body && seen.end == End::Whole;
        assert!(passed || (seen.status() == 502 && seen.code()? == "leader_reset"), "{seen:?}");
    }
    Ok(())
}

#[tokio::test]
async fn report_63_a_stream_has_no_length() -> Outcome<()> {
    let events = event("a") + FINISH;
    let head = format!("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {}\r\n\r\n", events.len());
    let whole = events.clone();
    let (gateway, _engine) = strict(move |_| vec![Step::Send([head.as_bytes(), whole.as_bytes()].concat())]).await?;
    let seen = Wire::ask(&gateway, post("", STREAM)).await?;
    assert_eq!((seen.head.get("content-length"), seen.end, seen.text()), (None, End::Whole, events));
    Ok(())
}
