//! Metrics that are read from the running gateway at each scrape instead of being kept up to date.
//!
//! Owns: the families of groups, waiting requests, the snapshot and discovery's counters. Must not: print UIDs, addresses or group keys
//! as labels: a rollout would leave a trail of dead series.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use discovery::snapshot::{Pool, Snapshot};
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{Gauge, GaugeVec, IntCounterVec, IntGauge, IntGaugeVec, Opts};

use super::families::PREFIX;
use super::pool_table::PoolTable;
use super::seconds;
use crate::telemetry::view::{Tally, View};

/// Reads a `View`.
pub(super) struct ViewCollector {
    view: Arc<dyn View>,
    pools: Arc<PoolTable>,
    descriptions: Vec<Desc>,
}

impl fmt::Debug for ViewCollector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ViewCollector").finish_non_exhaustive()
    }
}

impl ViewCollector {
    pub(super) fn new(view: Arc<dyn View>, pools: Arc<PoolTable>) -> Result<Self, prometheus::Error> {
        let families = Figures::new()?;
        let descriptions = families.all().iter().flat_map(|c| c.desc().into_iter().cloned()).collect();
        Ok(Self { view, pools, descriptions })
    }

    fn label(&self, pool: &Pool) -> Arc<str> {
        self.pools.known(&pool.model).label().clone()
    }
}

impl Collector for ViewCollector {
    fn desc(&self) -> Vec<&Desc> {
        self.descriptions.iter().collect()
    }

    // Fresh families at each scrape: a group that is gone leaves no series behind.
    fn collect(&self) -> Vec<MetricFamily> {
        let Ok(figures) = Figures::new() else { return Vec::new() };
        let snapshot = self.view.snapshot();
        figures.snapshot(&snapshot, &*self.view);
        for pool in snapshot.pools.values() {
            figures.pool(&self.label(pool), pool, &*self.view);
        }
        for pool in &snapshot.unnamed {
            figures.groups("unnamed", pool, &*self.view);
        }
        figures.discovery(&*self.view);
        figures.all().iter().flat_map(|c| c.collect()).collect()
    }
}

/// The families of one scrape.
struct Figures {
    groups: IntGaugeVec,
    health: IntGaugeVec,
    running: IntGaugeVec,
    waiting: IntGaugeVec,
    retry_budget: GaugeVec,
    last_replacement: GaugeVec,
    generation: IntGauge,
    age: Gauge,
    names_pending: IntGauge,
    conflicts: IntGauge,
    ready: IntGauge,
    kept: IntGauge,
    certificates: IntGaugeVec,
    probes: IntCounterVec,
    restarts: IntCounterVec,
    lists: IntCounterVec,
}

impl Figures {
    fn new() -> Result<Self, prometheus::Error> {
        let opts = |name: &str, help: &str| Opts::new(name, help).namespace(PREFIX);
        Ok(Self {
            groups: IntGaugeVec::new(opts("groups", "Replica groups by phase and first reason."), &["pool", "phase", "reason"])?,
            health: IntGaugeVec::new(opts("groups_health", "Replica groups by what was observed of them."), &["pool", "health"])?,
            running: IntGaugeVec::new(opts("running", "Requests at leaders."), &["pool"])?,
            waiting: IntGaugeVec::new(opts("waiting", "Requests that wait for a leader."), &["pool"])?,
            retry_budget: GaugeVec::new(opts("retry_budget", "Retries that may still be made."), &["pool"])?,
            last_replacement: GaugeVec::new(
                opts("last_replacement_seconds", "How long the last replacement of a slot took, delete to serving."),
                &["pool"],
            )?,
            generation: IntGauge::with_opts(opts("snapshot_generation", "Number of the snapshot in use."))?,
            age: Gauge::with_opts(opts("snapshot_age_seconds", "Time since the source last confirmed the snapshot."))?,
            names_pending: IntGauge::with_opts(opts("names_pending", "1 while served names of some deployment are not known."))?,
            conflicts: IntGauge::with_opts(opts("name_conflicts", "Names that several deployments claim."))?,
            ready: IntGauge::with_opts(opts("ready", "1 when /readyz answers 200."))?,
            kept: IntGauge::with_opts(opts("resume_kept_bytes", "Bytes kept so that streams can be resumed."))?,
            certificates: IntGaugeVec::new(
                opts("tls_certificate_expiry_timestamp_seconds", "When the first of these certificates ends."),
                &["name"],
            )?,
            probes: IntCounterVec::new(opts("probes_total", "Probes of leaders."), &["probe", "result"])?,
            restarts: IntCounterVec::new(opts("watch_restarts_total", "Watches begun again, by cause."), &["resource", "cause"])?,
            lists: IntCounterVec::new(opts("lists_total", "Lists of the source."), &["resource", "result"])?,
        })
    }

    fn all(&self) -> [&dyn Collector; 16] {
        [
            &self.groups,
            &self.health,
            &self.running,
            &self.waiting,
            &self.retry_budget,
            &self.last_replacement,
            &self.generation,
            &self.age,
            &self.names_pending,
            &self.conflicts,
            &self.ready,
            &self.kept,
            &self.certificates,
            &self.probes,
            &self.restarts,
            &self.lists,
        ]
    }

    fn snapshot(&self, snapshot: &Snapshot, view: &dyn View) {
        self.generation.set(i64::try_from(snapshot.generation).unwrap_or(i64::MAX));
        self.age.set(seconds(view.snapshot_age()));
        self.names_pending.set(i64::from(snapshot.names_pending));
        self.conflicts.set(i64::try_from(snapshot.conflicts.len()).unwrap_or(i64::MAX));
        self.kept.set(count(view.resume_kept()));
        self.ready.set(i64::from(view.readiness().missing().is_empty()));
        for (name, end) in view.certificates() {
            self.certificates.with_label_values(&[name]).set(end);
        }
    }

    fn pool(&self, label: &str, pool: &Pool, view: &dyn View) {
        self.groups(label, pool, view);
        self.waiting.with_label_values(&[label]).add(count(view.waiting(&pool.model)));
        if let Some(budget) = view.retry_budget(&pool.model) {
            self.retry_budget.with_label_values(&[label]).set(budget);
        }
        if let Some(took) = pool.last_replacement {
            self.last_replacement.with_label_values(&[label]).set(seconds(took));
        }
    }

    // Pools that share the label `other` are added up.
    fn groups(&self, label: &str, pool: &Pool, view: &dyn View) {
        let mut phases: BTreeMap<(&'static str, &'static str), i64> = BTreeMap::new();
        let running = self.running.with_label_values(&[label]);
        for group in &pool.groups {
            let reason = group.reasons.first().map_or("none", |r| r.as_str());
            *phases.entry((group.phase.as_str(), reason)).or_default() += 1;
            let seen = view.group(&group.id);
            self.health.with_label_values(&[label, seen.health.as_str()]).inc();
            running.add(count(seen.in_flight));
        }
        // A pool that lost its last serving group must be seen as 0, not as a series that ended.
        phases.entry(("Serving", "none")).or_default();
        for ((phase, reason), number) in phases {
            self.groups.with_label_values(&[label, phase, reason]).add(number);
        }
    }

    fn discovery(&self, view: &dyn View) {
        let stats = view.discovery();
        tallies(&self.probes, &stats.probes);
        tallies(&self.restarts, &stats.watch_restarts);
        tallies(&self.lists, &stats.lists);
    }
}

fn tallies(family: &IntCounterVec, tallies: &[Tally]) {
    for tally in tallies {
        family.with_label_values(&[tally.what, tally.result]).inc_by(tally.count);
    }
}

fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
