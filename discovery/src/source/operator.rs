//! Objects to facts: what the GPUStack operator's labels, annotations and status fields mean.
//!
//! Owns: every label key, annotation key and status word of the operator (operator contract sections 1, 3, 4). The only file that knows
//! one. Must not: combine several objects (`observe` does). Next step: `index`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::command;
use super::object::{
    Condition, Container, DeploymentObject, DeploymentStatus, EnvVar, IntOrString, Meta, PodObject, PodStatus, Retirement, RoleSpec,
    RoleStatus, ServiceObject, ServicePortSpec, SlotRecord,
};
use crate::fact::{
    DeploymentFact, Fact, LoadBalance, Numeral, PodFact, PodPhase, RetirementFact, RoleFact, RoleKind, RouterFact, ServiceFact,
    ServicePort, SlotFact, SlotPhase, Str, TargetPort, Term, TermKind,
};

/// API group of ModelDeployment.
pub const GROUP: &str = "worker.gpustack.ai";
/// The version that lives in etcd and is watched; the aggregated `v1` is a proxy onto it with watch hazards (contract 8.1).
pub const WATCHED_VERSION: &str = "v1alpha1";
/// Label selector of every Pod and Service of a deployment.
pub const OBJECT_SELECTOR: &str = "app.kubernetes.io/name=model-deployment";

const KIND: &str = "ModelDeployment";
const LABEL_NAME: (&str, &str) = ("app.kubernetes.io/name", "model-deployment");
const LABEL_ROLE: &str = "app.kubernetes.io/component";
const LABEL_ORDINAL: &str = "modeldeployment.gpustack.ai/pod-ordinal";
const LABEL_MEMBER: &str = "modeldeployment.gpustack.ai/member-index";
const LABEL_ELIGIBLE: &str = "modeldeployment.gpustack.ai/endpoint-eligible";
const LABEL_ROUTER: &str = "modeldeployment.gpustack.ai/router";
const ANNOTATION_TOTAL: &str = "kueue.x-k8s.io/pod-group-total-count";
const ANNOTATION_SLOTS: &str = "modeldeployment.gpustack.ai/replacement-slots";
const ANNOTATION_SCRAPE_PORT: &str = "prometheus.io/port";
const MAIN_CONTAINER: &str = "main";
const DEFAULT_GRACE: Duration = Duration::from_secs(30);
/// The operator allows an hour; the API server any number, and times are added to it.
const MAX_GRACE: Duration = Duration::from_secs(7 * 24 * 3600);
const MAX_REPLICAS: u32 = 1024;

/// Facts of a ModelDeployment (any served version). `None`: it has no UID or name.
pub(crate) fn deployment(object: DeploymentObject) -> Option<Fact> {
    let meta = &object.metadata;
    if meta.uid.is_empty() || meta.name.is_empty() {
        return None;
    }
    let status = object.status.unwrap_or_default();
    let role_status = status.roles.as_deref().unwrap_or_default();
    let roles = object.spec.roles.iter().map(|role| self::role(role, role_status)).collect();
    Some(Fact::Deployment(Arc::new(DeploymentFact {
        uid: meta.uid.as_str().into(),
        namespace: meta.namespace.as_deref().unwrap_or("default").into(),
        name: meta.name.as_str().into(),
        created: system_time(meta.creation_timestamp.as_ref()).unwrap_or(SystemTime::UNIX_EPOCH),
        deleting: meta.deletion_timestamp.is_some() || status.phase.as_deref() == Some("Deleting"),
        model: object.spec.model.name.as_str().into(),
        roles,
        router: object.spec.router.is_some().then(|| router(&status)),
        endpoint_https: status.endpoint.as_deref().is_some_and(|endpoint| endpoint.starts_with("https://")),
        rollout: rollout(&status),
        slots: slots(meta),
        retirement: status.retirement.as_ref().and_then(retirement),
    })))
}

/// Facts of a Pod. `None`: not one of the operator's Pods.
pub(crate) fn pod(object: PodObject) -> Option<Fact> {
    let meta = &object.metadata;
    if meta.uid.is_empty() || label(meta, LABEL_NAME.0) != Some(LABEL_NAME.1) {
        return None;
    }
    let status = object.status.unwrap_or_default();
    let main = main_container(&object.spec.containers);
    let line = main.map(command_line).unwrap_or_default();
    let grace = meta.deletion_grace_period_seconds.or(object.spec.termination_grace_period_seconds);
    let role = label(meta, LABEL_ROLE).filter(|_| label(meta, LABEL_ROUTER).is_none());
    Some(Fact::Pod(Arc::new(PodFact {
        uid: meta.uid.as_str().into(),
        namespace: meta.namespace.as_deref().unwrap_or("default").into(),
        name: meta.name.as_str().into(),
        owner: owner(meta),
        role: role.map(Str::from),
        ordinal: numeral(label(meta, LABEL_ORDINAL)),
        index: numeral(label(meta, LABEL_MEMBER)),
        total: numeral(annotation(meta, ANNOTATION_TOTAL)),
        managed: annotation(meta, ANNOTATION_SCRAPE_PORT).is_some(),
        eligible: label(meta, LABEL_ELIGIBLE) == Some("true"),
        labels: selectable_labels(meta.labels.as_ref()),
        created: system_time(meta.creation_timestamp.as_ref()).unwrap_or(SystemTime::UNIX_EPOCH),
        deletion: system_time(meta.deletion_timestamp.as_ref()),
        grace: grace.and_then(|seconds| u64::try_from(seconds).ok()).map_or(DEFAULT_GRACE, Duration::from_secs).min(MAX_GRACE),
        phase: pod_phase(&status),
        ready: status.conditions.iter().flatten().any(|condition| condition.kind == "Ready" && condition.status == "True"),
        ip: status.pod_ip.as_deref().filter(|ip| !ip.is_empty()).map(Str::from),
        ports: main.map(container_ports).unwrap_or_default(),
        containers: containers(&status),
        declared_names: line.names,
        https: line.https,
    })))
}

/// Facts of a Service. `None`: not one of the operator's Services.
pub(crate) fn service(object: ServiceObject) -> Option<Fact> {
    let meta = &object.metadata;
    if meta.uid.is_empty() || label(meta, LABEL_NAME.0) != Some(LABEL_NAME.1) {
        return None;
    }
    let cluster_ip = object.spec.cluster_ip.as_deref().filter(|ip| !ip.is_empty() && *ip != "None");
    Some(Fact::Service(Arc::new(ServiceFact {
        uid: meta.uid.as_str().into(),
        namespace: meta.namespace.as_deref().unwrap_or("default").into(),
        name: meta.name.as_str().into(),
        owner: owner(meta),
        selector: object.spec.selector.iter().flatten().map(term).collect(),
        ports: object.spec.ports.iter().flatten().filter_map(service_port).collect(),
        cluster_ip: cluster_ip.map(Str::from),
    })))
}

/// Name of the Service that fronts a role.
pub(crate) fn role_service_name(deployment: &str, role: &str) -> String {
    format!("{deployment}-{role}")
}

/// Name of the Service that fronts the deployment's router.
pub(crate) fn router_service_name(deployment: &str) -> String {
    format!("{deployment}-router")
}

fn role(spec: &RoleSpec, status: &[RoleStatus]) -> RoleFact {
    let load_balance =
        status.iter().find(|role| role.name == spec.name).and_then(|role| role.parallelism.as_ref()?.load_balance.as_deref());
    let words = spec.command.iter().chain(&spec.extra_args).flatten().map(String::as_str);
    let env = spec.env.as_deref().unwrap_or_default();
    RoleFact {
        name: spec.name.as_str().into(),
        kind: match spec.kind.as_deref() {
            // Drafts of the API wrote the kinds in lower case.
            None | Some("Server" | "server" | "") => RoleKind::Server,
            Some(_) => RoleKind::Disaggregated,
        },
        replicas: spec.replicas.map_or(1, |replicas| u32::try_from(replicas).unwrap_or(0).min(MAX_REPLICAS)),
        elastic: spec.elastic_ep.is_some(),
        load_balance: match load_balance {
            Some("External" | "Hybrid") => LoadBalance::EveryRank,
            None | Some("Unknown" | "") => LoadBalance::Unknown,
            Some(_) => LoadBalance::Leader,
        },
        take_over: spec.command.as_ref().is_some_and(|command| !command.is_empty()),
        declared_names: command::read(words, &|name| literal(env, name)).names,
    }
}

fn router(status: &DeploymentStatus) -> RouterFact {
    let endpoint = status.router.as_ref().and_then(|router| router.endpoint.as_deref());
    RouterFact { not_ready: condition(status, "RouterReady").is_some_and(is_false), endpoint: endpoint.map(Str::from) }
}

fn condition<'a>(status: &'a DeploymentStatus, kind: &str) -> Option<&'a Condition> {
    status.conditions.iter().flatten().find(|condition| condition.kind == kind)
}

fn is_false(condition: &Condition) -> bool {
    condition.status == "False"
}

fn rollout(status: &DeploymentStatus) -> Option<SystemTime> {
    let condition = condition(status, "ReplicasUpToDate").filter(|condition| is_false(condition))?;
    (condition.reason.as_deref() == Some("RolloutInProgress"))
        .then(|| system_time(condition.last_transition_time.as_ref()).unwrap_or(SystemTime::UNIX_EPOCH))
}

/// The annotation is internal bookkeeping of the operator: what cannot be read is skipped, the Pods' own deletion says the same later.
fn slots(meta: &Meta) -> Vec<SlotFact> {
    let Some(text) = annotation(meta, ANNOTATION_SLOTS) else { return Vec::new() };
    let records: BTreeMap<String, SlotRecord> = match serde_json::from_str(text) {
        Ok(records) => records,
        Err(error) => {
            tracing::warn!(deployment = %meta.name, %error, "replacement-slots annotation cannot be read");
            return Vec::new();
        }
    };
    records.into_iter().filter_map(|(key, record)| slot(key, record)).collect()
}

fn slot(key: String, record: SlotRecord) -> Option<SlotFact> {
    let (phase, members) = match record.phase.as_str() {
        "Cleanup" => (SlotPhase::Cleanup, record.member_uids),
        "WaitingForAdmission" => (SlotPhase::WaitingForAdmission, record.current_member_uids),
        _ => return None,
    };
    Some(SlotFact {
        role: record.role.unwrap_or(key).into(),
        ordinal: u32::try_from(record.ordinal).ok()?,
        phase,
        members: members.into_iter().flatten().map(Str::from).collect(),
    })
}

fn retirement(record: &Retirement) -> Option<RetirementFact> {
    if matches!(record.state.as_str(), "" | "Completed") {
        return None;
    }
    Some(RetirementFact {
        role: record.role_name.as_str().into(),
        ordinal: u32::try_from(record.replica_ordinal).ok()?,
        members: record.target_member_uids.iter().flatten().map(|uid| Str::from(uid.as_str())).collect(),
        aborted: record.state == "Aborted",
        deadline: system_time(record.deadline.as_ref()),
    })
}

fn label<'a>(meta: &'a Meta, key: &str) -> Option<&'a str> {
    meta.labels.as_ref()?.get(key).map(String::as_str)
}

fn annotation<'a>(meta: &'a Meta, key: &str) -> Option<&'a str> {
    meta.annotations.as_ref()?.get(key).map(String::as_str)
}

fn system_time(time: Option<&Time>) -> Option<SystemTime> {
    time.map(|time| SystemTime::from(time.0))
}

fn owner(meta: &Meta) -> Option<Str> {
    let is_owner = |owner: &&super::object::OwnerReference| {
        owner.controller == Some(true) && owner.kind == KIND && owner.api_version.split('/').next() == Some(GROUP)
    };
    meta.owner_references.as_ref()?.iter().find(is_owner).map(|owner| Str::from(owner.uid.as_str()))
}

fn numeral(text: Option<&str>) -> Numeral {
    match text {
        None => Numeral::Absent,
        // `parse` takes a leading plus, which the operator never writes.
        Some(text) if text.starts_with('+') => Numeral::Unreadable,
        Some(text) => text.parse().map_or(Numeral::Unreadable, Numeral::Is),
    }
}

/// Kueue's own labels are hashes that no Service of the operator selects by; leaving them out halves a Pod's memory.
fn selectable_labels(labels: Option<&BTreeMap<String, String>>) -> Vec<(Str, Str)> {
    let kept = labels.into_iter().flatten().filter(|(key, _)| !key.starts_with("kueue.x-k8s.io/"));
    kept.map(|(key, value)| (Str::from(key.as_str()), Str::from(value.as_str()))).collect()
}

fn pod_phase(status: &PodStatus) -> PodPhase {
    match status.phase.as_deref() {
        Some("Running") => PodPhase::Running,
        Some("Failed" | "Succeeded") => PodPhase::Terminal,
        _ => PodPhase::Pending,
    }
}

fn main_container(containers: &[Container]) -> Option<&Container> {
    containers.iter().find(|container| container.name == MAIN_CONTAINER).or_else(|| containers.first())
}

fn command_line(container: &Container) -> command::CommandLine {
    let words = container.command.iter().chain(&container.args).flatten().map(String::as_str);
    command::read(words, &|name| literal(container.env.as_deref().unwrap_or_default(), name))
}

fn literal(env: &[EnvVar], name: &str) -> Option<String> {
    env.iter().rfind(|variable| variable.name == name)?.value.clone()
}

fn container_ports(container: &Container) -> Vec<(Str, u16)> {
    let ports = container.ports.iter().flatten();
    ports.filter_map(|port| Some((Str::from(port.name.as_deref().unwrap_or_default()), u16::try_from(port.container_port).ok()?))).collect()
}

fn containers(status: &PodStatus) -> Str {
    let mut all: Vec<String> = status
        .container_statuses
        .iter()
        .chain(&status.init_container_statuses)
        .flatten()
        .map(|one| format!("{}:{}:{}", one.name, one.restart_count, one.container_id.as_deref().unwrap_or_default()))
        .collect();
    all.sort_unstable();
    all.join(",").into()
}

fn term((key, value): (&String, &String)) -> Term {
    let kind = match key.as_str() {
        LABEL_MEMBER => TermKind::Member,
        LABEL_ELIGIBLE => TermKind::Eligibility,
        _ => TermKind::Other,
    };
    Term { key: key.as_str().into(), value: value.as_str().into(), kind }
}

fn service_port(spec: &ServicePortSpec) -> Option<ServicePort> {
    if spec.protocol.as_deref().is_some_and(|protocol| protocol != "TCP") {
        return None;
    }
    let port = u16::try_from(spec.port).ok()?;
    let target = match &spec.target_port {
        None => TargetPort::Number(port),
        Some(IntOrString::Int(0)) => TargetPort::Number(port),
        Some(IntOrString::Int(number)) => TargetPort::Number(u16::try_from(*number).ok()?),
        Some(IntOrString::String(name)) => TargetPort::Named(name.as_str().into()),
    };
    Some(ServicePort { name: spec.name.as_deref().unwrap_or_default().into(), port, target })
}

#[cfg(test)]
#[path = "operator_tests.rs"]
mod tests;
