//! Which paths are routed, and which pool a request belongs to.
//!
//! Owns: the allow-list (an engine's administrative paths must not be reachable) and addressing: served names first, then
//! `namespace/deployment`. Must not: wait or pick.

use std::sync::Arc;

use bytes::Bytes;
use config::Config;

use crate::groups::table::{PoolEntry, Table};
use crate::proxy::body::RequestBody;
use crate::proxy::scan::{Model, Scanned};
use crate::reject::Reject;
use crate::telemetry::labels::Route;

/// The route of a path; `Route::Other`: not on the allow-list. Exact match, no normalisation (RFC 9110 7.7: paths pass unchanged, so what an engine
/// might normalise must not get through).
pub fn of_path(path: &str, extra: &[String]) -> Route {
    let route = Route::of_path(path);
    if route == Route::Other && extra.iter().any(|allowed| allowed == path) { Route::Extra } else { route }
}

/// Answers that a model generates, so that `finish_reason` tells whether they are complete.
pub fn generates(route: Route) -> bool {
    matches!(route, Route::ChatCompletions | Route::Completions)
}

/// The pool of a request, and the name that its body must carry.
#[derive(Debug)]
pub struct Target {
    /// Where it goes.
    pub entry: Arc<PoolEntry>,
    /// The served name.
    pub model: Arc<str>,
    /// The body named a deployment: its model value has to be replaced by the served name.
    pub rewrite: bool,
}

/// Why there is no target.
#[derive(Debug, PartialEq, Eq)]
pub enum NoTarget {
    /// Final.
    Reject(Reject),
    /// Some deployment's names are not known yet: this may be one of them.
    Pending,
}

/// Resolves a request's model by one table.
pub fn resolve(table: &Table, config: &Config, scanned: &Scanned) -> Result<Target, NoTarget> {
    let name = match &scanned.model {
        Model::Named { name, .. } if !name.is_empty() => name.as_str(),
        Model::Absent | Model::Named { .. } => return default_pool(table, config),
        Model::NotAString => return Err(bad("the field `model` must be a string")),
        Model::Unreadable => return Err(bad("the field `model` is too long or not valid")),
    };
    if let Some(target) = by_name(table, name) {
        return Ok(target);
    }
    if table.snapshot.names_pending || table.snapshot.generation == 0 {
        return Err(NoTarget::Pending);
    }
    Err(NoTarget::Reject(Reject::UnknownModel(name.to_owned())))
}

fn by_name(table: &Table, name: &str) -> Option<Target> {
    // Served names win over deployments; the catch-all pool comes last.
    if table.snapshot.pools.contains_key(name) {
        return found(table, name, false);
    }
    match table.deployment(name) {
        Some(served) => found(table, served, true),
        None => found(table, name, false),
    }
}

fn found(table: &Table, name: &str, rewrite: bool) -> Option<Target> {
    let entry = table.pool(name)?.clone();
    Some(Target { entry, model: name.into(), rewrite })
}

fn default_pool(table: &Table, config: &Config) -> Result<Target, NoTarget> {
    if !config.names.default_to_only_pool {
        return Err(bad("the field `model` is missing: name a model that GET /v1/models lists"));
    }
    match table.only_pool() {
        Some(entry) => Ok(Target { entry: entry.clone(), model: entry.pool.model.clone(), rewrite: false }),
        None if table.snapshot.names_pending => Err(NoTarget::Pending),
        None => Err(bad("the field `model` is missing, and there is not exactly one model to default to")),
    }
}

fn bad(what: &str) -> NoTarget {
    NoTarget::Reject(Reject::BadRequest(what.to_owned()))
}

/// The body that goes to the leader: as it came, or with the model value alone replaced.
pub fn body_for(target: &Target, scanned: &Scanned, body: RequestBody) -> RequestBody {
    if let Model::Named { span, .. } = &scanned.model
        && target.rewrite
    {
        return body.replace(span.clone(), json_string_inner(&target.model));
    }
    body
}

fn json_string_inner(text: &str) -> Bytes {
    let quoted = serde_json::Value::from(text).to_string();
    Bytes::copy_from_slice(&quoted.as_bytes()[1..quoted.len() - 1])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::groups::table::Tables;
    use crate::testing;
    use discovery::snapshot::Snapshot;

    fn scanned(body: &str) -> Scanned {
        let mut scan = crate::proxy::scan::Scan::default();
        scan.feed(body.as_bytes());
        scan.finish().unwrap()
    }

    fn table(edit: impl FnOnce(&mut Snapshot)) -> Arc<Table> {
        let mut snapshot = Snapshot::clone(&testing::snapshot("m", 1));
        edit(&mut snapshot);
        let tables = Tables::new(1, testing::metrics());
        tables.rebuild(Arc::new(snapshot), &testing::config(), std::time::SystemTime::UNIX_EPOCH);
        tables.load().clone()
    }

    #[test]
    fn only_listed_paths_are_routed() {
        assert_eq!(of_path("/v1/chat/completions", &[]), Route::ChatCompletions);
        for path in [
            "/v1/load_lora_adapter",
            "/v1/chat/completions/",
            "//v1/chat/completions",
            "/v1/%63hat/completions",
            "/",
            "/metrics",
            "/health",
        ] {
            assert_eq!(of_path(path, &[]), Route::Other, "{path}");
        }
        assert_eq!(of_path("/v2/rerank", &["/v2/rerank".into()]), Route::Extra);
    }

    #[test]
    fn a_deployment_is_an_address_and_its_body_is_rewritten() {
        let table = table(|s| {
            s.deployments.insert("ns/d".into(), "m".into());
        });
        let text = r#"{"stream":true,"model":"ns/d","x":1}"#;
        let scanned = scanned(text);
        let target = resolve(&table, &testing::config(), &scanned).unwrap();
        assert_eq!((&*target.model, target.rewrite), ("m", true));
        let body = body_for(&target, &scanned, RequestBody::from_bytes(Bytes::from_static(text.as_bytes())));
        assert_eq!(body.to_bytes(), r#"{"stream":true,"model":"m","x":1}"#);
    }

    #[test]
    fn a_served_name_wins_over_a_deployment_of_the_same_spelling() {
        let table = table(|s| {
            let pool = s.pools["m"].clone();
            s.pools.insert("ns/d".into(), pool);
            s.deployments.insert("ns/d".into(), "m".into());
        });
        assert!(!resolve(&table, &testing::config(), &scanned(r#"{"model":"ns/d"}"#)).unwrap().rewrite);
    }

    #[test]
    fn unknown_names_are_404_only_when_all_names_are_known() {
        let unknown = scanned(r#"{"model":"nope"}"#);
        let config = testing::config();
        assert_eq!(resolve(&table(|_| {}), &config, &unknown).unwrap_err(), NoTarget::Reject(Reject::UnknownModel("nope".into())));
        assert_eq!(resolve(&table(|s| s.names_pending = true), &config, &unknown).unwrap_err(), NoTarget::Pending);
    }

    #[test]
    fn a_missing_model_needs_the_permission_and_a_single_pool() {
        let absent = scanned("{}");
        let mut config = testing::config();
        assert!(matches!(resolve(&table(|_| {}), &config, &absent), Err(NoTarget::Reject(Reject::BadRequest(_)))));
        config.names.default_to_only_pool = true;
        assert_eq!(&*resolve(&table(|_| {}), &config, &absent).unwrap().model, "m");
        let two = table(|s| {
            let pool = s.pools["m"].clone();
            s.pools.insert("n".into(), pool);
        });
        assert!(matches!(resolve(&two, &config, &absent), Err(NoTarget::Reject(Reject::BadRequest(_)))));
    }
}
