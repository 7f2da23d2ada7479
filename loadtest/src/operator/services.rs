//! Services as the operator renders them, with the selector that is live at this moment. Pure.

use serde_json::{Map, Value, json};

use super::keys;
use super::render::owner;
use super::spec::{Deployment, Role};

/// What decides on the selector of `<md>` and `<md>-<role>`, apart from the spec.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Standing {
    /// Some standing Pod was built in a replica of several.
    pub(super) multi: bool,
    /// Some standing Pod is of the other mode (managed or take-over) than the spec.
    pub(super) mixed_modes: bool,
    /// The eligibility gate has been decided at least once.
    pub(super) gated: bool,
    /// Ordinals below this one get a headless Service even at size 1, while old replicas of several stand.
    pub(super) peers_below: u32,
}

/// All Services that the deployment wants, in the operator's order: deployment-wide, roles, replicas.
pub(super) fn wanted(deployment: &Deployment, standing: impl Fn(&Role) -> Standing) -> Vec<Value> {
    let mut services = Vec::new();
    if let Some(first) = deployment.spec.roles.first() {
        services.push(front(deployment, first, deployment.name.clone(), standing(first)));
    }
    for role in &deployment.spec.roles {
        services.push(front(deployment, role, format!("{}-{}", deployment.name, role.name), standing(role)));
    }
    for role in &deployment.spec.roles {
        let below = if role.size > 1 { role.replicas } else { standing(role).peers_below.min(role.replicas) };
        services.extend((0..below).map(|ordinal| peers(deployment, role, ordinal)));
    }
    services
}

/// The terms that tell which Pods of the role answer.
pub(super) fn selector(deployment: &Deployment, role: &Role, standing: Standing) -> Map<String, Value> {
    let mut selector = identity(deployment, role);
    if standing.mixed_modes {
        selector.insert(keys::API_ANSWERING.to_owned(), json!("true"));
        return selector;
    }
    let leaders_only = (role.size > 1 || standing.multi) && !(standing.gated && role.every_rank_serves());
    if leaders_only {
        selector.insert(keys::MEMBER.to_owned(), json!("0"));
    }
    if standing.gated {
        selector.insert(keys::ELIGIBLE.to_owned(), json!("true"));
    }
    selector
}

fn front(deployment: &Deployment, role: &Role, name: String, standing: Standing) -> Value {
    let mut service = base(deployment, role, name);
    service["spec"]["selector"] = Value::Object(selector(deployment, role, standing));
    if standing.mixed_modes && standing.gated {
        service["metadata"]["annotations"][keys::ELIGIBILITY_ACTIVE] = json!("true");
    }
    service
}

fn peers(deployment: &Deployment, role: &Role, ordinal: u32) -> Value {
    let mut service = base(deployment, role, format!("{}-{}-r{ordinal}", deployment.name, role.name));
    let mut selector = identity(deployment, role);
    selector.insert(keys::ORDINAL.to_owned(), json!(ordinal.to_string()));
    service["spec"]["selector"] = Value::Object(selector);
    service["spec"]["clusterIP"] = json!("None");
    service["spec"]["publishNotReadyAddresses"] = json!(true);
    service
}

fn base(deployment: &Deployment, role: &Role, name: String) -> Value {
    let (port_name, port) = role.port();
    let mut labels = identity(deployment, role);
    labels.insert(keys::RESOURCE_TYPE.to_owned(), json!(keys::MODEL_DEPLOYMENTS));
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {
            "name": name, "namespace": deployment.namespace, "labels": labels,
            "annotations": {keys::NOTE_ROLE: role.name}, "ownerReferences": owner(deployment),
        },
        "spec": {
            "type": "ClusterIP",
            "ports": [{"name": port_name, "protocol": "TCP", "port": port, "targetPort": role.target_port()}],
        },
    })
}

fn identity(deployment: &Deployment, role: &Role) -> Map<String, Value> {
    let terms = [(keys::NAME, keys::MODEL_DEPLOYMENT), (keys::INSTANCE, &deployment.name), (keys::COMPONENT, &role.name)];
    terms.into_iter().map(|(key, value)| (key.to_owned(), json!(value))).collect()
}

#[cfg(test)]
mod tests {
    use super::super::testing::deployment;
    use super::*;

    fn extra_terms(fields: Value, standing: Standing) -> Vec<String> {
        let deployment = deployment(fields);
        let selector = selector(&deployment, &deployment.spec.roles[0], standing);
        selector.keys().skip(3).cloned().collect()
    }

    #[test]
    fn selector_follows_shape_and_gate() {
        let none = Standing::default();
        let gated = Standing { gated: true, ..none };
        let ranks = json!({"size": 2, "extraArgs": ["--data-parallel-rank", "$(GPUSTACK_MEMBER_INDEX)"]});
        assert_eq!(extra_terms(json!({}), none), Vec::<String>::new());
        assert_eq!(extra_terms(json!({"size": 2}), none), [keys::MEMBER]);
        assert_eq!(extra_terms(json!({}), Standing { multi: true, ..none }), [keys::MEMBER]);
        assert_eq!(extra_terms(json!({"size": 2}), gated), [keys::MEMBER, keys::ELIGIBLE]);
        assert_eq!(extra_terms(ranks, gated), [keys::ELIGIBLE]);
        assert_eq!(extra_terms(json!({"size": 2}), Standing { mixed_modes: true, ..gated }), [keys::API_ANSWERING]);
    }

    #[test]
    fn names_and_order() {
        let deployment = deployment(json!({"size": 2, "replicas": 2}));
        let services = wanted(&deployment, |_| Standing::default());
        let names: Vec<_> = services.iter().map(|service| service["metadata"]["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["demo", "demo-server", "demo-server-r0", "demo-server-r1"]);
        assert_eq!(services[2]["spec"]["clusterIP"], "None");
    }
}
