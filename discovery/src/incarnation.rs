//! What one target was: its incarnation, whether it ever served, since when it leaves. Pure; time is passed in.
//!
//! Owns: `GroupId` and the rule of when a new one begins. Must not: see phases of other groups. Next step: `group`, `drain`.
//!
//! The rule: a new UID or a restarted container of any member begins a new incarnation. A group that served and merely *lost* members
//! keeps its id while it drains, because the streams that run at its leader belong to that id.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::fact::{PodFact, Str};
use crate::snapshot::{GroupId, GroupKey};

/// The past of one target.
#[derive(Debug, Clone)]
pub struct Memory {
    /// The present incarnation.
    pub id: GroupId,
    /// UID → containers of its members.
    members: BTreeMap<Str, Str>,
    /// This incarnation was Serving at some time.
    pub served: bool,
    /// This incarnation began with a container restart and has not served since.
    pub restarted: bool,
    /// First sign of leaving of this incarnation that still holds.
    pub leaving_since: Option<SystemTime>,
    /// When the last incarnation that served began to leave; until this one serves.
    vacated: Option<SystemTime>,
    /// Proofs counted before the probe last began anew, and its last count.
    proofs: (u64, u64),
    /// Names that its engine listed last.
    learned: Option<Arc<[Str]>>,
}

impl Memory {
    /// The past of the target `key` after its members were seen as they are now.
    pub fn advance(before: Option<Memory>, key: &GroupKey, pods: &[&Arc<PodFact>], now: SystemTime) -> Memory {
        let members: BTreeMap<Str, Str> = pods.iter().map(|pod| (pod.uid.clone(), pod.containers.clone())).collect();
        let Some(before) = before else { return Self::begin(key, members) };
        let remnant = || !members.is_empty() && members.iter().all(|(uid, containers)| before.members.get(uid) == Some(containers));
        if members == before.members || before.served && remnant() {
            return before;
        }
        let same_pods = members.keys().eq(before.members.keys());
        let vacated = if before.served && !same_pods { Some(before.leaving_since.unwrap_or(now)) } else { before.vacated };
        let restarted = members.iter().any(|(uid, containers)| before.members.get(uid).is_some_and(|old| restart(old, containers)));
        Memory { restarted: restarted || before.restarted && same_pods, vacated, ..Self::begin(key, members) }
    }

    /// A target without Pods of its own (a router's Service).
    pub fn of_service(id: GroupId) -> Memory {
        Memory {
            id,
            members: BTreeMap::new(),
            served: false,
            restarted: false,
            leaving_since: None,
            vacated: None,
            proofs: (0, 0),
            learned: None,
        }
    }

    /// Notes that the incarnation serves. Gives the length of the replacement that ended with it, if one did.
    pub fn serves(&mut self, now: SystemTime) -> Option<Duration> {
        self.served = true;
        self.restarted = false;
        self.vacated.take().and_then(|since| now.duration_since(since).ok())
    }

    /// Proofs of this incarnation. The probe forgets an incarnation that leaves, and counts from 0 if it comes back; readers compare the
    /// number with an earlier one, so here it only grows.
    pub fn proof(&mut self, counted: u64) -> u64 {
        let (base, last) = self.proofs;
        self.proofs = if counted < last { (base + last, counted) } else { (base, counted) };
        self.proofs.0 + self.proofs.1
    }

    /// Names that the engine of this incarnation lists. They stay known while it leaves, when the probe has forgotten it.
    pub fn learned(&mut self, listed: Option<Arc<[Str]>>) -> Option<Arc<[Str]>> {
        if listed.is_some() {
            self.learned = listed;
        }
        self.learned.clone()
    }

    fn begin(key: &GroupKey, members: BTreeMap<Str, Str>) -> Memory {
        let mut id = format!("{key}@");
        for (at, (uid, containers)) in members.iter().enumerate() {
            if at > 0 {
                id.push('+');
            }
            id.push_str(uid);
            id.push('[');
            id.push_str(containers);
            id.push(']');
        }
        Memory { members, ..Self::of_service(GroupId(id.into())) }
    }
}

/// A container that ran is not among those that run now. A first start is no restart: before it there is no container id.
fn restart(old: &str, new: &str) -> bool {
    let ran = old.split(',').filter(|one| !one.is_empty() && !one.ends_with(':'));
    ran.into_iter().any(|one| !new.split(',').any(|other| other == one))
}
