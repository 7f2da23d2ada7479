//! What routing one request costs: the model found in a body against a full parse, picking among few and many groups, and the table
//! rebuilt for one changed pool among many. `cargo bench -p gateway --bench route`; figures are in docs/performance.md.

#![allow(missing_docs, reason = "criterion's macros make public items without documentation")]
#![allow(clippy::expect_used, reason = "a bench that cannot set itself up has to stop")]

use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::Arc;
use std::time::SystemTime;

use config::Config;
use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use discovery::snapshot::{Address, GroupId, GroupKey, GroupPhase, Leader, Outlook, Pool, ReplicaGroup, Snapshot};
use gateway::groups::table::Tables;
use gateway::proxy::pick::pick;
use gateway::proxy::scan::Scan;
use gateway::telemetry::metrics::Metrics;
use rand::SeedableRng;
use rand::rngs::SmallRng;

/// As hyper hands a large body on.
const CHUNK: usize = 64 * 1024;

fn body(bytes: usize) -> Vec<u8> {
    let text = "Tell me \\\"more\\\" about leaders, please.\\n".repeat(bytes / 40);
    format!("{{\"messages\":[{{\"role\":\"user\",\"content\":\"{text}\"}}],\"model\":\"tiny\",\"stream\":true}}").into_bytes()
}

fn scan(body: &[u8]) -> bool {
    let mut scan = Scan::default();
    body.chunks(CHUNK).for_each(|chunk| scan.feed(chunk));
    scan.finish().is_ok_and(|scanned| scanned.stream)
}

fn finding_the_model(criterion: &mut Criterion) {
    for (name, bytes) in [("1 KiB", 1 << 10), ("100 KiB", 100 << 10), ("4 MiB", 4 << 20)] {
        let body = body(bytes);
        let mut group = criterion.benchmark_group(format!("model in {name}"));
        group.throughput(Throughput::Bytes(body.len() as u64));
        group.bench_function("scan", |bencher| bencher.iter(|| scan(black_box(&body))));
        group
            .bench_function("full parse", |bencher| bencher.iter(|| serde_json::from_slice::<serde_json::Value>(black_box(&body)).is_ok()));
        group.finish();
    }
}

fn group(pool: usize, nth: usize) -> ReplicaGroup {
    ReplicaGroup {
        key: GroupKey(format!("ns/d{pool}/server/{nth}").into()),
        id: GroupId(format!("ns/d{pool}/server/{nth}@a").into()),
        ordinal: u32::try_from(nth).ok(),
        phase: GroupPhase::Serving,
        reasons: Vec::new(),
        leader: Some(Leader { pod: "p".into(), uid: None, address: Address { https: false, host: "127.0.0.1".into(), port: 1 } }),
        members: Vec::new(),
        managed: false,
        drain: None,
        next_to_go: false,
        broken: false,
        proof: 1,
    }
}

fn pool(nth: usize, groups: usize) -> (Arc<str>, Arc<Pool>) {
    let model: Arc<str> = format!("model-{nth}").into();
    let groups = (0..groups).map(|at| Arc::new(group(nth, at))).collect();
    let pool = Pool { model: model.clone(), deployment: None, groups, outlook: Outlook::Coming, last_replacement: None };
    (model, Arc::new(pool))
}

fn snapshot(pools: usize, groups: usize) -> Snapshot {
    let pools: BTreeMap<_, _> = (0..pools).map(|nth| pool(nth, groups)).collect();
    Snapshot { generation: 1, source: "leaders", pools, ..Snapshot::default() }
}

fn tables(snapshot: Snapshot, config: &Config) -> Tables {
    let tables = Tables::new(1, Metrics::new().expect("names are unique"));
    tables.rebuild(Arc::new(snapshot), config, SystemTime::UNIX_EPOCH);
    tables
}

fn picking(criterion: &mut Criterion) {
    let mut bench = criterion.benchmark_group("pick");
    for groups in [4, 1000] {
        let tables = tables(snapshot(1, groups), &Config::default());
        let table = tables.load();
        let entry = table.pool("model-0").expect("the snapshot has it");
        let mut rng = SmallRng::seed_from_u64(7);
        bench.bench_function(format!("{groups} groups"), |bencher| bencher.iter(|| pick(black_box(entry), &[], &mut rng).is_some()));
    }
    bench.finish();
}

/// One pool of a large snapshot is new, all others are the same objects, as discovery publishes them.
fn rebuilding(criterion: &mut Criterion) {
    let config = Config::default();
    let base = snapshot(1000, 10);
    let changed = || {
        let mut pools = base.pools.clone();
        pools.extend([pool(500, 9)]);
        Arc::new(Snapshot { generation: 2, source: "leaders", pools, ..Snapshot::default() })
    };
    let tables = tables(Snapshot { pools: base.pools.clone(), ..Snapshot::default() }, &config);
    let mut bench = criterion.benchmark_group("rebuild the table");
    bench.bench_function("1,000 pools of 10 groups, one changed", |bencher| {
        bencher.iter_batched(changed, |snapshot| tables.rebuild(snapshot, &config, SystemTime::UNIX_EPOCH), BatchSize::LargeInput);
    });
    bench.finish();
}

criterion_group!(benches, finding_the_model, picking, rebuilding);
criterion_main!(benches);
