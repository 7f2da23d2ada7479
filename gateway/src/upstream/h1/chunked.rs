//! Takes the chunked coding off, in place (RFC 9112 7.1).
//!
//! Owns: the place in the coding between two reads. The data of all chunks of a read ends up as one piece at the front of the buffer: an engine
//! sends each event as a chunk, and events that came together should go on together.

/// Bytes of extensions and trailers of one body: both are ignored, and bounded (RFC 9112 7.1.1).
const MAX_IGNORED: usize = 16 * 1024;

/// What was made of a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Decoded {
    /// Bytes of data, now at the front of the buffer.
    pub(crate) data: usize,
    /// Bytes of the buffer that belonged to the body; less than all only behind its end.
    pub(crate) used: usize,
    /// How it goes on.
    pub(crate) then: Then,
}

/// What follows the data of a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Then {
    /// More of the body.
    More,
    /// Nothing: the body is complete.
    End,
    /// What is no chunk. The data before it is good.
    Invalid,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    /// Before the first digit of a size.
    Start,
    Size,
    /// Blanks behind the size.
    Blank,
    Extension,
    SizeLf,
    Data,
    DataCr,
    DataLf,
    /// At the start of a trailer line; an empty one ends the body.
    Trailer,
    TrailerLine,
    TrailerLf,
    EndLf,
    End,
}

/// See the module.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Chunked {
    at: At,
    /// Of the current chunk: its size so far, then the bytes of data still to come.
    left: u64,
    ignored: usize,
}

impl Default for Chunked {
    fn default() -> Self {
        Self { at: At::Start, left: 0, ignored: 0 }
    }
}

impl Chunked {
    /// Decodes the next bytes. Not to be called again behind the end or an invalid chunk.
    pub(crate) fn decode(&mut self, buf: &mut [u8]) -> Decoded {
        let (mut read, mut write) = (0, 0);
        while read < buf.len() && self.at != At::End {
            if self.at == At::Data {
                let n = usize::try_from(self.left).unwrap_or(usize::MAX).min(buf.len() - read);
                buf.copy_within(read..read + n, write);
                (read, write) = (read + n, write + n);
                self.left -= n as u64;
                if self.left == 0 {
                    self.at = At::DataCr;
                }
            } else if let Some(at) = self.step(buf[read]) {
                self.at = at;
                read += 1;
            } else {
                return Decoded { data: write, used: read, then: Then::Invalid };
            }
        }
        Decoded { data: write, used: read, then: if self.at == At::End { Then::End } else { Then::More } }
    }

    /// The place behind `byte`; `None`: it must not stand here.
    fn step(&mut self, byte: u8) -> Option<At> {
        match (self.at, byte) {
            (At::Start | At::Size, _) if byte.is_ascii_hexdigit() => self.digit(byte),
            (At::Size | At::Blank, b'\r') => Some(At::SizeLf),
            (At::Size | At::Blank, b' ' | b'\t') => self.ignore(At::Blank),
            (At::Size | At::Blank, b';') => self.ignore(At::Extension),
            (At::Extension, b'\r') => Some(At::SizeLf),
            (At::Extension | At::Trailer | At::TrailerLine, b'\n') => None,
            (At::Extension, _) => self.ignore(At::Extension),
            (At::SizeLf, b'\n') if self.left == 0 => Some(At::Trailer),
            (At::SizeLf, b'\n') => Some(At::Data),
            (At::DataCr, b'\r') => Some(At::DataLf),
            (At::DataLf, b'\n') => Some(At::Start),
            (At::Trailer, b'\r') => Some(At::EndLf),
            (At::TrailerLine, b'\r') => Some(At::TrailerLf),
            (At::Trailer | At::TrailerLine, _) => self.ignore(At::TrailerLine),
            (At::TrailerLf, b'\n') => Some(At::Trailer),
            (At::EndLf, b'\n') => Some(At::End),
            _ => None,
        }
    }

    fn digit(&mut self, byte: u8) -> Option<At> {
        if self.at == At::Start {
            self.left = 0;
        }
        let digit = match byte {
            b'0'..=b'9' => byte - b'0',
            _ => (byte | 0x20) - b'a' + 10,
        };
        let shifted = self.left.checked_mul(16)?;
        self.left = shifted + u64::from(digit);
        Some(At::Size)
    }

    fn ignore(&mut self, then: At) -> Option<At> {
        self.ignored += 1;
        (self.ignored <= MAX_IGNORED).then_some(then)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Decodes `coded` cut into pieces of `piece` bytes: data, bytes that were not used, what follows.
    fn decode(coded: &[u8], piece: usize) -> (Vec<u8>, usize, Then) {
        let (mut decoder, mut data, mut behind, mut then) = (Chunked::default(), Vec::new(), 0, Then::More);
        for bytes in coded.chunks(piece) {
            if then != Then::More {
                behind += bytes.len();
                continue;
            }
            let mut buf = bytes.to_vec();
            let decoded = decoder.decode(&mut buf);
            data.extend_from_slice(&buf[..decoded.data]);
            behind += buf.len() - decoded.used;
            then = decoded.then;
        }
        (data, behind, then)
    }

    #[test]
    fn decodes_the_same_wherever_it_is_cut() {
        let coded: &[u8] =
            b"5\r\nhello\r\n1A;name=\"v\" \r\nabcdefghijklmnopqrstuvwxyz\r\n01 \t\r\n!\r\n0;x\r\nx-t: 1\r\nset-cookie: a\r\n\r\nrest";
        for piece in 1..=coded.len() {
            let (data, behind, then) = decode(coded, piece);
            assert_eq!(data, b"helloabcdefghijklmnopqrstuvwxyz!", "{piece}");
            assert_eq!((behind, then), (4, Then::End), "{piece}");
        }
    }

    #[test]
    fn the_end_is_only_there_behind_the_last_line() {
        let coded: &[u8] = b"1\r\na\r\n0\r\n\r\n";
        for len in 0..coded.len() {
            assert_eq!(decode(&coded[..len], len.max(1)).2, Then::More, "{len}");
        }
        assert_eq!(decode(coded, coded.len()).2, Then::End);
    }

    #[test]
    fn refuses_what_could_be_read_in_two_ways() {
        let check = |coded: &[u8]| {
            for piece in [1, 2, coded.len()] {
                assert_eq!(decode(coded, piece).2, Then::Invalid, "{:?}", String::from_utf8_lossy(coded));
            }
        };
        check(b"\r\n");
        check(b"x\r\n");
        check(b" 1\r\na\r\n");
        check(b"-1\r\n");
        check(b"0x1\r\na\r\n");
        check(b"1\na\n0\n\n");
        check(b"1\r\nab\r\n");
        check(b"1\r\na\n0\r\n\r\n");
        check(b"1;a\nb\r\na\r\n");
        check(b"1 2\r\na\r\n");
        check(b"0\r\n\n");
        check(b"0\r\na: b\n\r\n");
        check(b"10000000000000000\r\n");
        check(b"ffffffffffffffff1\r\n");
    }

    #[test]
    fn a_size_of_64_bits_is_no_overflow() {
        let (data, _, then) = decode(b"ffffffffffffffff\r\nab", 30);
        assert_eq!((data.as_slice(), then), (b"ab".as_slice(), Then::More));
    }

    #[test]
    fn what_came_before_an_invalid_chunk_is_good() {
        for piece in 1..20 {
            let (data, _, then) = decode(b"2\r\nab\r\n1\r\nc\r\nzz\r\nd", piece);
            assert_eq!((data.as_slice(), then), (b"abc".as_slice(), Then::Invalid), "{piece}");
        }
    }

    #[test]
    fn what_is_ignored_is_bounded() {
        let long = "x".repeat(MAX_IGNORED + 1);
        assert_eq!(decode(format!("1;{long}").as_bytes(), 4096).2, Then::Invalid);
        assert_eq!(decode(format!("0\r\n{long}").as_bytes(), 4096).2, Then::Invalid);
        let many = "1;ext\r\na\r\n".repeat(MAX_IGNORED);
        assert_eq!(decode(many.as_bytes(), 4096).2, Then::Invalid);
    }
}
