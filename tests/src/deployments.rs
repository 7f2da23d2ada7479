//! ModelDeployments for tests, and a simulated operator that makes them real in one namespace.

use std::time::Duration;

use kube::api::{Api, DynamicObject, PostParams};
use loadtest::engine::{EngineConfig, Pace};
use loadtest::operator::{Operator, OperatorConfig, OperatorHandle, PodInfo};
use serde_json::{Value, json};

use crate::Outcome;
use crate::cluster::Cluster;
use crate::poll::{PATIENCE, eventually};

/// The name that the engines of [`take_over`] and [`managed`] answer to.
pub const MODEL: &str = "demo-chat";

/// Fifty times faster than life: grace 0.6 s, hook 0.1 s, a slot in about a second.
pub const FAST: f64 = 0.02;

/// A role whose command is replaced: no probes, no hook, served name only inside a shell string.
pub fn take_over(name: &str, replicas: u32, size: u32) -> Value {
    let command = format!("exec /opt/demo/start-engine --served-model-name {MODEL} --port 8000");
    deployment(name, "/models", json!({"replicas": replicas, "size": size, "command": ["/bin/sh", "-c", command]}))
}

/// A role whose command line the operator builds: probes, drain hook, served name = model name.
pub fn managed(name: &str, replicas: u32, size: u32) -> Value {
    deployment(name, MODEL, json!({"replicas": replicas, "size": size}))
}

fn deployment(name: &str, model: &str, role: Value) -> Value {
    let mut server = json!({"name": "server"});
    for (field, value) in role.as_object().into_iter().flatten() {
        server[field] = value.clone();
    }
    json!({
        "apiVersion": "worker.gpustack.ai/v1alpha1", "kind": "ModelDeployment", "metadata": {"name": name},
        "spec": {"model": {"name": model}, "engine": {"name": "vLLM"}, "roles": [server]},
    })
}

/// A simulated operator for one cluster's namespace, with fast engines.
pub fn config(cluster: &Cluster) -> OperatorConfig {
    let pace = Pace::steady(Duration::from_millis(5), Duration::from_millis(5));
    OperatorConfig {
        namespace: Some(cluster.namespace().to_owned()),
        time_scale: FAST,
        engine: EngineConfig { pace, ..EngineConfig::fast(MODEL) },
        ..OperatorConfig::default()
    }
}

/// A deployment that the simulated operator has brought up.
pub struct Deployed {
    /// The operator; dropping it ends every engine.
    pub operator: OperatorHandle,
    api: Api<DynamicObject>,
    namespace: String,
    name: String,
}

impl Deployed {
    /// Creates the deployment, starts the operator and waits until every replica is ready.
    pub async fn up(cluster: &Cluster, object: Value, config: OperatorConfig) -> Outcome<Self> {
        let api = cluster.api("ModelDeployment");
        let created = api.create(&PostParams::default(), &serde_json::from_value(object)?).await?;
        let operator = Operator::start(cluster.client().clone(), config).await?;
        let name = created.metadata.name.unwrap_or_default();
        let deployed = Self { operator, api, namespace: cluster.namespace().to_owned(), name };
        deployed.wait_settled().await?;
        Ok(deployed)
    }

    /// The object as it is now.
    pub async fn object(&self) -> Outcome<DynamicObject> {
        Ok(self.api.get(&self.name).await?)
    }

    /// The namespace.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// `namespace/deployment/role/ordinal`, as the gateway names groups.
    pub fn group_key(&self, ordinal: u32) -> String {
        format!("{}/{}/server/{ordinal}", self.namespace, self.name)
    }

    /// The Pod on a seat.
    pub fn member(&self, ordinal: u32, member: u32) -> Outcome<PodInfo> {
        self.operator.member(&self.name, ordinal, member).ok_or_else(|| format!("no Pod on seat {member} of replica {ordinal}").into())
    }

    /// Edits an environment variable, so that every replica is replaced.
    pub async fn roll(&self) -> Outcome<()> {
        Ok(self.operator.roll(&self.namespace, &self.name).await?)
    }

    /// Waits until every replica is of the current render and ready, and no slot is open.
    pub async fn wait_settled(&self) -> Outcome<()> {
        eventually(PATIENCE, "settled deployment", || async {
            let object = self.api.get(&self.name).await.map_err(|error| error.to_string())?;
            let status = &object.data["status"];
            let up_to_date = condition(status, "ReplicasUpToDate") == Some("UpToDate");
            if status["phase"] == "Ready" && up_to_date { Ok(()) } else { Err(status.to_string()) }
        })
        .await
    }
}

/// The reason of a condition.
pub fn condition<'a>(status: &'a Value, kind: &str) -> Option<&'a str> {
    let conditions = status["conditions"].as_array()?;
    conditions.iter().find(|condition| condition["type"] == kind)?["reason"].as_str()
}
