//! State changes of groups as events of the status page (their log lines are discovery's), and name conflicts as log lines.
//!
//! Owns: the comparison of a snapshot with the one before. Must not: run on a request's path; the task that follows the snapshots calls
//! it once for each. Next step: `recent`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use discovery::snapshot::{GroupPhase, NameConflict, ReplicaGroup, Snapshot};

use super::recent::{Kind, Note, Recent};

/// What was last seen of each group.
#[derive(Debug, Default)]
pub struct Changes {
    groups: BTreeMap<Arc<str>, Seen>,
    conflicts: Vec<NameConflict>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Seen {
    phase: GroupPhase,
    reasons: String,
    pool: Arc<str>,
}

impl Changes {
    /// Compares with the snapshot before, notes each change.
    pub fn observe(&mut self, snapshot: &Snapshot, recent: &Recent, now: SystemTime) {
        let mut groups = BTreeMap::new();
        for pool in snapshot.pools.values().chain(&snapshot.unnamed) {
            for group in &pool.groups {
                groups.insert(group.key.0.clone(), seen(group, &pool.model));
            }
        }
        for (key, is) in &groups {
            let was = self.groups.get(key);
            if was != Some(is) {
                changed(key, was, is, (recent, now));
            }
        }
        for (key, was) in self.groups.iter().filter(|(key, _)| !groups.contains_key(*key)) {
            note((recent, now), &was.pool, key, "gone");
        }
        self.groups = groups;
        self.conflicts(&snapshot.conflicts);
    }

    fn conflicts(&mut self, conflicts: &[NameConflict]) {
        for new in conflicts.iter().filter(|c| !self.conflicts.contains(c)) {
            let refused: Vec<_> = new.refused.iter().map(ToString::to_string).collect();
            tracing::warn!(model = %new.model, owner = %new.owner, refused = refused.join(","), "several deployments claim one name");
        }
        self.conflicts = conflicts.to_vec();
    }
}

fn seen(group: &ReplicaGroup, pool: &Arc<str>) -> Seen {
    let reasons: Vec<_> = group.reasons.iter().map(|r| r.as_str()).collect();
    Seen { phase: group.phase, reasons: reasons.join(","), pool: pool.clone() }
}

fn changed(key: &Arc<str>, was: Option<&Seen>, is: &Seen, to: (&Recent, SystemTime)) {
    let from = was.map_or("none", |w| w.phase.as_str());
    let phase = is.phase.as_str();
    // The page shows phases as they come and go; a reason that changes within a phase is in discovery's log alone.
    if was.is_none_or(|w| w.phase != is.phase) {
        note(to, &is.pool, key, &format!("{from} → {phase} {}", is.reasons));
    }
}

fn note((recent, now): (&Recent, SystemTime), pool: &Arc<str>, group: &Arc<str>, detail: &str) {
    let note = Note { pool: pool.clone(), group: group.clone(), detail: Arc::from(detail.trim_end()), ..Note::default() };
    recent.note(Kind::Group, note, now);
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use discovery::snapshot::{GroupId, GroupKey, Outlook, Pool, Reason};

    use super::*;

    fn snapshot(groups: &[(&str, &str, GroupPhase, &[Reason])]) -> Snapshot {
        let group = |(key, id, phase, reasons): &(&str, &str, GroupPhase, &[Reason])| {
            Arc::new(ReplicaGroup {
                key: GroupKey(Arc::from(*key)),
                id: GroupId(Arc::from(*id)),
                ordinal: None,
                phase: *phase,
                reasons: reasons.to_vec(),
                leader: None,
                members: vec![],
                managed: false,
                drain: None,
                next_to_go: false,
                broken: false,
                proof: 0,
            })
        };
        let groups = groups.iter().map(group).collect();
        let pool = Pool { model: Arc::from("m"), deployment: None, groups, outlook: Outlook::Coming, last_replacement: None };
        let mut snapshot = Snapshot::default();
        snapshot.pools.insert(Arc::from("m"), Arc::new(pool));
        snapshot
    }

    #[test]
    fn each_change_is_told_once() {
        let (mut changes, recent) = (Changes::default(), Recent::new());
        let steps = [
            snapshot(&[("k/0", "a", GroupPhase::Serving, &[])]),
            snapshot(&[("k/0", "a", GroupPhase::Serving, &[])]),
            snapshot(&[("k/0", "a", GroupPhase::Draining, &[Reason::MemberDeleting])]),
            snapshot(&[("k/0", "a", GroupPhase::Draining, &[Reason::MemberDeleting, Reason::ReplacementCleanup])]),
            snapshot(&[("k/0", "b", GroupPhase::Forming, &[Reason::MemberMissing])]),
            snapshot(&[]),
        ];
        for step in &steps {
            changes.observe(step, &recent, UNIX_EPOCH);
        }
        let told: Vec<_> = recent.since(0).iter().map(|e| e.detail.to_string()).collect();
        assert_eq!(told, ["none → Serving", "Serving → Draining member_deleting", "Draining → Forming member_missing", "gone"]);
    }
}
