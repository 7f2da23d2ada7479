//! The loop around `state`: what the sources and the probe say goes in, snapshots come out.
//!
//! Owns: when a snapshot is published (losses at once, gains after a short settle, nothing before the first complete list) and which
//! incarnations are probed. Must not: decide anything about a group. Next step: `publish`.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use config::{Config, Membership};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use crate::fact::Str;
use crate::index::{Change, Scope};
use crate::probe::{Prober, Verdict};
use crate::publish::Publisher;
use crate::snapshot::GroupId;
use crate::state::{Delta, State};
use crate::status::SourceStatus;
use crate::view::{Lens, Verdicts};

/// Gains wait this long for others of their kind: a rollout step is several events.
pub(crate) const SETTLE: Duration = Duration::from_millis(50);
/// Changes taken in before the views are computed, at most; bounds the delay of a loss in a flood of events.
const BATCH: usize = 512;

/// One change and who saw it.
#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) scope: Scope,
    pub(crate) change: Change,
}

/// Where the loop gets its input.
pub(crate) struct Inputs {
    pub(crate) events: mpsc::Receiver<Event>,
    pub(crate) proofs: mpsc::Receiver<GroupId>,
    pub(crate) config: watch::Receiver<Arc<Config>>,
}

/// Where the loop leaves its output.
pub(crate) struct Outputs {
    pub(crate) publisher: Publisher,
    pub(crate) prober: Arc<Prober>,
    pub(crate) status: Arc<SourceStatus>,
}

impl Verdicts for Prober {
    fn verdict(&self, id: &GroupId) -> Verdict {
        Prober::verdict(self, id)
    }
}

/// Runs until every sender of an input is gone or the task is ended.
pub(crate) async fn run(source: &'static str, scopes: Vec<Str>, mut inputs: Inputs, outputs: Outputs) {
    let config = inputs.config.borrow_and_update().clone();
    let mut mirror = Mirror { source, state: State::new(config, scopes), outputs, due: None };
    let mut config_open = true;
    loop {
        let due = mirror.due;
        tokio::select! {
            event = inputs.events.recv() => {
                let Some(event) = event else { return };
                mirror.take(event, &mut inputs.events);
            }
            proof = inputs.proofs.recv() => {
                let Some(id) = proof else { return };
                mirror.prove(id, &mut inputs.proofs);
            }
            changed = inputs.config.changed(), if config_open => {
                config_open = changed.is_ok();
                mirror.state.configure(inputs.config.borrow_and_update().clone());
            }
            () = at(due), if due.is_some() => mirror.publish(),
        }
        mirror.refresh(&inputs.config);
    }
}

async fn at(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}

struct Mirror {
    source: &'static str,
    state: State,
    outputs: Outputs,
    due: Option<Instant>,
}

impl Mirror {
    fn take(&mut self, first: Event, more: &mut mpsc::Receiver<Event>) {
        self.state.apply(&first.scope, first.change);
        for _ in 1..BATCH {
            let Ok(event) = more.try_recv() else { return };
            self.state.apply(&event.scope, event.change);
        }
    }

    fn prove(&mut self, first: GroupId, more: &mut mpsc::Receiver<GroupId>) {
        let mut ids = HashSet::from([first]);
        while ids.len() < BATCH {
            let Ok(id) = more.try_recv() else { break };
            ids.insert(id);
        }
        for id in &ids {
            self.state.proof_changed(id);
        }
    }

    fn refresh(&mut self, config: &watch::Receiver<Arc<Config>>) {
        let first = !self.outputs.status.synced();
        if !self.state.synced() {
            return;
        }
        let membership = config.borrow().membership;
        let mut delta = self.round(membership);
        if !delta.start.is_empty() {
            // A role whose Ready is trusted is proven by becoming a target.
            for target in &delta.start {
                self.state.proof_changed(&target.id);
            }
            let second = self.round(membership);
            delta.any |= second.any;
            delta.loss |= second.loss;
        }
        if first || delta.loss {
            self.publish();
            self.outputs.status.set_synced();
        } else if delta.any && self.due.is_none() {
            self.due = Some(Instant::now() + SETTLE);
        }
    }

    fn round(&mut self, membership: Membership) -> Delta {
        let lens = Lens { membership, verdicts: &*self.outputs.prober, now: SystemTime::now() };
        let delta = self.state.refresh(&lens);
        self.outputs.prober.change(&delta.start, &delta.stop);
        delta
    }

    fn publish(&mut self) {
        self.due = None;
        let now = SystemTime::now();
        let snapshot = self.state.snapshot(self.source);
        let (pools, serving) = (snapshot.pools.len(), serving(&snapshot));
        let generation = self.outputs.publisher.publish(snapshot, now);
        self.outputs.status.published(generation, now, self.state.sizes());
        tracing::debug!(generation, pools, serving, "snapshot published");
    }
}

fn serving(snapshot: &crate::snapshot::Snapshot) -> usize {
    snapshot.pools.values().flat_map(|pool| &pool.groups).filter(|group| group.serving()).count()
}
