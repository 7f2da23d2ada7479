//! What the access line and the metrics say of a request: who ended it, and what it took.

use std::time::Duration;

use serde_json::Value;
use socket2::SockRef;
use tests::Outcome;
use tests::gateway::GatewayHandle;
use tests::poll::{PATIENCE, eventually};
use tokio::io::AsyncWriteExt;

use crate::support::gateway::strict;
use crate::support::h2::{DATA, GOAWAY, H2, PING, POST, RST_STREAM};
use crate::support::message::End;
use crate::support::script::{EVENTS, LAST, Step, answer, chunk, gate, send};
use crate::support::wire::{Answer, CHAT, STREAM, Wire, post, post_to};

/// The access line of the request with this id, once it is written.
async fn line(gateway: &GatewayHandle, id: &str) -> Outcome<Value> {
    eventually(PATIENCE, "an access line", || async {
        let log = gateway.log();
        let mut lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        lines.find(|line| line["target"] == "access" && line["request_id"] == id).ok_or_else(|| format!("none of {id} in {log}"))
    })
    .await
}

/// Waits until the metrics have all of these lines.
async fn counted(gateway: &GatewayHandle, lines: &[&str]) -> Outcome<()> {
    eventually(PATIENCE, "figures", || async {
        let metrics = gateway.metrics().await.map_err(|error| error.to_string())?;
        let missing = lines.iter().find(|line| !metrics.lines().any(|seen| seen == **line));
        missing.map_or(Ok(()), |line| Err(format!("no {line} in {metrics}")))
    })
    .await
}

/// How a client of HTTP/1.1 leaves.
#[derive(Debug, Clone, Copy)]
enum Way {
    Close,
    HalfClose,
    Reset,
}

/// Sends a head, `part` of its body once the gateway waits for it, and leaves.
async fn leaves(gateway: &GatewayHandle, (id, framing, part): (&str, &str, &str), way: Way) -> Outcome<()> {
    let mut wire = Wire::open(gateway).await?;
    let head = format!("POST /v1/embeddings HTTP/1.1\r\nhost: a\r\nx-request-id: {id}\r\nexpect: 100-continue\r\n{framing}\r\n\r\n");
    wire.send(head).await?;
    assert_eq!(wire.head().await?.status(), 100, "{id}");
    wire.send(part).await?;
    match way {
        Way::Close => {}
        Way::HalfClose => {
            wire.0.stream.shutdown().await?;
            wire.0.rest().await?;
        }
        Way::Reset => SockRef::from(&wire.0.stream).set_linger(Some(Duration::ZERO))?,
    }
    Ok(())
}

/// Begins a body on stream 1 and waits until the gateway has read that.
async fn uploads(gateway: &GatewayHandle, id: &str, fields: &[(&str, &str)]) -> Outcome<H2> {
    let mut h2 = H2::connect(gateway).await?;
    let all = [&POST[..], &[("x-request-id", id)], fields].concat();
    h2.headers(1, &all, false).await?;
    h2.frame(DATA, 0, 1, br#"{"model":"m","#).await?;
    h2.frame(PING, 0, 0, &[7; 8]).await?;
    h2.wait(|frame| frame.kind == PING).await?;
    Ok(h2)
}

/// A client that leaves before its request is whole was refused nothing, by whatever way it leaves.
#[tokio::test]
async fn a_client_that_leaves_during_its_upload_is_cancelled() -> Outcome<()> {
    let (gateway, engine) = strict(|_| send(answer(200, "", "{}"))).await?;
    let length = ("content-length: 1000", r#"{"model":"m","#);
    let chunks = ("transfer-encoding: chunked", "5\r\n{\"mod");
    let size = ("transfer-encoding: chunked", "5");
    let mut ids = Vec::new();
    for (framing, part) in [length, chunks, size] {
        for way in [Way::Close, Way::HalfClose, Way::Reset] {
            let id = format!("h1-{}", ids.len());
            leaves(&gateway, (&id, framing, part), way).await?;
            ids.push(id);
        }
    }
    // NO_ERROR, INTERNAL_ERROR, CANCEL.
    for code in [0u32, 2, 8] {
        let id = format!("h2-{code}");
        let mut h2 = uploads(&gateway, &id, &[]).await?;
        h2.frame(RST_STREAM, 0, 1, &code.to_be_bytes()).await?;
        line(&gateway, &id).await?;
        ids.push(id);
    }
    drop(uploads(&gateway, "h2-gone", &[]).await?);
    let mut h2 = uploads(&gateway, "h2-goaway", &[]).await?;
    h2.frame(GOAWAY, 0, 0, &[0, 0, 0, 0, 0, 0, 0, 2]).await?;
    drop(h2);
    ids.extend(["h2-gone".to_owned(), "h2-goaway".to_owned()]);

    for id in &ids {
        let line = line(&gateway, id).await?;
        assert_eq!((&line["outcome"], &line["status"], &line["reason"]), (&"cancelled".into(), &Value::Null, &Value::Null), "{line}");
    }
    let cancelled = format!(r#"leadgate_client_cancelled_total{{pool="unknown"}} {}"#, ids.len());
    counted(&gateway, &[&cancelled]).await?;
    assert!(!gateway.metrics().await?.contains("leadgate_rejects_total{"));
    assert_eq!(engine.received().len(), 0);
    Ok(())
}

/// The counter-check: who is still there is told what is wrong.
#[tokio::test]
async fn a_malformed_upload_is_refused() -> Outcome<()> {
    let (gateway, engine) = strict(|_| send(answer(200, "", "{}"))).await?;
    let chunks = |id: &str, chunks: &str| {
        format!("POST /v1/embeddings HTTP/1.1\r\nhost: a\r\nx-request-id: {id}\r\ntransfer-encoding: chunked\r\n\r\n{chunks}")
    };
    let short = String::from_utf8(post("x-request-id: json\r\n", r#"{"model":"m","#))?;
    for (id, request) in [("size", chunks("size", "zz\r\n")), ("end", chunks("end", "2\r\n{}xx")), ("json", short)] {
        let mut wire = Wire::open(&gateway).await?;
        wire.send(request).await?;
        assert_eq!(wire.answer().await?.status(), 400, "{id}");
        let line = line(&gateway, id).await?;
        assert_eq!(
            (&line["outcome"], &line["status"], &line["reason"]),
            (&"refused".into(), &400.into(), &"invalid_request".into()),
            "{line}"
        );
    }
    // More than its length says: the gateway resets the stream, the client is there.
    let mut h2 = uploads(&gateway, "more", &[("content-length", "20")]).await?;
    h2.frame(DATA, 0, 1, CHAT.as_bytes()).await?;
    h2.wait(|frame| frame.kind == RST_STREAM).await?;
    assert_eq!(line(&gateway, "more").await?["outcome"], "refused");
    counted(&gateway, &[r#"leadgate_rejects_total{reason="invalid_request"} 4"#]).await?;
    assert_eq!(engine.received().len(), 0);
    Ok(())
}

/// The tokens of a line: prompt, completion, cached.
fn tokens(line: &Value) -> [Option<u64>; 3] {
    ["prompt_tokens", "completion_tokens", "cached_tokens"].map(|field| line[field].as_u64())
}

/// An answer that is passed on as it comes tells its tokens wherever its bytes are parted.
#[tokio::test]
async fn tokens_are_counted_wherever_an_answer_is_parted() -> Outcome<()> {
    const TOLD: &str = r#","usage":{"prompt_tokens":9,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":4}}}"#;
    let (length, gate) = (TOLD.len(), gate());
    let behind = gate.clone();
    // How much is there before the rest, which comes when the client has seen the beginning.
    let (gateway, _engine) = strict(move |received| {
        let number = |field| received.head.get(field).and_then(|value| value.parse().ok()).unwrap_or(0);
        let body = format!("{{\"data\":\"{}\"{TOLD}", "x".repeat(number("filler")));
        let whole = answer(200, "", &body);
        let (first, rest) = whole.split_at(whole.len() - TOLD.len() + number("split"));
        vec![Step::Send(first.to_vec()), Step::Wait(behind.clone()), Step::Send(rest.to_vec())]
    })
    .await?;
    let mut requests = 0;
    for (path, filler) in [("/v1/embeddings", 0), ("/v1/embeddings", 5000), ("/v1/chat/completions", 4 * 1024 * 1024)] {
        for split in [1, 5, 12, 30, length - 1] {
            let mut wire = Wire::open(&gateway).await?;
            let id = format!("{filler}-{split}");
            wire.send(post_to(path, &format!("x-request-id: {id}\r\nfiller: {filler}\r\nsplit: {split}\r\n"), CHAT)).await?;
            let head = wire.head().await?;
            let before: usize = head.get("content-length").ok_or("no length")?.parse()?;
            wire.0.exactly(before - length + split).await?;
            gate.add_permits(1);
            wire.0.exactly(length - split).await?;
            let line = line(&gateway, &id).await?;
            assert_eq!(tokens(&line), [Some(9), Some(3), Some(4)], "{line}");
            requests += 1;
        }
    }
    let prompt = format!(r#"leadgate_tokens_total{{kind="prompt",pool="m"}} {}"#, 9 * requests);
    counted(&gateway, &[&prompt]).await
}

/// A whole stream of these events, in one piece or each in its own.
fn stream(events: &[&str], one_by_one: bool) -> Vec<Step> {
    let chunks: Vec<Vec<u8>> = if one_by_one { events.iter().map(chunk).collect() } else { vec![chunk(events.concat())] };
    let chunks = chunks.into_iter().chain([LAST.into()]);
    [EVENTS.as_bytes().to_vec()].into_iter().chain(chunks).map(Step::Send).collect()
}

/// Each API tells its tokens in events of its own, some of them in two: what is told last counts, count by count.
#[tokio::test]
async fn tokens_of_streams_are_counted_count_by_count() -> Outcome<()> {
    const MESSAGES: [&str; 3] = [
        "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":25,\"cache_read_input_tokens\":7,\"output_tokens\":1}}}\n\n",
        "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{},\"usage\":{\"output_tokens\":15}}\n\n",
        "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
    ];
    const RESPONSES: [&str; 2] = [
        "event: response.created\ndata: {\"type\":\"response.created\",\"response\":{\"usage\":null}}\n\n",
        "event: response.completed\ndata: {\"type\":\"response.completed\",\"response\":{\"usage\":{\"input_tokens\":3,\"input_tokens_details\":{\"cached_tokens\":2},\"output_tokens\":4}}}\n\n",
    ];
    const CHAT_EVENTS: [&str; 3] = [
        "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"},\"finish_reason\":null}],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":1,\"prompt_tokens_details\":{\"cached_tokens\":8}}}\n\n",
        "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"b\"},\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":2}}\n\n",
        "data: [DONE]\n\n",
    ];
    let (gateway, _engine) = strict(|received| {
        let events: &[&str] = match received.head.start.split(' ').nth(1) {
            Some("/v1/messages") => &MESSAGES,
            Some("/v1/responses") => &RESPONSES,
            _ => &CHAT_EVENTS,
        };
        stream(events, received.head.get("apart").is_some())
    })
    .await?;
    let paths = [("/v1/messages", [25, 15, 7]), ("/v1/responses", [3, 4, 2]), ("/v1/chat/completions", [9, 2, 8])];
    for (path, expected) in paths {
        for fields in ["", "apart: 1\r\n"] {
            let id = format!("{path} {fields}").trim_end().to_owned();
            let answer = Wire::ask(&gateway, post_to(path, &format!("x-request-id: {id}\r\n{fields}"), STREAM)).await?;
            assert_eq!((answer.status(), answer.end), (200, End::Whole), "{id}");
            let line = line(&gateway, &id).await?;
            assert_eq!(tokens(&line), expected.map(Some), "{line}");
        }
    }
    counted(
        &gateway,
        &[
            r#"leadgate_tokens_total{kind="prompt",pool="m"} 74"#,
            r#"leadgate_tokens_total{kind="completion",pool="m"} 42"#,
            r#"leadgate_tokens_total{kind="cached",pool="m"} 34"#,
        ],
    )
    .await
}

/// Asks with an id of its own.
async fn ask(gateway: &GatewayHandle, (id, path): (&str, &str), body: &str) -> Outcome<Answer> {
    Wire::ask(gateway, post_to(path, &format!("x-request-id: {id}\r\n"), body)).await
}

/// An error may repeat what the client sent: it tells no tokens, whatever its way to the client. Nor does a leader make a counter wrap.
#[tokio::test]
async fn clients_do_not_choose_the_counters() -> Outcome<()> {
    let (gateway, _engine) = strict(|received| {
        let status = received.head.get("status").and_then(|status| status.parse().ok()).unwrap_or(200);
        send(answer(status, "", &received.body))
    })
    .await?;
    let said = r#"{"model":"m","usage":{"prompt_tokens":5,"completion_tokens":5}}"#;
    for path in ["/v1/chat/completions", "/v1/embeddings"] {
        for status in ["400", "404", "422", "429", "500"] {
            let id = format!("{path} {status}");
            let fields = format!("x-request-id: {id}\r\nstatus: {status}\r\n");
            let answer = Wire::ask(&gateway, post_to(path, &fields, said)).await?;
            assert_eq!((answer.status().to_string(), answer.text()), (status.to_owned(), said.to_owned()), "{id}");
            let line = line(&gateway, &id).await?;
            assert_eq!(tokens(&line), [None; 3], "{line}");
        }
        let much = r#"{"model":"m","usage":{"prompt_tokens":18446744073709551615,"completion_tokens":2}}"#;
        let id = format!("{path} much");
        ask(&gateway, (&id, path), much).await?;
        let line = line(&gateway, &id).await?;
        assert_eq!(tokens(&line), [None, Some(2), None], "{line}");
    }
    counted(&gateway, &[r#"leadgate_tokens_total{kind="completion",pool="m"} 4"#]).await?;
    assert!(!gateway.metrics().await?.contains(r#"leadgate_tokens_total{kind="prompt""#));
    Ok(())
}

/// How a watched stream ends: what it counts as, and that all of it goes on as it came.
#[tokio::test]
async fn streams_count_as_what_their_last_event_says() -> Outcome<()> {
    let event = |name: &str| format!("event: {name}\ndata: {{\"type\":\"{name}\",\"response\":{{\"error\":null}}}}\n\n");
    let (gateway, _engine) = strict(move |received| {
        let last = received.head.get("last").unwrap_or_default();
        let begun = if received.head.get("at-once").is_some() { String::new() } else { event("begun") };
        let ended = event(last);
        let events: Vec<&str> = [begun.as_str(), ended.as_str()].into_iter().filter(|event| !event.is_empty()).collect();
        stream(&events, true)
    })
    .await?;
    let ends = [
        ("/v1/responses", "response.completed", "ok"),
        ("/v1/responses", "response.incomplete", "ok"),
        ("/v1/responses", "response.failed", "stream_error"),
        ("/v1/responses", "error", "stream_error"),
        ("/v1/messages", "message_stop", "ok"),
        ("/v1/messages", "error", "stream_error"),
    ];
    for (path, last, outcome) in ends {
        // An error that is the first event is another matter: the request may go to another leader.
        let fields: &[&str] = if last == "error" { &[""] } else { &["", "at-once: 1\r\n"] };
        for fields in fields {
            let id = format!("{path} {last} {fields}").trim_end().to_owned();
            let answer = Wire::ask(&gateway, post_to(path, &format!("x-request-id: {id}\r\nlast: {last}\r\n{fields}"), STREAM)).await?;
            assert_eq!((answer.status(), answer.end, answer.text().ends_with(&event(last))), (200, End::Whole, true), "{id}");
            let line = line(&gateway, &id).await?;
            let reason = if outcome == "ok" { Value::Null } else { "engine_error".into() };
            assert_eq!((&line["outcome"], &line["reason"]), (&outcome.into(), &reason), "{line}");
        }
    }
    let failed = r#"leadgate_requests_total{outcome="stream_error",pool="m",route="responses"} 3"#;
    let complete = r#"leadgate_requests_total{outcome="ok",pool="m",route="responses"} 4"#;
    counted(&gateway, &[failed, complete]).await
}

#[tokio::test]
async fn the_protocol_is_what_the_client_speaks() -> Outcome<()> {
    let (gateway, _engine) = strict(|_| send(answer(200, "", "{}"))).await?;
    for version in ["HTTP/1.0", "HTTP/1.1"] {
        let fields = format!("host: a\r\nx-request-id: {version}\r\ncontent-length: {}\r\n", CHAT.len());
        let answer = Wire::ask(&gateway, format!("POST /v1/chat/completions {version}\r\n{fields}\r\n{CHAT}")).await?;
        assert_eq!((answer.status(), &line(&gateway, version).await?["protocol"]), (200, &version.into()));
    }
    let mut h2 = H2::connect(&gateway).await?;
    h2.post(1, &[("x-request-id", "HTTP/2.0")], CHAT).await?;
    assert_eq!((h2.answer(1).await?.status, &line(&gateway, "HTTP/2.0").await?["protocol"]), (200, &"HTTP/2.0".into()));
    Ok(())
}

/// What the gateway answers by itself has bytes too, and so has what it refuses.
#[tokio::test]
async fn the_gateways_own_answers_are_counted_by_their_bytes() -> Outcome<()> {
    let (gateway, _engine) = strict(|_| send(answer(200, "", "{}"))).await?;
    let chat = "/v1/chat/completions";
    let cases = [
        ("GET", "/v1/models", "", 200),
        ("GET", "/v1/models/m", "", 200),
        ("HEAD", "/v1/models", "", 200),
        ("HEAD", "/unknown", "", 404),
        ("GET", "/v1/models/unknown", "", 404),
        ("GET", chat, "", 405),
        ("POST", chat, "", 400),
        ("POST", chat, "{\"model\":", 400),
        ("POST", chat, "[1]", 400),
        ("POST", chat, r#"{"model":"unknown"}"#, 404),
    ];
    let (mut received, mut sent) = (0, 0);
    for (nth, (method, path, body, status)) in cases.into_iter().enumerate() {
        let length = body.len();
        let mut wire = Wire::open(&gateway).await?;
        wire.send(format!("{method} {path} HTTP/1.1\r\nhost: a\r\nx-request-id: {nth}\r\ncontent-length: {length}\r\n\r\n{body}")).await?;
        let (seen, bytes) = if method == "HEAD" {
            (wire.head().await?.status(), 0)
        } else {
            let answer = wire.answer().await?;
            (answer.status(), answer.body.len())
        };
        let line = line(&gateway, &nth.to_string()).await?;
        let logged = ["status", "request_bytes", "response_bytes"].map(|field| line[field].as_u64());
        assert_eq!((seen, logged), (status, [u64::from(status), length as u64, bytes as u64].map(Some)), "{line}");
        (received, sent) = (received + length, sent + bytes);
    }
    let direction = |direction, bytes| format!(r#"leadgate_body_bytes_total{{direction="{direction}",pool="unknown"}} {bytes}"#);
    counted(&gateway, &[&direction("request", received), &direction("response", sent)]).await
}

/// The alert of failing requests points at the list of the last ones: each of them is there.
#[tokio::test]
async fn each_failed_request_is_among_the_recent_events() -> Outcome<()> {
    let cut = |head: &str, body: &str| vec![Step::Send([head, body].concat().into()), Step::Fin];
    let error = "event: error\ndata: {\"type\":\"error\"}\n\n";
    let (gateway, _engine) = strict(move |received| match received.head.get("case").unwrap_or_default() {
        "passed-on" => send(answer(500, "", "{}")),
        "cut-answer" => cut("HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n", "{"),
        "cut-stream" => cut(EVENTS, std::str::from_utf8(&chunk("event: x\ndata: {}\n\n")).unwrap_or_default()),
        "error-event" => stream(&["event: x\ndata: {}\n\n", error], true),
        _ => send(answer(400, "", "{}")),
    })
    .await?;
    let cases = [
        ("passed-on", "/v1/chat/completions", CHAT, "upstream_error", "status_500"),
        ("passed-on", "/v1/embeddings", CHAT, "upstream_error", "status_500"),
        ("cut-answer", "/v1/embeddings", CHAT, "upstream_error", "leader_reset"),
        ("cut-answer", "/v1/chat/completions", CHAT, "refused", "leader_reset"),
        ("cut-stream", "/v1/messages", STREAM, "stream_error", "not_resumable"),
        ("error-event", "/v1/messages", STREAM, "stream_error", "engine_error"),
        ("refused", "/v1/chat/completions", "{", "refused", "invalid_request"),
    ];
    for (nth, (case, path, body, outcome, detail)) in cases.into_iter().enumerate() {
        let id = format!("{case}-{nth}");
        Wire::ask(&gateway, post_to(path, &format!("x-request-id: {id}\r\ncase: {case}\r\n"), body)).await?;
        assert_eq!(line(&gateway, &id).await?["outcome"], outcome, "{id}");
        let recent: Value = serde_json::from_str(&tests::http::get(&gateway.admin_url("/debug/recent")).await?.text())?;
        let events = recent.as_array().into_iter().flatten().filter(|event| event["request_id"] == id && event["kind"] == outcome);
        assert_eq!(events.map(|event| &event["detail"]).collect::<Vec<_>>(), [detail], "{recent}");
    }
    // The counter-check: a client's own fault is none.
    ask(&gateway, ("fault", "/v1/chat/completions"), CHAT).await?;
    line(&gateway, "fault").await?;
    assert!(!tests::http::get(&gateway.admin_url("/debug/recent")).await?.text().contains("\"fault\""));
    Ok(())
}
