//! Builders for unit tests of this crate.

use std::collections::BTreeMap;
use std::sync::Arc;

use config::Config;
use discovery::snapshot::{Address, GroupId, GroupKey, GroupPhase, Leader, Outlook, Pool, ReplicaGroup, Snapshot};

use crate::telemetry::metrics::Metrics;

/// The default configuration.
pub(crate) fn config() -> Config {
    Config::default()
}

/// A registry of its own.
pub(crate) fn metrics() -> Arc<Metrics> {
    Metrics::new().unwrap()
}

/// A serving group with ordinal `n`.
pub(crate) fn group(n: usize) -> ReplicaGroup {
    ReplicaGroup {
        key: GroupKey(format!("ns/d/server/{n}").into()),
        id: GroupId(format!("ns/d/server/{n}@a").into()),
        ordinal: u32::try_from(n).ok(),
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

/// A snapshot with one pool of `groups` serving groups.
pub(crate) fn snapshot(model: &str, groups: usize) -> Arc<Snapshot> {
    let pool = Pool {
        model: model.into(),
        deployment: None,
        groups: (0..groups).map(|n| Arc::new(group(n))).collect(),
        outlook: Outlook::Coming,
        last_replacement: None,
    };
    Arc::new(Snapshot { generation: 1, source: "leaders", pools: BTreeMap::from([(model.into(), Arc::new(pool))]), ..Snapshot::default() })
}
