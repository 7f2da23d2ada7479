//! Operator objects as YAML text, made fit for a real API server. Pure: text and maps in, objects out.
//!
//! A fixture names UIDs, addresses and times that only a server may give. This file strips what the server sets, and rewrites the rest
//! by what is known so far: old UID → new UID, Pod address → loopback address. Next: `cluster` writes the objects.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::Outcome;

/// The documents of one or more fixture files, in order.
#[derive(Debug, Clone, Default)]
pub struct Fixture {
    documents: Vec<Value>,
}

/// Names an object inside one namespace.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// `ModelDeployment`, `Pod` or `Service`.
    pub kind: String,
    /// `metadata.name`.
    pub name: String,
}

/// What the server gave in place of what the fixture says.
#[derive(Debug, Clone, Default)]
pub struct Rewrites {
    /// Text in the fixture → text on the server; UIDs and Pod addresses.
    pub text: BTreeMap<String, String>,
}

impl Fixture {
    /// Parses multi-document YAML. Documents of the aggregated `v1` API and EndpointSlices are left out: the first are the operator's own
    /// view of the same objects, the second may not hold loopback addresses.
    pub fn parse(text: &str) -> Outcome<Self> {
        let documents: Vec<Option<Value>> = serde_saphyr::from_multiple(text)?;
        let documents = documents.into_iter().flatten().filter(wanted).collect();
        Ok(Self { documents })
    }

    /// This fixture's documents, then the other's.
    pub fn and(mut self, other: Self) -> Self {
        self.documents.extend(other.documents);
        self
    }

    /// The documents.
    pub fn documents(&self) -> &[Value] {
        &self.documents
    }

    /// Without the objects of one name, to take something away between two states.
    pub fn without(mut self, name: &str) -> Self {
        self.documents.retain(|document| document["metadata"]["name"] != name);
        self
    }
}

impl Rewrites {
    /// The document with every known text replaced, inside longer strings too (annotations hold JSON). Later keys come first, so that an
    /// address is not taken for the beginning of a longer one.
    pub fn apply(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.text.iter().rev().fold(text.clone(), |text, (from, to)| text.replace(from, to))),
            Value::Array(items) => Value::Array(items.iter().map(|item| self.apply(item)).collect()),
            Value::Object(fields) => Value::Object(fields.iter().map(|(name, field)| (name.clone(), self.apply(field))).collect()),
            Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
        }
    }
}

/// The object's kind and name.
pub fn key(document: &Value) -> Key {
    Key { kind: text(&document["kind"]), name: text(&document["metadata"]["name"]) }
}

/// `metadata.uid` as the fixture has it.
pub fn uid(document: &Value) -> String {
    text(&document["metadata"]["uid"])
}

/// Whether the object is being deleted in this state.
pub fn deleting(document: &Value) -> bool {
    !document["metadata"]["deletionTimestamp"].is_null()
}

/// The object without what the server sets, in `namespace`; its status is apart, as it is written apart.
pub fn split(document: &Value, namespace: &str) -> (Value, Option<Value>) {
    let mut object = document.as_object().cloned().unwrap_or_default();
    let mut status = object.remove("status");
    // The server derives it from the resources and refuses another.
    status.as_mut().and_then(Value::as_object_mut).map(|status| status.remove("qosClass"));
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        for field in ["uid", "resourceVersion", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation"] {
            metadata.remove(field);
        }
        // A name is given, so there is nothing to generate.
        metadata.remove("generateName");
        metadata.insert("namespace".to_owned(), namespace.into());
    }
    if document["kind"] == "Service" {
        object.get_mut("spec").and_then(Value::as_object_mut).map(drop_cluster_address);
    }
    (Value::Object(object), status)
}

fn drop_cluster_address(spec: &mut Map<String, Value>) {
    if spec.get("clusterIP").is_some_and(|address| address != "None") {
        spec.remove("clusterIP");
        spec.remove("clusterIPs");
    }
}

fn wanted(document: &Value) -> bool {
    document["kind"] != "EndpointSlice" && document["apiVersion"] != "worker.gpustack.ai/v1"
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &str = "---\napiVersion: worker.gpustack.ai/v1\nkind: ModelDeployment\nmetadata: {name: a}\n---\napiVersion: v1\nkind: Service\nmetadata: {name: s, uid: old, namespace: x}\nspec: {clusterIP: 10.0.0.1, selector: {a: b}}\nstatus: {}\n";

    #[test]
    fn drops_what_a_server_refuses() {
        let fixture = Fixture::parse(TWO).unwrap();
        assert_eq!(fixture.documents().len(), 1);
        let (object, status) = split(&fixture.documents()[0], "here");
        let expected = serde_json::json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s", "namespace": "here"}, "spec": {"selector": {"a": "b"}}});
        assert_eq!(object, expected);
        assert_eq!(status, Some(serde_json::json!({})));
    }

    #[test]
    fn rewrites_inside_annotations() {
        let rewrites = Rewrites { text: [("uid-1".to_owned(), "uid-9".to_owned())].into() };
        let value = serde_json::json!({"annotations": {"slots": "{\"memberUIDs\":[\"uid-1\"]}"}, "n": 1});
        assert_eq!(rewrites.apply(&value)["annotations"]["slots"], "{\"memberUIDs\":[\"uid-9\"]}");
    }
}
