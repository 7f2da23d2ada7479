//! A reader of server-sent events, by the rules of WHATWG HTML 9.2.5 and 9.2.6.
//!
//! Written again on purpose, without a look at the gateway's: the two must be able to disagree. Takes bytes as they come
//! and gives whole events and comments; never looks into the data. Bounded: an event longer than [`MAX_EVENT`] is an error.

/// Longest event in bytes.
pub const MAX_EVENT: usize = 4 << 20;

/// What a stream consists of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item {
    /// A dispatched event.
    Event {
        /// The `event` field; empty if there was none.
        name: String,
        /// The `data` lines, joined by LF.
        data: String,
    },
    /// A line that starts with a colon, without it.
    Comment(String),
}

/// The bytes are no stream of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SseError {
    /// A line or an event longer than [`MAX_EVENT`].
    #[error("an event is longer than {MAX_EVENT} bytes")]
    TooLong,
    /// A line is no UTF-8.
    #[error("an event is no UTF-8")]
    NotUtf8,
}

/// Reads one stream.
#[derive(Debug, Default)]
pub struct SseReader {
    line: Vec<u8>,
    data: String,
    has_data: bool,
    name: String,
    /// The last byte was a CR: an LF behind it belongs to it.
    after_cr: bool,
    /// The first line was seen, so a BOM is no longer dropped.
    begun: bool,
    last_id: String,
    retry: Option<u64>,
}

impl SseReader {
    /// Starts a stream.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes bytes and appends what is complete to `out`.
    ///
    /// # Errors
    ///
    /// For bytes that are no UTF-8 and events without a bound. The reader must not be used further.
    pub fn push(&mut self, bytes: &[u8], out: &mut Vec<Item>) -> Result<(), SseError> {
        for &byte in bytes {
            let follows_cr = std::mem::take(&mut self.after_cr);
            match byte {
                b'\n' if follows_cr => {}
                b'\n' | b'\r' => {
                    self.after_cr = byte == b'\r';
                    self.end_line(out)?;
                }
                _ => {
                    if self.line.len() + self.data.len() >= MAX_EVENT {
                        return Err(SseError::TooLong);
                    }
                    self.line.push(byte);
                }
            }
        }
        Ok(())
    }

    /// True if the end of the stream would throw something away: it does not end behind a blank line.
    pub fn has_pending(&self) -> bool {
        !self.line.is_empty() || self.has_data || !self.name.is_empty()
    }

    /// The last `id` field.
    pub fn last_id(&self) -> &str {
        &self.last_id
    }

    /// The last valid `retry` field, in milliseconds.
    pub fn retry(&self) -> Option<u64> {
        self.retry
    }

    fn end_line(&mut self, out: &mut Vec<Item>) -> Result<(), SseError> {
        let line = std::mem::take(&mut self.line);
        let mut line = std::str::from_utf8(&line).map_err(|_| SseError::NotUtf8)?;
        if !std::mem::replace(&mut self.begun, true) {
            line = line.strip_prefix('\u{feff}').unwrap_or(line);
        }
        if line.is_empty() {
            self.dispatch(out);
            return Ok(());
        }
        match line.split_once(':') {
            Some(("", comment)) => out.push(Item::Comment(comment.to_owned())),
            Some((field, value)) => self.field(field, value.strip_prefix(' ').unwrap_or(value)),
            None => self.field(line, ""),
        }
        Ok(())
    }

    fn field(&mut self, field: &str, value: &str) {
        match field {
            "data" => {
                if self.has_data {
                    self.data.push('\n');
                }
                self.has_data = true;
                self.data.push_str(value);
            }
            "event" => value.clone_into(&mut self.name),
            "id" if !value.contains('\0') => value.clone_into(&mut self.last_id),
            "retry" if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) => self.retry = value.parse().ok(),
            _ => {}
        }
    }

    fn dispatch(&mut self, out: &mut Vec<Item>) {
        let (data, name) = (std::mem::take(&mut self.data), std::mem::take(&mut self.name));
        // Empty data dispatches nothing, but a lone `data` line counts as one empty line of it.
        if std::mem::take(&mut self.has_data) && !data.is_empty() {
            out.push(Item::Event { name, data });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> Vec<Item> {
        let mut out = Vec::new();
        SseReader::new().push(bytes, &mut out).unwrap();
        out
    }

    fn data(text: &str) -> Item {
        Item::Event { name: String::new(), data: text.to_owned() }
    }

    #[test]
    fn rules_of_the_standard() {
        let check = |bytes: &str, expect: &[Item]| assert_eq!(read(bytes.as_bytes()), expect, "{bytes:?}");
        check("\u{feff}data: a\n\n", &[data("a")]);
        check("data: a\n\ndata: b\r\rdata: c\r\n\r\n", &[data("a"), data("b"), data("c")]);
        check(": x\n\ndata: a\n\n", &[Item::Comment(" x".to_owned()), data("a")]);
        check("data:  a\n\ndata:b\n\n", &[data(" a"), data("b")]);
        check("data: a\ndata\ndata: b\n\n", &[data("a\n\nb")]);
        check("data\n\ndata:\n\nevent: x\n\n", &[]);
        check("data: a\n", &[]);
        check("event: error\ndata: a\n\ndata: b\n\n", &[Item::Event { name: "error".to_owned(), data: "a".to_owned() }, data("b")]);
        check("unknown: x\ndata: a\nretry: 1x\n\n", &[data("a")]);
    }

    #[test]
    fn ids_with_nul_and_odd_retries_are_ignored() {
        let mut reader = SseReader::new();
        reader.push(b"id: 1\nid: 2\0\nretry: 50\nretry: x\n\n", &mut Vec::new()).unwrap();
        assert_eq!((reader.last_id(), reader.retry()), ("1", Some(50)));
    }

    #[test]
    fn every_split_gives_the_same_events() {
        let stream = "data: {\"a\":\"हि 🚒\"}\r\n\r\n: keep\r\n\r\ndata: [DONE]\n\n".as_bytes();
        let whole = read(stream);
        for cut in 0..stream.len() {
            let (mut reader, mut out) = (SseReader::new(), Vec::new());
            reader.push(&stream[..cut], &mut out).unwrap();
            reader.push(&stream[cut..], &mut out).unwrap();
            assert_eq!(out, whole, "cut at {cut}");
            assert!(!reader.has_pending());
        }
    }
}
