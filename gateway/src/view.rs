//! Answers the questions of metrics and admin port from the routing table and discovery.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use discovery::snapshot::{GroupId, Snapshot};
use discovery::status::SourceStatus;
use discovery::{Discovery, ProbeStats};

use crate::gateway::Gateway;
use crate::groups::health::HealthState;
use crate::shutdown::Phase;
use crate::telemetry::view::{DiscoveryStats, GroupView, Health, Readiness, Tally, View, WatchView};

/// See the module.
#[derive(Debug)]
pub struct GatewayView {
    gateway: Arc<Gateway>,
    status: Arc<SourceStatus>,
    probes: ProbeStats,
    started: SystemTime,
}

impl GatewayView {
    /// Looks at a running gateway.
    pub fn new(gateway: Arc<Gateway>, discovery: &Discovery) -> Self {
        Self { gateway, status: discovery.status.clone(), probes: discovery.probes.clone(), started: SystemTime::now() }
    }
}

impl View for GatewayView {
    fn snapshot(&self) -> Arc<Snapshot> {
        self.gateway.tables.load().snapshot.clone()
    }

    fn snapshot_age(&self) -> Duration {
        let report = self.status.report();
        // Fixed leaders are what the configuration says: nobody has to confirm them, and they do not grow stale.
        if report.synced && report.watches.is_empty() {
            return Duration::ZERO;
        }
        let sign = report.last_sign().unwrap_or(self.started);
        SystemTime::now().duration_since(sign).unwrap_or_default()
    }

    fn certificates(&self) -> Vec<(&'static str, i64)> {
        self.gateway.dialer.certificate_expiry().map(|end| ("engines", end)).into_iter().collect()
    }

    fn group(&self, id: &GroupId) -> GroupView {
        let table = self.gateway.tables.load();
        let Some(state) = table.group(id) else { return GroupView::default() };
        let health = match state.health.state(state.proof()) {
            HealthState::Closed => Health::Closed,
            HealthState::Open => Health::Open,
            HealthState::HalfOpen => Health::HalfOpen,
        };
        let (attempts, failures) = state.attempts();
        let first_token = state.smoothed_first_token();
        GroupView { in_flight: state.in_flight() as usize, health, attempts, failures, first_token }
    }

    fn waiting(&self, model: &str) -> usize {
        self.gateway.tables.load().pool(model).map_or(0, |entry| entry.state.queue.len())
    }

    fn retry_budget(&self, model: &str) -> Option<f64> {
        Some(f64::from(self.gateway.tables.load().pool(model)?.state.budget.left()))
    }

    fn resume_kept(&self) -> usize {
        self.gateway.kept.bytes()
    }

    fn readiness(&self) -> Readiness {
        Readiness { config_loaded: true, first_list: self.status.synced(), lame_duck: self.gateway.lame_duck.phase() != Phase::Up }
    }

    fn discovery(&self) -> DiscoveryStats {
        let probes =
            self.probes.read().iter().map(|(step, result, count)| Tally { what: step.as_str(), result: result.as_str(), count }).collect();
        let report = self.status.report();
        let (mut watch_restarts, mut lists) = (Vec::new(), Vec::new());
        for ((_, kind), watch) in &report.watches {
            let what = kind.resource();
            watch_restarts.push(Tally { what, result: "ended", count: watch.watch_restarts });
            lists.push(Tally { what, result: "ok", count: watch.lists_done });
            lists.push(Tally { what, result: "failed", count: watch.lists_failed });
        }
        DiscoveryStats { probes, watch_restarts: sum(watch_restarts), lists: sum(lists) }
    }

    fn watches(&self) -> Vec<WatchView> {
        let now = SystemTime::now();
        let report = self.status.report();
        let watch = |((scope, kind), watch): (&(discovery::fact::Str, discovery::fact::Kind), &discovery::status::WatchReport)| WatchView {
            resource: if scope.is_empty() { kind.resource().to_owned() } else { format!("{} in {scope}", kind.resource()) },
            state: if watch.last_error.is_some() {
                "failing"
            } else if watch.listed {
                "watching"
            } else {
                "listing"
            },
            idle: now.duration_since(watch.last_sign.unwrap_or(self.started)).unwrap_or_default(),
            error: watch.denied.as_ref().map(ToString::to_string).or_else(|| watch.last_error.clone()),
        };
        report.watches.iter().map(watch).collect()
    }
}

/// One tally for each resource and result: several namespaces are added up.
fn sum(tallies: Vec<Tally>) -> Vec<Tally> {
    let mut out: Vec<Tally> = Vec::new();
    for tally in tallies {
        match out.iter_mut().find(|t| (t.what, t.result) == (tally.what, tally.result)) {
            Some(same) => same.count += tally.count,
            None => out.push(tally),
        }
    }
    out
}
