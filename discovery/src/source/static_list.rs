//! Fixed leaders (`--leaders MODEL=URL[,URL…]`): each URL is a replica group of its own.
//!
//! Owns: the groups that a configuration names. Must not: decide their phase (the prober's verdict does) or open sockets. Next step:
//! `publish`, which makes pools of them.

use std::sync::Arc;

use config::StaticLeaders;
use http::Uri;

use crate::snapshot::{Address, GroupId, GroupKey};

/// One fixed leader under one served name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StaticGroup {
    /// Served name; `*` takes every name.
    pub model: Arc<str>,
    /// `static/HOST:PORT`.
    pub key: GroupKey,
    /// Nothing tells a restart of a fixed leader, so its URL is its only incarnation. Two names that share a URL share it: it is one engine.
    pub id: GroupId,
    /// Where it answers.
    pub address: Address,
}

/// The groups of a checked configuration, in its order; a URL that a model names twice counts once.
///
/// The configuration has refused bad URLs already; one that comes here all the same is left out with an error in the log.
pub fn groups(leaders: &[StaticLeaders]) -> Vec<StaticGroup> {
    let mut found: Vec<StaticGroup> = Vec::new();
    for entry in leaders {
        let model: Arc<str> = entry.model.as_str().into();
        for url in &entry.urls {
            let Some(address) = address(url) else {
                tracing::error!(%model, url, "not the URL of a leader");
                continue;
            };
            let group = StaticGroup { model: model.clone(), key: key(&address), id: GroupId(address.to_string().into()), address };
            if !found.contains(&group) {
                found.push(group);
            }
        }
    }
    found
}

fn key(address: &Address) -> GroupKey {
    let shown = address.to_string();
    let authority = shown.split_once("://").map_or(shown.as_str(), |(_, authority)| authority);
    GroupKey(format!("static/{authority}").into())
}

fn address(url: &str) -> Option<Address> {
    let uri: Uri = url.parse().ok()?;
    let https = match uri.scheme_str()? {
        "http" => false,
        "https" => true,
        _ => return None,
    };
    let host = uri.host()?.trim_start_matches('[').trim_end_matches(']');
    let port = uri.port_u16().unwrap_or(if https { 443 } else { 80 });
    Some(Address { https, host: host.into(), port })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(model: &str, urls: &[&str]) -> StaticLeaders {
        StaticLeaders { model: model.to_owned(), urls: urls.iter().map(|url| (*url).to_owned()).collect() }
    }

    #[test]
    fn each_url_is_a_group() {
        let check = |leaders: &[StaticLeaders], expect: &[(&str, &str, &str)]| {
            let found = groups(leaders);
            let found: Vec<_> = found.iter().map(|group| (&*group.model, &*group.key.0, group.address.to_string())).collect();
            let expect: Vec<_> = expect.iter().map(|(model, key, address)| (*model, *key, (*address).to_owned())).collect();
            assert_eq!(found, expect);
        };
        check(
            &[entry("m", &["http://127.0.0.1:8000", "https://leader.example:8443"]), entry("*", &["http://[::1]:8000"])],
            &[
                ("m", "static/127.0.0.1:8000", "http://127.0.0.1:8000"),
                ("m", "static/leader.example:8443", "https://leader.example:8443"),
                ("*", "static/[::1]:8000", "http://[::1]:8000"),
            ],
        );
        check(
            &[entry("m", &["http://h", "http://h:80/", "https://h"])],
            &[("m", "static/h:80", "http://h:80"), ("m", "static/h:443", "https://h:443")],
        );
        check(&[entry("m", &["ftp://h:1", "no url", "/x"])], &[]);
    }

    #[test]
    fn names_that_share_a_leader_share_its_incarnation() {
        let found = groups(&[entry("a", &["http://127.0.0.1:1"]), entry("b", &["http://127.0.0.1:1"])]);
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].id, found[1].id);
    }
}
