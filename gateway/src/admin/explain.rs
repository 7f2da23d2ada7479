//! Where a request for a model would go now, and why not to each other group.
//!
//! Owns: the words. Must not: pick; it says who the candidates are by the rules that routing and picking follow (served names, then
//! `namespace/deployment`, then `*`; serving groups with a leader whose health is not open; those that go next only where nothing else
//! serves). Pure over one snapshot.

use std::sync::Arc;

use discovery::snapshot::{Outlook, Pool, ReplicaGroup, Snapshot};

use super::model::{Explanation, GroupVerdict};
use crate::telemetry::view::{Health, View};

/// Explains a request for `model` by the snapshot that is in use.
pub fn explain(view: &dyn View, model: &str) -> Explanation {
    let snapshot = view.snapshot();
    let Some(pool) = route(&snapshot, model) else { return unknown(&snapshot, model) };
    let mut groups: Vec<_> = pool.groups.iter().map(|g| verdict(g, view)).collect();
    let waiting = view.waiting(&pool.model);
    if groups.iter().all(|g| g.standing != "candidate") {
        for group in groups.iter_mut().filter(|g| g.standing == "avoided") {
            "candidate".clone_into(&mut group.standing);
        }
    }
    let candidates: Vec<_> = groups.iter().filter(|g| g.standing == "candidate").collect();
    let verdict = match (candidates.as_slice(), pool.outlook) {
        ([], Outlook::Coming) => "No group serves: the request would wait for one that is coming.".to_owned(),
        ([], Outlook::Nothing) => "No group serves and none is coming: the request would wait shortly, then be refused.".to_owned(),
        ([one], _) => format!("The request would go to {}.", one.key),
        (several, _) => format!("The request would go to the less busy one of two picked at random of {} groups.", several.len()),
    };
    let refusal = (candidates.is_empty() && pool.outlook == Outlook::Nothing).then(|| "no_serving_group".to_owned());
    Explanation {
        model: model.to_owned(),
        pool: Some(pool.model.to_string()),
        verdict,
        refusal,
        waiting,
        generation: snapshot.generation,
        groups,
    }
}

fn route<'a>(snapshot: &'a Snapshot, model: &str) -> Option<&'a Arc<Pool>> {
    let by_deployment = || snapshot.deployments.get(model).and_then(|name| snapshot.pools.get(name));
    snapshot.pools.get(model).or_else(by_deployment).or_else(|| snapshot.pools.get("*"))
}

fn unknown(snapshot: &Snapshot, model: &str) -> Explanation {
    let verdict = if snapshot.names_pending {
        "No pool serves this name, but the names of some deployment are not known yet: the request would wait."
    } else {
        "No pool serves this name: the request would be refused."
    };
    Explanation {
        model: model.to_owned(),
        verdict: verdict.to_owned(),
        refusal: (!snapshot.names_pending).then(|| "model_not_found".to_owned()),
        generation: snapshot.generation,
        ..Explanation::default()
    }
}

fn verdict(group: &ReplicaGroup, view: &dyn View) -> GroupVerdict {
    let seen = view.group(&group.id);
    let mut why: Vec<String> = group.reasons.iter().map(|r| r.as_str().to_owned()).collect();
    let standing = if !group.serving() {
        why.insert(0, format!("phase_{}", group.phase.as_str().to_ascii_lowercase()));
        "excluded"
    } else if seen.health == Health::Open {
        why.push("health_open".to_owned());
        "excluded"
    } else if group.next_to_go {
        why.push("next_to_go".to_owned());
        "avoided"
    } else {
        "candidate"
    };
    if seen.health == Health::HalfOpen {
        why.push("health_half_open".to_owned());
    }
    GroupVerdict {
        key: group.key.to_string(),
        standing: standing.to_owned(),
        why,
        in_flight: seen.in_flight,
        address: group.leader.as_ref().map(|l| l.address.to_string()),
    }
}
