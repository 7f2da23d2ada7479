//! Cuts the body of a watch into lines, one JSON document each.
//!
//! Owns: the buffer and its bound. Must not: parse, or wait (the caller bounds the silence).

use bytes::{Buf, Bytes, BytesMut};

/// Longest line: an object of etcd is at most about 1.5 MiB, its JSON with status somewhat more.
const MAX_LINE: usize = 8 * 1024 * 1024;

/// A line is longer than any object can be.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct LineTooLong;

/// Bytes that are not a whole line yet.
#[derive(Debug, Default)]
pub(super) struct Lines {
    buffer: BytesMut,
    /// Bytes at the start of the buffer that hold no line end.
    searched: usize,
}

impl Lines {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The next whole line without its end; blank ones are skipped. `None`: more bytes are needed.
    pub(super) fn next(&mut self) -> Result<Option<Bytes>, LineTooLong> {
        loop {
            let Some(at) = self.buffer[self.searched..].iter().position(|byte| *byte == b'\n') else {
                self.searched = self.buffer.len();
                return if self.searched > MAX_LINE { Err(LineTooLong) } else { Ok(None) };
            };
            let line = self.buffer.split_to(self.searched + at);
            self.buffer.advance(1);
            self.searched = 0;
            if !line.trim_ascii().is_empty() {
                return Ok(Some(line.freeze()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_split_gives_the_same_lines() {
        let text = b"{\"a\":1}\n\r\n{\"b\":\"\xc3\xa9\"}\n{\"open\"";
        for cut in 0..text.len() {
            let mut lines = Lines::default();
            let mut found = Vec::new();
            for part in [&text[..cut], &text[cut..]] {
                lines.push(part);
                while let Some(line) = lines.next().unwrap() {
                    found.push(line);
                }
            }
            assert_eq!(found, [&b"{\"a\":1}"[..], &b"{\"b\":\"\xc3\xa9\"}"[..]], "cut at {cut}");
        }
    }

    #[test]
    fn an_endless_line_is_refused() {
        let mut lines = Lines::default();
        lines.push(&vec![b'x'; MAX_LINE]);
        assert_eq!(lines.next(), Ok(None));
        lines.push(b"x");
        assert_eq!(lines.next(), Err(LineTooLong));
    }
}
