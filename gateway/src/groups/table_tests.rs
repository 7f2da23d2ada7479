use super::*;
use crate::telemetry::metrics::MOST_POOLS;
use crate::testing;

/// A snapshot of these pools, each with these groups: (ordinal, incarnation).
fn snapshot<'a>(pools: impl IntoIterator<Item = (&'a str, Vec<(usize, usize)>)>) -> Arc<Snapshot> {
    let group = |model: &str, (ordinal, incarnation): (usize, usize)| {
        let id = GroupId(format!("ns/{model}/server/{ordinal}@{incarnation}").into());
        Arc::new(ReplicaGroup { id, ..testing::group(ordinal) })
    };
    let pool = |(model, groups): (&'a str, Vec<(usize, usize)>)| {
        let groups = groups.into_iter().map(|of| group(model, of)).collect();
        let pool = Pool { model: model.into(), deployment: None, groups, outlook: Outlook::Coming, last_replacement: None };
        (Arc::from(model), Arc::new(pool))
    };
    Arc::new(Snapshot { source: "leaders", pools: pools.into_iter().map(pool).collect(), ..Snapshot::default() })
}

fn rebuild(tables: &Tables, snapshot: Arc<Snapshot>) {
    tables.rebuild(snapshot, &testing::config(), SystemTime::UNIX_EPOCH);
}

/// Sizes of everything that outlives one table: groups, retired incarnations, pools.
fn kept(tables: &Tables) -> (usize, usize, usize) {
    let retired = tables.retired.lock().unwrap().len();
    (tables.load().groups.len(), retired, tables.pools.lock().unwrap().len())
}

/// A day of rollouts: in each step one of four slots gets a new incarnation, while requests run on at the last eight that went.
#[test]
fn a_day_of_rollouts_leaves_only_what_lives() {
    let tables = Tables::new(1, testing::metrics());
    let mut slots: Vec<_> = (0..4).map(|ordinal| (ordinal, 0)).collect();
    rebuild(&tables, snapshot([("m", slots.clone())]));
    let first = tables.load().pools["m"].state.clone();
    let mut running = std::collections::VecDeque::new();
    for step in 1..=4000 {
        let slot = &mut slots[step % 4];
        let going = GroupId(format!("ns/m/server/{}@{}", slot.0, slot.1).into());
        running.push_back(tables.load().group(&going).unwrap().clone());
        if running.len() > 8 {
            running.pop_front();
        }
        slot.1 = step;
        rebuild(&tables, snapshot([("m", slots.clone())]));
        assert_eq!(kept(&tables), (4, running.len(), 1), "step {step}");
    }
    assert!(Arc::ptr_eq(&first, &tables.load().pools["m"].state), "the pool is the same all day");
    running.clear();
    rebuild(&tables, snapshot([("m", slots)]));
    assert_eq!(kept(&tables), (4, 0, 1));
}

/// Models come and go under names that never come back, more of them than pools may have labels.
#[test]
fn pools_that_went_are_forgotten_and_their_series_are_bounded() {
    let metrics = testing::metrics();
    let tables = Tables::new(1, metrics.clone());
    for step in 0..2 * MOST_POOLS {
        let name = format!("adapter-{step}");
        rebuild(&tables, snapshot([("m", vec![(0, 0)]), (&name, vec![(0, 0)])]));
        let (groups, retired, pools) = kept(&tables);
        // What the last table had goes with the next one: the last table still refers to it.
        assert!((groups, pools) <= (2, 3) && retired <= 2, "step {step}: {groups} groups, {retired} retired, {pools} pools");
    }
    for _ in 0..2 {
        rebuild(&tables, snapshot([("m", vec![(0, 0)])]));
    }
    assert_eq!(kept(&tables), (1, 0, 1));
    assert_eq!(metrics.figures().len(), MOST_POOLS + 1, "the rest share one");
}

/// A pool that went is kept while a request still refers to it, and no longer.
#[test]
fn a_pool_in_use_outlives_its_absence() {
    let tables = Tables::new(1, testing::metrics());
    rebuild(&tables, snapshot([("m", vec![(0, 0)])]));
    let used = tables.load().pools["m"].state.clone();
    for _ in 0..3 {
        rebuild(&tables, snapshot([]));
    }
    assert_eq!(kept(&tables), (0, 0, 1));
    drop(used);
    rebuild(&tables, snapshot([]));
    assert_eq!(kept(&tables), (0, 0, 0));
}
