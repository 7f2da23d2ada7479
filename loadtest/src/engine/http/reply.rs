//! Heads of answers, in uvicorn's order and words.
//!
//! Only bytes; who writes them, and how wrongly, is the exchange's matter.

use std::fmt::Write as _;
use std::time::{SystemTime, UNIX_EPOCH};

use super::request::Request;

/// What a head depends on besides the answer itself.
#[derive(Debug, Clone, Default)]
pub(crate) struct Context {
    /// The request came from a page, so the CORS header is there.
    pub(crate) origin: bool,
    /// `x-request-id`, where the engine is told to send one.
    pub(crate) request_id: Option<String>,
    /// The connection ends behind the answer.
    pub(crate) close: bool,
}

impl Context {
    pub(crate) fn of(request: &Request, echo_id: bool) -> Self {
        let made = || format!("{:016x}{:016x}", rand::random::<u64>(), rand::random::<u64>());
        let request_id = echo_id.then(|| request.header("x-request-id").map_or_else(made, str::to_owned));
        Self { origin: request.header("origin").is_some(), request_id, close: request.close }
    }
}

/// An answer with a length.
#[derive(Debug, Clone)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) content_type: Option<&'static str>,
    /// `Allow` of a 405.
    pub(crate) allow: Option<&'static str>,
    /// The answer of the key check is made outside of the CORS layer.
    pub(crate) bare: bool,
    pub(crate) body: Vec<u8>,
}

impl Reply {
    pub(crate) fn json(status: u16, body: impl Into<Vec<u8>>) -> Self {
        Self { status, content_type: Some("application/json"), allow: None, bare: false, body: body.into() }
    }

    pub(crate) fn empty() -> Self {
        Self { status: 200, content_type: None, allow: None, bare: false, body: Vec::new() }
    }

    pub(crate) fn not_found() -> Self {
        Self::json(404, r#"{"detail":"Not Found"}"#)
    }

    pub(crate) fn wrong_method(allow: &'static str) -> Self {
        Self { allow: Some(allow), ..Self::json(405, r#"{"detail":"Method Not Allowed"}"#) }
    }

    pub(crate) fn unauthorized() -> Self {
        Self { bare: true, ..Self::json(401, r#"{"error":"Unauthorized"}"#) }
    }

    /// The head, saying that `length` bytes follow.
    pub(crate) fn head(&self, context: &Context, length: usize) -> String {
        let mut head = start(self.status);
        if let Some(allow) = self.allow {
            let _ = write!(head, "allow: {allow}\r\n");
        }
        let _ = write!(head, "content-length: {length}\r\n");
        if let Some(kind) = self.content_type {
            let _ = write!(head, "content-type: {kind}\r\n");
        }
        finish(&mut head, context, self.bare);
        head.push_str("\r\n");
        head
    }
}

/// The head of a stream.
pub(crate) fn stream_head(context: &Context) -> String {
    let mut head = start(200);
    head.push_str("content-type: text/event-stream; charset=utf-8\r\n");
    finish(&mut head, context, false);
    head.push_str("transfer-encoding: chunked\r\n\r\n");
    head
}

/// The answer to a CORS preflight.
pub(crate) fn preflight(request: &Request) -> String {
    let mut head = start(200);
    head.push_str("vary: Origin\r\naccess-control-allow-methods: DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT\r\n");
    head.push_str("access-control-max-age: 600\r\naccess-control-allow-origin: *\r\n");
    if let Some(wanted) = request.header("access-control-request-headers") {
        let _ = write!(head, "access-control-allow-headers: {wanted}\r\n");
    }
    head.push_str("content-length: 2\r\ncontent-type: text/plain; charset=utf-8\r\n\r\nOK");
    head
}

fn start(status: u16) -> String {
    let reason = match status {
        200 => "OK",
        400 => "Bad Request",
        401 => "Unauthorized",
        404 => "Not Found",
        405 => "Method Not Allowed",
        500 => "Internal Server Error",
        503 => "Service Unavailable",
        _ => "",
    };
    let mut head = String::with_capacity(320);
    let _ = write!(head, "HTTP/1.1 {status} {reason}\r\ndate: {}\r\nserver: uvicorn\r\n", http_date(now()));
    head
}

fn finish(head: &mut String, context: &Context, bare: bool) {
    if !bare {
        head.push_str("vary: Origin\r\n");
        if context.origin {
            head.push_str("access-control-allow-origin: *\r\n");
        }
        if let Some(id) = &context.request_id {
            let _ = write!(head, "x-request-id: {id}\r\n");
        }
    }
    if context.close {
        head.push_str("connection: close\r\n");
    }
}

/// Seconds since 1970.
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// RFC 9110 section 5.6.7, from seconds since 1970.
pub(crate) fn http_date(seconds: u64) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let (days, of_day) = (seconds / 86_400, seconds % 86_400);
    // Counted in eras of 400 years from the first of March of the year 0, so that leap days come last.
    let shifted = days + 719_468;
    let era_day = shifted % 146_097;
    let era_year = (era_day - era_day / 1_460 + era_day / 36_524 - era_day / 146_096) / 365;
    let year_day = era_day - (365 * era_year + era_year / 4 - era_year / 100);
    let month_from_march = (5 * year_day + 2) / 153;
    let day = year_day - (153 * month_from_march + 2) / 5 + 1;
    let month = (month_from_march + 2) % 12;
    let year = era_year + shifted / 146_097 * 400 + u64::from(month < 2);
    let weekday = DAYS[(days % 7) as usize];
    format!("{weekday}, {day:02} {} {year} {:02}:{:02}:{:02} GMT", MONTHS[month as usize], of_day / 3600, of_day / 60 % 60, of_day % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_follow_the_rfc() {
        for (seconds, text) in [
            (0, "Thu, 01 Jan 1970 00:00:00 GMT"),
            (951_782_400, "Tue, 29 Feb 2000 00:00:00 GMT"),
            (1_796_053_957, "Mon, 30 Nov 2026 15:52:37 GMT"),
            (4_102_444_799, "Thu, 31 Dec 2099 23:59:59 GMT"),
        ] {
            assert_eq!(http_date(seconds), text);
        }
    }

    #[test]
    fn heads_have_the_engines_order() {
        let head = Reply::not_found().head(&Context { close: true, ..Context::default() }, 22);
        let names: Vec<_> = head.lines().skip(1).filter_map(|line| line.split_once(':')).map(|(name, _)| name).collect();
        assert_eq!(names, ["date", "server", "content-length", "content-type", "vary", "connection"]);
    }
}
