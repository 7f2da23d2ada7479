//! At scale: what one event costs in work, not in time, and what is left of a day of them.

#[path = "../benches/support/facts.rs"]
mod facts;

use std::cell::Cell;
use std::time::SystemTime;

use config::Membership;
use facts::SIZE;

use super::*;
use crate::fact::{self, Fact, Kind, PodFact, RoleFact};
use crate::probe::Verdict;

fn scope() -> Str {
    "*".into()
}

fn empty() -> State {
    State::new(Arc::new(Config::default()), vec![scope()])
}

fn relist(state: &mut State, kind: Kind, facts: impl Iterator<Item = Fact>) {
    state.apply(&scope(), Change::RelistBegin(kind));
    facts.for_each(|fact| state.apply(&scope(), Change::RelistItem(fact)));
    state.apply(&scope(), Change::RelistEnd(kind));
}

/// Every incarnation is proven and lists its deployment's name and one adapter of 40, so that names come, go and collide.
fn verdict(id: &GroupId) -> Verdict {
    let number: u64 = id.0.bytes().fold(7, |hash, byte| (hash * 31 + u64::from(byte)) % 1_000_003);
    let deployment = id.0.split('/').nth(1).unwrap_or_default();
    let models = [format!("learned-{deployment}"), format!("adapter-{}", number % 40)];
    Verdict { proven: true, proof: 1, models: Some(models.iter().map(|name| Str::from(name.as_str())).collect()), ..Verdict::default() }
}

fn refresh(state: &mut State, verdicts: &dyn view::Verdicts) -> Delta {
    state.refresh(&Lens { membership: Membership::Strict, verdicts, now: SystemTime::UNIX_EPOCH })
}

#[test]
fn one_pod_event_computes_one_deployment_and_leaves_the_rest_as_it_was() {
    let (deployments, replicas) = (1000, 5);
    let mut state = empty();
    relist(&mut state, Kind::Deployment, (0..deployments).map(|n| Fact::Deployment(Arc::new(facts::deployment(n, replicas)))));
    relist(&mut state, Kind::Service, (0..deployments).map(|n| Fact::Service(Arc::new(facts::service(n)))));
    let seats = (0..deployments * replicas * SIZE).map(|n| (n / (replicas * SIZE), n / SIZE % replicas, n % SIZE));
    relist(&mut state, Kind::Pod, seats.map(|(number, ordinal, member)| Fact::Pod(Arc::new(facts::pod(number, ordinal, member)))));
    let asked = Cell::new(0);
    let proven = |_: &GroupId| {
        asked.set(asked.get() + 1);
        Verdict { proven: true, proof: 1, ..Verdict::default() }
    };
    refresh(&mut state, &proven);
    assert_eq!((state.sizes(), asked.get()), ([1000, 10_000, 1000], 5000));
    let before = state.snapshot("test");

    asked.set(0);
    state.apply(&scope(), Change::Upsert(Fact::Pod(Arc::new(PodFact { ready: false, ..facts::pod(500, 3, 1) }))));
    let delta = refresh(&mut state, &proven);
    let after = state.snapshot("test");

    assert!(delta.any && delta.loss && delta.start.is_empty(), "{delta:?}");
    assert_eq!(asked.get(), replicas, "verdicts of this deployment's groups alone");
    let changed = |(name, pool): &(&Str, &Arc<crate::snapshot::Pool>)| !Arc::ptr_eq(pool, &before.pools[*name]);
    let changed: Vec<_> = after.pools.iter().filter(changed).collect();
    let [(name, pool)] = changed[..] else { panic!("{} pools changed", changed.len()) };
    assert_eq!(&**name, "model-500");
    let same: Vec<bool> = pool.groups.iter().zip(&before.pools[name].groups).map(|(new, old)| Arc::ptr_eq(new, old)).collect();
    assert_eq!(same, [true, true, true, false, true]);
}

/// One deployment that lives, and its objects.
struct Live {
    number: u32,
    /// A recreated one has the old name, but another UID, other objects and another model.
    generation: u32,
    replicas: u32,
    pods: BTreeMap<(u32, u32), PodFact>,
}

impl Live {
    fn deployment(&self) -> Fact {
        let fact = facts::deployment(self.number, self.replicas);
        let roles = vec![RoleFact { declared_names: self.declared_names(), ..fact.roles[0].clone() }];
        Fact::Deployment(Arc::new(DeploymentFact { uid: self.uid("deployment"), roles, ..fact }))
    }

    fn service(&self) -> Fact {
        let fact = facts::service(self.number);
        Fact::Service(Arc::new(fact::ServiceFact { uid: self.uid("service"), owner: Some(self.uid("deployment")), ..fact }))
    }

    fn declared_names(&self) -> Vec<Str> {
        vec![format!("model-{}-{}", self.number, self.generation).into()]
    }

    fn uid(&self, kind: &str) -> Str {
        format!("{kind}-{}-{}", self.number, self.generation).into()
    }
}

/// A cluster that never rests, seeded.
struct Churn {
    state: State,
    live: Vec<Live>,
    /// What a prober that was told every change probes now.
    probed: HashSet<GroupId>,
    events: u64,
    random: u64,
}

impl Churn {
    fn new(deployments: u32) -> Self {
        let live = (0..deployments).map(|number| Live { number, generation: 0, replicas: 0, pods: BTreeMap::new() }).collect();
        let mut churn = Self { state: empty(), live, probed: HashSet::new(), events: 0, random: 0x5EED };
        churn.relist_all();
        for at in 0..churn.live.len() {
            churn.scale(at);
        }
        churn.refresh();
        churn
    }

    /// Numerical Recipes' constants of a linear congruential generator.
    fn below(&mut self, bound: usize) -> usize {
        self.random = self.random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223) % (1 << 32);
        usize::try_from(self.random >> 8).unwrap_or_default() % bound
    }

    fn apply(&mut self, change: Change) {
        self.events += 1;
        self.state.apply(&scope(), change);
    }

    fn put(&mut self, at: usize, seat: (u32, u32), pod: PodFact) {
        self.apply(Change::Upsert(Fact::Pod(Arc::new(pod.clone()))));
        self.live[at].pods.insert(seat, pod);
    }

    fn remove(&mut self, at: usize, seat: (u32, u32)) {
        let Some(pod) = self.live[at].pods.remove(&seat) else { return };
        self.apply(Change::Remove(Kind::Pod, pod.uid));
    }

    /// A new Pod at a seat; its UID was never there before.
    fn create(&mut self, at: usize, seat: (u32, u32)) {
        let live = &self.live[at];
        let (owner, number, declared_names) = (live.uid("deployment"), live.number, live.declared_names());
        let uid = format!("pod-{number}-{}-{}-{}", seat.0, seat.1, self.events).into();
        let containers = format!("main:0:containerd://{}", self.events).into();
        self.put(at, seat, PodFact { uid, owner: Some(owner), containers, declared_names, ..facts::pod(number, seat.0, seat.1) });
    }

    fn scale(&mut self, at: usize) {
        self.live[at].replicas = 1 + u32::try_from(self.below(3)).unwrap_or_default();
        let replicas = self.live[at].replicas;
        self.apply(Change::Upsert(self.live[at].deployment()));
        let surplus: Vec<_> = self.live[at].pods.keys().copied().filter(|(ordinal, _)| *ordinal >= replicas).collect();
        surplus.into_iter().for_each(|seat| self.remove(at, seat));
        for seat in (0..replicas).flat_map(|ordinal| (0..SIZE).map(move |member| (ordinal, member))) {
            if !self.live[at].pods.contains_key(&seat) {
                self.create(at, seat);
            }
        }
    }

    /// The deployment is deleted and created again under the same name; its Pods go with it, sooner or later.
    fn recreate(&mut self, at: usize) {
        let gone = [(Kind::Deployment, self.live[at].uid("deployment")), (Kind::Service, self.live[at].uid("service"))];
        for (kind, uid) in gone {
            self.apply(Change::Remove(kind, uid));
        }
        let pods = std::mem::take(&mut self.live[at].pods);
        self.live[at].generation += 1;
        self.apply(Change::Upsert(self.live[at].service()));
        self.scale(at);
        pods.into_values().for_each(|pod| self.apply(Change::Remove(Kind::Pod, pod.uid)));
    }

    fn relist_all(&mut self) {
        relist(&mut self.state, Kind::Deployment, self.live.iter().map(Live::deployment));
        relist(&mut self.state, Kind::Service, self.live.iter().map(Live::service));
        let pods = self.live.iter().flat_map(|live| live.pods.values().cloned());
        relist(&mut self.state, Kind::Pod, pods.map(|pod| Fact::Pod(Arc::new(pod))));
    }

    fn step(&mut self) {
        let at = self.below(self.live.len());
        let seats: Vec<_> = self.live[at].pods.keys().copied().collect();
        let seat = seats[self.below(seats.len())];
        let pod = self.live[at].pods[&seat].clone();
        match self.below(1000) {
            0 => self.relist_all(),
            1..=10 => self.recreate(at),
            11..=60 => self.scale(at),
            61..=200 => {
                self.remove(at, seat);
                self.create(at, seat);
            }
            201..=300 => {
                let containers = format!("main:1:containerd://{}", self.events).into();
                self.put(at, seat, PodFact { containers, ..pod });
            }
            _ => self.put(at, seat, PodFact { ready: !pod.ready, ..pod }),
        }
    }

    fn refresh(&mut self) {
        let delta = refresh(&mut self.state, &verdict);
        for id in &delta.stop {
            self.probed.remove(id);
        }
        self.probed.extend(delta.start.into_iter().map(|target| target.id));
    }

    /// Everything that lives is Ready.
    fn settle(&mut self) {
        for at in 0..self.live.len() {
            for (seat, pod) in self.live[at].pods.clone() {
                self.put(at, seat, PodFact { ready: true, ..pod });
            }
        }
        self.refresh();
    }
}

impl State {
    /// Sizes of everything that is kept, by name.
    fn held(&self) -> Vec<(&'static str, usize)> {
        let past = |size: fn(&Past) -> usize| self.pasts.values().map(size).sum::<usize>();
        let own = [
            ("touched", self.touched.len()),
            ("pasts", self.pasts.len()),
            ("groups of pasts", past(|past| past.groups.len())),
            ("names of pasts", past(|past| past.names.len())),
            ("views", self.views.len()),
            ("targets", self.views.values().map(|view| view.targets.len()).sum()),
            ("probe targets", self.views.values().map(|view| view.probe.len()).sum()),
            ("deployment of", self.deployment_of.len()),
        ];
        own.into_iter().chain(self.index.held()).chain(self.table.held()).collect()
    }
}

/// A gateway that saw a day of events knows what one knows that started a moment ago, and keeps no more.
#[test]
fn a_day_of_events_leaves_what_a_fresh_start_would_keep() {
    let mut churn = Churn::new(8);
    while churn.events < 200_000 {
        churn.step();
        if churn.below(16) == 0 {
            churn.refresh();
        }
    }
    churn.settle();
    let mut fresh = Churn { state: empty(), live: churn.live, probed: HashSet::new(), events: 0, random: 1 };
    fresh.relist_all();
    fresh.refresh();

    assert_eq!(churn.state.held(), fresh.state.held());
    assert_eq!(churn.probed, fresh.probed);
    assert_eq!(churn.probed.len(), churn.state.probe_targets().len());
    let (day, new) = (churn.state.snapshot("test"), fresh.state.snapshot("test"));
    assert_eq!(day.deployments, new.deployments);
    assert_eq!(day.pools.keys().collect::<Vec<_>>(), new.pools.keys().collect::<Vec<_>>());
    assert_eq!(day.conflicts, new.conflicts);
}

/// What the day showed first: of a deployment that is deleted and created anew within one round, the new one stays reachable.
#[test]
fn a_recreated_deployment_is_reached_whichever_of_the_two_is_looked_at_first() {
    let mut churn = Churn::new(1);
    for round in 0..16 {
        churn.recreate(0);
        // Nothing is learned, so the two have no name in common.
        refresh(&mut churn.state, &|_: &GroupId| Verdict::default());
        let snapshot = churn.state.snapshot("test");
        let name = format!("model-0-{}", churn.live[0].generation);
        assert_eq!(snapshot.deployments.get("models/d0").map(|name| &**name), Some(&*name), "round {round}");
    }
}
