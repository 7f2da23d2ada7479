//! Finds `model` and `stream` at the top level of a JSON request body, without decoding the rest.
//!
//! Owns: one pass over the body's bytes, chunk by chunk as they arrive. Must not: judge whether the JSON is valid beyond what it needs (the
//! engine does) or change a byte. Rules: duplicate keys, the last wins, and escaped keys count, as in the engines' own parser.
//! Next step: `ingress` makes an `Inbound` of what was found.

use std::ops::Range;

use memchr::memchr2;
use smallvec::SmallVec;

/// Longest model name read, in bytes of its JSON string.
pub const MAX_MODEL_BYTES: usize = 4096;
/// `"stream"` with every letter escaped needs 36 bytes; longer keys are none of ours.
const MAX_KEY_BYTES: usize = 64;
/// `false` is the longest literal that matters.
const MAX_LITERAL_BYTES: usize = 8;

/// What the body says of the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Model {
    /// No such key, or null.
    Absent,
    /// A string.
    Named {
        /// Decoded.
        name: String,
        /// Place of the string's bytes between its quotes, counted over the whole body.
        span: Range<usize>,
    },
    /// A value that is not a string.
    NotAString,
    /// Longer than [`MAX_MODEL_BYTES`] or not decodable.
    Unreadable,
}

/// The result of a scan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scanned {
    /// The last `model`.
    pub model: Model,
    /// The last `stream` is `true`.
    pub stream: bool,
}

/// Why a body cannot be routed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ScanError {
    /// Ends inside the object.
    #[error("the body is not complete JSON")]
    Incomplete,
    /// Not an object, or broken at the top level.
    #[error("the body is not a JSON object")]
    NotAnObject,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Start,
    KeyOrEnd,
    Key { escaped: bool },
    Colon,
    Value,
    String { escaped: bool },
    Scalar,
    Nested { depth: u32, in_string: bool, escaped: bool },
    CommaOrEnd,
    End,
    Broken,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Field {
    Model,
    Stream,
    Other,
}

/// Scanner fed with the body's chunks in order.
#[derive(Debug)]
pub struct Scan {
    state: State,
    field: Field,
    /// Raw bytes of the key or value being read, while it matters.
    raw: SmallVec<[u8; MAX_KEY_BYTES]>,
    overflow: bool,
    value_start: usize,
    position: usize,
    found: Scanned,
}

impl Default for Scan {
    fn default() -> Self {
        Self {
            state: State::Start,
            field: Field::Other,
            raw: SmallVec::new(),
            overflow: false,
            value_start: 0,
            position: 0,
            found: Scanned { model: Model::Absent, stream: false },
        }
    }
}

impl Scan {
    /// Reads the next chunk.
    pub fn feed(&mut self, chunk: &[u8]) {
        let mut at = 0;
        while at < chunk.len() {
            at = match self.state {
                State::Key { escaped } => self.key(chunk, at, escaped),
                State::String { escaped } => self.string(chunk, at, escaped),
                State::Nested { depth, in_string, escaped } => self.nested(chunk, at, (depth, in_string, escaped)),
                State::Scalar => self.scalar(chunk, at),
                State::End | State::Broken => chunk.len(),
                State::Start | State::KeyOrEnd | State::Colon | State::Value | State::CommaOrEnd => self.structure(chunk, at),
            };
        }
        self.position += chunk.len();
    }

    /// The result at the end of the body.
    pub fn finish(self) -> Result<Scanned, ScanError> {
        match self.state {
            State::End => Ok(self.found),
            State::Start if self.position == 0 => Err(ScanError::Incomplete),
            State::Start | State::Broken => Err(ScanError::NotAnObject),
            State::KeyOrEnd
            | State::Key { .. }
            | State::Colon
            | State::Value
            | State::String { .. }
            | State::Scalar
            | State::Nested { .. }
            | State::CommaOrEnd => Err(ScanError::Incomplete),
        }
    }

    /// One byte between tokens; returns where to go on.
    fn structure(&mut self, chunk: &[u8], at: usize) -> usize {
        let byte = chunk[at];
        if matches!(byte, b' ' | b'\t' | b'\n' | b'\r') {
            return at + 1;
        }
        self.state = match (self.state, byte) {
            (State::Start, b'{') => State::KeyOrEnd,
            (State::KeyOrEnd, b'"') => {
                self.begin_raw();
                State::Key { escaped: false }
            }
            (State::KeyOrEnd | State::CommaOrEnd, b'}') => State::End,
            (State::Colon, b':') => State::Value,
            (State::Value, b'"') => {
                self.begin_raw();
                self.value_start = self.position + at + 1;
                State::String { escaped: false }
            }
            (State::Value, b'{' | b'[') => {
                self.record_other();
                State::Nested { depth: 1, in_string: false, escaped: false }
            }
            (State::Value, b'-' | b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z') => {
                self.begin_raw();
                self.state = State::Scalar;
                return at;
            }
            (State::CommaOrEnd, b',') => State::KeyOrEnd,
            _ => State::Broken,
        };
        at + 1
    }

    fn begin_raw(&mut self) {
        self.raw.clear();
        self.overflow = false;
    }

    fn keep(&mut self, bytes: &[u8], limit: usize) {
        if self.raw.len() + bytes.len() > limit {
            self.overflow = true;
        } else {
            self.raw.extend_from_slice(bytes);
        }
    }

    fn key(&mut self, chunk: &[u8], at: usize, escaped: bool) -> usize {
        let (end, next) = string_run(chunk, at, escaped);
        let part = &chunk[at..end];
        match next {
            // In the usual case the key came in one piece and is read where it lies.
            Run::Closed if self.raw.is_empty() && !self.overflow => {
                self.field = if part.len() > MAX_KEY_BYTES { Field::Other } else { field_of(part) };
                self.state = State::Colon;
                end + 1
            }
            Run::Closed => {
                self.keep(part, MAX_KEY_BYTES);
                self.field = if self.overflow { Field::Other } else { field_of(&self.raw) };
                self.state = State::Colon;
                end + 1
            }
            Run::Open { escaped } => {
                self.keep(part, MAX_KEY_BYTES);
                self.state = State::Key { escaped };
                end
            }
        }
    }

    fn string(&mut self, chunk: &[u8], at: usize, escaped: bool) -> usize {
        let (end, next) = string_run(chunk, at, escaped);
        if self.field == Field::Model {
            self.keep(&chunk[at..end], MAX_MODEL_BYTES);
        }
        match next {
            Run::Closed => {
                self.record_string(self.position + end);
                self.state = State::CommaOrEnd;
                end + 1
            }
            Run::Open { escaped } => {
                self.state = State::String { escaped };
                end
            }
        }
    }

    fn scalar(&mut self, chunk: &[u8], at: usize) -> usize {
        let rest = &chunk[at..];
        let length = rest.iter().position(|b| matches!(b, b',' | b'}' | b' ' | b'\t' | b'\n' | b'\r')).unwrap_or(rest.len());
        if self.field != Field::Other {
            self.keep(&rest[..length], MAX_LITERAL_BYTES);
        }
        if length < rest.len() {
            self.record_scalar();
            self.state = State::CommaOrEnd;
        }
        at + length
    }

    fn nested(&mut self, chunk: &[u8], mut at: usize, (mut depth, mut in_string, mut escaped): (u32, bool, bool)) -> usize {
        while at < chunk.len() {
            if in_string {
                let (end, next) = string_run(chunk, at, escaped);
                match next {
                    Run::Closed => {
                        (in_string, escaped) = (false, false);
                        at = end + 1;
                    }
                    Run::Open { escaped: open } => {
                        escaped = open;
                        at = end;
                    }
                }
                continue;
            }
            match chunk[at] {
                b'"' => in_string = true,
                b'{' | b'[' => depth = depth.saturating_add(1),
                b'}' | b']' => {
                    depth -= 1;
                    if depth == 0 {
                        self.state = State::CommaOrEnd;
                        return at + 1;
                    }
                }
                _ => {}
            }
            at += 1;
        }
        self.state = State::Nested { depth, in_string, escaped };
        at
    }

    fn record_string(&mut self, end: usize) {
        match self.field {
            Field::Model => {
                let decoded = if self.overflow { None } else { decode(&self.raw) };
                self.found.model = match decoded {
                    Some(name) => Model::Named { name, span: self.value_start..end },
                    None => Model::Unreadable,
                };
            }
            Field::Stream => self.found.stream = false,
            Field::Other => {}
        }
    }

    fn record_scalar(&mut self) {
        match self.field {
            Field::Model => self.found.model = if *self.raw == *b"null" { Model::Absent } else { Model::NotAString },
            Field::Stream => self.found.stream = *self.raw == *b"true" && !self.overflow,
            Field::Other => {}
        }
    }

    fn record_other(&mut self) {
        match self.field {
            Field::Model => self.found.model = Model::NotAString,
            Field::Stream => self.found.stream = false,
            Field::Other => {}
        }
    }
}

enum Run {
    Closed,
    Open { escaped: bool },
}

/// Reads string bytes from `at` to the closing quote or the chunk's end. `escaped`: the byte at `at` follows a backslash.
fn string_run(chunk: &[u8], mut at: usize, escaped: bool) -> (usize, Run) {
    if escaped {
        at += 1;
    }
    while let Some(hit) = memchr2(b'"', b'\\', &chunk[at.min(chunk.len())..]) {
        at += hit;
        if chunk[at] == b'"' {
            return (at, Run::Closed);
        }
        if at + 1 >= chunk.len() {
            return (chunk.len(), Run::Open { escaped: true });
        }
        at += 2;
    }
    (chunk.len(), Run::Open { escaped: false })
}

fn field_of(raw: &[u8]) -> Field {
    match raw {
        b"model" => Field::Model,
        b"stream" => Field::Stream,
        _ if raw.contains(&b'\\') => match decode(raw).as_deref() {
            Some("model") => Field::Model,
            Some("stream") => Field::Stream,
            _ => Field::Other,
        },
        _ => Field::Other,
    }
}

/// Decodes the inside of a JSON string.
fn decode(raw: &[u8]) -> Option<String> {
    if !raw.contains(&b'\\') {
        return std::str::from_utf8(raw).ok().map(str::to_owned);
    }
    let mut quoted = Vec::with_capacity(raw.len() + 2);
    quoted.push(b'"');
    quoted.extend_from_slice(raw);
    quoted.push(b'"');
    serde_json::from_slice(&quoted).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(body: &str) -> Result<Scanned, ScanError> {
        let mut scan = Scan::default();
        scan.feed(body.as_bytes());
        scan.finish()
    }

    /// The same answer however the body is cut in two or fed byte by byte.
    fn check(body: &str, model: Option<&str>, stream: bool) {
        let expect = whole(body).unwrap();
        assert_eq!(expect.stream, stream, "{body}");
        match (&expect.model, model) {
            (Model::Named { name, span }, Some(want)) => {
                assert_eq!(name, want, "{body}");
                let quoted = format!("\"{}\"", &body[span.clone()]);
                assert_eq!(serde_json::from_str::<String>(&quoted).unwrap(), want, "span of {body}");
            }
            (Model::Absent, None) => {}
            (other, _) => panic!("{body}: {other:?}"),
        }
        for cut in 0..=body.len() {
            let mut scan = Scan::default();
            scan.feed(&body.as_bytes()[..cut]);
            scan.feed(&body.as_bytes()[cut..]);
            assert_eq!(scan.finish().as_ref(), Ok(&expect), "{body} cut at {cut}");
        }
        let mut scan = Scan::default();
        body.bytes().for_each(|b| scan.feed(&[b]));
        assert_eq!(scan.finish(), Ok(expect), "{body} byte by byte");
    }

    #[test]
    fn finds_the_model_and_stream() {
        check(r#"{"model":"m","stream":true}"#, Some("m"), true);
        check(r#" { "stream" : false , "model" : "a/b" } "#, Some("a/b"), false);
        check(r#"{"messages":[{"role":"user","content":"\"model\":\"x\" }]"}],"model":"m"}"#, Some("m"), false);
        check(r#"{"a":{"model":"inner"},"stream":true}"#, None, true);
        check(r#"{"model":null}"#, None, false);
        check("{}", None, false);
        check(r#"{"stream":"true","model":"m"}"#, Some("m"), false);
        check(r#"{"n":-1.5e3,"model":"é☃"}"#, Some("é☃"), false);
    }

    #[test]
    fn the_last_of_duplicate_keys_wins() {
        check(r#"{"model":"a","model":"b","stream":true,"stream":false}"#, Some("b"), false);
        check(r#"{"stream":true,"model":"a","stream":[1]}"#, Some("a"), false);
        check(r#"{"model":"a","model":null}"#, None, false);
    }

    #[test]
    fn escapes_count_in_keys_and_values() {
        check(r#"{"\u006dodel":"m\u0022x\\","str\u0065am":true}"#, Some("m\"x\\"), true);
        check(r#"{"\u006d\u006f\u0064\u0065\u006c":"\ud83d\ude00"}"#, Some("😀"), false);
        check(r#"{"mod\\el":"x","k\"":1,"model":"y"}"#, Some("y"), false);
    }

    #[test]
    fn refuses_what_cannot_be_routed() {
        assert_eq!(whole(""), Err(ScanError::Incomplete));
        assert_eq!(whole("[1]"), Err(ScanError::NotAnObject));
        assert_eq!(whole("nope"), Err(ScanError::NotAnObject));
        assert_eq!(whole(r#"{"model":"m""#), Err(ScanError::Incomplete));
        assert_eq!(whole(r#"{"model" "m"}"#), Err(ScanError::NotAnObject));
        assert_eq!(whole(r#"{"model":7}"#).unwrap().model, Model::NotAString);
        assert_eq!(whole(r#"{"model":{"a":1}}"#).unwrap().model, Model::NotAString);
        let long = format!(r#"{{"model":"{}"}}"#, "x".repeat(MAX_MODEL_BYTES + 1));
        assert_eq!(whole(&long).unwrap().model, Model::Unreadable);
        assert_eq!(whole(r#"{"model":"\ud800"}"#).unwrap().model, Model::Unreadable);
    }

    #[test]
    fn any_bytes_are_survived() {
        let alphabet = b"{}[]\":,\\ tmodelstreamu0069\xff\n-1";
        let mut seed = 1u64;
        for _ in 0..20_000 {
            let mut scan = Scan::default();
            for _ in 0..3 {
                let mut piece = Vec::new();
                for _ in 0..(seed % 11) {
                    seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                    piece.push(alphabet[(seed >> 33) as usize % alphabet.len()]);
                }
                seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
                scan.feed(&piece);
            }
            let _ = scan.finish();
        }
    }
}
