//! Queue, idle connections, followers, the log and the control port.

use std::time::Duration;

use loadtest::engine::{EngineConfig, EngineLimits, Pace};
use serde_json::{Value, json};
use tokio::io::AsyncReadExt;

use crate::raw::{ask, body, eventually, get, post, post_chat, read_until, send, start};

#[tokio::test]
async fn a_full_queue_is_a_503_without_retry_after() {
    let limits = EngineLimits { running: 1, queued: Some(1), ..EngineLimits::default() };
    let pace = Pace::steady(Duration::from_secs(3600), Duration::ZERO);
    let engine = start(EngineConfig { limits, pace, ..EngineConfig::fast("tiny") }).await;
    let _running = send(engine.addr(), &post_chat(json!({}))).await;
    eventually("one runs", || engine.stats().running == 1).await;
    let waiting = send(engine.addr(), &post_chat(json!({}))).await;
    eventually("one waits", || engine.stats().waiting == 1).await;
    let refused = ask(engine.addr(), &post_chat(json!({}))).await;
    assert!(refused.starts_with("HTTP/1.1 503 Service Unavailable") && !refused.to_lowercase().contains("retry-after"));
    assert!(body(&refused).contains(r#""type":"Service Unavailable","param":null,"code":503"#));
    drop(waiting);
    eventually("nobody waits", || engine.stats().waiting == 0).await;
}

#[tokio::test]
async fn connections_are_kept_and_then_closed_when_idle() {
    let limits = EngineLimits { idle: Duration::from_millis(30), ..EngineLimits::default() };
    let engine = start(EngineConfig { limits, ..EngineConfig::fast("tiny") }).await;
    let request = post("/v1/chat/completions", &crate::raw::chat(json!({"stream": true, "max_tokens": 2})).to_string(), "");
    let mut stream = send(engine.addr(), &request).await;
    read_until(&mut stream, "0\r\n\r\n").await;
    tokio::io::AsyncWriteExt::write_all(&mut stream, request.as_bytes()).await.unwrap();
    read_until(&mut stream, "0\r\n\r\n").await;
    assert_eq!(engine.stats().requests, 2);
    assert_eq!(stream.read(&mut [0; 16]).await.unwrap(), 0, "a plain FIN");
}

#[tokio::test]
async fn a_follower_counts_whoever_asks() {
    let engine = start(EngineConfig { follower: true, ..EngineConfig::fast("tiny") }).await;
    assert!(ask(engine.addr(), &get("/health")).await.starts_with("HTTP/1.1 500"));
    assert!(ask(engine.addr(), &post_chat(json!({}))).await.starts_with("HTTP/1.1 500"));
    assert_eq!(engine.stats().follower_requests, 2);
}

#[tokio::test]
async fn requests_are_remembered_by_id() {
    let engine = start(EngineConfig { requests_log: 2, ..EngineConfig::fast("tiny") }).await;
    for id in ["a", "b", "a"] {
        let body = crate::raw::chat(json!({"max_tokens": 1})).to_string();
        ask(engine.addr(), &post("/v1/chat/completions", &body, &format!("x-request-id: {id}\r\nvia: 1.1 gate\r\nconnection: close\r\n")))
            .await;
    }
    eventually("closed", || engine.requests().iter().all(|seen| seen.outcome.is_some())).await;
    assert_eq!((engine.times_seen("a"), engine.times_seen("b")), (1, 1), "only the newest two are kept");
    assert!(engine.requests()[0].headers.contains(&("via".to_owned(), "1.1 gate".to_owned())));
}

#[tokio::test]
async fn commands_come_over_the_control_port() {
    let engine = start(EngineConfig { control: Some("127.0.0.1:0".parse().unwrap()), ..EngineConfig::fast("tiny") }).await;
    let control = engine.control_addr().unwrap();
    let command = |name: &str, text: &str| post(&format!("/control/{name}"), text, "connection: close\r\n");
    assert!(ask(control, &command("refuse", r#"{"status":503}"#)).await.starts_with("HTTP/1.1 200"));
    assert!(ask(engine.addr(), &post_chat(json!({}))).await.starts_with("HTTP/1.1 503"));
    ask(control, &command("accept", "")).await;
    ask(control, &command("fault", r#"{"kind":"fin_after","events":2,"times":1}"#)).await;
    assert!(!ask(engine.addr(), &post_chat(json!({"stream": true}))).await.contains("[DONE]"));
    let stats: Value = serde_json::from_str(body(&ask(control, &get("/control/stats")).await)).unwrap();
    assert_eq!(stats["faults"]["fin_after"], 1);
    let requests: Value = serde_json::from_str(body(&ask(control, &get("/control/requests")).await)).unwrap();
    assert_eq!(requests.as_array().map(Vec::len), Some(2));
    assert!(ask(control, &command("fault", r#"{"kind":"no such thing"}"#)).await.starts_with("HTTP/1.1 400"));
    ask(control, &command("kill", "")).await;
    engine.exited().await;
}

#[tokio::test]
async fn other_endpoints_answer_in_their_own_envelopes() {
    let engine = start(EngineConfig::fast("tiny")).await;
    let ask = async |path: &str, text: &str| ask(engine.addr(), &post(path, text, "connection: close\r\n")).await;
    let responses = ask("/v1/responses", r#"{"model":"tiny","input":"Hello","stream":true}"#).await;
    assert!(responses.contains("event: response.created\n") && responses.contains("event: response.completed\n"), "{responses}");
    assert!(crate::raw::is_framed(&responses));
    let whole: Value = serde_json::from_str(body(&ask("/v1/responses", r#"{"model":"tiny","input":"Hello"}"#).await)).unwrap();
    assert!(whole["output"][0]["content"][0]["text"].as_str().is_some_and(|text| !text.is_empty()));
    let messages = r#"{"model":"tiny","max_tokens":9,"messages":[{"role":"user","content":"Hello"}],"stream":true}"#;
    assert!(ask("/v1/messages", messages).await.contains("event: message_stop\n"));
    for (path, text) in [
        ("/v1/embeddings", r#"{"model":"tiny","input":["a","b"]}"#),
        ("/v1/rerank", r#"{"model":"tiny","query":"a","documents":["b","c"]}"#),
        ("/v1/score", r#"{"model":"tiny","text_1":"a","text_2":["b","c"]}"#),
    ] {
        let answer: Value = serde_json::from_str(body(&ask(path, text).await)).unwrap();
        assert_eq!(answer["data"].as_array().map(Vec::len), Some(2), "{path}");
    }
    assert!(ask("/v1/embeddings", r#"{"model":"nope","input":"a"}"#).await.starts_with("HTTP/1.1 404"));
    engine.fault(loadtest::engine::Rule::once(loadtest::engine::Fault::FinAfter { events: 2 }));
    let cut = ask("/v1/responses", r#"{"model":"tiny","input":"Hello","stream":true}"#).await;
    assert!(!crate::raw::is_framed(&cut) && !cut.contains("completed"));
}
