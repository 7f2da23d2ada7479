//! What a leader gets of a client's fields (RFC 9110 5.3, 7.6; RFC 9112 3.2).

use tests::Outcome;

use crate::support::engine::Received;
use crate::support::gateway::strict;
use crate::support::script::{answer, send};
use crate::support::wire::{CHAT, STREAM, Wire, post, post_to};

/// What the engine received of one request that was answered 200.
async fn forwarded(request: impl AsRef<[u8]>) -> Outcome<Received> {
    let (gateway, engine) = strict(|_| send(answer(200, "", "{}"))).await?;
    let answer = Wire::ask(&gateway, request).await?;
    assert_eq!(answer.status(), 200, "{}", answer.text());
    engine.last()
}

/// Report 67: `Connection: close, X-Foo`.
#[tokio::test]
async fn p1_p2_fields_of_the_clients_hop_are_dropped() -> Outcome<()> {
    let fields = "connection: keep-alive, X-Foo\r\nConnection: x-baz\r\nx-foo: 1\r\nx-baz: 1\r\nx-bar: 2\r\nproxy-connection: keep-alive\r\n\
        keep-alive: timeout=5\r\nte: trailers\r\nupgrade: h2c\r\ntrailer: x-t\r\nproxy-authorization: secret\r\n";
    let seen = forwarded(post(fields, CHAT)).await?;
    for gone in ["x-foo", "x-baz", "proxy-connection", "keep-alive", "te", "upgrade", "trailer", "proxy-authorization", "transfer-encoding"]
    {
        assert_eq!(seen.head.get(gone), None, "{gone}");
    }
    assert!(!seen.head.all("connection").join(",").contains("x-"), "{:?}", seen.head.fields);
    assert_eq!(seen.head.get("x-bar"), Some("2"));
    Ok(())
}

#[tokio::test]
async fn p3_p4_via_is_added_and_a_loop_is_refused() -> Outcome<()> {
    let (gateway, engine) = strict(|_| send(answer(200, "", "{}"))).await?;
    Wire::ask(&gateway, post("via: 1.0 other, 1.1 another\r\n", CHAT)).await?;
    let via = engine.last()?.head.all("via").join(", ");
    let (before, own) = via.rsplit_once(", ").ok_or("no Via of the gateway")?;
    assert_eq!(before, "1.0 other, 1.1 another");
    assert!(own.starts_with("1.1 leadgate-"), "{own}: version received, and a pseudonym");
    let looped = Wire::ask(&gateway, post(&format!("via: 1.1 a\r\nvia: {own}, 1.1 b\r\n"), CHAT)).await?;
    assert_eq!((looped.status(), looped.code()?.as_str()), (508, "loop_detected"));
    assert_eq!(engine.received().len(), 1);
    Ok(())
}

#[tokio::test]
async fn p6_path_and_query_pass_unchanged() -> Outcome<()> {
    let target = "/v1/chat/completions?b=%7E&a=1&&x=%2f?";
    assert_eq!(forwarded(post_to(target, "", CHAT)).await?.head.start, format!("POST {target} HTTP/1.1"));
    Ok(())
}

#[tokio::test]
async fn p10_fields_of_one_name_keep_their_order() -> Outcome<()> {
    let seen = forwarded(post("x-a: 1\r\nx-b: y\r\nX-A: 2, 3\r\nx-a: 0\r\n", CHAT)).await?;
    assert_eq!(seen.head.all("x-a"), ["1", "2, 3", "0"]);
    Ok(())
}

#[tokio::test]
async fn p11_trailers_of_a_request_become_no_fields() -> Outcome<()> {
    let length = CHAT.len();
    let request = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\ntrailer: x-t\r\ntransfer-encoding: chunked\r\n\r\n{length:x}\r\n{CHAT}\r\n0\r\nx-t: 1\r\nauthorization: evil\r\n\r\n"
    );
    let seen = forwarded(request).await?;
    assert_eq!((seen.head.get("x-t"), seen.head.get("authorization")), (None, None));
    assert_eq!(seen.body, CHAT.as_bytes());
    Ok(())
}

#[tokio::test]
async fn h2_host_comes_from_the_target_or_the_field() -> Outcome<()> {
    let absolute = post_to("http://target.test:81/v1/chat/completions?q", "", CHAT);
    let seen = forwarded(absolute).await?;
    assert_eq!(seen.head.all("host"), ["target.test:81"]);
    assert_eq!(seen.head.start, "POST /v1/chat/completions?q HTTP/1.1");
    assert_eq!(forwarded(post("", CHAT)).await?.head.all("host"), ["gateway.test"]);
    Ok(())
}

#[tokio::test]
async fn h12_a_leader_gets_a_length_and_no_coding() -> Outcome<()> {
    let length = CHAT.len();
    let head = "POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n";
    let seen = forwarded(format!("{head}5;ext=1\r\n{}\r\n{:x}\r\n{}\r\n0\r\n\r\n", &CHAT[..5], length - 5, &CHAT[5..])).await?;
    assert_eq!((seen.head.get("content-length"), seen.head.get("transfer-encoding")), (Some(length.to_string().as_str()), None));
    assert_eq!(seen.body, CHAT.as_bytes());
    Ok(())
}

/// Report 65: an encoded stream cannot be told apart into events.
#[tokio::test]
async fn report_65_a_stream_is_asked_for_unencoded() -> Outcome<()> {
    assert_eq!(forwarded(post("accept-encoding: gzip\r\n", STREAM)).await?.head.get("accept-encoding"), None);
    assert_eq!(forwarded(post("accept-encoding: gzip\r\n", CHAT)).await?.head.get("accept-encoding"), Some("gzip"));
    Ok(())
}

#[tokio::test]
async fn request_ids_are_kept_or_made() -> Outcome<()> {
    let (gateway, engine) = strict(|_| send(answer(200, "x-request-id: engines-own\r\n", "{}"))).await?;
    let kept = Wire::ask(&gateway, post("x-request-id: mine-1\r\n", CHAT)).await?;
    assert_eq!((kept.head.all("x-request-id"), engine.last()?.head.all("x-request-id")), (vec!["mine-1"], vec!["mine-1"]));
    let made = Wire::ask(&gateway, post("", CHAT)).await?;
    let id = made.head.get("x-request-id").unwrap_or_default();
    assert_eq!(id.len(), 32, "{id}");
    assert_eq!(engine.last()?.head.all("x-request-id"), [id]);
    assert_eq!(made.head.get("x-leadgate-group"), Some(engine.key().as_str()));
    Ok(())
}
