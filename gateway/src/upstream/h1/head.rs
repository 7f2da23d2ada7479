//! Reads the head of an answer: status, fields, and how its body is framed (RFC 9112 4 to 6, 9.3).

use std::mem::MaybeUninit;

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH, HeaderMap, HeaderName, HeaderValue, TRANSFER_ENCODING};
use http::response::Parts;
use http::{Response, StatusCode, Version};

use super::Malformed;

/// Bytes of a head at most.
pub(crate) const MAX_HEAD: usize = 64 * 1024;
/// Fields of a head at most.
const MAX_FIELDS: usize = 128;

/// Fields that are added to an answer before its client gets it: room for them is made at once.
const OURS: usize = 4;

/// Where a body ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Framing {
    /// After so many bytes; 0: there is none.
    Length(u64),
    /// By the chunked coding.
    Chunked,
    /// With the connection.
    Close,
}

/// The head of an answer.
#[derive(Debug)]
pub(crate) struct Head {
    /// Status, version, fields.
    pub(crate) parts: Parts,
    /// How its body ends.
    pub(crate) framing: Framing,
    /// The peer will take another request on this connection.
    pub(crate) keep_alive: bool,
    /// Bytes that the head took.
    pub(crate) len: usize,
}

impl Head {
    /// 100 to 199: another head follows.
    pub(crate) fn is_interim(&self) -> bool {
        self.parts.status.is_informational()
    }
}

/// The head at the front of `bytes`; `None`: it is not whole.
pub(crate) fn parse(bytes: &[u8]) -> Result<Option<Head>, Malformed> {
    let mut fields = [const { MaybeUninit::uninit() }; MAX_FIELDS];
    let mut response = httparse::Response::new(&mut []);
    // RFC 9112 5.1: blanks before the colon of an answer's field are taken away.
    let mut config = httparse::ParserConfig::default();
    config.allow_spaces_after_header_name_in_responses(true);
    let len = match config.parse_response_with_uninit_headers(&mut response, bytes, &mut fields).map_err(Malformed::Head)? {
        httparse::Status::Complete(len) if len <= MAX_HEAD => len,
        httparse::Status::Complete(_) => return Err(Malformed::LongHead),
        httparse::Status::Partial if bytes.len() > MAX_HEAD => return Err(Malformed::LongHead),
        httparse::Status::Partial => return Ok(None),
    };
    let status = StatusCode::from_u16(response.code.unwrap_or_default()).map_err(|_| Malformed::Value)?;
    let version = if response.version == Some(0) { Version::HTTP_10 } else { Version::HTTP_11 };
    let mut headers = headers(&bytes[..len], response.headers)?;
    let framing = framing(status, version, &headers)?;
    if let Framing::Length(length) = framing
        && lists_lengths(&headers)
    {
        // RFC 9112 6.3: a list of equal lengths goes on as the one that it means.
        headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
    }
    let keep_alive = framing != Framing::Close && keep_alive(version, &headers);
    let (mut parts, ()) = Response::new(()).into_parts();
    (parts.status, parts.version, parts.headers) = (status, version, headers);
    Ok(Some(Head { parts, framing, keep_alive, len }))
}

/// One copy of the head; the values are slices of it.
fn headers(head: &[u8], fields: &[httparse::Header<'_>]) -> Result<HeaderMap, Malformed> {
    let shared = Bytes::copy_from_slice(head);
    let start = head.as_ptr() as usize;
    let mut headers = HeaderMap::with_capacity(fields.len() + OURS);
    for field in fields {
        let name = HeaderName::from_bytes(field.name.as_bytes()).map_err(|_| Malformed::Value)?;
        let at = field.value.as_ptr() as usize - start;
        let value = HeaderValue::from_maybe_shared(shared.slice(at..at + field.value.len())).map_err(|_| Malformed::Value)?;
        headers.append(name, value);
    }
    Ok(headers)
}

/// RFC 9112 6.3, in its order.
fn framing(status: StatusCode, version: Version, headers: &HeaderMap) -> Result<Framing, Malformed> {
    if status.is_informational() || status == StatusCode::NO_CONTENT || status == StatusCode::NOT_MODIFIED {
        return Ok(Framing::Length(0));
    }
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    if let Some(coding) = codings.next() {
        let plain = coding.as_bytes().eq_ignore_ascii_case(b"chunked") && codings.next().is_none();
        // 6.1: a coding in an HTTP/1.0 message is faulty framing.
        return if plain && version == Version::HTTP_11 { Ok(Framing::Chunked) } else { Err(Malformed::Coding) };
    }
    let mut length = None;
    for value in headers.get_all(CONTENT_LENGTH) {
        for item in value.as_bytes().split(|&byte| byte == b',') {
            let item = number(item.trim_ascii()).ok_or(Malformed::Length)?;
            if length.replace(item).is_some_and(|before| before != item) {
                return Err(Malformed::Length);
            }
        }
    }
    Ok(length.map_or(Framing::Close, Framing::Length))
}

fn lists_lengths(headers: &HeaderMap) -> bool {
    let mut values = headers.get_all(CONTENT_LENGTH).iter();
    values.next().is_some_and(|first| first.as_bytes().contains(&b',')) || values.next().is_some()
}

/// Digits alone: `parse` would take a sign.
fn number(digits: &[u8]) -> Option<u64> {
    let all = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(digits).ok().filter(|_| all)?.parse().ok()
}

/// RFC 9112 9.3: `close` wins. A length beside the coding is an attack or a mistake (6.1): the connection ends with that answer.
fn keep_alive(version: Version, headers: &HeaderMap) -> bool {
    let names = |wanted: &[u8]| {
        let mut options = headers.get_all(CONNECTION).iter().flat_map(|value| value.as_bytes().split(|&byte| byte == b','));
        options.any(|option| option.trim_ascii().eq_ignore_ascii_case(wanted))
    };
    let framed_twice = headers.contains_key(TRANSFER_ENCODING) && headers.contains_key(CONTENT_LENGTH);
    !framed_twice && !names(b"close") && (version == Version::HTTP_11 || names(b"keep-alive"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(text: &str) -> Result<Option<Head>, Malformed> {
        parse(text.as_bytes())
    }

    fn framed(head_and_fields: &str) -> Result<(Framing, bool), Malformed> {
        let text = format!("{head_and_fields}\r\n\r\nbody");
        head(&text).map(|head| head.map(|head| (head.framing, head.keep_alive)).unwrap())
    }

    #[test]
    fn reads_status_and_fields_and_where_they_end() {
        let text = "HTTP/1.1 200 OK\r\nX-A: 1\r\nx-a:2 \r\nset-cookie : b\r\ncontent-length: 4\r\n\r\nbody";
        let head = head(text).unwrap().unwrap();
        assert_eq!((head.parts.status.as_u16(), head.parts.version), (200, Version::HTTP_11));
        assert_eq!(head.parts.headers.get_all("x-a").iter().collect::<Vec<_>>(), ["1", "2"]);
        assert_eq!(head.parts.headers["set-cookie"], "b");
        assert_eq!(&text[head.len..], "body");
        for cut in 0..text.len() - 4 {
            assert!(parse(&text.as_bytes()[..cut]).unwrap().is_none(), "{cut}");
        }
    }

    #[test]
    fn framing_follows_the_rfc() {
        let check = |text: &str, want: (Framing, bool)| assert_eq!(framed(text), Ok(want), "{text}");
        check("HTTP/1.1 200 OK\r\ncontent-length: 4", (Framing::Length(4), true));
        check("HTTP/1.1 200 OK\r\ncontent-length: 4\r\ncontent-length: 4", (Framing::Length(4), true));
        check("HTTP/1.1 200 OK\r\ncontent-length: 4, 4\r\nconnection: x, Close", (Framing::Length(4), false));
        check("HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked", (Framing::Chunked, true));
        check("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ncontent-length: 4", (Framing::Chunked, false));
        check("HTTP/1.1 200 OK", (Framing::Close, false));
        check("HTTP/1.1 204 No\r\ncontent-length: 4", (Framing::Length(0), true));
        check("HTTP/1.1 304 No\r\ntransfer-encoding: chunked", (Framing::Length(0), true));
        check("HTTP/1.1 100 Go", (Framing::Length(0), true));
        check("HTTP/1.0 200 OK\r\ncontent-length: 4", (Framing::Length(4), false));
        check("HTTP/1.0 200 OK\r\ncontent-length: 4\r\nconnection: keep-alive", (Framing::Length(4), true));
        check("HTTP/1.0 200 OK\r\ncontent-length: 4\r\nconnection: keep-alive, close", (Framing::Length(4), false));
    }

    #[test]
    fn equal_lengths_go_on_as_one() {
        for fields in ["content-length: 4, 4", "content-length: 4\r\ncontent-length: 4", "content-length: 04"] {
            let head = head(&format!("HTTP/1.1 200 OK\r\n{fields}\r\n\r\nbody")).unwrap().unwrap();
            assert_eq!(head.framing, Framing::Length(4), "{fields}");
            assert_eq!(head.parts.headers.get_all("content-length").iter().count(), 1, "{fields}");
            assert!(!head.parts.headers["content-length"].as_bytes().contains(&b','), "{fields}");
        }
    }

    #[test]
    fn ambiguous_framing_is_refused() {
        let check = |fields: &str, want| assert_eq!(framed(&format!("HTTP/1.1 200 OK\r\n{fields}")), Err(want), "{fields}");
        for length in ["two", "+2", "-2", "", "2,", "2 2", "18446744073709551616", "0x2"] {
            check(&format!("content-length: {length}"), Malformed::Length);
        }
        check("content-length: 2\r\ncontent-length: 3", Malformed::Length);
        for coding in ["gzip, chunked", "chunked, gzip", "chunked, chunked", "identity", "", "xchunked"] {
            check(&format!("transfer-encoding: {coding}"), Malformed::Coding);
        }
        check("transfer-encoding: gzip\r\ntransfer-encoding: chunked", Malformed::Coding);
        assert_eq!(framed("HTTP/1.0 200 OK\r\ntransfer-encoding: chunked"), Err(Malformed::Coding));
    }

    #[test]
    fn what_is_no_head_is_refused() {
        for text in ["SSH-2.0-OpenSSH\r\n", "HTTP/2.0 200 OK\r\n\r\n", "HTTP/1.1 2x0 OK\r\n\r\n", "HTTP/1.1 200 OK\r\na: 1\r\n b\r\n\r\n"] {
            assert!(matches!(head(text), Err(Malformed::Head(_))), "{text}");
        }
        for field in ["x: a\rb", "x: a\0b", "x y: 1", "x\u{7f}: 1", ": 1"] {
            assert!(framed(&format!("HTTP/1.1 200 OK\r\n{field}")).is_err(), "{field:?}");
        }
        let many: String = (0..=MAX_FIELDS).map(|n| format!("x-{n}: 1\r\n")).collect();
        assert_eq!(head(&format!("HTTP/1.1 200 OK\r\n{many}\r\n")).unwrap_err(), Malformed::Head(httparse::Error::TooManyHeaders));
        let long = format!("HTTP/1.1 200 OK\r\nx: {}", "a".repeat(MAX_HEAD));
        assert_eq!(head(&long).unwrap_err(), Malformed::LongHead);
        assert!(parse(&[]).unwrap().is_none());
    }
}
