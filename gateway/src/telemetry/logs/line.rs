//! One flat record as a line: a JSON object, or `key=value` words.
//!
//! Owns: quoting. Must not: know fields. Text from clients (paths, ids) is quoted so that it cannot forge a line. One line is made for each request,
//! so nothing here goes through a formatter that could be written once: keys come ready ([`Key`]), the time's seconds change once a second.

use std::cell::RefCell;
use std::io::Write;
use std::net::IpAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use config::LogFormat;

/// `2026-12-01T00:34:45`
const SECONDS: usize = 19;

thread_local! {
    /// The second that was printed last, and its text.
    static PRINTED: RefCell<(u64, [u8; SECONDS])> = const { RefCell::new((u64::MAX, [0; SECONDS])) };
}

/// A value of a record.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Value<'a> {
    Text(&'a str),
    /// A word of ours: it needs no quoting in text and no escapes in JSON.
    Word(&'static str),
    Number(u64),
    /// Printed as milliseconds with three digits.
    Millis(Duration),
    Flag(bool),
    Address(IpAddr),
}

/// A field's name with all that stands between the value before it and its own.
#[derive(Debug)]
pub(super) struct Key(Box<[u8]>);

impl Key {
    /// `name` must be a plain word.
    pub(super) fn new(format: LogFormat, name: &str) -> Self {
        let text = if format == LogFormat::Json { format!(",\"{name}\":") } else { format!(" {name}=") };
        Self(text.into_bytes().into())
    }
}

/// Builds a line in a buffer that was used before.
#[derive(Debug)]
pub(super) struct Line<'a> {
    format: LogFormat,
    out: &'a mut Vec<u8>,
}

impl<'a> Line<'a> {
    /// Begins with the time and the words every line of the log has; what was in `out` is gone. `target` must be a plain word.
    pub(super) fn begin(format: LogFormat, target: &str, out: &'a mut Vec<u8>) -> Self {
        out.clear();
        let (before, between, after): (&[u8], &[u8], &[u8]) = if format == LogFormat::Json {
            (b"{\"timestamp\":\"", b"\",\"level\":\"INFO\",\"target\":\"", b"\"")
        } else {
            (b"", b"  INFO ", b":")
        };
        out.extend_from_slice(before);
        // A clock before 1970 is printed as 1970.
        push_time(out, SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default());
        out.extend_from_slice(between);
        out.extend_from_slice(target.as_bytes());
        out.extend_from_slice(after);
        Self { format, out }
    }

    /// Adds one field.
    pub(super) fn pair(&mut self, key: &Key, value: Value<'_>) {
        self.out.extend_from_slice(&key.0);
        match value {
            Value::Word(word) if self.format == LogFormat::Json => self.between_quotes(word),
            Value::Word(word) => self.out.extend_from_slice(word.as_bytes()),
            Value::Text(text) if self.format == LogFormat::Text && plain(text) => self.out.extend_from_slice(text.as_bytes()),
            Value::Text(text) => self.quoted(text),
            Value::Number(number) => self.number(number),
            Value::Millis(duration) => self.millis(duration),
            Value::Flag(flag) => self.out.extend_from_slice(if flag { b"true" } else { b"false" }),
            Value::Address(address) => self.address(address),
        }
    }

    /// Ends it with its line end.
    pub(super) fn end(self) {
        self.out.extend_from_slice(if self.format == LogFormat::Json { b"}\n" } else { b"\n" });
    }

    fn number(&mut self, number: u64) {
        self.out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
    }

    fn millis(&mut self, duration: Duration) {
        self.number(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX));
        self.out.push(b'.');
        push_digits::<3>(self.out, duration.subsec_micros() % 1000);
    }

    fn address(&mut self, address: IpAddr) {
        let quote: &[u8] = if self.format == LogFormat::Json { b"\"" } else { b"" };
        self.out.extend_from_slice(quote);
        match address {
            IpAddr::V4(v4) => {
                for (nth, octet) in v4.octets().into_iter().enumerate() {
                    if nth > 0 {
                        self.out.push(b'.');
                    }
                    self.number(octet.into());
                }
            }
            // Writing into a Vec does not fail.
            IpAddr::V6(v6) => drop(write!(self.out, "{v6}")),
        }
        self.out.extend_from_slice(quote);
    }

    fn quoted(&mut self, text: &str) {
        // No early end: so it is done for many bytes at once.
        let special = text.bytes().fold(false, |special, b| special | (b < b' ') | (b == b'"') | (b == b'\\'));
        if special {
            // Writing a string into a Vec does not fail.
            drop(serde_json::to_writer(&mut *self.out, text));
        } else {
            self.between_quotes(text);
        }
    }

    fn between_quotes(&mut self, text: &str) {
        self.out.push(b'"');
        self.out.extend_from_slice(text.as_bytes());
        self.out.push(b'"');
    }
}

fn plain(text: &str) -> bool {
    !text.is_empty() && text.bytes().fold(true, |plain, b| plain & b.is_ascii_graphic() & (b != b'"') & (b != b'='))
}

/// The last decimal digits of `number`.
fn push_digits<const COUNT: usize>(out: &mut Vec<u8>, mut number: u32) {
    let mut digits = [b'0'; COUNT];
    for digit in digits.iter_mut().rev() {
        *digit += u8::try_from(number % 10).unwrap_or_default();
        number /= 10;
    }
    out.extend_from_slice(&digits);
}

/// `at`, since 1970, as the other lines of the log have it: RFC 3339 in UTC with microseconds.
fn push_time(out: &mut Vec<u8>, at: Duration) {
    PRINTED.with_borrow_mut(|(second, text)| {
        if *second != at.as_secs() {
            (*second, *text) = (at.as_secs(), printed(at.as_secs()));
        }
        out.extend_from_slice(text);
    });
    out.push(b'.');
    push_digits::<6>(out, at.subsec_micros());
    out.push(b'Z');
}

/// Zeros for a clock that is out of range.
fn printed(second: u64) -> [u8; SECONDS] {
    let time = i64::try_from(second).ok().and_then(|second| jiff::Timestamp::from_second(second).ok()).unwrap_or_default();
    time.to_string().as_bytes().first_chunk().copied().unwrap_or([b'0'; SECONDS])
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use tracing_subscriber::fmt::format::Writer;
    use tracing_subscriber::fmt::time::{FormatTime, SystemTime as SystemTimeOfOthers};

    use super::*;

    fn line(format: LogFormat, value: Value<'_>) -> String {
        let mut out = b"what was there before".to_vec();
        let mut line = Line::begin(format, "t", &mut out);
        line.pair(&Key::new(format, "v"), value);
        line.end();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn values_are_valid_json() {
        let check = |value: Value<'_>, want: &str| {
            let line = line(LogFormat::Json, value);
            assert!(line.ends_with(&format!("\"v\":{want}}}\n")), "{line}");
            serde_json::from_str::<serde_json::Value>(&line).unwrap();
        };
        check(Value::Millis(Duration::from_nanos(1_234_999)), "1.234");
        check(Value::Millis(Duration::from_micros(7)), "0.007");
        check(Value::Millis(Duration::from_secs(100)), "100000.000");
        check(Value::Text("plain \u{e9}"), "\"plain \u{e9}\"");
        check(Value::Text("a\"b\\c\nd"), r#""a\"b\\c\nd""#);
        check(Value::Word("ok"), "\"ok\"");
        check(Value::Address(Ipv4Addr::new(10, 0, 255, 1).into()), "\"10.0.255.1\"");
        check(Value::Address(Ipv6Addr::LOCALHOST.into()), "\"::1\"");
    }

    #[test]
    fn values_are_words_of_text() {
        let check = |value: Value<'_>, want: &str| {
            let line = line(LogFormat::Text, value);
            assert!(line.ends_with(&format!("  INFO t: v={want}\n")), "{line}");
        };
        check(Value::Text("plain"), "plain");
        check(Value::Text("a b"), "\"a b\"");
        check(Value::Text("a=b"), "\"a=b\"");
        check(Value::Text(""), "\"\"");
        check(Value::Word("ok"), "ok");
        check(Value::Number(7), "7");
        check(Value::Address(Ipv4Addr::LOCALHOST.into()), "127.0.0.1");
    }

    #[test]
    fn the_time_follows_the_second() {
        let check = |nanos: u64, want: &str| {
            let mut out = Vec::new();
            push_time(&mut out, Duration::from_nanos(nanos));
            assert_eq!(String::from_utf8(out).unwrap(), want);
        };
        check(1_796_085_885_509_443_999, "2026-12-01T00:44:45.509443Z");
        check(1_796_085_885_000_000_000, "2026-12-01T00:44:45.000000Z");
        check(1_796_085_886_000_007_000, "2026-12-01T00:44:46.000007Z");
        check(1_709_251_199_999_999_999, "2024-02-29T23:59:59.999999Z");
        check(0, "1970-01-01T00:00:00.000000Z");
    }

    #[test]
    fn the_time_is_that_of_the_other_lines() {
        let other = || {
            let mut text = String::new();
            SystemTimeOfOthers.format_time(&mut Writer::new(&mut text)).unwrap();
            text
        };
        let before = other();
        let line = line(LogFormat::Text, Value::Number(1));
        let ours = line.split(' ').next().unwrap();
        // Texts of one length order as the times do.
        assert!(*before <= *ours && *ours <= *other() && before.len() == ours.len(), "{before} {ours}");
    }
}
