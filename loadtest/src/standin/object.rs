//! What the server makes of an object that a client sends. Pure: UIDs, times and addresses are passed in.
//!
//! Owns: the fields that only the server sets, what an update may change, merge patches, the marks of a deletion. Must not: store.

use serde_json::{Map, Value, json};

use super::refusal::Refusal;
use super::route::{Kind, Part};

/// What a creation needs from outside.
#[derive(Debug)]
pub(super) struct Fresh {
    pub(super) uid: String,
    /// RFC 3339 in whole seconds.
    pub(super) now: String,
    /// Ends a generated name.
    pub(super) suffix: String,
    pub(super) cluster_ip: String,
}

/// Metadata that an update cannot change.
const SERVER_SET: [&str; 6] = ["uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation", "generateName"];

/// The new object, without a version.
pub(super) fn created(kind: Kind, namespace: &str, body: Value, fresh: Fresh) -> Result<Value, Refusal> {
    let Value::Object(mut object) = body else { return Err(Refusal::bad("the body is not an object")) };
    let mut metadata = take_map(&mut object, "metadata");
    let named = metadata.get("name").and_then(Value::as_str).filter(|name| !name.is_empty());
    let name = match (named, metadata.get("generateName").and_then(Value::as_str)) {
        (Some(name), _) => name.to_owned(),
        (None, Some(prefix)) => format!("{prefix}{}", fresh.suffix),
        (None, None) => return Err(Refusal::invalid("metadata.name: name or generateName is required")),
    };
    if let Some(other) = metadata.get("namespace").and_then(Value::as_str).filter(|other| *other != namespace) {
        return Err(Refusal::bad(format!("the namespace of the object ({other}) is not that of the request ({namespace})")));
    }
    for field in ["deletionTimestamp", "deletionGracePeriodSeconds", "resourceVersion", "selfLink"] {
        metadata.remove(field);
    }
    metadata.insert("name".to_owned(), name.into());
    if kind.namespaced() {
        metadata.insert("namespace".to_owned(), namespace.into());
    }
    metadata.insert("uid".to_owned(), fresh.uid.into());
    metadata.insert("creationTimestamp".to_owned(), fresh.now.into());
    metadata.insert("generation".to_owned(), 1.into());
    object.insert("apiVersion".to_owned(), kind.api_version().into());
    object.insert("kind".to_owned(), kind.name().into());
    object.insert("metadata".to_owned(), Value::Object(metadata));
    object.remove("status");
    defaults(kind, &mut object, fresh.cluster_ip);
    Ok(Value::Object(object))
}

fn defaults(kind: Kind, object: &mut Map<String, Value>, cluster_ip: String) {
    match kind {
        Kind::Pod => {
            let mut spec = take_map(object, "spec");
            spec.entry("terminationGracePeriodSeconds").or_insert(30.into());
            object.insert("spec".to_owned(), Value::Object(spec));
            object.insert("status".to_owned(), json!({"phase": "Pending"}));
        }
        Kind::Service => {
            let mut spec = take_map(object, "spec");
            if !spec.contains_key("clusterIP") && spec.get("type").is_none_or(|kind| kind != "ExternalName") {
                spec.insert("clusterIP".to_owned(), cluster_ip.into());
            }
            object.insert("spec".to_owned(), Value::Object(spec));
            object.insert("status".to_owned(), json!({"loadBalancer": {}}));
        }
        Kind::ModelDeployment | Kind::Namespace | Kind::Node => {}
    }
}

/// `old` with what an update of `part` may change taken from `new`. The version is `old`'s.
pub(super) fn replaced(old: &Value, new: Value, part: Part) -> Value {
    let mut result = old.clone();
    let Value::Object(mut new) = new else { return result };
    if part == Part::Status {
        if let Some(status) = new.remove("status") {
            result["status"] = status;
        }
        return result;
    }
    let mut metadata = take_map(&mut new, "metadata");
    for field in SERVER_SET.into_iter().chain(["name", "namespace", "resourceVersion"]) {
        match old["metadata"].get(field) {
            Some(value) => metadata.insert(field.to_owned(), value.clone()),
            None => metadata.remove(field),
        };
    }
    for field in ["apiVersion", "kind", "status"] {
        match old.get(field) {
            Some(value) => new.insert(field.to_owned(), value.clone()),
            None => new.remove(field),
        };
    }
    new.insert("metadata".to_owned(), Value::Object(metadata));
    result = Value::Object(new);
    if result.get("spec") != old.get("spec") {
        let generation = old["metadata"]["generation"].as_u64().unwrap_or(1);
        result["metadata"]["generation"] = (generation + 1).into();
    }
    result
}

/// RFC 7386: objects are merged, `null` removes, everything else replaces.
pub(super) fn merge(target: &mut Value, patch: Value) {
    let Value::Object(patch) = patch else {
        *target = patch;
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Some(fields) = target.as_object_mut() else { return };
    for (name, value) in patch {
        if value.is_null() {
            fields.remove(&name);
        } else {
            merge(fields.entry(name).or_insert(Value::Null), value);
        }
    }
}

/// How long a deletion waits: as asked, else the Pod's own grace. Only a Pod that is bound and not over waits at all.
pub(super) fn grace(kind: Kind, object: &Value, asked: Option<u64>) -> u64 {
    let bound = object["spec"]["nodeName"].as_str().is_some_and(|node| !node.is_empty());
    let over = matches!(object["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
    if kind != Kind::Pod || !bound || over {
        return 0;
    }
    asked.unwrap_or_else(|| object["spec"]["terminationGracePeriodSeconds"].as_u64().unwrap_or(30))
}

/// Marks `object` as being deleted; `end` is now + grace. A second deletion can only shorten the wait.
pub(super) fn condemn(object: &mut Value, grace: u64, end: String) {
    let metadata = &mut object["metadata"];
    let standing = metadata["deletionGracePeriodSeconds"].as_u64();
    if metadata["deletionTimestamp"].is_null() || standing.is_some_and(|standing| grace < standing) {
        metadata["deletionTimestamp"] = end.into();
        metadata["deletionGracePeriodSeconds"] = grace.into();
    }
}

/// Nothing holds a condemned object any longer.
pub(super) fn released(object: &Value) -> bool {
    let metadata = &object["metadata"];
    let held = metadata["finalizers"].as_array().is_some_and(|finalizers| !finalizers.is_empty());
    !metadata["deletionTimestamp"].is_null() && metadata["deletionGracePeriodSeconds"].as_u64().unwrap_or(0) == 0 && !held
}

/// `metadata.FIELD` as text; empty if it is not there.
pub(super) fn meta<'a>(object: &'a Value, field: &str) -> &'a str {
    object["metadata"][field].as_str().unwrap_or_default()
}

fn take_map(object: &mut Map<String, Value>, field: &str) -> Map<String, Value> {
    match object.remove(field) {
        Some(Value::Object(map)) => map,
        _ => Map::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fresh() -> Fresh {
        Fresh { uid: "u".into(), now: "t".into(), suffix: "x1".into(), cluster_ip: "127.96.0.1".into() }
    }

    #[test]
    fn the_server_sets_what_is_its_own() {
        let body = json!({"metadata": {"generateName": "p-", "uid": "mine", "resourceVersion": "7"}, "status": {"phase": "Running"}});
        let pod = created(Kind::Pod, "a", body, fresh()).unwrap();
        assert_eq!((meta(&pod, "name"), meta(&pod, "uid"), meta(&pod, "namespace")), ("p-x1", "u", "a"));
        assert_eq!((&pod["status"]["phase"], &pod["metadata"]["generation"]), (&json!("Pending"), &json!(1)));
        assert!(created(Kind::Pod, "a", json!({}), fresh()).is_err());
        assert!(created(Kind::Pod, "a", json!({"metadata": {"name": "p", "namespace": "b"}}), fresh()).is_err());
        let headless = json!({"metadata": {"name": "s"}, "spec": {"clusterIP": "None"}});
        assert_eq!(created(Kind::Service, "a", headless, fresh()).unwrap()["spec"]["clusterIP"], "None");
    }

    #[test]
    fn an_update_of_the_whole_leaves_the_status_and_the_other_way_round() {
        let old = json!({"metadata": {"name": "p", "uid": "u", "generation": 1}, "spec": {"a": 1}, "status": {"s": 1}});
        let new = json!({"metadata": {"name": "p", "uid": "v", "labels": {"l": "1"}}, "spec": {"a": 2}, "status": {"s": 2}});
        let whole = replaced(&old, new.clone(), Part::Whole);
        let expect =
            json!({"metadata": {"name": "p", "uid": "u", "generation": 2, "labels": {"l": "1"}}, "spec": {"a": 2}, "status": {"s": 1}});
        assert_eq!(whole, expect);
        let status = replaced(&old, new, Part::Status);
        assert_eq!(status, json!({"metadata": {"name": "p", "uid": "u", "generation": 1}, "spec": {"a": 1}, "status": {"s": 2}}));
    }

    #[test]
    fn merging_follows_rfc_7386() {
        let mut target = json!({"a": {"b": 1, "c": 2}, "list": [1, 2]});
        merge(&mut target, json!({"a": {"b": null, "d": {"e": 1, "f": null}}, "list": [3]}));
        assert_eq!(target, json!({"a": {"c": 2, "d": {"e": 1}}, "list": [3]}));
    }

    #[test]
    fn only_a_bound_running_pod_waits_for_its_grace() {
        let check = |kind, object: Value, asked, expect| assert_eq!(grace(kind, &object, asked), expect, "{object}");
        let bound = json!({"spec": {"nodeName": "n", "terminationGracePeriodSeconds": 45}});
        check(Kind::Pod, bound.clone(), None, 45);
        check(Kind::Pod, bound.clone(), Some(3), 3);
        check(Kind::Service, bound, None, 0);
        check(Kind::Pod, json!({"spec": {}}), Some(9), 0);
        check(Kind::Pod, json!({"spec": {"nodeName": "n"}, "status": {"phase": "Failed"}}), None, 0);
    }
}
