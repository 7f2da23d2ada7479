//! Which objects go when their owner is gone: background garbage collection. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use super::object::meta;
use super::store::Key;

/// The objects that name `uid` as an owner and have no other owner left.
pub(super) fn orphaned(objects: &BTreeMap<Key, Arc<Value>>, uid: &str) -> Vec<Key> {
    let alive = |owner: &str| objects.values().any(|object| meta(object, "uid") == owner);
    let orphan = |object: &Value| {
        let owners = owners(object);
        owners.contains(&uid) && !owners.iter().any(|owner| *owner != uid && alive(owner))
    };
    objects.iter().filter(|(_, object)| orphan(object)).map(|(key, _)| key.clone()).collect()
}

fn owners(object: &Value) -> Vec<&str> {
    let references = object["metadata"]["ownerReferences"].as_array();
    references.into_iter().flatten().filter_map(|reference| reference["uid"].as_str()).collect()
}
