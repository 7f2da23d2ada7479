//! The state of the gateway as the admin port's JSON.
//!
//! Owns: the translation from the snapshot and the view. Must not: read a clock (the caller passes `now`), so that it can be tested.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use discovery::snapshot::{DrainBudget, GroupId, Member, NameConflict, Outlook, Pool, ReplicaGroup};

use super::Admin;
use super::model::{Conflict, DrainState, GroupState, LeaderState, MemberState, PoolState, State, Status, Watch};
use crate::telemetry::view::{GroupView, View, WatchView};

/// Everything that `/debug/snapshot` shows at `now`, of a process begun at `started`.
pub fn state(view: &dyn View, now: SystemTime, started: SystemTime) -> State {
    let snapshot = view.snapshot();
    State {
        generation: snapshot.generation,
        age_seconds: view.snapshot_age().as_secs_f64(),
        source: snapshot.source.to_owned(),
        pools: snapshot.pools.values().map(|p| pool(p, view, now)).collect(),
        unnamed: snapshot.unnamed.iter().map(|p| pool(p, view, now)).collect(),
        names_pending: snapshot.names_pending,
        conflicts: snapshot.conflicts.iter().map(conflict).collect(),
        watches: view.watches().into_iter().map(watch).collect(),
        not_ready: view.readiness().missing().into_iter().map(str::to_owned).collect(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        started_ms: millis(started),
    }
}

/// Everything that the status page shows at `now`, with the events above number `since`.
pub(super) fn status(admin: &Admin, now: SystemTime, since: u64) -> Status {
    Status {
        at_ms: millis(now),
        state: state(&*admin.view, now, admin.started),
        figures: admin.metrics.figures(),
        recent: admin.recent.since(since),
    }
}

pub(super) fn millis(at: SystemTime) -> u64 {
    at.duration_since(UNIX_EPOCH).map_or(0, |d| u64::try_from(d.as_millis()).unwrap_or(u64::MAX))
}

fn pool(pool: &Pool, view: &dyn View, now: SystemTime) -> PoolState {
    PoolState {
        model: pool.model.to_string(),
        deployment: pool.deployment.as_ref().map(ToString::to_string),
        waiting: view.waiting(&pool.model),
        groups: pool.groups.iter().map(|g| group(g, view.group(&g.id), now)).collect(),
        outlook: match pool.outlook {
            Outlook::Coming => "coming".to_owned(),
            Outlook::Nothing => "nothing".to_owned(),
        },
        last_replacement_seconds: pool.last_replacement.map(|d| d.as_secs_f64()),
        retry_budget: view.retry_budget(&pool.model),
    }
}

fn group(group: &ReplicaGroup, seen: GroupView, now: SystemTime) -> GroupState {
    GroupState {
        key: group.key.to_string(),
        ordinal: group.ordinal,
        phase: group.phase.as_str().to_owned(),
        reasons: group.reasons.iter().map(|r| r.as_str().to_owned()).collect(),
        leader: group.leader.as_ref().map(|l| LeaderState {
            pod: l.pod.to_string(),
            uid: l.uid.as_ref().map(ToString::to_string),
            address: l.address.to_string(),
        }),
        members: group.members.iter().map(member).collect(),
        in_flight: seen.in_flight,
        health: seen.health.as_str().to_owned(),
        incarnation: short(&group.id),
        managed: group.managed,
        drain: group.drain.as_ref().map(|d| drain(d, now)),
        next_to_go: group.next_to_go,
        broken: group.broken,
        proofs: group.proof,
        attempts: seen.attempts,
        failures: seen.failures,
        first_token_seconds: seen.first_token.map(|d| d.as_secs_f64()),
    }
}

fn member(member: &Member) -> MemberState {
    MemberState {
        pod: member.pod.to_string(),
        uid: member.uid.to_string(),
        index: member.index,
        ready: member.ready,
        deleting: member.deleting,
    }
}

/// The incarnation as a short word: equal words, equal incarnation (in one process, which is all that a reader compares).
pub(super) fn short(id: &GroupId) -> String {
    // FNV-1a: stable from run to run, unlike the standard hasher with its random keys.
    let hash = id.0.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
    format!("{hash:016x}")
}

fn drain(budget: &DrainBudget, now: SystemTime) -> DrainState {
    let left = |until: SystemTime| until.duration_since(now).unwrap_or(Duration::ZERO).as_secs_f64();
    DrainState {
        since_seconds: now.duration_since(budget.since).unwrap_or(Duration::ZERO).as_secs_f64(),
        grace_seconds: budget.grace.as_secs_f64(),
        streams_left_seconds: left(budget.streams_until),
        followers_left_seconds: budget.followers_until.map(left),
    }
}

fn conflict(conflict: &NameConflict) -> Conflict {
    Conflict {
        model: conflict.model.to_string(),
        owner: conflict.owner.to_string(),
        refused: conflict.refused.iter().map(ToString::to_string).collect(),
    }
}

fn watch(watch: WatchView) -> Watch {
    Watch { resource: watch.resource, state: watch.state.to_owned(), idle_seconds: watch.idle.as_secs_f64(), error: watch.error }
}
