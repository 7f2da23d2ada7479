//! Our bytes against recorded ones: heads line by line, errors byte by byte, events by the order and kind of their fields.

use loadtest::engine::{EngineConfig, EngineHandle, Pace, Persona};
use serde_json::Value;

use crate::raw::{ask, body, events, is_framed, start};

/// A recorded exchange.
struct Recorded {
    method: String,
    path: String,
    request: String,
    answer: String,
}

fn recorded(name: &str) -> Recorded {
    let path = format!("{}/tests/fixtures/{name}.txt", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let (head, answer) = text.split_once("# answer, raw bytes from here\n").unwrap();
    let mut lines = head.lines();
    let (method, path) = lines.next().unwrap().trim_start_matches("# ").trim().split_once(' ').unwrap();
    let request = lines.next().unwrap().trim_start_matches("# request body:").trim().to_owned();
    let answer = answer.split("\n# end:").next().unwrap();
    Recorded { method: method.to_owned(), path: path.trim().to_owned(), request, answer: answer.replace("\r\n", "\n") }
}

impl Recorded {
    fn head(&self) -> &str {
        self.answer.split("\n\n").next().unwrap()
    }

    fn body(&self) -> &str {
        self.answer.split_once("\n\n").unwrap().1
    }

    async fn ask(&self, engine: &EngineHandle, headers: &str) -> String {
        let (method, path, text) = (&self.method, &self.path, &self.request);
        let kind =
            if text.is_empty() { String::new() } else { format!("content-type: application/json\r\ncontent-length: {}\r\n", text.len()) };
        let request = format!("{method} {path} HTTP/1.1\r\nhost: engine\r\nconnection: close\r\n{headers}{kind}\r\n{text}");
        ask(engine.addr(), &request).await
    }
}

fn config() -> EngineConfig {
    let persona = Persona { max_model_len: 2048, ..Persona::named("tiny") };
    EngineConfig { persona, pace: Pace::none(), ..EngineConfig::default() }
}

/// A head without what differs from time to time.
fn stable(head: &str) -> Vec<String> {
    let masked = |line: &str| match line.split_once(": ") {
        Some((name @ ("date" | "content-length"), _)) => name.to_owned(),
        _ => line.to_owned(),
    };
    head.lines().map(masked).collect()
}

/// The order and kinds of fields, with the words that the protocol fixes.
fn shape(value: &Value) -> String {
    match value {
        Value::Object(fields) => {
            let fixed = |name: &str, value: &Value| match (name, value) {
                ("object" | "finish_reason" | "role" | "type" | "owned_by", Value::String(word)) if word != "stop" && word != "length" => {
                    word.clone()
                }
                _ => shape(value),
            };
            let inside: Vec<_> = fields.iter().map(|(name, value)| format!("{name}:{}", fixed(name, value))).collect();
            format!("{{{}}}", inside.join(","))
        }
        Value::Array(items) => format!("[{}]", items.first().map(shape).unwrap_or_default()),
        Value::String(_) => "text".to_owned(),
        Value::Number(_) => "number".to_owned(),
        Value::Bool(_) => "bool".to_owned(),
        Value::Null => "null".to_owned(),
    }
}

/// The shapes of a stream in the order in which they first come.
fn shapes(answer: &str) -> Vec<String> {
    let mut seen = Vec::new();
    for event in events(answer) {
        let shape = serde_json::from_str(&event).map_or(event, |value| shape(&value));
        if !seen.contains(&shape) {
            seen.push(shape);
        }
    }
    seen
}

/// Events have no blanks outside of strings, as the recorded ones.
fn assert_compact(answer: &str) {
    for event in events(answer).iter().filter(|event| *event != "[DONE]") {
        let value: Value = serde_json::from_str(event).unwrap();
        assert_eq!(&value.to_string(), event);
    }
}

async fn check_stream(name: &str, config: EngineConfig, headers: &str) {
    let engine = start(config).await;
    let mut recorded = recorded(name);
    // Parsed answers end by themselves in the recording; ours are longer.
    recorded.request = recorded.request.replace("\"max_tokens\": 90", "\"max_tokens\": 900");
    let answer = recorded.ask(&engine, headers).await;
    assert_eq!(stable(answer.split("\r\n\r\n").next().unwrap()), stable(recorded.head()), "{name}");
    assert!(is_framed(&answer), "{name}");
    assert_compact(&answer);
    let (ours, theirs) = (shapes(&answer), shapes(recorded.body()));
    assert_eq!(ours, theirs, "{name}\n{answer}");
    assert!(answer.ends_with("data: [DONE]\n\n\r\n0\r\n\r\n"), "{name}");
}

async fn check_object(name: &str, config: EngineConfig, headers: &str) {
    let engine = start(config).await;
    let recorded = recorded(name);
    let answer = recorded.ask(&engine, headers).await;
    assert_eq!(stable(answer.split("\r\n\r\n").next().unwrap()), stable(recorded.head()), "{name}");
    let ours: Value = serde_json::from_str(body(&answer)).unwrap();
    let theirs: Value = serde_json::from_str(recorded.body().trim()).unwrap();
    assert_eq!(shape(&ours), shape(&theirs), "{name}");
    assert_eq!(ours.to_string(), body(&answer), "{name}: no blanks");
}

async fn check_bytes(name: &str, config: EngineConfig, headers: &str) {
    let engine = start(config).await;
    let recorded = recorded(name);
    let answer = recorded.ask(&engine, headers).await;
    let head = |text: &str| text.lines().map(|line| if line.starts_with("date: ") { "date" } else { line }.to_owned()).collect::<Vec<_>>();
    assert_eq!(head(answer.split("\r\n\r\n").next().unwrap()), head(recorded.head()), "{name}");
    assert_eq!(body(&answer), recorded.body().trim_end_matches('\n'), "{name}");
}

#[tokio::test]
async fn streams_have_the_recorded_form() {
    for name in [
        "chat-stream",
        "chat-stream-usage",
        "chat-stream-continuous-usage",
        "chat-stream-interval",
        "chat-stream-n2",
        "chat-stream-token-ids",
        "chat-stream-prompt-text",
        "completion-stream",
        "completion-stream-ids",
        "resume-echo",
    ] {
        check_stream(name, config(), "").await;
    }
}

#[tokio::test]
async fn parsers_have_the_recorded_form() {
    let persona = Persona { tool_parser: true, ..config().persona };
    check_stream("tool-stream", EngineConfig { persona, ..config() }, "").await;
    let persona = Persona { thinking: true, reasoning_parser: true, ..config().persona };
    check_stream("reasoning-stream", EngineConfig { persona, ..config() }, "").await;
}

#[tokio::test]
async fn whole_answers_have_the_recorded_form() {
    for name in ["chat-full", "chat-full-token-ids", "models", "unknown-field", "tokenize-continue", "request-id-body"] {
        check_object(name, config(), "").await;
    }
}

#[tokio::test]
async fn refusals_are_the_recorded_bytes() {
    for name in [
        "error-bad-json",
        "error-bad-temperature",
        "error-continue-and-generation",
        "error-empty-messages",
        "error-max-tokens-too-large",
        "error-max-tokens-zero",
        "error-no-messages",
        "error-no-such-path",
        "error-no-tools-parser",
        "error-not-object",
        "error-stream-options-alone",
        "error-unknown-model",
        "error-wrong-method",
        "error-wrong-type",
        "resume-both-flags",
        "resume-only-continue",
        "resume-n-2",
        "health",
        "ping",
        "version",
        "load",
    ] {
        check_bytes(name, config(), "").await;
    }
}

#[tokio::test]
async fn a_key_is_asked_for_in_the_recorded_bytes() {
    let with_key = || EngineConfig { api_key: Some("secret".to_owned()), ..config() };
    check_bytes("key-missing", with_key(), "").await;
    check_bytes("key-wrong", with_key(), "authorization: Bearer other\r\n").await;
    check_object("chat-full", with_key(), "authorization: Bearer secret\r\n").await;
    check_bytes("health", with_key(), "").await;
}

#[tokio::test]
async fn a_users_message_is_continued_as_the_users() {
    let engine = start(config()).await;
    let recorded = recorded("error-continue-user-last");
    let answer: Value = serde_json::from_str(body(&recorded.ask(&engine, "").await)).unwrap();
    let theirs: Value = serde_json::from_str(recorded.body().trim()).unwrap();
    assert_eq!(shape(&answer), shape(&theirs));
    assert_eq!(answer["usage"]["completion_tokens"], 1);
}

#[tokio::test]
async fn answer_ids_come_from_the_request() {
    let engine = start(config()).await;
    let chat = recorded("request-id");
    assert!(chat.ask(&engine, "x-request-id: my-own-id-1\r\n").await.contains(r#"{"id":"chatcmpl-my-own-id-1","#));
    assert!(recorded("request-id-body").ask(&engine, "").await.contains(r#"{"id":"chatcmpl-from-body","#));
    let echoing = EngineConfig { request_id_headers: true, ..config() };
    check_stream_head("request-id-header-on", echoing, "x-request-id: my-own-id-3\r\n").await;
}

async fn check_stream_head(name: &str, config: EngineConfig, headers: &str) {
    let engine = start(config).await;
    let recorded = recorded(name);
    let answer = recorded.ask(&engine, headers).await;
    assert_eq!(stable(answer.split("\r\n\r\n").next().unwrap()), stable(recorded.head()), "{name}");
}

#[tokio::test]
async fn stop_strings_hold_text_back() {
    let engine = start(config()).await;
    let request = r#"{"model":"tiny","messages":[{"role":"user","content":"Write function 5. #kind=code #sentences=1"}],"temperature":0,"stream":true,"stop":["return"]}"#;
    let answer = ask(engine.addr(), &crate::raw::post("/v1/chat/completions", request, "connection: close\r\n")).await;
    let texts: Vec<Value> = events(&answer).iter().filter_map(|event| serde_json::from_str(event).ok()).collect();
    assert_eq!(texts[1]["choices"][0]["delta"]["content"], "");
    let last = &texts[texts.len() - 1]["choices"][0];
    assert_eq!((last["finish_reason"].as_str(), last["stop_reason"].as_str()), (Some("stop"), Some("return")));
    assert!(crate::raw::content(&answer).ends_with("    "));
}

#[tokio::test]
async fn pages_get_cors_headers() {
    let engine = start(config()).await;
    let plain = ask(engine.addr(), "GET /health HTTP/1.1\r\nhost: e\r\norigin: http://page\r\nconnection: close\r\n\r\n").await;
    assert!(plain.contains("vary: Origin\r\naccess-control-allow-origin: *\r\n"), "{plain}");
    let preflight = "OPTIONS /v1/chat/completions HTTP/1.1\r\nhost: e\r\norigin: http://page\r\naccess-control-request-method: POST\r\n\
                     access-control-request-headers: x-mine\r\nconnection: close\r\n\r\n";
    let mut stream = crate::raw::send(engine.addr(), preflight).await;
    let answer = crate::raw::read_until(&mut stream, "\r\n\r\nOK").await;
    assert!(answer.starts_with("HTTP/1.1 200 OK") && answer.contains("access-control-allow-headers: x-mine"), "{answer}");
}

#[tokio::test]
async fn metrics_have_vllms_names() {
    let engine = start(config()).await;
    recorded("chat-full").ask(&engine, "").await;
    let page = ask(engine.addr(), &crate::raw::get("/metrics")).await;
    for line in [
        r#"vllm:num_requests_running{engine="0",model_name="tiny"} 0.0"#,
        r#"vllm:num_requests_waiting{engine="0",model_name="tiny"} 0.0"#,
        r#"vllm:request_success_total{engine="0",finished_reason="length",model_name="tiny"} 1.0"#,
        r#"vllm:generation_tokens_total{engine="0",model_name="tiny"} 40.0"#,
    ] {
        assert!(page.contains(line), "{line} in {page}");
    }
}

#[tokio::test]
async fn tokens_go_both_ways() {
    let engine = start(config()).await;
    let text = "The leader answers. नमस्ते 🚒\n    return";
    let request = serde_json::json!({"model": "tiny", "prompt": text}).to_string();
    let answer = ask(engine.addr(), &crate::raw::post("/tokenize", &request, "connection: close\r\n")).await;
    let tokens = serde_json::from_str::<Value>(body(&answer)).unwrap()["tokens"].clone();
    let back =
        ask(engine.addr(), &crate::raw::post("/detokenize", &serde_json::json!({"tokens": tokens}).to_string(), "connection: close\r\n"))
            .await;
    assert_eq!(serde_json::from_str::<Value>(body(&back)).unwrap()["prompt"], text);
}
