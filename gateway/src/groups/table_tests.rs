use discovery::snapshot::ReplicaGroup;

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

/// Entries are reused under the same settings only.
static CONFIG: std::sync::LazyLock<Config> = std::sync::LazyLock::new(testing::config);

fn rebuild(tables: &Tables, snapshot: Arc<Snapshot>) {
    tables.rebuild(snapshot, &CONFIG, SystemTime::UNIX_EPOCH);
}

/// Sizes of everything that outlives one table: groups, retired incarnations, pools.
fn kept(tables: &Tables) -> (usize, usize, usize) {
    (tables.load().groups.len(), tables.incarnations.retired(), tables.pools.lock().unwrap().len())
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

/// Whether a request at the group would be told that it is lost.
fn told(state: &GroupState) -> bool {
    state.signs().silence_is_loss()
}

/// A group in two pools that loses one of its names is not gone, whichever of the pools changed; without the other it is.
#[test]
fn a_group_is_gone_when_no_pool_has_it() {
    let tables = Tables::new(1, testing::metrics());
    let both = snapshot([("a", vec![(0, 0)]), ("b", vec![(0, 0)])]);
    // One deployment, two names: both pools have the same incarnation.
    let shared = |snapshot: &Snapshot| {
        let (a, b) = (&snapshot.pools["a"], &snapshot.pools["b"]);
        let b = Arc::new(Pool { groups: a.groups.clone(), ..Pool::clone(b) });
        (a.clone(), b)
    };
    let (a, b) = shared(&both);
    let of = |pools: Vec<Arc<Pool>>| {
        let pools = pools.into_iter().map(|pool| (pool.model.clone(), pool)).collect();
        Arc::new(Snapshot { source: "leaders", pools, ..Snapshot::default() })
    };
    rebuild(&tables, of(vec![a.clone(), b.clone()]));
    let state = tables.load().group(&a.groups[0].id).unwrap().clone();
    rebuild(&tables, of(vec![a.clone(), Arc::new(Pool { groups: vec![], ..Pool::clone(&b) })]));
    assert!(!told(&state) && tables.load().group(&state.id).is_some());
    rebuild(&tables, of(vec![a, b.clone()]));
    rebuild(&tables, of(vec![b.clone()]));
    assert!(!told(&state) && tables.load().group(&state.id).is_some());
    rebuild(&tables, of(vec![]));
    assert!(told(&state) && tables.load().group(&state.id).is_none());
    rebuild(&tables, of(vec![b]));
    assert!(!told(&state) && Arc::ptr_eq(&state, tables.load().group(&state.id).unwrap()), "it came back");
}

/// What we saw of a leader holds until the next snapshot, also one in which its pool is the same object.
#[test]
fn groups_of_unchanged_pools_are_brought_up_to_date() {
    let tables = Tables::new(1, testing::metrics());
    let first = snapshot([("a", vec![(0, 0)]), ("b", vec![(0, 0)])]);
    rebuild(&tables, first.clone());
    let table = tables.load().clone();
    let state = &table.pools["a"].members[0];
    state.refused();
    assert!(told(state));
    let (_, other) = snapshot([("b", vec![(0, 1)])]).pools.clone().pop_first().unwrap();
    let pools = [(Arc::from("a"), first.pools["a"].clone()), (Arc::from("b"), other)];
    rebuild(&tables, Arc::new(Snapshot { source: "leaders", pools: pools.into(), ..Snapshot::default() }));
    assert!(!told(state));
    assert!(Arc::ptr_eq(&table.pools["a"], &tables.load().pools["a"]) && !Arc::ptr_eq(&table.pools["b"], &tables.load().pools["b"]));
}
