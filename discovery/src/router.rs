//! A deployment behind a router: one target, the router's Service (operator contract section 6).
//!
//! Owns: its address, incarnation and phase. Must not: look at the engine Pods; which of them serve is the router's business. Next step:
//! `view` puts it among the deployment's targets.

use std::time::SystemTime;

use crate::fact::{DeploymentFact, ServiceFact, TargetPort};
use crate::incarnation::Memory;
use crate::probe::Verdict;
use crate::snapshot::{Address, GroupId, GroupKey, GroupPhase, Leader, Reason, ReplicaGroup};

/// The place, and what it was.
pub(crate) struct Past<'a> {
    pub(crate) key: &'a GroupKey,
    pub(crate) memory: &'a mut Memory,
    pub(crate) now: SystemTime,
}

/// The incarnation of a router is its Service: which Pods stand behind it is not visible to a client of the ClusterIP.
pub(crate) fn incarnation(key: &GroupKey, service: Option<&ServiceFact>) -> GroupId {
    let uid = service.map(|service| &*service.uid).unwrap_or_default();
    let address = service.and_then(|service| service.cluster_ip.as_deref()).unwrap_or_default();
    GroupId(format!("{key}@{uid}[{address}]").into())
}

/// The group of a router. Only the probe tells whether it answers; the operator's condition names the reason when it does not.
pub(crate) fn group(deployment: &DeploymentFact, service: Option<&ServiceFact>, past: Past<'_>, verdict: &Verdict) -> ReplicaGroup {
    let leader = service.and_then(|service| leader(deployment, service)).or_else(|| announced(deployment));
    let not_ready = deployment.router.as_ref().is_some_and(|router| router.not_ready);
    let (phase, reasons) = if deployment.deleting {
        (GroupPhase::Draining, vec![Reason::DeploymentDeleting])
    } else if leader.is_none() {
        let phase = if past.memory.served { GroupPhase::Draining } else { GroupPhase::Forming };
        (phase, vec![Reason::RouterNotReady])
    } else if verdict.proven {
        (GroupPhase::Serving, verdict.reason.into_iter().collect())
    } else {
        let mut reasons: Vec<Reason> = not_ready.then_some(Reason::RouterNotReady).into_iter().collect();
        reasons.push(verdict.reason.unwrap_or(Reason::NotProven));
        (if not_ready { GroupPhase::Forming } else { GroupPhase::Warming }, reasons)
    };
    let leaving = phase == GroupPhase::Draining;
    past.memory.leaving_since = leaving.then(|| past.memory.leaving_since.unwrap_or(past.now));
    ReplicaGroup {
        key: past.key.clone(),
        id: past.memory.id.clone(),
        ordinal: None,
        phase,
        reasons,
        leader,
        members: Vec::new(),
        managed: deployment.roles.iter().all(|role| !role.take_over),
        drain: None,
        next_to_go: false,
        broken: false,
        proof: past.memory.proof(verdict.proof),
    }
}

/// Its ClusterIP and port; a headless Service by its DNS name, which leads to the Pods and so to the target port.
fn leader(deployment: &DeploymentFact, service: &ServiceFact) -> Option<Leader> {
    let port = service.serving_port()?;
    let (host, port) = match (&service.cluster_ip, &port.target) {
        (Some(address), _) => (address.clone(), port.port),
        (None, TargetPort::Number(number)) => (format!("{}.{}.svc", service.name, deployment.namespace).into(), *number),
        (None, TargetPort::Named(_)) => (format!("{}.{}.svc", service.name, deployment.namespace).into(), port.port),
    };
    Some(Leader { pod: service.name.clone(), uid: Some(service.uid.clone()), address: Address { https: false, host, port } })
}

/// `status.router.endpoint`, for the case that the Service cannot be seen.
fn announced(deployment: &DeploymentFact) -> Option<Leader> {
    let endpoint: http::Uri = deployment.router.as_ref()?.endpoint.as_deref()?.parse().ok()?;
    let https = endpoint.scheme_str() == Some("https");
    let host = endpoint.host()?.trim_start_matches('[').trim_end_matches(']');
    let port = endpoint.port_u16().unwrap_or(if https { 443 } else { 80 });
    Some(Leader { pod: host.into(), uid: None, address: Address { https, host: host.into(), port } })
}
