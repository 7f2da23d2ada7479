//! One flat record as a line: a JSON object, or `key=value` words.
//!
//! Owns: quoting. Must not: know fields. Text from clients (paths, ids) is quoted so that it cannot forge a line.

use std::time::Duration;

use config::LogFormat;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};

/// A value of a record.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Value<'a> {
    Text(&'a str),
    Number(u64),
    /// Printed as milliseconds with three digits.
    Millis(Duration),
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
            Value::Millis(duration) => self.millis(duration.as_micros()),
            Value::Flag(flag) => self.out.extend_from_slice(if flag { b"true" } else { b"false" }),
        }
    }

    fn millis(&mut self, micros: u128) {
        self.out.extend_from_slice(itoa::Buffer::new().format(micros / 1000).as_bytes());
        let digit = |power| b'0' + u8::try_from(micros / power % 10).unwrap_or_default();
        self.out.extend_from_slice(&[b'.', digit(100), digit(10), digit(1)]);
    }

    fn quoted(&mut self, text: &str) {
        if text.bytes().all(|b| b >= b' ' && b != b'"' && b != b'\\') {
            self.out.push(b'"');
            self.out.extend_from_slice(text.as_bytes());
            self.out.push(b'"');
        } else {
            // Writing a string into a Vec does not fail.
            drop(serde_json::to_writer(&mut self.out, text));
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_valid_json() {
        let check = |value: Value<'_>, want: &str| {
            let mut line = Line::begin(LogFormat::Json, "t");
            line.pair("v", value);
            let line = String::from_utf8(line.end()).unwrap();
            assert!(line.ends_with(&format!("\"v\":{want}}}\n")), "{line}");
            serde_json::from_str::<serde_json::Value>(&line).unwrap();
        };
        check(Value::Millis(Duration::from_nanos(1_234_999)), "1.234");
        check(Value::Millis(Duration::from_micros(7)), "0.007");
        check(Value::Millis(Duration::from_secs(100)), "100000.000");
        check(Value::Text("plain \u{e9}"), "\"plain \u{e9}\"");
        check(Value::Text("a\"b\\c\nd"), r#""a\"b\\c\nd""#);
    }
}
