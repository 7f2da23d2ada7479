//! One flat record as a line: a JSON object, or `key=value` words.
//!
//! Owns: quoting. Must not: know fields. Text from clients (paths, ids) is quoted so that it cannot forge a line.

use config::LogFormat;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};

/// A value of a record.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Value<'a> {
    Text(&'a str),
    Number(u64),
    /// Printed with three digits.
    Millis(f64),
    Flag(bool),
}

/// Builds a line.
#[derive(Debug)]
pub(super) struct Line {
    format: LogFormat,
    out: Vec<u8>,
}

impl Line {
    /// Begins with the time and the words every line of the log has.
    pub(super) fn begin(format: LogFormat, target: &str) -> Self {
        let mut line = Self { format, out: Vec::with_capacity(512) };
        let now = now();
        if format == LogFormat::Json {
            line.out.push(b'{');
            line.pair("timestamp", Value::Text(&now));
            line.pair("level", Value::Text("INFO"));
            line.pair("target", Value::Text(target));
        } else {
            line.out.extend_from_slice(format!("{now}  INFO {target}:").as_bytes());
        }
        line
    }

    /// Adds one field.
    pub(super) fn pair(&mut self, key: &str, value: Value<'_>) {
        match self.format {
            LogFormat::Json => {
                if self.out.last() != Some(&b'{') {
                    self.out.push(b',');
                }
                self.quoted(key);
                self.out.push(b':');
                self.value(value);
            }
            LogFormat::Text => {
                self.out.push(b' ');
                self.out.extend_from_slice(key.as_bytes());
                self.out.push(b'=');
                self.value(value);
            }
        }
    }

    /// The finished line with its line end.
    pub(super) fn end(mut self) -> Vec<u8> {
        self.out.extend_from_slice(if self.format == LogFormat::Json { b"}\n" } else { b"\n" });
        self.out
    }

    fn value(&mut self, value: Value<'_>) {
        match value {
            Value::Text(text) if self.format == LogFormat::Text && plain(text) => self.out.extend_from_slice(text.as_bytes()),
            Value::Text(text) => self.quoted(text),
            Value::Number(number) => self.out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes()),
            Value::Millis(millis) => self.out.extend_from_slice(format!("{millis:.3}").as_bytes()),
            Value::Flag(flag) => self.out.extend_from_slice(if flag { b"true" } else { b"false" }),
        }
    }

    // Writing a string into a Vec does not fail.
    fn quoted(&mut self, text: &str) {
        drop(serde_json::to_writer(&mut self.out, text));
    }
}

fn plain(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_graphic() && b != b'"' && b != b'=')
}

fn now() -> String {
    let mut text = String::with_capacity(32);
    // A clock that cannot be printed leaves the field empty.
    let _ = SystemTime.format_time(&mut Writer::new(&mut text));
    text
}
