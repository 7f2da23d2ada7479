//! What the tests share: settings, and the client's view of a stream.

use std::path::PathBuf;
use std::time::Duration;

use config::ResumeSettings;
use serde_json::Value;

pub(super) fn settings(token_ids: bool) -> ResumeSettings {
    ResumeSettings {
        enabled: true,
        stall: Duration::from_secs(1),
        max_moves: 3,
        text_bytes: 65536,
        request_bytes: 1 << 20,
        total_bytes: 1 << 28,
        token_ids,
        comment: false,
    }
}

/// What the client has got at the end.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Got {
    pub(super) content: String,
    pub(super) reasoning: String,
    pub(super) finish: Option<String>,
    pub(super) usage: Option<Value>,
    pub(super) ids: Vec<String>,
    pub(super) roles: usize,
    pub(super) done: usize,
}

pub(super) fn read(bytes: &[u8]) -> Got {
    let mut got = Got::default();
    for event in std::str::from_utf8(bytes).unwrap().split("\n\n").filter(|event| !event.is_empty()) {
        let data = event.strip_prefix("data: ").unwrap();
        if data == "[DONE]" {
            got.done += 1;
            continue;
        }
        assert_eq!(got.done, 0, "nothing behind [DONE]");
        let event: Value = serde_json::from_str(data).unwrap();
        let name = format!("{} {} {} {}", event["id"], event["created"], event["model"], event["object"]);
        if !got.ids.contains(&name) {
            got.ids.push(name);
        }
        assert!(event["prompt_token_ids"].is_null());
        if event["usage"].is_object() {
            let mut usage = event["usage"].clone();
            usage.as_object_mut().unwrap().remove("completion_tokens_details");
            got.usage = Some(usage);
        }
        for choice in event["choices"].as_array().unwrap() {
            assert!(choice["token_ids"].is_null());
            let delta = if choice["delta"].is_object() { &choice["delta"] } else { choice };
            got.roles += usize::from(delta["role"].is_string());
            got.content.push_str(delta["content"].as_str().or(delta["text"].as_str()).unwrap_or_default());
            got.reasoning.push_str(delta["reasoning"].as_str().unwrap_or_default());
            if let Some(finish) = choice["finish_reason"].as_str() {
                assert_eq!(got.finish, None, "one finish");
                got.finish = Some(finish.into());
            }
        }
    }
    got
}

/// The events of a recorded answer, each with its blank line; of a shortened record those that are whole.
pub(super) fn transcript(name: &str) -> Vec<String> {
    let text = recorded(name);
    let whole = |line: &&str| (line.starts_with("data: ") && (line.ends_with('}') || line.ends_with(']'))) || line.starts_with(": ");
    text.lines().filter(whole).map(|line| format!("{line}\n\n")).collect()
}

/// The JSON body of a recorded answer that is no stream.
pub(super) fn transcript_body(name: &str) -> String {
    recorded(name).lines().rfind(|line| line.starts_with('{') && line.ends_with('}')).unwrap().to_owned()
}

/// The body of the request of a recorded answer.
pub(super) fn transcript_request(name: &str) -> String {
    recorded(name).lines().find_map(|line| line.strip_prefix("# request body: ")).unwrap().to_owned()
}

fn recorded(name: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/engine").join(name).with_extension("txt");
    std::fs::read_to_string(path).unwrap()
}
