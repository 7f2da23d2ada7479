//! Writes the head of a request (RFC 9112 3).

use http::Method;
use http::header::{CONTENT_LENGTH, HeaderMap};
use http::uri::PathAndQuery;

/// The head of a request with a body of `length` bytes. `headers` must not hold fields that frame (`headers::upward` drops them). Names and values
/// are valid by their types.
pub fn head(method: &Method, target: &PathAndQuery, headers: &HeaderMap, length: usize) -> Vec<u8> {
    let fields: usize = headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum();
    let mut out = Vec::with_capacity(method.as_str().len() + target.as_str().len() + fields + 64);
    for part in [method.as_str(), " ", target.as_str(), " HTTP/1.1\r\n"] {
        out.extend_from_slice(part.as_bytes());
    }
    for (name, value) in headers {
        field(&mut out, name.as_str(), value.as_bytes());
    }
    field(&mut out, CONTENT_LENGTH.as_str(), itoa::Buffer::new().format(length).as_bytes());
    out.extend_from_slice(b"\r\n");
    out
}

fn field(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    for part in [name.as_bytes(), b": ", value, b"\r\n"] {
        out.extend_from_slice(part);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    #[test]
    fn writes_target_fields_in_order_and_the_length() {
        let mut headers = HeaderMap::new();
        headers.insert("host", HeaderValue::from_static("a:1"));
        headers.append("x", HeaderValue::from_static("1"));
        headers.append("x", HeaderValue::from_static("2"));
        let written = head(&Method::POST, &PathAndQuery::from_static("/v1/x?a=%2F"), &headers, 7);
        assert_eq!(
            String::from_utf8(written).unwrap(),
            "POST /v1/x?a=%2F HTTP/1.1\r\nhost: a:1\r\nx: 1\r\nx: 2\r\ncontent-length: 7\r\n\r\n"
        );
    }
}
