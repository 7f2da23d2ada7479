//! The address of a fixed leader: `http://HOST:PORT` or `https://HOST:PORT`.
//!
//! Owns: what such a URL may be. Must not: resolve it. Next step of the path: `source` puts it into the configuration.

use std::net::Ipv6Addr;

use crate::problem::Wrong;

const RIGHT: &str = "write http://HOST:PORT or https://HOST:PORT";

/// The URL with its port written out (80 or 443 where none is given) and scheme and host in lower case.
pub(crate) fn normalise(text: &str) -> Result<String, Wrong> {
    let text = text.trim();
    let wrong = |what: &str| Wrong::new(format!("{text:?} {what}"), RIGHT);
    let (scheme, rest) = text.split_once("://").ok_or_else(|| wrong("is no URL"))?;
    let scheme = scheme.to_ascii_lowercase();
    let port = match scheme.as_str() {
        "http" => 80,
        "https" => 443,
        _ => return Err(wrong("has a scheme other than http and https")),
    };
    if rest.contains(['/', '?', '#']) {
        return Err(wrong("has a path; requests keep their own"));
    }
    if rest.contains('@') {
        return Err(Wrong::new("the URL holds a user name", "give engines' keys by engine_key.file"));
    }
    let (host, port) = split_port(rest, port).ok_or_else(|| wrong("has no valid host and port"))?;
    Ok(format!("{scheme}://{}:{port}", host.to_ascii_lowercase()))
}

fn split_port(rest: &str, default: u16) -> Option<(&str, u16)> {
    let (host, port) = match rest.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, digits(port)?),
        _ => (rest, default),
    };
    let valid = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        Some(inner) => inner.parse::<Ipv6Addr>().is_ok(),
        None => named(host),
    };
    (valid && port != 0).then_some((host, port))
}

/// `u16::from_str` takes a plus sign, a port does not.
fn digits(port: &str) -> Option<u16> {
    if port.bytes().all(|byte| byte.is_ascii_digit()) { port.parse().ok() } else { None }
}

/// A DNS name (underscores included, as clusters have them) or an IPv4 address.
fn named(host: &str) -> bool {
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    host.len() <= 253 && host.strip_suffix('.').unwrap_or(host).split('.').all(label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls() {
        let check = |text: &str, expect: &str| match normalise(text) {
            Ok(url) => assert_eq!(url, expect, "{text:?}"),
            Err(wrong) => assert!(!expect.starts_with("http") && wrong.wrong.contains(expect), "{text:?}: {}", wrong.wrong),
        };
        check("http://127.0.0.1:8000", "http://127.0.0.1:8000");
        check(" HTTP://Engine-0.Example:8000 ", "http://engine-0.example:8000");
        check("https://[::1]:8443", "https://[::1]:8443");
        check("http://host", "http://host:80");
        check("https://[::1]", "https://[::1]:443");
        check("http://h:1/", "path");
        check("http://h:1/v1", "path");
        check("http://h:1?x", "path");
        check("ftp://h:1", "scheme");
        check("h:1", "no URL");
        check("http://", "host and port");
        check("http://:80", "host and port");
        check("http://h:", "host and port");
        check("http://h:0", "host and port");
        check("http://h:+1", "host and port");
        check("http://h:65536", "host and port");
        check("http://h h:1", "host and port");
        check("http://-h:1", "host and port");
        check("http://::1:80", "host and port");
        check("http://[::1:80", "host and port");
        check("http://u:secret@h:1", "user name");
    }
}
