//! Short ways to make deployments and Pods for the unit tests of this module.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::render::{self, Seat};
use super::spec::Deployment;
use super::view::{View, Workload};

/// A deployment `ns/demo` with one role `server` that has these fields.
pub(super) fn deployment(role: Value) -> Deployment {
    let mut whole = json!({"name": "server"});
    whole.as_object_mut().unwrap().extend(role.as_object().unwrap().clone());
    let spec = json!({"model": {"name": "m"}, "engine": {"name": "vLLM"}, "roles": [whole]});
    Deployment {
        namespace: "ns".into(),
        name: "demo".into(),
        uid: "owner".into(),
        generation: 1,
        deleting: false,
        annotations: BTreeMap::new(),
        finalizers: vec![super::keys::DEPLOYMENT_FINALIZER.to_owned()],
        spec: serde_json::from_value(spec).unwrap(),
        status: Value::Null,
    }
}

/// An empty cluster with this deployment.
pub(super) fn view(deployment: Deployment) -> View {
    View { deployment, pods: vec![], services: vec![], workloads: BTreeMap::new(), idle: BTreeSet::new() }
}

/// Adds the Pods of a replica as `old` renders them, Ready and admitted.
pub(super) fn stand(view: &mut View, old: &Deployment, ordinal: u32) {
    let role = &old.spec.roles[0];
    let mut members = BTreeSet::new();
    for member in 0..role.size {
        let uid = format!("uid-{ordinal}-{member}-{}", view.pods.len());
        let mut pod = render::pod(old, role, Seat { ordinal, member }).pod;
        pod["metadata"]["uid"] = json!(uid);
        pod["spec"].as_object_mut().unwrap().remove("schedulingGates");
        pod["spec"]["nodeName"] = json!("node");
        pod["status"] = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]});
        members.insert(uid);
        view.pods.push(serde_json::from_value::<Pod>(pod).unwrap());
    }
    let group = render::group_name(old, &role.name, ordinal);
    view.workloads.insert(group, Workload { uid: format!("workload-{ordinal}"), members, admitted: true });
}
