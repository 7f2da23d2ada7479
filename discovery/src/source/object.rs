//! Serde mirrors of the watched objects: only the fields that are read, everything optional.
//!
//! Owns: the JSON shape. Must not: give any field a meaning (`operator` does). A full Pod type would cost several times the memory and
//! time of one Pod event. Next step: `operator`.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::Deserialize;

/// `metadata`.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Meta {
    pub(crate) name: String,
    pub(crate) namespace: Option<String>,
    pub(crate) uid: String,
    pub(crate) resource_version: String,
    pub(crate) creation_timestamp: Option<Time>,
    pub(crate) deletion_timestamp: Option<Time>,
    pub(crate) deletion_grace_period_seconds: Option<i64>,
    pub(crate) labels: Option<BTreeMap<String, String>>,
    pub(crate) annotations: Option<BTreeMap<String, String>>,
    pub(crate) owner_references: Option<Vec<OwnerReference>>,
}

/// `metadata.ownerReferences[]`.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct OwnerReference {
    pub(crate) api_version: String,
    pub(crate) kind: String,
    pub(crate) uid: String,
    pub(crate) controller: Option<bool>,
}

/// A ModelDeployment of any served version: the JSON is the same.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct DeploymentObject {
    pub(crate) metadata: Meta,
    pub(crate) spec: DeploymentSpec,
    pub(crate) status: Option<DeploymentStatus>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct DeploymentSpec {
    pub(crate) model: ModelSpec,
    pub(crate) roles: Vec<RoleSpec>,
    pub(crate) router: Option<serde::de::IgnoredAny>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ModelSpec {
    pub(crate) name: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct RoleSpec {
    pub(crate) name: String,
    pub(crate) kind: Option<String>,
    pub(crate) replicas: Option<i64>,
    pub(crate) command: Option<Vec<String>>,
    pub(crate) extra_args: Option<Vec<String>>,
    pub(crate) env: Option<Vec<EnvVar>>,
    pub(crate) elastic_ep: Option<serde::de::IgnoredAny>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct DeploymentStatus {
    pub(crate) phase: Option<String>,
    pub(crate) endpoint: Option<String>,
    pub(crate) roles: Option<Vec<RoleStatus>>,
    pub(crate) conditions: Option<Vec<Condition>>,
    pub(crate) retirement: Option<Retirement>,
    pub(crate) router: Option<RouterStatus>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct RouterStatus {
    pub(crate) endpoint: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct RoleStatus {
    pub(crate) name: String,
    pub(crate) parallelism: Option<Parallelism>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Parallelism {
    pub(crate) load_balance: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Condition {
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) status: String,
    pub(crate) reason: Option<String>,
    pub(crate) last_transition_time: Option<Time>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Retirement {
    pub(crate) role_name: String,
    pub(crate) replica_ordinal: i64,
    #[serde(rename = "targetMemberUIDs")]
    pub(crate) target_member_uids: Option<Vec<String>>,
    pub(crate) state: String,
    pub(crate) deadline: Option<Time>,
}

/// One value of the replacement-slots annotation.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct SlotRecord {
    pub(crate) role: Option<String>,
    pub(crate) ordinal: i64,
    pub(crate) phase: String,
    #[serde(rename = "memberUIDs")]
    pub(crate) member_uids: Option<Vec<String>>,
    #[serde(rename = "currentMemberUIDs")]
    pub(crate) current_member_uids: Option<Vec<String>>,
}

/// A core Pod.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PodObject {
    pub(crate) metadata: Meta,
    pub(crate) spec: PodSpec,
    pub(crate) status: Option<PodStatus>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PodSpec {
    pub(crate) termination_grace_period_seconds: Option<i64>,
    pub(crate) containers: Vec<Container>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Container {
    pub(crate) name: String,
    pub(crate) command: Option<Vec<String>>,
    pub(crate) args: Option<Vec<String>>,
    pub(crate) ports: Option<Vec<ContainerPort>>,
    pub(crate) env: Option<Vec<EnvVar>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ContainerPort {
    pub(crate) name: Option<String>,
    pub(crate) container_port: i64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct EnvVar {
    pub(crate) name: String,
    pub(crate) value: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PodStatus {
    pub(crate) phase: Option<String>,
    #[serde(rename = "podIP")]
    pub(crate) pod_ip: Option<String>,
    pub(crate) conditions: Option<Vec<Condition>>,
    pub(crate) container_statuses: Option<Vec<ContainerStatus>>,
    pub(crate) init_container_statuses: Option<Vec<ContainerStatus>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ContainerStatus {
    pub(crate) name: String,
    pub(crate) restart_count: i64,
    #[serde(rename = "containerID")]
    pub(crate) container_id: Option<String>,
}

/// A core Service.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ServiceObject {
    pub(crate) metadata: Meta,
    pub(crate) spec: ServiceSpec,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ServiceSpec {
    pub(crate) selector: Option<BTreeMap<String, String>>,
    pub(crate) ports: Option<Vec<ServicePortSpec>>,
    #[serde(rename = "clusterIP")]
    pub(crate) cluster_ip: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ServicePortSpec {
    pub(crate) name: Option<String>,
    pub(crate) protocol: Option<String>,
    pub(crate) port: i64,
    pub(crate) target_port: Option<IntOrString>,
}

/// `targetPort`.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(crate) enum IntOrString {
    Int(i64),
    String(String),
}
