//! What a change costs at 1,000 deployments and 10,000 Pods (five replicas of two members each).
//!
//! `pod_event`: one Pod loses or regains readiness, until the snapshot could be stored; of this, `index_apply` is the reducer alone and
//! `snapshot_build` the making of the snapshot. `relist`: every Pod is listed again and nothing changed. `first_view`: everything from nothing.

#![allow(missing_docs, reason = "criterion's macro makes the items")]

#[path = "support/facts.rs"]
mod facts;

use std::hint::black_box;
use std::sync::Arc;
use std::time::SystemTime;

use config::{Config, Membership};
use criterion::{Criterion, criterion_group, criterion_main};
use discovery::fact::{self, Fact, Kind, PodFact, Str};
use discovery::index::{Change, Index, Touched};
use discovery::probe::Verdict;
use discovery::snapshot::GroupId;
use discovery::state::State;
use discovery::view::Lens;
use facts::SIZE;

const DEPLOYMENTS: u32 = 1_000;
const REPLICAS: u32 = 5;

fn scope() -> Str {
    "*".into()
}

fn deployment(number: u32) -> Fact {
    Fact::Deployment(Arc::new(facts::deployment(number, REPLICAS)))
}

fn service(number: u32) -> Fact {
    Fact::Service(Arc::new(facts::service(number)))
}

fn pod(number: u32, ordinal: u32, member: u32, ready: bool) -> Fact {
    Fact::Pod(Arc::new(PodFact { ready, ..facts::pod(number, ordinal, member) }))
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

fn index_apply(criterion: &mut Criterion) {
    let (mut index, mut touched) = (Index::default(), Touched::default());
    for (number, ordinal, member) in seats() {
        index.apply(&scope(), Change::Upsert(pod(number, ordinal, member, true)), &mut touched);
    }
    assert_eq!(index.sizes()[1], DEPLOYMENTS as usize * REPLICAS as usize * SIZE as usize);
    let events = [pod(500, 3, 1, true), pod(500, 3, 1, false)];
    let mut nth = 0;
    criterion.bench_function("index_apply", |bencher| {
        bencher.iter(|| {
            nth ^= 1;
            touched.clear();
            index.apply(&scope(), Change::Upsert(events[nth].clone()), &mut touched);
            assert_eq!(black_box(touched.len()), 1);
        });
    });
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
    criterion.bench_function("snapshot_build", |bencher| bencher.iter(|| black_box(state.snapshot("bench"))));
    let pods: Vec<Fact> = seats().map(|(number, ordinal, member)| pod(number, ordinal, member, true)).collect();
    criterion.bench_function("relist", |bencher| {
        bencher.iter(|| {
            relist(&mut state, Kind::Pod, pods.iter().cloned());
            black_box(refresh(&mut state))
        });
    });
    criterion.bench_function("first_view", |bencher| bencher.iter(|| black_box(full())));
}

criterion_group! { name = state; config = Criterion::default().sample_size(20); targets = index_apply, benches }
criterion_main!(state);
