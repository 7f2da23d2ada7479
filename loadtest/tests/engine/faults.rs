//! Faults of single requests: each one looks on the wire as it says.

use std::time::Duration;

use loadtest::engine::{EngineConfig, Fault, Outcome, Pace, Rule, expected_text};
use serde_json::json;

use crate::raw::{ask, body, chat, content, events, eventually, is_framed, post_chat, read_all, send, start};

async fn struck(fault: Fault) -> (String, std::io::Result<()>) {
    let engine = start(EngineConfig::fast("tiny")).await;
    engine.fault(Rule::once(fault));
    let mut stream = send(engine.addr(), &post_chat(json!({"stream": true}))).await;
    let struck = read_all(&mut stream).await;
    let due = expected_text(&chat(json!({})), engine.persona());
    assert!(due.starts_with(&content(&struck.0)), "what came before the fault must be right: {}", struck.0);
    // The fault is used up: the next request gets its whole text.
    let next = ask(engine.addr(), &post_chat(json!({"stream": true}))).await;
    assert_eq!(content(&next), due);
    struck
}

#[tokio::test]
async fn a_reset_comes_at_its_byte() {
    let (answer, ended) = struck(Fault::ResetAt { byte: 777 }).await;
    assert_eq!(answer.len(), 777);
    assert_eq!(ended.unwrap_err().kind(), std::io::ErrorKind::ConnectionReset);
    let (answer, ended) = struck(Fault::ResetAfter { events: 4 }).await;
    assert_eq!((events(&answer).len(), ended.is_err()), (4, true));
}

#[tokio::test]
async fn a_fin_comes_at_its_place() {
    let (answer, ended) = struck(Fault::FinAt { byte: 600 }).await;
    assert_eq!((answer.len(), ended.is_ok()), (600, true));
    let (answer, ended) = struck(Fault::FinAfter { events: 4 }).await;
    assert!(ended.is_ok() && answer.ends_with("\n\n\r\n") && !is_framed(&answer));
    assert_eq!(events(&answer).len(), 4);
}

#[tokio::test]
async fn clean_looking_ends_are_no_ends() {
    let (abort, _) = struck(Fault::AbortAfter { events: 5 }).await;
    assert!(is_framed(&abort) && abort.contains(r#""finish_reason":"abort","stop_reason":null,"token_ids":null}],"system_fingerprint""#));
    let (error, _) = struck(Fault::ErrorAfter { events: 5 }).await;
    assert!(is_framed(&error) && events(&error)[5].starts_with(r#"{"error": {"message": "EngineCore encountered an issue."#));
    let (first, _) = struck(Fault::ErrorAfter { events: 0 }).await;
    assert!(events(&first)[0].starts_with(r#"{"error": "#));
    let (end, _) = struck(Fault::EndAfter { events: 5 }).await;
    assert!(is_framed(&end) && !end.contains("[DONE]") && !end.contains(r#""finish_reason":"s"#));
    let (done, _) = struck(Fault::DoneAfter { events: 5 }).await;
    assert!(is_framed(&done) && events(&done)[5] == "[DONE]");
    let (unmarked, _) = struck(Fault::NoDone).await;
    assert!(is_framed(&unmarked) && !unmarked.contains("[DONE]") && unmarked.contains("system_fingerprint"));
    let (unframed, _) = struck(Fault::NoLastChunk).await;
    assert!(!is_framed(&unframed) && unframed.contains("[DONE]"));
}

#[tokio::test]
async fn broken_bytes_are_broken() {
    let (chunk, _) = struck(Fault::BadChunkAfter { events: 2 }).await;
    assert!(chunk.contains("\r\nzz\r\n") && !is_framed(&chunk));
    let (garbage, _) = struck(Fault::Garbage).await;
    assert!(!garbage.starts_with("HTTP"));
    let (malformed, _) = struck(Fault::MalformedAfter { events: 2 }).await;
    assert!(is_framed(&malformed) && serde_json::from_str::<serde_json::Value>(&events(&malformed)[2]).is_err());
}

#[tokio::test]
async fn a_slow_loris_loses_nothing() {
    let (slow, _) = struck(Fault::Loris { bytes: 512, every_ms: 1 }).await;
    assert!(is_framed(&slow) && events(&slow).last().unwrap() == "[DONE]");
}

#[tokio::test]
async fn lengths_can_lie() {
    let engine = start(EngineConfig::fast("tiny")).await;
    for (fault, difference) in [(Fault::LengthLong { by: 10 }, 10), (Fault::LengthShort { by: 10 }, -10)] {
        engine.fault(Rule::once(fault));
        let answer = ask(engine.addr(), &post_chat(json!({}))).await;
        let length: i64 = answer.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap().parse().unwrap();
        assert_eq!(length - i64::try_from(body(&answer).len()).unwrap(), difference);
    }
}

#[tokio::test]
async fn whole_answers_end_in_the_same_ways() {
    let engine = start(EngineConfig::fast("tiny")).await;
    engine.fault(Rule::once(Fault::AbortAfter { events: 5 }));
    let abort: serde_json::Value = serde_json::from_str(body(&ask(engine.addr(), &post_chat(json!({}))).await)).unwrap();
    assert_eq!(abort["choices"][0]["finish_reason"], "abort");
    assert_eq!(abort["usage"]["completion_tokens"], 5);
    engine.fault(Rule::once(Fault::ErrorAfter { events: 5 }));
    let error = ask(engine.addr(), &post_chat(json!({}))).await;
    assert!(error.starts_with("HTTP/1.1 500 Internal Server Error") && error.contains("content-length: 153\r\n"), "{error}");
    engine.fault(Rule::once(Fault::FinAfter { events: 5 }));
    assert_eq!(ask(engine.addr(), &post_chat(json!({}))).await, "");
}

#[tokio::test]
async fn a_client_that_goes_away_is_noticed() {
    let pace = Pace::steady(Duration::from_secs(3600), Duration::ZERO);
    let engine = start(EngineConfig { pace, ..EngineConfig::fast("tiny") }).await;
    for (nth, streamed) in [(1, true), (2, false)] {
        let stream = send(engine.addr(), &post_chat(json!({"stream": streamed}))).await;
        eventually("running", || engine.stats().running == 1).await;
        drop(stream);
        eventually("cancelled", || engine.stats().cancelled == nth && engine.stats().running == 0).await;
    }
    // Half a close is taken for a whole one.
    let mut stream = send(engine.addr(), &post_chat(json!({}))).await;
    eventually("running", || engine.stats().running == 1).await;
    tokio::io::AsyncWriteExt::shutdown(&mut stream).await.unwrap();
    eventually("cancelled", || engine.stats().cancelled == 3).await;
    assert!(engine.requests().iter().all(|seen| seen.outcome == Some(Outcome::Cancelled)));
}

#[tokio::test]
async fn comments_come_while_nothing_else_does() {
    let config = EngineConfig { sse_keep_alive: Some(Duration::from_millis(5)), ..EngineConfig::fast("tiny") };
    let engine = start(config).await;
    engine.fault(Rule::once(Fault::Delay { ms: 60 }));
    let answer = ask(engine.addr(), &post_chat(json!({"stream": true}))).await;
    assert!(body(&answer).starts_with("e\r\n: keep-alive\n\n\r\n"), "{answer}");
    assert!(is_framed(&answer));
}
