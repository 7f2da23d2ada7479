//! Finding the end of an answer and its events without parsing it.

/// The little that is known of an answer while it comes.
#[derive(Debug, Default)]
pub(super) struct Counted {
    head: Vec<u8>,
    in_body: bool,
    /// Bytes of the body that are missing; `None` for chunks.
    left: Option<usize>,
    /// The last bytes of the body so far, for marks that two reads share.
    tail: Vec<u8>,
    pub(super) status: u16,
    /// The connection can take another request.
    pub(super) keep: bool,
    pub(super) over: bool,
}

const EVENT: &[u8] = b"data: ";
const LAST_CHUNK: &[u8] = b"\r\n0\r\n\r\n";

impl Counted {
    /// Takes bytes; gives the number of events that began in them (one for the beginning of a body with a length).
    pub(super) fn take(&mut self, bytes: &[u8]) -> u64 {
        if self.in_body {
            return self.body(bytes);
        }
        self.head.extend_from_slice(bytes);
        let Some(end) = memchr::memmem::find(&self.head, b"\r\n\r\n") else { return 0 };
        let rest = self.head.split_off(end + 4);
        self.read_head();
        let began = u64::from(self.left.is_some());
        self.in_body = true;
        began + self.body(&rest)
    }

    fn read_head(&mut self) {
        let head = String::from_utf8_lossy(&self.head).to_ascii_lowercase();
        self.status = head.get(9..12).and_then(|status| status.parse().ok()).unwrap_or(0);
        let value = |name: &str| head.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        self.left = value("content-length:").and_then(|length| length.parse().ok());
        self.keep = value("connection:") != Some("close");
    }

    fn body(&mut self, bytes: &[u8]) -> u64 {
        if let Some(left) = &mut self.left {
            *left = left.saturating_sub(bytes.len());
            self.over = *left == 0;
            return 0;
        }
        // Marks that lie across two reads are found in the seam.
        let kept = self.tail.len();
        self.tail.extend_from_slice(&bytes[..bytes.len().min(EVENT.len() - 1)]);
        let seam = memchr::memmem::find_iter(&self.tail, EVENT).filter(|at| *at < kept && at + EVENT.len() > kept).count();
        let inside = memchr::memmem::find_iter(bytes, EVENT).count();
        self.tail.truncate(kept);
        self.tail.extend_from_slice(&bytes[bytes.len().saturating_sub(LAST_CHUNK.len())..]);
        self.over = self.tail.ends_with(LAST_CHUNK);
        let keep_from = self.tail.len().saturating_sub(LAST_CHUNK.len());
        self.tail.drain(..keep_from);
        (seam + inside) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_counted_across_any_split() {
        let answer = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n9\r\ndata: a\n\n\r\n9\r\ndata: b\n\n\r\n0\r\n\r\n";
        for cut in 0..answer.len() {
            let mut counted = Counted::default();
            let events = counted.take(&answer[..cut]) + counted.take(&answer[cut..]);
            assert_eq!((events, counted.over, counted.status, counted.keep), (2, true, 200, true), "cut at {cut}");
        }
    }

    #[test]
    fn a_length_ends_a_body() {
        let mut counted = Counted::default();
        assert_eq!(counted.take(b"HTTP/1.1 503 X\r\nContent-Length: 4\r\nConnection: close\r\n\r\nab"), 1);
        assert!(!counted.over);
        counted.take(b"cd");
        assert_eq!((counted.over, counted.status, counted.keep), (true, 503, false));
    }
}
