//! Start, hang, and all the ways to die.

use std::time::Duration;

use loadtest::engine::{Death, Ending, Engine, EngineConfig, EngineHandle, Hang, Pace, expected_text};
use serde_json::{Value, json};
use tokio::net::TcpStream;

use crate::raw::{ask, body, chat, content, events, eventually, get, is_framed, post_chat, read_all, read_until, send, start};

/// Runs until something ends it.
fn endless() -> Value {
    json!({"stream": true, "ignore_eos": true})
}

async fn mortal(death: Death) -> EngineHandle {
    let pace = Pace::steady(Duration::ZERO, Duration::from_millis(1));
    start(EngineConfig { death, pace, ..EngineConfig::fast("tiny") }).await
}

async fn running(engine: &EngineHandle, request: Value) -> TcpStream {
    let mut stream = send(engine.addr(), &post_chat(request)).await;
    read_until(&mut stream, "\"delta\":{\"content\":").await;
    stream
}

async fn refused(engine: &EngineHandle) {
    let deadline = tokio::time::Instant::now() + crate::raw::DEADLINE;
    while TcpStream::connect(engine.addr()).await.is_ok() {
        assert!(tokio::time::Instant::now() < deadline, "the port goes on accepting");
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn the_port_refuses_until_the_start_is_over() {
    let pace = Pace { startup: Duration::from_secs(3600), ..Pace::none() };
    let engine = Engine::start(EngineConfig { pace, ..EngineConfig::fast("tiny") }).await.unwrap();
    refused(&engine).await;
    engine.sigterm();
    engine.exited().await;
}

#[tokio::test]
async fn a_hung_engine_says_that_it_is_healthy_and_goes_on_later() {
    let engine = start(EngineConfig::fast("tiny")).await;
    engine.hang(Hang::Engine);
    let mut stream = send(engine.addr(), &post_chat(json!({"stream": true}))).await;
    read_until(&mut stream, "\r\n\r\n").await;
    assert!(ask(engine.addr(), &get("/health")).await.starts_with("HTTP/1.1 200"));
    engine.hang(Hang::None);
    let (rest, _) = read_all(&mut stream).await;
    assert_eq!(content(&rest), expected_text(&chat(json!({})), engine.persona()));
}

#[tokio::test]
async fn a_sigterm_ends_streams_in_one_of_three_ways() {
    let engine = mortal(Death { ending: Some(Ending::Abort), ..Death::quick() }).await;
    let mut stream = running(&engine, endless()).await;
    engine.sigterm();
    let (abort, _) = read_all(&mut stream).await;
    assert!(abort.contains(r#""finish_reason":"abort""#) && abort.ends_with("data: [DONE]\n\n\r\n0\r\n\r\n"));
    engine.exited().await;

    let engine = mortal(Death { ending: Some(Ending::Error), ..Death::quick() }).await;
    let mut stream = running(&engine, endless()).await;
    engine.sigterm();
    let (error, _) = read_all(&mut stream).await;
    assert!(error.contains(r#"data: {"error": {"message": "EngineCore"#) && error.ends_with("data: [DONE]\n\n\r\n0\r\n\r\n"));

    let engine = mortal(Death { ending: Some(Ending::Silence), ..Death::quick() }).await;
    let stream = running(&engine, endless()).await;
    engine.sigterm();
    refused(&engine).await;
    assert_eq!(engine.stats().connections, 1, "the stream's connection stays open");
    assert!(!engine.has_exited());
    drop(stream);
    engine.exited().await;
}

#[tokio::test]
async fn a_drain_lets_streams_end_and_refuses_new_ones() {
    let death = Death { shutdown_timeout: Duration::from_secs(60), ..Death::quick() };
    let engine = mortal(death).await;
    let request = json!({"stream": true, "max_tokens": 300});
    let mut stream = running(&engine, request).await;
    engine.sigterm();
    let mut new = String::new();
    while !new.starts_with("HTTP/1.1 500") {
        new = ask(engine.addr(), &post_chat(json!({"max_tokens": 1}))).await;
    }
    assert!(body(&new).contains("cannot schedule new futures after shutdown"));
    assert!(ask(engine.addr(), &get("/health")).await.starts_with("HTTP/1.1 200"));
    let (rest, _) = read_all(&mut stream).await;
    assert!(rest.ends_with("data: [DONE]\n\n\r\n0\r\n\r\n") && !rest.contains("abort"));
    engine.exited().await;
}

#[tokio::test]
async fn a_drain_that_runs_out_of_time_is_silent() {
    let death = Death { shutdown_timeout: Duration::from_millis(30), ..Death::quick() };
    let engine = mortal(death).await;
    let stream = running(&engine, endless()).await;
    engine.sigterm();
    refused(&engine).await;
    assert!(!engine.has_exited());
    drop(stream);
    engine.exited().await;
}

#[tokio::test]
async fn a_kill_is_a_bare_cut() {
    let engine = mortal(Death::quick()).await;
    let mut stream = running(&engine, endless()).await;
    let mut whole = send(engine.addr(), &post_chat(json!({"ignore_eos": true, "max_tokens": 9000}))).await;
    eventually("both run", || engine.stats().running == 2).await;
    engine.kill();
    let (rest, ended) = read_all(&mut stream).await;
    assert!(ended.is_ok() && !rest.contains("[DONE]") && !rest.contains("error"));
    assert_eq!(read_all(&mut whole).await.0, "");
    refused(&engine).await;
    engine.exited().await;
}

#[tokio::test]
async fn a_dead_engine_process_is_an_error_event() {
    let engine = mortal(Death { failing: Duration::from_secs(3600), ..Death::quick() }).await;
    let mut stream = running(&engine, endless()).await;
    engine.kill_core();
    let (rest, _) = read_all(&mut stream).await;
    assert!(rest.contains(r#"{"error": {"message": "EngineCore"#));
    assert!(ask(engine.addr(), &get("/health")).await.starts_with("HTTP/1.1 503"));
    let first = ask(engine.addr(), &post_chat(json!({"stream": true}))).await;
    assert!(is_framed(&first) && events(&first)[0].starts_with(r#"{"error": "#));
    assert!(ask(engine.addr(), &post_chat(json!({}))).await.starts_with("HTTP/1.1 500"));
}

#[tokio::test]
async fn running_requests_can_be_reset_while_the_engine_goes_on() {
    let engine = mortal(Death::quick()).await;
    let mut stream = running(&engine, endless()).await;
    engine.reset_running();
    assert!(read_all(&mut stream).await.1.is_err());
    assert!(ask(engine.addr(), &post_chat(json!({"max_tokens": 2}))).await.starts_with("HTTP/1.1 200"));
    engine.refuse(Some(500));
    assert!(ask(engine.addr(), &post_chat(json!({}))).await.starts_with("HTTP/1.1 500"));
    engine.refuse(None);
    assert!(ask(engine.addr(), &post_chat(json!({"max_tokens": 2}))).await.starts_with("HTTP/1.1 200"));
}

#[tokio::test]
async fn deeper_hangs_give_not_one_byte_and_go_on_later() {
    let engine = start(EngineConfig::fast("tiny")).await;
    for (hang, health_answers) in [(Hang::Silent, true), (Hang::Process, false)] {
        engine.hang(hang);
        let before = engine.stats().requests;
        let mut stream = send(engine.addr(), &post_chat(json!({"stream": true}))).await;
        let mut health = send(engine.addr(), &get("/health")).await;
        eventually("both were read", || engine.stats().requests == before + 2).await;
        if health_answers {
            assert!(read_all(&mut health).await.0.starts_with("HTTP/1.1 200"));
        }
        let nothing = stream.try_read(&mut [0; 16]);
        assert_eq!(nothing.unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
        engine.hang(Hang::None);
        assert!(content(&read_all(&mut stream).await.0).len() > 10);
        if !health_answers {
            assert!(read_all(&mut health).await.0.starts_with("HTTP/1.1 200"));
        }
    }
}
