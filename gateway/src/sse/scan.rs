//! Finds the end of an event: the blank line.
//!
//! Owns line ends (S2) and the byte order mark (S1), across chunk borders. It does not read fields; `event` does.

use memchr::memchr2;

/// UTF-8's byte order mark; one at the start of a stream is no part of the first line.
pub(super) const BOM: &[u8] = b"\xef\xbb\xbf";

/// How far the search for a blank line has come, so that no byte is searched twice.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scan {
    /// Bytes of the event already searched.
    at: usize,
    /// The current line has no byte yet.
    blank: bool,
    /// The byte before `at` was a CR that ended a line: an LF at `at` belongs to it.
    after_cr: bool,
}

/// Where an event ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct End {
    /// Bytes of the event, its blank line included.
    pub(super) len: usize,
    /// It ended with a CR that was the last byte there is: an LF that comes next belongs to it.
    pub(super) open_cr: bool,
}

impl Scan {
    pub(super) const START: Self = Self { at: 0, blank: true, after_cr: false };

    /// The same place, counted from the end of the bytes searched so far (they were passed on).
    pub(super) fn rebase(&mut self) {
        self.at = 0;
    }

    /// Goes on searching `event`, which begins with the bytes searched before. `first`: the event opens the stream.
    pub(super) fn find(&mut self, event: &[u8], first: bool) -> Option<End> {
        if first && self.at == 0 && event.len() < BOM.len() && BOM.starts_with(event) {
            return None;
        }
        if first && self.at == 0 && event.starts_with(BOM) {
            self.at = BOM.len();
        }
        loop {
            self.finish_crlf(event);
            let rest = event.get(self.at..)?;
            let Some(offset) = memchr2(b'\n', b'\r', rest) else {
                self.blank &= rest.is_empty();
                self.at = event.len();
                return None;
            };
            let blank = self.blank && offset == 0;
            let cr = rest[offset] == b'\r';
            self.at += offset + 1;
            if blank {
                return Some(self.end_of_event(event, cr));
            }
            self.blank = true;
            self.after_cr = cr;
        }
    }

    fn finish_crlf(&mut self, event: &[u8]) {
        if self.after_cr && self.at < event.len() {
            self.after_cr = false;
            if event[self.at] == b'\n' {
                self.at += 1;
            }
        }
    }

    fn end_of_event(&self, event: &[u8], cr: bool) -> End {
        let next = event.get(self.at);
        let len = self.at + usize::from(cr && next == Some(&b'\n'));
        End { len, open_cr: cr && next.is_none() }
    }
}
