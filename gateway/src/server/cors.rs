//! Cross-origin requests (WHATWG Fetch): preflights are answered here, and every answer says who may read it.
//!
//! By default as the engines do it: any origin, any method, any header, no credentials.

use bytes::Bytes;
use config::Cors;
use http::header::{
    ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS, ACCESS_CONTROL_REQUEST_METHOD, HeaderMap, HeaderName, HeaderValue, ORIGIN,
    VARY,
};
use http::{Method, Response, StatusCode};

/// Methods named where any is allowed.
const METHODS: &str = "DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT";

/// The answer to a preflight; `None`: this is none, or cross-origin answers are off.
pub fn preflight(cors: &Cors, method: &Method, headers: &HeaderMap) -> Option<Response<Bytes>> {
    let asked = headers.get(ACCESS_CONTROL_REQUEST_METHOD)?;
    let origin = headers.get(ORIGIN)?;
    if method != Method::OPTIONS || !cors.enabled {
        return None;
    }
    let mut response = Response::new(Bytes::new());
    let allowed = allows(&cors.allow_origins, origin) && allows(&cors.allow_methods, asked);
    *response.status_mut() = if allowed { StatusCode::OK } else { StatusCode::BAD_REQUEST };
    if allowed {
        let out = response.headers_mut();
        out.insert(ACCESS_CONTROL_ALLOW_METHODS, listed(&cors.allow_methods, &HeaderValue::from_static(METHODS)));
        out.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from(cors.max_age.as_secs()));
        if let Some(fields) = headers.get(ACCESS_CONTROL_REQUEST_HEADERS) {
            out.insert(ACCESS_CONTROL_ALLOW_HEADERS, listed(&cors.allow_headers, fields));
        }
    }
    Some(response)
}

/// Marks an answer to a request that came from `origin`. What the engine said of it is replaced: the gateway's configuration decides.
pub fn mark(cors: &Cors, origin: Option<&HeaderValue>, out: &mut HeaderMap) {
    let Some(origin) = origin.filter(|_| cors.enabled) else { return };
    out.remove(ACCESS_CONTROL_ALLOW_ORIGIN);
    out.remove(ACCESS_CONTROL_ALLOW_CREDENTIALS);
    if !allows(&cors.allow_origins, origin) {
        return;
    }
    let any = cors.allow_origins.iter().any(|o| o == "*");
    out.insert(ACCESS_CONTROL_ALLOW_ORIGIN, if any { HeaderValue::from_static("*") } else { origin.clone() });
    if cors.allow_credentials {
        out.insert(ACCESS_CONTROL_ALLOW_CREDENTIALS, HeaderValue::from_static("true"));
    }
    let varies = out.get_all(VARY).iter().any(|v| v.as_bytes().eq_ignore_ascii_case(b"origin"));
    if !any && !varies {
        out.append(VARY, HeaderValue::from_static("Origin"));
    }
    let expose: [HeaderName; 3] =
        [crate::proxy::headers::X_REQUEST_ID, crate::proxy::headers::X_LEADGATE_GROUP, crate::proxy::headers::X_LEADGATE_REASON];
    let names = expose.iter().map(HeaderName::as_str).collect::<Vec<_>>().join(", ");
    if let Ok(value) = HeaderValue::from_str(&names) {
        out.insert(http::header::ACCESS_CONTROL_EXPOSE_HEADERS, value);
    }
}

fn allows(list: &[String], value: &HeaderValue) -> bool {
    list.iter().any(|item| item == "*" || item.as_bytes().eq_ignore_ascii_case(value.as_bytes()))
}

fn listed(list: &[String], any: &HeaderValue) -> HeaderValue {
    if list.iter().any(|item| item == "*") {
        return any.clone();
    }
    HeaderValue::from_str(&list.join(", ")).unwrap_or_else(|_| any.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(fields: &[(&'static str, &'static str)]) -> HeaderMap {
        fields.iter().map(|(n, v)| (HeaderName::from_static(n), HeaderValue::from_static(v))).collect()
    }

    #[test]
    fn answers_as_the_engines_do_by_default() {
        let cors = crate::testing::config().cors;
        let asked =
            headers(&[("origin", "http://a"), ("access-control-request-method", "POST"), ("access-control-request-headers", "x-a, x-b")]);
        let answer = preflight(&cors, &Method::OPTIONS, &asked).unwrap();
        assert_eq!(answer.status(), 200);
        assert_eq!(answer.headers()["access-control-allow-headers"], "x-a, x-b");
        assert!(preflight(&cors, &Method::POST, &asked).is_none());
        let mut out = headers(&[("vary", "Origin")]);
        mark(&cors, asked.get(ORIGIN), &mut out);
        assert_eq!(out["access-control-allow-origin"], "*");
        assert_eq!(out.get_all(VARY).iter().count(), 1);
    }

    #[test]
    fn a_list_of_origins_is_kept_to() {
        let mut cors = crate::testing::config().cors;
        cors.allow_origins = vec!["http://a".into()];
        let mut out = headers(&[("access-control-allow-origin", "*")]);
        mark(&cors, Some(&HeaderValue::from_static("http://b")), &mut out);
        assert!(!out.contains_key("access-control-allow-origin"));
        mark(&cors, Some(&HeaderValue::from_static("http://a")), &mut out);
        assert_eq!(
            (&out["access-control-allow-origin"], &out["vary"]),
            (&HeaderValue::from_static("http://a"), &HeaderValue::from_static("Origin"))
        );
    }
}
