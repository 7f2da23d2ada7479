//! Fixed leaders (`--leaders`): pools without a cluster behind them.
//!
//! Owns: their phase (the probe's verdict alone decides it) and the loop that publishes them. Must not: watch anything. Next step:
//! `publish`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use config::{Config, StaticLeaders};
use tokio::sync::{mpsc, watch};

use crate::fact::Str;
use crate::mirror::Outputs;
use crate::probe::ProbeTarget;
use crate::snapshot::{GroupId, GroupPhase, Leader, Outlook, Pool, Reason, ReplicaGroup, Snapshot};
use crate::source::static_list::{self, StaticGroup};
use crate::view::Verdicts;

/// Publishes the leaders at once (Warming), then whenever a verdict changes. Runs until it is ended.
pub(crate) async fn run(
    leaders: Vec<StaticLeaders>,
    mut proofs: mpsc::Receiver<GroupId>,
    mut config: watch::Receiver<Arc<Config>>,
    mut outputs: Outputs,
) {
    let groups = static_list::groups(&leaders);
    outputs.prober.sync(targets(&groups, &config.borrow_and_update()));
    publish(&groups, &mut outputs);
    outputs.status.set_synced();
    let mut config_open = true;
    loop {
        tokio::select! {
            proof = proofs.recv() => {
                if proof.is_none() {
                    return;
                }
                while proofs.try_recv().is_ok() {}
            }
            changed = config.changed(), if config_open => {
                config_open = changed.is_ok();
                outputs.prober.sync(targets(&groups, &config.borrow_and_update()));
            }
        }
        publish(&groups, &mut outputs);
    }
}

fn targets(groups: &[StaticGroup], config: &Config) -> Vec<ProbeTarget> {
    let hint = |group: &StaticGroup| (&*group.model != "*").then(|| group.model.clone());
    let target = |group: &StaticGroup| ProbeTarget {
        id: group.id.clone(),
        key: group.key.clone(),
        address: group.address.clone(),
        managed: false,
        router: false,
        model_hint: hint(group),
        settings: config.pool(&group.model).clone(),
    };
    groups.iter().map(target).collect()
}

fn publish(groups: &[StaticGroup], outputs: &mut Outputs) {
    let next = Snapshot { source: "leaders", pools: pools(groups, &*outputs.prober), ..Snapshot::default() };
    let current = outputs.publisher.current();
    if current.generation > 0 && current.pools == next.pools {
        return;
    }
    let now = SystemTime::now();
    let generation = outputs.publisher.publish(next, now);
    outputs.status.published(generation, now, [0; 3]);
}

/// The pools by name.
pub(crate) fn pools(groups: &[StaticGroup], verdicts: &dyn Verdicts) -> BTreeMap<Str, Arc<Pool>> {
    let mut pools: BTreeMap<Str, Pool> = BTreeMap::new();
    for group in groups {
        let empty =
            || Pool { model: group.model.clone(), deployment: None, groups: Vec::new(), outlook: Outlook::Coming, last_replacement: None };
        pools.entry(group.model.clone()).or_insert_with(empty).groups.push(Arc::new(replica_group(group, verdicts)));
    }
    for pool in pools.values_mut() {
        pool.groups.sort_by(|a, b| a.key.cmp(&b.key));
    }
    pools.into_iter().map(|(name, pool)| (name, Arc::new(pool))).collect()
}

fn replica_group(group: &StaticGroup, verdicts: &dyn Verdicts) -> ReplicaGroup {
    let verdict = verdicts.verdict(&group.id);
    let phase = if verdict.proven { GroupPhase::Serving } else { GroupPhase::Warming };
    let unproven = (!verdict.proven).then_some(Reason::NotProven);
    let authority = group.key.0.strip_prefix("static/").unwrap_or(&group.key.0);
    ReplicaGroup {
        key: group.key.clone(),
        id: group.id.clone(),
        ordinal: None,
        phase,
        reasons: verdict.reason.or(unproven).into_iter().collect(),
        leader: Some(Leader { pod: authority.into(), uid: None, address: group.address.clone() }),
        members: Vec::new(),
        managed: false,
        drain: None,
        next_to_go: false,
        broken: false,
        proof: verdict.proof,
    }
}
