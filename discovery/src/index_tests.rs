use std::time::{Duration, SystemTime};

use super::*;
use crate::fact::{Numeral, PodPhase};

fn pod(uid: &str, owner: &str) -> Fact {
    Fact::Pod(Arc::new(PodFact {
        uid: uid.into(),
        namespace: "ns".into(),
        name: "pod".into(),
        owner: Some(owner.into()),
        role: Some("server".into()),
        ordinal: Numeral::Is(0),
        index: Numeral::Is(0),
        total: Numeral::Is(1),
        managed: false,
        eligible: false,
        labels: Vec::new(),
        created: SystemTime::UNIX_EPOCH,
        deletion: None,
        grace: Duration::from_secs(30),
        phase: PodPhase::Running,
        ready: true,
        ip: None,
        ports: Vec::new(),
        containers: "".into(),
        declared_names: Vec::new(),
        https: false,
    }))
}

/// Applies changes of scope `a`; gives the deployments touched, sorted.
fn apply(index: &mut Index, changes: Vec<Change>) -> Vec<String> {
    apply_to(index, "a", changes)
}

fn apply_to(index: &mut Index, scope: &str, changes: Vec<Change>) -> Vec<String> {
    let mut touched = Touched::default();
    for change in changes {
        index.apply(&scope.into(), change, &mut touched);
    }
    let mut touched: Vec<String> = touched.iter().map(|uid| uid.to_string()).collect();
    touched.sort_unstable();
    touched
}

fn pods(index: &Index, owner: &str) -> Vec<String> {
    index.pods_of(owner).map(|pod| pod.uid.to_string()).collect()
}

#[test]
fn an_event_touches_the_owner_only_and_an_equal_one_nobody() {
    let mut index = Index::default();
    assert_eq!(apply(&mut index, vec![Change::Upsert(pod("p", "d1"))]), ["d1"]);
    assert_eq!(apply(&mut index, vec![Change::Upsert(pod("p", "d1"))]), [""; 0]);
    assert_eq!(apply(&mut index, vec![Change::Upsert(pod("p", "d2"))]), ["d1", "d2"], "both the old and the new owner");
    assert_eq!(pods(&index, "d1"), [""; 0]);
    assert_eq!(apply(&mut index, vec![Change::Remove(Kind::Pod, "p".into())]), ["d2"]);
    assert_eq!(apply(&mut index, vec![Change::Remove(Kind::Pod, "p".into())]), [""; 0]);
}

#[test]
fn a_relist_replaces_at_its_end_and_not_before() {
    let mut index = Index::default();
    apply(&mut index, vec![Change::Upsert(pod("gone", "d1")), Change::Upsert(pod("stays", "d2"))]);
    let touched = apply(
        &mut index,
        vec![Change::RelistBegin(Kind::Pod), Change::RelistItem(pod("stays", "d2")), Change::RelistItem(pod("new", "d3"))],
    );
    assert_eq!(touched, [""; 0]);
    assert_eq!(pods(&index, "d1"), ["gone"]);
    assert_eq!(apply(&mut index, vec![Change::RelistEnd(Kind::Pod)]), ["d1", "d3"]);
    assert_eq!((pods(&index, "d1").len(), pods(&index, "d2").len(), pods(&index, "d3").len()), (0, 1, 1));
}

#[test]
fn a_relist_that_begins_anew_forgets_what_the_unfinished_one_gathered() {
    let mut index = Index::default();
    apply(&mut index, vec![Change::RelistBegin(Kind::Pod), Change::RelistItem(pod("half", "d1"))]);
    apply(&mut index, vec![Change::RelistBegin(Kind::Pod), Change::RelistEnd(Kind::Pod)]);
    assert_eq!(pods(&index, "d1"), [""; 0]);
}

#[test]
fn scopes_do_not_touch_each_other() {
    let mut index = Index::default();
    apply_to(&mut index, "a", vec![Change::Upsert(pod("p", "d1"))]);
    apply_to(&mut index, "b", vec![Change::RelistBegin(Kind::Pod), Change::RelistEnd(Kind::Pod)]);
    assert_eq!(pods(&index, "d1"), ["p"]);
}

#[test]
fn an_object_that_cannot_be_read_is_kept_by_a_relist() {
    let mut index = Index::default();
    apply(&mut index, vec![Change::Upsert(pod("p", "d1"))]);
    let relist = vec![
        Change::RelistBegin(Kind::Pod),
        Change::RelistKeep(Kind::Pod, "p".into()),
        Change::RelistKeep(Kind::Pod, "never seen".into()),
        Change::RelistEnd(Kind::Pod),
    ];
    assert_eq!(apply(&mut index, relist), [""; 0]);
    assert_eq!(pods(&index, "d1"), ["p"]);
}

#[test]
fn a_scope_is_listed_when_every_kind_is() {
    let mut index = Index::default();
    for (at, kind) in Kind::ALL.into_iter().enumerate() {
        assert!(!index.listed(&"a".into()), "{at}");
        apply(&mut index, vec![Change::RelistBegin(kind), Change::RelistEnd(kind)]);
    }
    assert!(index.listed(&"a".into()));
    assert!(!index.listed(&"b".into()));
}

impl Index {
    /// Sizes of everything that is kept, by name.
    pub(crate) fn held(&self) -> Vec<(&'static str, usize)> {
        let links = |links: &HashMap<Str, BTreeSet<Str>>| links.len() + links.values().map(BTreeSet::len).sum::<usize>();
        vec![
            ("deployments", self.deployments.len()),
            ("pods", self.pods.len()),
            ("services", self.services.len()),
            ("pods of", links(&self.pods_of)),
            ("services of", links(&self.services_of)),
            ("namesakes", self.namesakes.values().map(BTreeSet::len).sum()),
            ("namesakes' names", self.namesakes.len()),
            ("scopes", self.scopes.len() + self.scopes.values().map(HashSet::len).sum::<usize>()),
            ("relists", self.relists.len()),
            ("listed", self.listed.len()),
        ]
    }
}
