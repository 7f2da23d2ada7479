//! One whole event: its bytes, its data and its kind.
//!
//! Owns the field rules (S3 to S7 of the wire rules). It does not look for the end of an event; `scan` does.
//! Next step: the closure given to `Splitter::feed`.

use std::borrow::Cow;

use memchr::memchr2;

/// What an event is, as far as its fields tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Has data, other than `[DONE]`.
    Data,
    /// Its data starts with `[DONE]`.
    Done,
    /// Dispatches nothing: comments, blank lines, fields without data.
    Silent,
    /// A piece of an event that is longer than may be held. Neither its data nor its end is known.
    Part,
}

/// One whole event, blank line included. All slices point into the engine's bytes unless the data has several lines.
#[derive(Debug)]
pub struct Event<'a> {
    /// The bytes as they came, with the line ends and the blank line that closes the event.
    pub raw: &'a [u8],
    /// The data lines, joined by LF, without a last LF. Empty for [`Kind::Silent`] and [`Kind::Part`].
    pub data: Cow<'a, [u8]>,
    /// The value of the last `event` field, empty if there is none.
    pub name: &'a [u8],
    /// What the fields tell.
    pub kind: Kind,
}

impl<'a> Event<'a> {
    /// Reads a block of lines that ends with a blank line. `raw` may begin with a byte order mark only if `first`.
    pub(super) fn parse(raw: &'a [u8], first: bool) -> Self {
        let lines = if first { raw.strip_prefix(super::scan::BOM).unwrap_or(raw) } else { raw };
        match single_data_line(lines) {
            Some(data) => Self::with_data(raw, Cow::Borrowed(data), b""),
            None => Self::parse_lines(raw, lines),
        }
    }

    /// A piece of an event that is too long to be held.
    pub(super) fn part(raw: &'a [u8]) -> Self {
        Self { raw, data: Cow::Borrowed(b""), name: b"", kind: Kind::Part }
    }

    fn parse_lines(raw: &'a [u8], lines: &'a [u8]) -> Self {
        let mut data: Option<Cow<'a, [u8]>> = None;
        let mut name: &[u8] = b"";
        for line in Lines(lines) {
            let (field, value) = split_field(line);
            match field {
                b"data" => match &mut data {
                    None => data = Some(Cow::Borrowed(value)),
                    Some(joined) => {
                        let joined = joined.to_mut();
                        joined.push(b'\n');
                        joined.extend_from_slice(value);
                    }
                },
                b"event" => name = value,
                _ => {}
            }
        }
        Self::with_data(raw, data.unwrap_or_default(), name)
    }

    fn with_data(raw: &'a [u8], data: Cow<'a, [u8]>, name: &'a [u8]) -> Self {
        let kind = if data.is_empty() {
            Kind::Silent
        } else if data.starts_with(b"[DONE]") {
            Kind::Done
        } else {
            Kind::Data
        };
        Self { raw, data, name, kind }
    }
}

/// The normal form of engines: one `data` line, LF, LF.
fn single_data_line(lines: &[u8]) -> Option<&[u8]> {
    let value = lines.strip_prefix(b"data:")?.strip_suffix(b"\n\n")?;
    if memchr2(b'\n', b'\r', value).is_some() {
        return None;
    }
    Some(value.strip_prefix(b" ").unwrap_or(value))
}

/// Field name and value; one space after the colon is not part of the value. A comment has an empty name.
fn split_field(line: &[u8]) -> (&[u8], &[u8]) {
    match memchr::memchr(b':', line) {
        None => (line, b""),
        Some(colon) => {
            let value = &line[colon + 1..];
            (&line[..colon], value.strip_prefix(b" ").unwrap_or(value))
        }
    }
}

/// Lines ended by LF, CR or CRLF, without their ends.
struct Lines<'a>(&'a [u8]);

impl<'a> Iterator for Lines<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let end = memchr2(b'\n', b'\r', self.0)?;
        let line = &self.0[..end];
        let crlf = self.0[end] == b'\r' && self.0.get(end + 1) == Some(&b'\n');
        self.0 = &self.0[end + 1 + usize::from(crlf)..];
        Some(line)
    }
}
