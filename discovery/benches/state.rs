//! What a change costs at 1,000 deployments and 10,000 Pods (five replicas of two members each).
//!
//! `pod_event`: one Pod loses or regains readiness, until the snapshot could be stored. `relist`: every Pod is listed again and nothing
//! changed. `first_view`: everything from nothing.

#![allow(missing_docs, reason = "criterion's macro makes the items")]

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use config::{Config, Membership};
use criterion::{Criterion, criterion_group, criterion_main};
use discovery::fact::{
    DeploymentFact, Fact, Kind, LoadBalance, Numeral, PodFact, PodPhase, RoleFact, RoleKind, ServiceFact, ServicePort, Str, TargetPort,
    Term, TermKind,
};
use discovery::index::Change;
use discovery::probe::Verdict;
use discovery::snapshot::GroupId;
use discovery::state::State;
use discovery::view::Lens;

const DEPLOYMENTS: u32 = 1_000;
const REPLICAS: u32 = 5;
const SIZE: u32 = 2;

fn scope() -> Str {
    "*".into()
}

fn deployment(number: u32) -> Fact {
    let role = RoleFact {
        name: "server".into(),
        kind: RoleKind::Server,
        replicas: REPLICAS,
        elastic: false,
        load_balance: LoadBalance::Unknown,
        take_over: true,
        declared_names: vec![format!("model-{number}").into()],
    };
    Fact::Deployment(Arc::new(DeploymentFact {
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
    }))
}

fn service(number: u32) -> Fact {
    let terms = [("instance", format!("d{number}"), TermKind::Other), ("member", "0".to_owned(), TermKind::Member)];
    Fact::Service(Arc::new(ServiceFact {
        uid: format!("service-{number}").into(),
        namespace: "models".into(),
        name: format!("d{number}-server").into(),
        owner: Some(format!("deployment-{number}").into()),
        selector: terms.into_iter().map(|(key, value, kind)| Term { key: key.into(), value: value.into(), kind }).collect(),
        ports: vec![ServicePort { name: "http".into(), port: 8000, target: TargetPort::Number(8000) }],
        cluster_ip: None,
    }))
}

fn pod(number: u32, ordinal: u32, member: u32, ready: bool) -> Fact {
    let label = |key: &str, value: String| (Str::from(key), Str::from(value));
    Fact::Pod(Arc::new(PodFact {
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
        ready,
        ip: Some(format!("10.{}.{ordinal}.{member}", number % 256).into()),
        ports: vec![("http".into(), 8000)],
        containers: "main:0:containerd://2581da18bdfcd1c5ff7df54293c69ef7c00e2b0a7be38874c77a0cd8ebf2a31c".into(),
        declared_names: vec![format!("model-{number}").into()],
        https: false,
    }))
}

fn seats() -> impl Iterator<Item = (u32, u32, u32)> {
    (0..DEPLOYMENTS).flat_map(|number| (0..REPLICAS).flat_map(move |ordinal| (0..SIZE).map(move |member| (number, ordinal, member))))
}

fn relist(state: &mut State, kind: Kind, facts: impl Iterator<Item = Fact>) {
    state.apply(&scope(), Change::RelistBegin(kind));
    facts.for_each(|fact| state.apply(&scope(), Change::RelistItem(fact)));
    state.apply(&scope(), Change::RelistEnd(kind));
}

fn refresh(state: &mut State) -> discovery::state::Delta {
    let proven = |_: &GroupId| Verdict { proven: true, proof: 1, ..Verdict::default() };
    state.refresh(&Lens { membership: Membership::Strict, verdicts: &proven, now: SystemTime::UNIX_EPOCH })
}

fn full() -> State {
    let mut state = State::new(Arc::new(Config::default()), vec![scope()]);
    relist(&mut state, Kind::Deployment, (0..DEPLOYMENTS).map(deployment));
    relist(&mut state, Kind::Service, (0..DEPLOYMENTS).map(service));
    relist(&mut state, Kind::Pod, seats().map(|(number, ordinal, member)| pod(number, ordinal, member, true)));
    assert!(state.synced());
    refresh(&mut state);
    state
}

fn benches(criterion: &mut Criterion) {
    let mut state = full();
    assert_eq!(state.snapshot("bench").pools.len(), DEPLOYMENTS as usize);
    let mut ready = true;
    criterion.bench_function("pod_event", |bencher| {
        bencher.iter(|| {
            ready = !ready;
            state.apply(&scope(), Change::Upsert(pod(500, 3, 1, ready)));
            let delta = refresh(&mut state);
            assert!(delta.any);
            black_box(state.snapshot("bench"))
        });
    });
    let pods: Vec<Fact> = seats().map(|(number, ordinal, member)| pod(number, ordinal, member, true)).collect();
    criterion.bench_function("relist", |bencher| {
        bencher.iter(|| {
            relist(&mut state, Kind::Pod, pods.iter().cloned());
            black_box(refresh(&mut state))
        });
    });
    criterion.bench_function("first_view", |bencher| bencher.iter(|| black_box(full())));
}

criterion_group! { name = state; config = Criterion::default().sample_size(20); targets = benches }
criterion_main!(state);
