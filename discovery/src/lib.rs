//! Finds the replica groups of ModelDeployments, proves that their leaders serve, and publishes snapshots.
//!
//! Owns: everything between the API server (or its stand-ins) and one `Arc<Snapshot>`. Must not: route, count requests, or know HTTP
//! clients other than its own probes.
//!
//! Life of a watch event: `source/kube` (or `source/file`) reads it, `source/operator` makes a `fact` of it, `mirror` hands it to `state`,
//! where `index` finds out which deployment it touches; `view` builds that deployment's groups with `observe` (signs), `group` (phase) and
//! `incarnation` (past), `names` and `table` say which served names they answer to; `probe` proves the engines; `publish` makes the result
//! visible.

mod announce;
pub mod dial;
pub mod fact;
mod fixed;
pub mod group;
pub mod incarnation;
pub mod index;
mod mirror;
pub mod names;
pub mod observe;
pub mod probe;
pub mod publish;
mod router;
pub mod snapshot;
pub mod source;
pub mod state;
pub mod status;
pub mod table;
pub mod tasks;
pub mod view;

#[cfg(test)]
mod tests;

use std::sync::{Arc, Weak};

use config::{Config, Source};
use tokio::sync::{mpsc, watch};

use dial::Dialer;
use mirror::{Inputs, Outputs};
use probe::{ProbeCounters, Prober};
use snapshot::GroupId;
use status::SourceStatus;
use tasks::TaskSet;

pub use probe::{Fault, Traffic};
pub use publish::SnapshotReader;
pub use source::{StartError, Timing};

/// Changes between a source and the reducer; a full channel slows the source down.
const EVENTS: usize = 4096;
/// Changed verdicts between the probe and the reducer.
const PROOFS: usize = 1024;

/// Discovery at work. Dropping it ends its tasks; the last snapshot stays readable.
#[derive(Debug)]
pub struct Discovery {
    /// The view of the cluster.
    pub snapshots: SnapshotReader,
    /// How the source is doing.
    pub status: Arc<SourceStatus>,
    /// Where failed requests are reported.
    pub faults: FaultSink,
    /// Results of the probes.
    pub probes: ProbeStats,
    /// What the probes connect by, for those that send requests to the same leaders.
    pub dialer: Arc<Dialer>,
    tasks: TaskSet,
}

impl Discovery {
    /// Lets good answers to requests stand in for probes of leaders that serve. Only the first call counts.
    pub fn heed(&self, traffic: Weak<dyn Traffic>) {
        self.probes.prober.heed(traffic);
    }

    /// Ends every task and waits for that.
    pub async fn shutdown(self) {
        self.tasks.shutdown().await;
    }
}

impl Drop for Discovery {
    fn drop(&mut self) {
        self.tasks.close();
    }
}

/// Where reports of failed requests end up: the prober, or a simulation's stand-in for it.
pub trait FaultReceiver: std::fmt::Debug + Send + Sync {
    /// See [`FaultSink::report`]. Called while a request is served: must not block.
    fn report(&self, id: &GroupId, fault: Fault);
}

/// Takes reports of requests that failed at a leader. Never blocks; clones are cheap.
#[derive(Debug, Clone)]
pub struct FaultSink(Arc<dyn FaultReceiver>);

impl FaultSink {
    /// Hands every report to `receiver`.
    pub fn new(receiver: Arc<dyn FaultReceiver>) -> Self {
        Self(receiver)
    }

    /// A real request failed at `id`: its proof is void until a new one succeeds. Unknown ids are ignored.
    pub fn report(&self, id: &GroupId, fault: Fault) {
        self.0.report(id, fault);
    }
}

/// The prober at the other end of a [`FaultSink`].
#[derive(Debug)]
struct FaultsToProber {
    prober: Arc<Prober>,
    changed: mpsc::Sender<GroupId>,
}

impl FaultReceiver for FaultsToProber {
    fn report(&self, id: &GroupId, fault: Fault) {
        self.prober.report_fault(id, fault);
        // When the channel is full the reducer is behind anyway, and the probe task reports the same change again.
        self.changed.try_send(id.clone()).ok();
    }
}

/// Reads the counters of the probes; clones are cheap.
#[derive(Debug, Clone)]
pub struct ProbeStats {
    prober: Arc<Prober>,
}

impl ProbeStats {
    /// Results of all probes since the start of the process.
    pub fn read(&self) -> ProbeCounters {
        self.prober.counters()
    }
}

/// Starts discovery from the configured source, and returns at once: lists and probes run in the background.
///
/// Changes of names, membership and probe settings in `config` are applied live; a changed source is not.
///
/// # Errors
/// The source cannot even be tried: no usable kubeconfig, no such folder. An API server that does not answer is not an error.
pub async fn start(config: watch::Receiver<Arc<Config>>) -> Result<Discovery, StartError> {
    start_with(config, Timing::default()).await
}

/// [`start`] with other waits towards the API server.
///
/// # Errors
/// As [`start`].
pub async fn start_with(config: watch::Receiver<Arc<Config>>, timing: Timing) -> Result<Discovery, StartError> {
    let tasks = TaskSet::new();
    let (proofs, proofs_seen) = mpsc::channel(PROOFS);
    let dialer = Arc::new(Dialer::new());
    let prober = Arc::new(Prober::new(tasks.clone(), dialer.clone(), proofs.clone()));
    let source = config.borrow().source.clone();
    let name = source::name(&source);
    let (publisher, snapshots) = publish::channel(name);
    let status = Arc::new(SourceStatus::new(name));
    let outputs = Outputs { publisher, prober: prober.clone(), status: status.clone() };
    if let Source::Leaders(leaders) = source {
        tasks.spawn("fixed leaders", fixed::run(leaders, proofs_seen, config, outputs));
    } else {
        let (events, events_seen) = mpsc::channel(EVENTS);
        let feed = source::Feed { events, status: status.clone(), tasks: tasks.clone() };
        let scopes = source::start(&source, feed, timing).await?;
        tasks.spawn("mirror", mirror::run(name, scopes, Inputs { events: events_seen, proofs: proofs_seen, config }, outputs));
    }
    let faults = FaultSink::new(Arc::new(FaultsToProber { prober: prober.clone(), changed: proofs }));
    Ok(Discovery { snapshots, status, faults, probes: ProbeStats { prober }, dialer, tasks })
}
