//! Facts of a made-up cluster for benches and for the tests of scale: deployments by number, each with one role whose replicas have two
//! members. Everything is Ready; what should be otherwise is changed by the caller.

use std::time::{Duration, SystemTime};

use super::fact::{
    DeploymentFact, LoadBalance, Numeral, PodFact, PodPhase, RoleFact, RoleKind, ServiceFact, ServicePort, Str, TargetPort, Term, TermKind,
};

/// Members of a replica.
pub(super) const SIZE: u32 = 2;

/// A deployment that declares the name `model-NUMBER`.
pub(super) fn deployment(number: u32, replicas: u32) -> DeploymentFact {
    let role = RoleFact {
        name: "server".into(),
        kind: RoleKind::Server,
        replicas,
        elastic: false,
        load_balance: LoadBalance::Unknown,
        take_over: true,
        declared_names: vec![format!("model-{number}").into()],
    };
    DeploymentFact {
        uid: format!("deployment-{number}").into(),
        namespace: "models".into(),
        name: format!("d{number}").into(),
        created: SystemTime::UNIX_EPOCH + Duration::from_secs(u64::from(number)),
        deleting: false,
        model: "/models".into(),
        roles: vec![role],
        router: None,
        endpoint_https: false,
        rollout: None,
        slots: Vec::new(),
        retirement: None,
    }
}

/// The Service of its role: member 0 alone.
pub(super) fn service(number: u32) -> ServiceFact {
    let terms = [("instance", format!("d{number}"), TermKind::Other), ("member", "0".to_owned(), TermKind::Member)];
    ServiceFact {
        uid: format!("service-{number}").into(),
        namespace: "models".into(),
        name: format!("d{number}-server").into(),
        owner: Some(format!("deployment-{number}").into()),
        selector: terms.into_iter().map(|(key, value, kind)| Term { key: key.into(), value: value.into(), kind }).collect(),
        ports: vec![ServicePort { name: "http".into(), port: 8000, target: TargetPort::Number(8000) }],
        cluster_ip: None,
    }
}

/// One member of one of its replicas.
pub(super) fn pod(number: u32, ordinal: u32, member: u32) -> PodFact {
    let label = |key: &str, value: String| (Str::from(key), Str::from(value));
    PodFact {
        uid: format!("pod-{number}-{ordinal}-{member}-0000-0000-000000000000").into(),
        namespace: "models".into(),
        name: format!("d{number}-server-r{ordinal}-m{member}").into(),
        owner: Some(format!("deployment-{number}").into()),
        role: Some("server".into()),
        ordinal: Numeral::Is(ordinal),
        index: Numeral::Is(member),
        total: Numeral::Is(SIZE),
        managed: false,
        eligible: false,
        labels: vec![label("instance", format!("d{number}")), label("member", member.to_string())],
        created: SystemTime::UNIX_EPOCH,
        deletion: None,
        grace: Duration::from_secs(30),
        phase: PodPhase::Running,
        ready: true,
        ip: Some(format!("10.{}.{ordinal}.{member}", number % 256).into()),
        ports: vec![("http".into(), 8000)],
        containers: "main:0:containerd://2581da18bdfcd1c5ff7df54293c69ef7c00e2b0a7be38874c77a0cd8ebf2a31c".into(),
        declared_names: vec![format!("model-{number}").into()],
        https: false,
    }
}
