//! A raw HTTP/2 client (RFC 9113): frames written and read one by one, fields sent as literals (RFC 7541 6.2.2).

use bytes::{Buf, BytesMut};
use tests::Outcome;
use tests::gateway::GatewayHandle;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::within;

/// Frame types (RFC 9113 6).
pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
/// Flags.
pub(crate) const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const ACK: u8 = 1;

/// One frame.
#[derive(Debug, Clone)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    pub(crate) payload: Vec<u8>,
}

impl Frame {
    /// The last 32-bit number of RST_STREAM and GOAWAY that is an error code.
    pub(crate) fn error_code(&self) -> u32 {
        let at = if self.kind == GOAWAY { 4 } else { 0 };
        self.number(at)
    }

    /// The 32-bit number at a place of the payload.
    pub(crate) fn number(&self, at: usize) -> u32 {
        self.payload.get(at..at + 4).map_or(u32::MAX, |bytes| bytes.iter().fold(0, |sum, byte| sum << 8 | u32::from(*byte)))
    }

    fn ends_stream(&self) -> bool {
        matches!(self.kind, DATA | HEADERS) && self.flags & END_STREAM != 0
    }
}

/// How an answer ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ended {
    /// END_STREAM.
    Clean,
    /// RST_STREAM with this code.
    Reset(u32),
    /// The connection ended, with this code if GOAWAY said one.
    Gone(Option<u32>),
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
    pub(crate) ended: Ended,
}

/// A connection to the gateway.
pub(crate) struct H2 {
    stream: TcpStream,
    buffer: BytesMut,
    /// Windows are opened again as data comes.
    pub(crate) greedy: bool,
}

impl H2 {
    /// Connects, sends preface and empty settings, and reads the gateway's first settings.
    pub(crate) async fn open(gateway: &GatewayHandle) -> Outcome<(Self, Frame)> {
        let stream = TcpStream::connect(gateway.listen()).await?;
        stream.set_nodelay(true)?;
        let mut connection = Self { stream, buffer: BytesMut::new(), greedy: true };
        connection.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await?;
        connection.frame(SETTINGS, 0, 0, &[]).await?;
        let settings = connection.wait(|frame| frame.kind == SETTINGS && frame.flags & ACK == 0).await?;
        Ok((connection, settings))
    }

    /// Connects, for tests that do not look at settings.
    pub(crate) async fn connect(gateway: &GatewayHandle) -> Outcome<Self> {
        Ok(Self::open(gateway).await?.0)
    }

    async fn write(&mut self, bytes: &[u8]) -> Outcome<()> {
        within("a write", async { Ok(self.stream.write_all(bytes).await?) }).await
    }

    /// Sends one frame.
    pub(crate) async fn frame(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Outcome<()> {
        let mut out = u32::try_from(payload.len())?.to_be_bytes()[1..].to_vec();
        out.extend([kind, flags]);
        out.extend(stream.to_be_bytes());
        out.extend(payload);
        self.write(&out).await
    }

    /// Sends HEADERS with these fields.
    pub(crate) async fn headers(&mut self, stream: u32, fields: &[(&str, &str)], end: bool) -> Outcome<()> {
        let flags = END_HEADERS | if end { END_STREAM } else { 0 };
        self.frame(HEADERS, flags, stream, &block(fields)).await
    }

    /// Sends a POST of a body with these further fields.
    pub(crate) async fn post(&mut self, stream: u32, fields: &[(&str, &str)], body: &str) -> Outcome<()> {
        let mut all = POST.to_vec();
        all.extend(fields);
        self.headers(stream, &all, false).await?;
        self.frame(DATA, END_STREAM, stream, body.as_bytes()).await
    }

    /// Cancels a stream (error code CANCEL).
    pub(crate) async fn cancel(&mut self, stream: u32) -> Outcome<()> {
        self.frame(RST_STREAM, 0, stream, &8u32.to_be_bytes()).await
    }

    /// Opens a window; stream 0 is the connection.
    pub(crate) async fn open_window(&mut self, stream: u32, by: u32) -> Outcome<()> {
        self.frame(WINDOW_UPDATE, 0, stream, &by.to_be_bytes()).await
    }

    /// The next frame; `None` when the connection ended. Settings and pings are answered.
    pub(crate) async fn next(&mut self) -> Outcome<Option<Frame>> {
        loop {
            if let Some(frame) = self.buffered() {
                self.answer_to(&frame).await?;
                return Ok(Some(frame));
            }
            let read = within("a frame", async { Ok(self.stream.read_buf(&mut self.buffer).await) }).await?;
            if !matches!(read, Ok(1..)) {
                return Ok(None);
            }
        }
    }

    fn buffered(&mut self) -> Option<Frame> {
        let length = self.buffer.get(..3)?.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte));
        if self.buffer.len() < 9 + length {
            return None;
        }
        let head = self.buffer.split_to(9);
        let stream = (&head[5..9]).get_u32() & 0x7fff_ffff;
        Some(Frame { kind: head[3], flags: head[4], stream, payload: self.buffer.split_to(length).to_vec() })
    }

    async fn answer_to(&mut self, frame: &Frame) -> Outcome<()> {
        let opens = u32::try_from(frame.payload.len())?;
        // A peer that has closed meanwhile shows that by the next read.
        let _ = match frame.kind {
            SETTINGS if frame.flags & ACK == 0 => self.frame(SETTINGS, ACK, 0, &[]).await,
            PING if frame.flags & ACK == 0 => self.frame(PING, ACK, 0, &frame.payload).await,
            DATA if self.greedy && opens > 0 => match self.open_window(0, opens).await {
                Ok(()) if frame.flags & END_STREAM == 0 => self.open_window(frame.stream, opens).await,
                done => done,
            },
            _ => Ok(()),
        };
        Ok(())
    }

    /// Frames up to one that `is` it.
    pub(crate) async fn wait(&mut self, is: impl Fn(&Frame) -> bool) -> Outcome<Frame> {
        loop {
            let frame = self.next().await?.ok_or("the gateway closed the connection")?;
            if is(&frame) {
                return Ok(frame);
            }
        }
    }

    /// The answer on a stream, to its end; frames of other streams are passed over.
    pub(crate) async fn answer(&mut self, stream: u32) -> Outcome<Answer> {
        let mut answer = Answer { status: 0, body: Vec::new(), ended: Ended::Gone(None) };
        while let Some(frame) = self.next().await? {
            if frame.kind == GOAWAY {
                answer.ended = Ended::Gone(Some(frame.error_code()));
            }
            if frame.stream != stream || stream == 0 {
                continue;
            }
            match frame.kind {
                HEADERS if answer.status == 0 => answer.status = status(&frame.payload),
                DATA => answer.body.extend_from_slice(&frame.payload),
                RST_STREAM => {
                    answer.ended = Ended::Reset(frame.error_code());
                    return Ok(answer);
                }
                _ => {}
            }
            if frame.ends_stream() {
                answer.ended = Ended::Clean;
                return Ok(answer);
            }
        }
        Ok(answer)
    }
}

/// Pseudo fields of a chat request.
pub(crate) const POST: [(&str, &str); 5] = [
    (":method", "POST"),
    (":scheme", "http"),
    (":path", "/v1/chat/completions"),
    (":authority", "gateway.test"),
    ("content-type", "application/json"),
];

/// A block of literals without indexing and without Huffman codes.
pub(crate) fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, value) in fields {
        out.push(0);
        text(name, &mut out);
        text(value, &mut out);
    }
    out
}

/// RFC 7541 5.2, with the integer of 5.1 in seven bits.
fn text(text: &str, out: &mut Vec<u8>) {
    let mut length = text.len();
    if length < 127 {
        out.push(length as u8);
    } else {
        out.push(127);
        length -= 127;
        while length >= 128 {
            out.push((length % 128) as u8 | 128);
            length /= 128;
        }
        out.push(length as u8);
    }
    out.extend_from_slice(text.as_bytes());
}

/// `:status`, which is the first field of an answer (RFC 7541 appendix A: index 8 to 14).
fn status(block: &[u8]) -> u16 {
    let mut rest = block;
    while let [first, tail @ ..] = rest {
        match first {
            0x20..=0x3f => rest = tail,
            0x88..=0x8e => return [200, 204, 206, 304, 400, 404, 500][usize::from(first - 0x88)],
            _ => return literal_status(tail),
        }
    }
    0
}

fn literal_status(value: &[u8]) -> u16 {
    let Some((length, value)) = value.split_first() else { return 0 };
    let value = value.get(..usize::from(length & 0x7f)).unwrap_or_default();
    if length & 0x80 == 0 {
        return String::from_utf8_lossy(value).parse().unwrap_or(0);
    }
    let bits: Vec<u8> = value.iter().flat_map(|byte| (0..8).rev().map(move |bit| byte >> bit & 1)).collect();
    huffman_digits(&bits)
}

/// RFC 7541 appendix B: 0, 1 and 2 have five bits, the other digits have six from 011001 on.
fn huffman_digits(mut bits: &[u8]) -> u16 {
    let mut number = 0;
    while bits.len() >= 5 {
        let five = bits[..5].iter().fold(0u16, |sum, bit| sum << 1 | u16::from(*bit));
        let (digit, used) = match (five, bits.get(5)) {
            (0..=2, _) => (five, 5),
            (_, Some(sixth)) => ((five << 1 | u16::from(*sixth)).wrapping_sub(0b01_1001).wrapping_add(3), 6),
            (_, None) => break,
        };
        if digit > 9 {
            break;
        }
        number = number * 10 + digit;
        bits = &bits[used..];
    }
    number
}
