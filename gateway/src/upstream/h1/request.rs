//! Writes the head of a request (RFC 9112 3).

use http::Method;
use http::header::{CONTENT_LENGTH, HeaderName, HeaderValue};
use http::uri::PathAndQuery;

/// Room for the usual head.
const USUAL: usize = 1024;

/// A head in the making. Names and values are valid by their types; fields that frame must not be given (`headers::upward` drops them).
#[derive(Debug)]
pub struct RequestHead(Vec<u8>);

impl RequestHead {
    /// Begins with the request line.
    pub fn new(method: &Method, target: &PathAndQuery) -> Self {
        let mut head = Self(Vec::with_capacity(USUAL));
        head.put(&[method.as_str().as_bytes(), b" ", target.as_str().as_bytes(), b" HTTP/1.1\r\n"]);
        head
    }

    /// Adds a field line.
    pub fn field(&mut self, name: &HeaderName, value: &HeaderValue) {
        self.put(&[name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"]);
    }

    /// The head of a request with a body of `length` bytes.
    pub fn finish(mut self, length: usize) -> Vec<u8> {
        let mut digits = itoa::Buffer::new();
        self.put(&[CONTENT_LENGTH.as_str().as_bytes(), b": ", digits.format(length).as_bytes(), b"\r\n\r\n"]);
        self.0
    }

    fn put(&mut self, parts: &[&[u8]]) {
        parts.iter().for_each(|part| self.0.extend_from_slice(part));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_target_fields_in_order_and_the_length() {
        let mut head = RequestHead::new(&Method::POST, &PathAndQuery::from_static("/v1/x?a=%2F"));
        for (name, value) in [("host", "a:1"), ("x", "1"), ("x", "2")] {
            head.field(&HeaderName::from_static(name), &HeaderValue::from_static(value));
        }
        assert_eq!(
            String::from_utf8(head.finish(7)).unwrap(),
            "POST /v1/x?a=%2F HTTP/1.1\r\nhost: a:1\r\nx: 1\r\nx: 2\r\ncontent-length: 7\r\n\r\n"
        );
    }
}
