//! The access line: one line a request, written when it has ended.
//!
//! Owns: the fields, their order, and which lines are written (sampling). Must not: hold a prompt, a completion, a key, a header or a
//! query string. Errors and moved requests are always written; a share of the rest. Next step: `LineWriter`.

use std::cell::RefCell;
use std::net::IpAddr;
use std::time::Duration;

use config::{ACCESS_FIELDS, LogFormat, LogSettings};
use rand::Rng;

use super::line::{Key, Line, Value};
use super::writer::LineWriter;
use crate::telemetry::labels::{Ending, Label, Outcome, Route};

thread_local! {
    /// The line in the making.
    static LINE: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Longest text of one field, bytes; longer ones are cut at a character.
const TEXT_BYTES: usize = 256;

/// What is known of a request at its end. Empty texts and `None` are left out of the line.
#[derive(Debug, Clone, Copy, Default)]
pub struct AccessRecord<'a> {
    /// `x-request-id`.
    pub request_id: &'a str,
    /// 32 hexadecimal digits.
    pub trace_id: &'a str,
    /// Peer address of the connection.
    pub client: Option<IpAddr>,
    /// HTTP method.
    pub method: &'a str,
    /// Path without its query.
    pub path: &'a str,
    /// `HTTP/1.0`, `HTTP/1.1`, `HTTP/2.0`.
    pub protocol: &'a str,
    /// Which routed path.
    pub route: Option<Route>,
    /// Model name of the pool; empty when the model is none.
    pub pool: &'a str,
    /// Model name that the client sent.
    pub model: &'a str,
    /// Key of the last group that was tried.
    pub group: &'a str,
    /// HTTP status that the client got; `None` when it left before.
    pub status: Option<u16>,
    /// How it ended.
    pub outcome: Option<Outcome>,
    /// Code of a refusal, or why a stream ended in an error event.
    pub reason: &'a str,
    /// How the stream ended.
    pub ending: Option<Ending>,
    /// The client asked for a stream.
    pub stream: Option<bool>,
    /// Tries at leaders.
    pub attempts: u32,
    /// Times that the answer moved to another leader.
    pub resumes: u32,
    /// Time in the queue.
    pub queue: Option<Duration>,
    /// To the first byte of the answer.
    pub first_byte: Option<Duration>,
    /// To the first `data:` event.
    pub first_token: Option<Duration>,
    /// Whole time.
    pub duration: Option<Duration>,
    /// `usage.prompt_tokens`.
    pub prompt_tokens: Option<u64>,
    /// `usage.completion_tokens`.
    pub completion_tokens: Option<u64>,
    /// Cached prompt tokens.
    pub cached_tokens: Option<u64>,
    /// Bytes of the request's body.
    pub request_bytes: Option<u64>,
    /// Bytes of the answer's body.
    pub response_bytes: Option<u64>,
}

/// Reads one field; `None`: it is left out.
type Getter = for<'a> fn(&AccessRecord<'a>) -> Option<Value<'a>>;

/// All of `config::ACCESS_FIELDS`.
const GETTERS: &[(&str, Getter)] = &[
    ("request_id", |r| text(r.request_id)),
    ("trace_id", |r| text(r.trace_id)),
    ("client", |r| r.client.map(Value::Address)),
    ("method", |r| text(r.method)),
    ("path", |r| text(r.path)),
    ("protocol", |r| text(r.protocol)),
    ("route", |r| word(r.route)),
    ("pool", |r| text(r.pool)),
    ("model", |r| text(r.model)),
    ("group", |r| text(r.group)),
    ("outcome", |r| word(r.outcome)),
    ("reason", |r| text(r.reason)),
    ("ending", |r| word(r.ending)),
    ("stream", |r| r.stream.map(Value::Flag)),
    ("status", |r| r.status.map(|status| Value::Number(u64::from(status)))),
    ("attempts", |r| Some(Value::Number(u64::from(r.attempts)))),
    ("resumes", |r| (r.resumes > 0).then_some(Value::Number(u64::from(r.resumes)))),
    ("queue_ms", |r| r.queue.map(Value::Millis)),
    ("first_byte_ms", |r| r.first_byte.map(Value::Millis)),
    ("first_token_ms", |r| r.first_token.map(Value::Millis)),
    ("duration_ms", |r| r.duration.map(Value::Millis)),
    ("prompt_tokens", |r| r.prompt_tokens.map(Value::Number)),
    ("completion_tokens", |r| r.completion_tokens.map(Value::Number)),
    ("cached_tokens", |r| r.cached_tokens.map(Value::Number)),
    ("request_bytes", |r| r.request_bytes.map(Value::Number)),
    ("response_bytes", |r| r.response_bytes.map(Value::Number)),
];

impl AccessRecord<'_> {
    /// Written whatever the sample says: something went wrong or moved.
    fn notable(&self) -> bool {
        self.resumes > 0 || !matches!(self.outcome, Some(Outcome::Ok | Outcome::Cancelled))
    }
}

/// Writes access lines as the settings say.
#[derive(Debug)]
pub struct AccessLog {
    on: bool,
    sample: f64,
    fields: Vec<(Key, Getter)>,
    format: LogFormat,
    writer: LineWriter,
}

impl AccessLog {
    pub(super) fn new(settings: &LogSettings, format: LogFormat, writer: LineWriter) -> Self {
        let all = ACCESS_FIELDS.iter().map(|name| (*name).to_owned()).collect();
        let names: &Vec<String> = if settings.access_fields.is_empty() { &all } else { &settings.access_fields };
        let getters = names.iter().filter_map(|name| GETTERS.iter().find(|(known, _)| known == name));
        let fields = getters.map(|(name, get)| (Key::new(format, name), *get)).collect();
        Self { on: settings.access, sample: settings.access_sample, fields, format, writer }
    }

    /// One request has ended.
    pub fn write(&self, record: &AccessRecord<'_>) {
        let kept = || record.notable() || self.sample >= 1.0 || rand::rng().random::<f64>() < self.sample;
        if !self.on || !kept() {
            return;
        }
        LINE.with_borrow_mut(|out| {
            let mut line = Line::begin(self.format, "access", out);
            for (key, get) in &self.fields {
                if let Some(value) = get(record) {
                    line.pair(key, value);
                }
            }
            line.end();
            self.writer.line(out);
        });
    }
}

fn text(text: &str) -> Option<Value<'_>> {
    let text = &text[..text.floor_char_boundary(TEXT_BYTES)];
    (!text.is_empty()).then_some(Value::Text(text))
}

fn word<L: Label>(value: Option<L>) -> Option<Value<'static>> {
    value.map(|v| Value::Word(v.as_str()))
}

#[cfg(test)]
mod tests {
    use std::io::{self, Write};
    use std::sync::{Arc, Mutex};

    use prometheus::IntCounter;

    use super::*;

    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn written(settings: &LogSettings, format: LogFormat, records: &[AccessRecord<'_>]) -> String {
        let kept = Kept::default();
        let writer = LineWriter::start(kept.clone(), IntCounter::new("d", "d").unwrap()).unwrap();
        let log = AccessLog::new(settings, format, writer.clone());
        for record in records {
            log.write(record);
        }
        assert!(writer.flush(Duration::from_secs(10)));
        String::from_utf8(kept.0.lock().unwrap().clone()).unwrap()
    }

    fn settings(sample: f64, fields: &[&str]) -> LogSettings {
        LogSettings {
            format: LogFormat::Json,
            level: "info".to_owned(),
            access: true,
            access_sample: sample,
            access_fields: fields.iter().map(|f| (*f).to_owned()).collect(),
        }
    }

    #[test]
    fn every_field_is_printed_by_its_name() {
        let record = AccessRecord {
            request_id: "r",
            trace_id: "t",
            client: Some([127, 0, 0, 1].into()),
            method: "POST",
            path: "/v1/completions",
            protocol: "HTTP/1.1",
            route: Some(Route::Completions),
            pool: "m",
            model: "m",
            group: "ns/d/r/0",
            status: Some(200),
            outcome: Some(Outcome::Ok),
            reason: "x",
            ending: Some(Ending::Complete),
            stream: Some(true),
            attempts: 2,
            resumes: 1,
            queue: Some(Duration::from_micros(1500)),
            first_byte: Some(Duration::ZERO),
            first_token: Some(Duration::ZERO),
            duration: Some(Duration::from_secs(2)),
            prompt_tokens: Some(3),
            completion_tokens: Some(4),
            cached_tokens: Some(0),
            request_bytes: Some(10),
            response_bytes: Some(20),
        };
        let line = written(&settings(1.0, &[]), LogFormat::Json, &[record]);
        let value: serde_json::Value = serde_json::from_str(&line).unwrap();
        for field in ACCESS_FIELDS {
            assert!(value.get(field).is_some(), "{field} is missing in {line}");
        }
        assert_eq!(value["queue_ms"], 1.5);
    }

    #[test]
    fn a_client_cannot_forge_a_line() {
        let record = AccessRecord { path: "/x\n{\"a\":1} b=\"c", outcome: Some(Outcome::Refused), ..AccessRecord::default() };
        for format in [LogFormat::Json, LogFormat::Text] {
            let line = written(&settings(1.0, &["path"]), format, &[record]);
            assert_eq!(line.lines().count(), 1, "{line}");
        }
    }

    #[test]
    fn sampling_keeps_what_went_wrong() {
        let fine = AccessRecord { request_id: "fine", outcome: Some(Outcome::Ok), ..AccessRecord::default() };
        let moved = AccessRecord { request_id: "moved", resumes: 1, ..fine };
        let wrong = AccessRecord { request_id: "wrong", outcome: Some(Outcome::StreamError), ..AccessRecord::default() };
        let text = written(&settings(0.0, &["request_id"]), LogFormat::Text, &[fine, moved, wrong]);
        assert!(!text.contains("fine") && text.contains("moved") && text.contains("wrong"), "{text}");
    }
}
