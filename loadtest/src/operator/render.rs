//! Pods as the operator renders them. Pure: spec and seat in, object out.
//!
//! Next: `services` renders what selects them; `plan` decides when they are created.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::keys;
use super::spec::{Deployment, Role};

/// A place for one Pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Seat {
    pub(super) ordinal: u32,
    pub(super) member: u32,
}

/// The Pod of a seat, gated and without a node, and its fingerprint.
pub(super) struct Rendered {
    pub(super) pod: Value,
    pub(super) hash: String,
}

/// Renders one seat by the current spec.
pub(super) fn pod(deployment: &Deployment, role: &Role, seat: Seat) -> Rendered {
    let mut object = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": metadata(deployment, role, seat),
        "spec": pod_spec(deployment, role, seat),
    });
    let hash = fingerprint(&object);
    object["metadata"]["annotations"][keys::SPEC_HASH] = json!(hash);
    // Kueue's webhook adds these on the way into the API server; they are no part of the fingerprint.
    object["metadata"]["labels"][keys::KUEUE_MANAGED] = json!("true");
    object["metadata"]["finalizers"] = json!([keys::POD_FINALIZER]);
    object["spec"]["schedulingGates"] = json!([{"name": keys::ADMISSION_GATE}]);
    Rendered { pod: object, hash }
}

/// The group name that all members of one replica share: opaque, the same for every generation of a slot.
pub(super) fn group_name(deployment: &Deployment, role: &str, ordinal: u32) -> String {
    format!("gpustack-fnv64-{:016x}", digest(&(&deployment.namespace, &deployment.name, role, ordinal)))
}

/// The controller reference that every object of a deployment carries.
pub(super) fn owner(deployment: &Deployment) -> Value {
    json!([{
        "apiVersion": "worker.gpustack.ai/v1alpha1", "kind": "ModelDeployment", "name": deployment.name, "uid": deployment.uid,
        "controller": true, "blockOwnerDeletion": false,
    }])
}

/// Whether a standing Pod is of a managed role; the operator's own test.
pub(super) fn is_managed(pod: &Pod) -> bool {
    pod.metadata.annotations.as_ref().is_some_and(|annotations| annotations.contains_key(keys::SCRAPE_PORT))
}

/// A label of a Pod as a number.
pub(super) fn number(pod: &Pod, label: &str) -> Option<u32> {
    pod.metadata.labels.as_ref()?.get(label)?.parse().ok()
}

/// The size that the Pod's replica was built at.
pub(super) fn group_total(pod: &Pod) -> u32 {
    let annotations: Option<&BTreeMap<String, String>> = pod.metadata.annotations.as_ref();
    annotations.and_then(|annotations| annotations.get(keys::GROUP_TOTAL)?.parse().ok()).unwrap_or(1)
}

fn metadata(deployment: &Deployment, role: &Role, seat: Seat) -> Value {
    let queue = format!("gpustack-fnv64-{:016x}", digest(&"queue"));
    let mut metadata = json!({
        "namespace": deployment.namespace,
        "labels": {
            keys::NAME: keys::MODEL_DEPLOYMENT, keys::INSTANCE: deployment.name, keys::COMPONENT: role.name,
            keys::PART_OF: "gpustack-operator-worker", keys::ROLE_KIND: role.kind.to_lowercase(),
            keys::ORDINAL: seat.ordinal.to_string(), keys::MEMBER: seat.member.to_string(),
            keys::QUEUE_NAME: queue, keys::GROUP_NAME: group_name(deployment, &role.name, seat.ordinal),
            keys::RESOURCE_TYPE: keys::MODEL_DEPLOYMENTS,
        },
        "annotations": {
            keys::GROUP_TOTAL: role.size.to_string(), keys::GROUP_SERVING: "true", keys::ROLE_HASH: role.name, keys::NOTE_ROLE: role.name,
        },
        "ownerReferences": owner(deployment),
    });
    if role.managed() {
        let annotations = &mut metadata["annotations"];
        annotations["prometheus.io/scrape"] = json!("true");
        annotations["prometheus.io/path"] = json!("/metrics");
        annotations[keys::SCRAPE_PORT] = json!(role.target_port().to_string());
        annotations["prometheus.io/scheme"] = json!("http");
    }
    if role.size > 1 {
        metadata["name"] = json!(member_name(deployment, role, seat));
    } else {
        metadata["generateName"] = json!(format!("{}-{}-", deployment.name, role.name));
    }
    metadata
}

fn member_name(deployment: &Deployment, role: &Role, seat: Seat) -> String {
    format!("{}-{}-r{}-m{}", deployment.name, role.name, seat.ordinal, seat.member)
}

fn pod_spec(deployment: &Deployment, role: &Role, seat: Seat) -> Value {
    let mut spec = json!({
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": role.grace_seconds(),
        "automountServiceAccountToken": false,
        "enableServiceLinks": false,
        "runtimeClassName": "nvidia",
        "containers": [container(deployment, role, seat)],
        "volumes": [{"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "16Gi"}}],
    });
    if role.size > 1 {
        spec["hostname"] = json!(member_name(deployment, role, seat));
        spec["subdomain"] = json!(format!("{}-{}-r{}", deployment.name, role.name, seat.ordinal));
    }
    spec
}

fn container(deployment: &Deployment, role: &Role, seat: Seat) -> Value {
    let (port_name, port) = role.port();
    let mut container = json!({
        "name": keys::MAIN,
        "image": deployment.spec.engine.image.as_deref().unwrap_or("gpustack/runner:simulated"),
        "imagePullPolicy": "IfNotPresent",
        "command": command(deployment, role),
        "ports": [{"name": port_name, "containerPort": port, "protocol": "TCP"}],
        "env": env(deployment, role, seat),
        "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}],
    });
    if role.managed() {
        let probe = |failures: u32| {
            json!({"httpGet": {"path": "/health", "port": role.target_port(), "scheme": "HTTP"},
                "periodSeconds": 10, "timeoutSeconds": 3, "successThreshold": 1, "failureThreshold": failures})
        };
        container["startupProbe"] = probe(180);
        container["readinessProbe"] = probe(3);
        container["livenessProbe"] = probe(6);
        container["lifecycle"] = json!({"preStop": {"exec": {"command": ["python3", "-c", "# waits for two idle reads of /metrics"]}}});
    }
    container
}

fn command(deployment: &Deployment, role: &Role) -> Vec<String> {
    if !role.managed() {
        return role.command.clone();
    }
    let model = deployment.spec.model.name.clone();
    let mut command: Vec<String> = match deployment.spec.engine.name.as_str() {
        "SGLang" => ["python3", "-m", "sglang.launch_server", "--model-path", &model, "--enable-metrics"].map(str::to_owned).to_vec(),
        _ => vec!["vllm".to_owned(), "serve".to_owned(), model],
    };
    command.extend(role.extra_args.iter().cloned());
    for (flag, value) in [("--host", "0.0.0.0".to_owned()), ("--port", role.port().1.to_string())] {
        if !role.extra_args.iter().any(|argument| argument.split('=').next() == Some(flag)) {
            command.extend([flag.to_owned(), value]);
        }
    }
    command
}

fn env(deployment: &Deployment, role: &Role, seat: Seat) -> Vec<Value> {
    let mut env = role.env.clone();
    if role.size > 1 {
        let leader = member_name(deployment, role, Seat { member: 0, ..seat });
        let service = format!("{}-{}-r{}", deployment.name, role.name, seat.ordinal);
        let member = format!("metadata.labels['{}']", keys::MEMBER);
        env.extend([
            json!({"name": "GPUSTACK_REPLICA_LEADER_ADDRESS", "value": format!("{leader}.{service}")}),
            json!({"name": "GPUSTACK_REPLICA_SIZE", "value": role.size.to_string()}),
            json!({"name": "GPUSTACK_MEMBER_INDEX", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": member}}}),
        ]);
    }
    env
}

/// 64 hexadecimal digits over everything rendered. Not the operator's algorithm: nobody outside can compute that one either.
fn fingerprint(object: &Value) -> String {
    let text = object.to_string();
    (0..4u8).map(|part| format!("{:016x}", digest(&(part, &text)))).collect()
}

fn digest(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::super::testing::deployment;
    use super::*;

    #[test]
    fn fixed_names_from_size_two_and_generated_ones_at_one() {
        let two = deployment(serde_json::json!({"size": 2, "command": ["x"]}));
        let pod = super::pod(&two, &two.spec.roles[0], Seat { ordinal: 1, member: 0 }).pod;
        assert_eq!(pod["metadata"]["name"], "demo-server-r1-m0");
        assert_eq!(pod["spec"]["subdomain"], "demo-server-r1");
        assert_eq!(pod["spec"]["containers"][0]["env"][0]["value"], "demo-server-r1-m0.demo-server-r1");
        let one = deployment(serde_json::json!({}));
        let pod = super::pod(&one, &one.spec.roles[0], Seat { ordinal: 0, member: 0 }).pod;
        assert_eq!(pod["metadata"]["generateName"], "demo-server-");
        assert!(pod["spec"]["hostname"].is_null());
    }

    #[test]
    fn take_over_pods_have_neither_probes_nor_hook_nor_scrape_notes() {
        for (fields, managed) in [(serde_json::json!({"command": ["x"]}), false), (serde_json::json!({}), true)] {
            let deployment = deployment(fields);
            let pod = super::pod(&deployment, &deployment.spec.roles[0], Seat { ordinal: 0, member: 0 }).pod;
            let container = &pod["spec"]["containers"][0];
            assert_eq!(!container["readinessProbe"].is_null(), managed);
            assert_eq!(!container["lifecycle"].is_null(), managed);
            assert_eq!(!pod["metadata"]["annotations"][keys::SCRAPE_PORT].is_null(), managed);
        }
    }

    #[test]
    fn every_seat_has_a_fingerprint_of_its_own_that_moves_with_the_spec() {
        let one = deployment(serde_json::json!({"size": 2}));
        let two = deployment(serde_json::json!({"size": 2, "env": [{"name": "A", "value": "1"}]}));
        let hash = |deployment: &Deployment, member| super::pod(deployment, &deployment.spec.roles[0], Seat { ordinal: 0, member }).hash;
        assert_ne!(hash(&one, 0), hash(&one, 1));
        assert_ne!(hash(&one, 0), hash(&two, 0));
        assert_eq!(hash(&one, 0), hash(&one, 0));
        assert_eq!(hash(&one, 0).len(), 64);
    }
}
