//! Names, help texts, labels and buckets of the families that requests feed.
//!
//! Owns: the registration. Must not: resolve series (`pool` does). Bucket advice: the GenAI conventions' lists, carried on to 600 s and
//! beyond because generations last longer than their 81.92 s.

use prometheus::{Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry};

use crate::telemetry::labels::{Label, Side, Verdict};

/// Prefix of every family of the gateway.
pub(super) const PREFIX: &str = "leadgate";

/// Time in the queue: almost nothing, or as long as a start of an engine (minutes).
const QUEUE: &[f64] = &[0.001, 0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1200.0, 1800.0];
/// To the first byte or token, by the conventions' list for servers, carried on.
const FIRST: &[f64] =
    &[0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0];
/// Between events, by the conventions' list, with the pause of a moved stream behind it.
const BETWEEN: &[f64] = &[0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 2.5, 10.0, 60.0, 600.0];
/// Whole requests.
const WHOLE: &[f64] = &[
    0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92, 163.84, 327.68, 600.0, 1200.0, 2400.0, 4800.0,
];
/// From the client's end to the closed upstream connection: at once, or something is wrong.
const CANCEL: &[f64] = &[0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0];

/// Every family that is fed by calls.
#[derive(Debug)]
pub(super) struct Families {
    pub(super) requests: IntCounterVec,
    pub(super) rejects: IntCounterVec,
    pub(super) attempts: IntCounterVec,
    pub(super) retries: IntCounterVec,
    pub(super) resumes: IntCounterVec,
    pub(super) endings: IntCounterVec,
    pub(super) cancelled: IntCounterVec,
    pub(super) tokens: IntCounterVec,
    pub(super) bytes: IntCounterVec,
    pub(super) in_flight: IntGaugeVec,
    pub(super) queue: HistogramVec,
    pub(super) first_byte: HistogramVec,
    pub(super) first_token: HistogramVec,
    pub(super) between: HistogramVec,
    pub(super) duration: HistogramVec,
    pub(super) resume_pause: HistogramVec,
    pub(super) cancel_delay: Histogram,
    pub(super) connections: IntGaugeVec,
    pub(super) connections_total: IntCounterVec,
    pub(super) config_reloads: IntCounterVec,
    pub(super) config_last_reload_ok: IntGauge,
}

impl Families {
    /// Registers all of them. `counted`: whether requests feed them; those with a `pool` have no series before one does.
    pub(super) fn new(registry: &Registry, counted: bool) -> Result<Self, prometheus::Error> {
        let counters = |name, help, labels: &[&str]| counters(registry, name, help, labels);
        let gauges = |name, help, labels: &[&str]| gauges(registry, name, help, labels);
        let times = |name, help, buckets| histograms(registry, name, help, buckets);
        let families = Self {
            requests: counters("requests_total", "Requests by how their client saw them end.", &["pool", "route", "outcome"])?,
            rejects: counters("rejects_total", "Requests that the gateway itself refused, by code.", &["reason"])?,
            attempts: counters("attempts_total", "Tries at one leader, by how they ended.", &["pool", "outcome"])?,
            retries: counters("retries_total", "Second tries before the first event, by what allowed them.", &["pool", "cause"])?,
            resumes: counters("resumes_total", "Broken answers that had to move.", &["pool", "cause", "way", "result"])?,
            endings: counters("stream_endings_total", "How streams ended towards the client.", &["pool", "ending"])?,
            cancelled: counters("client_cancelled_total", "Requests whose client went away.", &["pool"])?,
            tokens: counters("tokens_total", "Tokens that the engines' usage fields report.", &["pool", "kind"])?,
            bytes: counters("body_bytes_total", "Bytes of bodies from and to clients.", &["pool", "direction"])?,
            in_flight: gauges("in_flight", "Requests in the gateway, waiting ones among them.", &["pool"])?,
            queue: times("queue_seconds", "Time from a request's body to its leader.", QUEUE)?,
            first_byte: times("time_to_first_byte_seconds", "Time from the request to the first byte of its answer.", FIRST)?,
            first_token: times("time_to_first_token_seconds", "Time from the request to the first data event.", FIRST)?,
            between: times("inter_event_seconds", "Time between data events of a stream.", BETWEEN)?,
            duration: times("request_duration_seconds", "Time from the request to the end of its answer.", WHOLE)?,
            resume_pause: times("resume_pause_seconds", "Pause that a client saw while its stream moved.", QUEUE)?,
            cancel_delay: histogram(
                counted.then_some(registry),
                "cancel_delay_seconds",
                "Time from a client's end to the closed upstream connection.",
                CANCEL,
            )?,
            connections: gauges("connections", "Open connections.", &["side"])?,
            connections_total: counters("connections_opened_total", "Connections opened.", &["side"])?,
            config_reloads: counters("config_reloads_total", "Changed configuration files, applied or refused.", &["result"])?,
            config_last_reload_ok: gauge(registry, "config_last_reload_ok", "1 when the file as it is now was applied.")?,
        };
        families.begin();
        Ok(families)
    }

    /// Series of small closed sets exist from the start, so that a first rise is seen.
    fn begin(&self) {
        for side in Side::ALL {
            self.connections.with_label_values(&[side.as_str()]).set(0);
            self.connections_total.with_label_values(&[side.as_str()]).inc_by(0);
        }
        for verdict in Verdict::ALL {
            self.config_reloads.with_label_values(&[verdict.as_str()]).inc_by(0);
        }
        self.config_last_reload_ok.set(1);
    }
}

/// A counter without labels.
pub(super) fn counter(registry: &Registry, name: &str, help: &str) -> Result<IntCounter, prometheus::Error> {
    let made = IntCounter::with_opts(Opts::new(name, help).namespace(PREFIX))?;
    registry.register(Box::new(made.clone()))?;
    Ok(made)
}

/// A gauge without labels.
pub(super) fn gauge(registry: &Registry, name: &str, help: &str) -> Result<IntGauge, prometheus::Error> {
    let made = IntGauge::with_opts(Opts::new(name, help).namespace(PREFIX))?;
    registry.register(Box::new(made.clone()))?;
    Ok(made)
}

/// `leadgate_build_info{version,revision} 1`.
pub(super) fn build_info(registry: &Registry) -> Result<(), prometheus::Error> {
    let info = gauges(registry, "build_info", "Version of the running program.", &["version", "revision"])?;
    info.with_label_values(&[env!("CARGO_PKG_VERSION"), option_env!("LEADGATE_REVISION").unwrap_or("")]).set(1);
    Ok(())
}

fn counters(registry: &Registry, name: &str, help: &str, labels: &[&str]) -> Result<IntCounterVec, prometheus::Error> {
    let made = IntCounterVec::new(Opts::new(name, help).namespace(PREFIX), labels)?;
    registry.register(Box::new(made.clone()))?;
    Ok(made)
}

fn gauges(registry: &Registry, name: &str, help: &str, labels: &[&str]) -> Result<IntGaugeVec, prometheus::Error> {
    let made = IntGaugeVec::new(Opts::new(name, help).namespace(PREFIX), labels)?;
    registry.register(Box::new(made.clone()))?;
    Ok(made)
}

fn histograms(registry: &Registry, name: &str, help: &str, buckets: &[f64]) -> Result<HistogramVec, prometheus::Error> {
    let made = HistogramVec::new(HistogramOpts::new(name, help).namespace(PREFIX).buckets(buckets.to_vec()), &["pool"])?;
    registry.register(Box::new(made.clone()))?;
    Ok(made)
}

/// One without labels, which has series as soon as it is registered; `None`: nothing is to be seen of it.
fn histogram(registry: Option<&Registry>, name: &str, help: &str, buckets: &[f64]) -> Result<Histogram, prometheus::Error> {
    let made = Histogram::with_opts(HistogramOpts::new(name, help).namespace(PREFIX).buckets(buckets.to_vec()))?;
    if let Some(registry) = registry {
        registry.register(Box::new(made.clone()))?;
    }
    Ok(made)
}
