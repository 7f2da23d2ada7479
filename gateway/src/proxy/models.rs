//! `GET /v1/models` and `GET /v1/models/{id}`: the union of what is served, in a stable order, answered here.
//!
//! Owns: the OpenAI list shape. A name is listed while its pool is in the snapshot (last known names outlive a gap in which nothing serves).

use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::Response;
use http::header::{CONTENT_TYPE, HeaderValue};
use serde_json::{Value, json};

use crate::groups::table::Table;
use crate::reject::Reject;

/// Answers for the path behind `/v1/models`: empty, or `/{id}` (which may hold slashes and percent escapes).
pub fn answer(table: &Table, rest: &str) -> Result<Response<Bytes>, Reject> {
    let created = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    let names = || table.snapshot.pools.keys().filter(|name| &***name != "*");
    let body = match rest.strip_prefix('/').filter(|id| !id.is_empty()) {
        None => json!({ "object": "list", "data": names().map(|name| entry(name, created)).collect::<Vec<_>>() }),
        Some(id) => {
            let id = percent_decoded(id);
            if !names().any(|name| **name == id) {
                return Err(Reject::UnknownModel(id));
            }
            entry(&id, created)
        }
    };
    let mut response = Response::new(Bytes::from(body.to_string()));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}

fn entry(name: &str, created: u64) -> Value {
    json!({ "id": name, "object": "model", "created": created, "owned_by": "leadgate" })
}

fn percent_decoded(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let hex = (*first == b'%').then(|| tail.get(..2)).flatten().and_then(|h| u8::from_str_radix(std::str::from_utf8(h).ok()?, 16).ok());
        match hex {
            Some(byte) => {
                out.push(byte);
                rest = &tail[2..];
            }
            None => {
                out.push(*first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::groups::table::Tables;
    use crate::testing;

    #[test]
    fn lists_and_finds() {
        let tables = Tables::new(1, testing::metrics());
        tables.rebuild(testing::snapshot("org/m", 1), &testing::config(), std::time::SystemTime::UNIX_EPOCH);
        let table = tables.load();
        let list: Value = serde_json::from_slice(answer(&table, "").unwrap().body()).unwrap();
        assert_eq!(list["data"][0]["id"], "org/m");
        for path in ["/org/m", "/org%2Fm", "/org%2fm"] {
            let one: Value = serde_json::from_slice(answer(&table, path).unwrap().body()).unwrap();
            assert_eq!(one["id"], "org/m");
        }
        assert_eq!(answer(&table, "/nope%").unwrap_err(), Reject::UnknownModel("nope%".into()));
    }
}
