//! What settings must hold together, and against the files that they name.
//!
//! Owns: rules between fields. Must not: check one value by itself (`read`).
//! Next step of the path: `load` hands out the configuration when no problem was found.

use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::path::Path;

use crate::model::{ACCESS_FIELDS, Config, Cors, EngineKey, PoolSettings, Source, TlsVerify, UpstreamTls};
use crate::problem::{Place, Problems, join};
use crate::routes;

/// Reads a file; the only way in which this crate looks at the world.
pub(crate) type Read<'a> = dyn Fn(&Path) -> io::Result<String> + 'a;

/// Checks a configuration whose single values are right.
pub(crate) fn all(config: &Config, read: &Read<'_>, problems: &mut Problems) {
    addresses(config.listen, config.admin, problems);
    source(&config.source, read, problems);
    cors(&config.cors, problems);
    routes::check(&config.routes.extra, problems);
    log_level(&config.log.level, problems);
    once("log.access_fields", &config.log.access_fields, problems);
    access_fields(&config.log.access_fields, problems);
    let limits = &config.limits;
    if limits.body_bytes_total < limits.body_bytes {
        let place = Place::new("limits.body_bytes_total");
        problems.add(&place, "is smaller than limits.body_bytes", "give at least the size of one body");
    }
    pool("", &config.defaults, None, read, problems);
    for (model, settings) in &config.pools {
        pool(&join("pools", model), settings, Some(&config.defaults), read, problems);
    }
}

fn access_fields(fields: &[String], problems: &mut Problems) {
    for unknown in fields.iter().filter(|f| !ACCESS_FIELDS.contains(&f.as_str())) {
        let right = format!("choose from {}", ACCESS_FIELDS.join(", "));
        problems.add(&Place::new("log.access_fields"), format!("{unknown:?} is no field of the access line"), right);
    }
}

fn addresses(listen: SocketAddr, admin: SocketAddr, problems: &mut Problems) {
    let overlap = listen.ip() == admin.ip() || listen.ip().is_unspecified() || admin.ip().is_unspecified();
    if listen.port() != 0 && listen.port() == admin.port() && overlap {
        problems.add(&Place::new("admin"), format!("{admin} collides with listen {listen}"), "give another port");
    }
}

fn source(source: &Source, read: &Read<'_>, problems: &mut Problems) {
    match source {
        Source::Kubernetes(kubernetes) => {
            if let Some(path) = &kubernetes.kubeconfig {
                file(&Place::new("kubeconfig"), path, read, problems);
            }
        }
        Source::Manifests(folder) => match read(folder) {
            Err(error) if error.kind() == io::ErrorKind::IsADirectory => {}
            Err(error) => {
                problems.add(&Place::new("manifests"), format!("{}: {error}", folder.display()), "name a folder that can be read")
            }
            Ok(_) => problems.add(&Place::new("manifests"), format!("{} is a file", folder.display()), "name a folder"),
        },
        Source::Leaders(_) => {}
    }
}

fn file(place: &Place, path: &Path, read: &Read<'_>, problems: &mut Problems) -> Option<String> {
    match read(path) {
        Ok(text) => Some(text),
        Err(error) => {
            problems.add(place, format!("{}: {error}", path.display()), "name a file that can be read");
            None
        }
    }
}

fn cors(cors: &Cors, problems: &mut Problems) {
    if cors.allow_credentials && cors.allow_origins.iter().any(|origin| origin == "*") {
        problems.add(&Place::new("cors.allow_credentials"), "is on with the origin *", "list the origins, or turn it off");
    }
    let lists = [
        ("cors.allow_origins", &cors.allow_origins, origin as fn(&str) -> bool, "write * or origins such as https://chat.example.com"),
        ("cors.allow_methods", &cors.allow_methods, token, "write * or methods such as POST"),
        ("cors.allow_headers", &cors.allow_headers, token, "write * or header names such as authorization"),
    ];
    for (path, items, valid, right) in lists {
        once(path, items, problems);
        for item in items.iter().filter(|item| *item != "*" && !valid(item)) {
            problems.add(&Place::new(path), format!("{item:?} is not possible"), right);
        }
        if items.len() > 1 && items.iter().any(|item| item == "*") {
            problems.add(&Place::new(path), "* stands beside others", "write * alone, or leave it out");
        }
    }
}

fn once(path: &str, items: &[String], problems: &mut Problems) {
    let mut seen = BTreeSet::new();
    for item in items.iter().filter(|item| !seen.insert(*item)) {
        problems.add(&Place::new(path), format!("{item:?} is listed twice"), "list it once");
    }
}

/// A serialised origin (RFC 6454 section 6.2): a scheme and an authority, or `null`.
fn origin(text: &str) -> bool {
    let Some((scheme, rest)) = text.split_once("://") else { return text == "null" };
    let scheme_valid =
        scheme.starts_with(|c: char| c.is_ascii_alphabetic()) && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b));
    scheme_valid && !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._:[]".contains(&b))
}

/// A token (RFC 9110 section 5.6.2).
fn token(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b))
}

fn log_level(filter: &str, problems: &mut Problems) {
    let level = |text: &str| matches!(text.trim().to_ascii_lowercase().as_str(), "off" | "error" | "warn" | "info" | "debug" | "trace");
    for directive in filter.split(',') {
        let (target, given) = directive.rsplit_once('=').unwrap_or(("-", directive));
        if !level(given) || target.trim().is_empty() || target.contains(char::is_whitespace) {
            let wrong = format!("{directive:?} is no level");
            problems.add(
                &Place::new("log.level"),
                wrong,
                "write error, warn, info, debug, trace or off, or target=level, separated by commas",
            );
        }
    }
}

/// One pool. What it shares with `base` was checked there.
fn pool(path: &str, settings: &PoolSettings, base: Option<&PoolSettings>, read: &Read<'_>, problems: &mut Problems) {
    if base.is_none_or(|base| base.engine_key != settings.engine_key)
        && let Some(key) = &settings.engine_key
    {
        engine_key(&Place::new(join_path(path, "engine_key.file")), key, read, problems);
    }
    if base.is_none_or(|base| base.tls != settings.tls) {
        tls(path, &settings.tls, read, problems);
    }
    let resume = &settings.resume;
    if base.is_none_or(|base| base.resume != *resume) && resume.text_bytes.saturating_add(resume.request_bytes) > resume.total_bytes {
        let place = Place::new(join_path(path, "resume.text_bytes"));
        problems.add(&place, "is, with resume.request_bytes, more than resume.total_bytes", "let at least one stream fit");
    }
}

fn join_path(prefix: &str, path: &str) -> String {
    if prefix.is_empty() { path.to_owned() } else { format!("{prefix}.{path}") }
}

fn engine_key(place: &Place, key: &EngineKey, read: &Read<'_>, problems: &mut Problems) {
    let Some(text) = file(place, &key.file, read, problems) else { return };
    let key = text.trim();
    if key.is_empty() {
        problems.add(place, "the file is empty", "put the engines' key into it");
    } else if !key.bytes().all(|byte| byte.is_ascii_graphic()) {
        problems.add(place, "the file holds more than one word of plain ASCII", "put the engines' key into it and nothing else");
    }
}

fn tls(path: &str, tls: &UpstreamTls, read: &Read<'_>, problems: &mut Problems) {
    let Some(ca) = &tls.ca_file else { return };
    let place = Place::new(join_path(path, "tls.ca_file"));
    if tls.verify == TlsVerify::None {
        problems.add(&place, "has no effect while tls.verify is none", "set tls.verify to chain or full, or leave the file out");
    }
    if let Some(text) = file(&place, ca, read, problems)
        && !text.contains("-----BEGIN CERTIFICATE-----")
    {
        problems.add(&place, format!("{} holds no certificate", ca.display()), "name a bundle of PEM certificates");
    }
}
