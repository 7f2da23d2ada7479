//! `loadtest demo`: flags, what is printed, and the exit status.

use std::path::PathBuf;

use clap::ValueEnum;
use futures_util::{StreamExt, TryStreamExt};

use super::report::Report;
use super::scenario::{self, Event, Mode, Scenario};
use super::stage::{ApiSource, DEPLOYMENT, MODEL, Stage, StageConfig};
use super::{Failure, gateways, matrix};

/// Shows on one machine that clients notice nothing of a rollout: simulated operator and engines, the real gateway, real traffic.
#[derive(Debug, Clone, clap::Args)]
pub struct DemoArgs {
    /// Play a scenario, print its report as JSON, and end with status 1 unless no client noticed anything.
    #[arg(long, value_enum)]
    pub scenario: Option<Show>,
    /// Every combination of mode, size, replicas and event, one after the other.
    #[arg(long, requires = "scenario", conflicts_with = "pairwise")]
    pub matrix: bool,
    /// A selection of the matrix in which every pair of settings occurs.
    #[arg(long, requires = "scenario")]
    pub pairwise: bool,
    /// Scenarios that are played at the same time, each on a stage of its own.
    #[arg(long, default_value_t = 1, requires = "scenario")]
    pub jobs: usize,
    /// Write the JSON report to this file instead of stdout.
    #[arg(long, requires = "scenario", value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// Who builds the engine's command line.
    #[arg(long, value_enum, default_value = "take-over")]
    pub mode: Mode,
    /// Members of a replica.
    #[arg(long, default_value_t = 2)]
    pub size: u32,
    /// Replicas.
    #[arg(long, default_value_t = 2)]
    pub replicas: u32,
    /// What happens besides the rollout.
    #[arg(long, value_enum, default_value = "roll")]
    pub event: Event,
    /// Factor on every time of the cluster. Default: 1 for a scenario, 0.2 for the demo.
    #[arg(long, value_name = "FACTOR")]
    pub time_scale: Option<f64>,
    /// Seconds that an engine loads before it serves (scaled).
    #[arg(long, default_value_t = 40.0, value_name = "SECONDS")]
    pub startup: f64,
    /// Requests a second, along each of the two ways.
    #[arg(long, default_value_t = 2.0)]
    pub rate: f64,
    /// Seed of load and engines.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Use this API server (without Nodes) instead of the embedded stand-in.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// The gateway's binary. Default: `leadgate` beside this program, built anew when started by cargo.
    #[arg(long, value_name = "FILE")]
    pub gateway: Option<PathBuf>,
    /// A flag for the gateway; repeatable. Without any, its defaults hold.
    #[arg(long = "gateway-arg", value_name = "FLAG", allow_hyphen_values = true)]
    pub gateway_args: Vec<String>,
    /// End after the demo instead of serving until Ctrl-C.
    #[arg(long)]
    pub exit: bool,
}

/// What can be shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Show {
    /// Every replica is replaced under load, with an event besides.
    Rollout,
}

impl DemoArgs {
    fn stage(&self) -> StageConfig {
        let api = self.kubeconfig.clone().map_or(ApiSource::StandIn, ApiSource::Kubeconfig);
        StageConfig { api, gateway: self.gateway.clone(), gateway_args: self.gateway_args.clone() }
    }

    fn one(&self, default_scale: f64) -> Scenario {
        Scenario {
            mode: self.mode,
            size: self.size,
            replicas: self.replicas,
            event: self.event,
            time_scale: self.time_scale.unwrap_or(default_scale),
            startup_seconds: self.startup,
            rate: self.rate,
            seed: self.seed,
        }
    }

    fn scenarios(&self) -> Vec<Scenario> {
        let cells = match (self.matrix, self.pairwise) {
            (true, _) => matrix::full(),
            (false, true) => matrix::pairwise(),
            (false, false) => return vec![self.one(1.0)],
        };
        cells.into_iter().map(|(mode, size, replicas, event)| Scenario { mode, size, replicas, event, ..self.one(1.0) }).collect()
    }
}

/// Runs the demo or the scenarios.
///
/// # Errors
/// When a part does not start. A broken pass line is `false`.
pub async fn run(args: DemoArgs) -> Result<bool, Failure> {
    if args.scenario.is_some() { run_scenarios(&args).await } else { run_demo(&args).await }
}

async fn run_scenarios(args: &DemoArgs) -> Result<bool, Failure> {
    let scenarios = args.scenarios();
    let count = scenarios.len();
    // Built once, not by every stage.
    let gateway = gateways::find_binary(args.gateway.clone()).await?;
    let stage = StageConfig { gateway: Some(gateway), ..args.stage() };
    let plays = scenarios.into_iter().enumerate().map(|(number, scenario)| play_one(number + 1, count, scenario, stage.clone()));
    let reports: Vec<Report> = futures_util::stream::iter(plays).buffered(args.jobs.max(1)).try_collect().await?;
    let broken = reports.iter().filter(|report| !report.pass).count();
    let json = if let [only] = reports.as_slice() { serde_json::to_string_pretty(only)? } else { serde_json::to_string_pretty(&reports)? };
    match &args.report {
        Some(file) => std::fs::write(file, json)?,
        None => println!("{json}"),
    }
    if broken > 0 {
        eprintln!("{broken} of {count} scenarios broke the pass line");
    }
    Ok(broken == 0)
}

async fn play_one(number: usize, count: usize, scenario: Scenario, stage: StageConfig) -> Result<Report, Failure> {
    eprintln!("[{number}/{count}] {}", serde_json::to_string(&scenario)?);
    let report = scenario::run(&scenario, &stage, &|line| eprintln!("[{number}/{count}] {line}")).await?;
    eprintln!("[{number}/{count}] pass: {}\n{}", report.pass, report.text());
    Ok(report)
}

async fn run_demo(args: &DemoArgs) -> Result<bool, Failure> {
    let scenario = args.one(0.2);
    println!(
        "Setting up: {} replicas of {} Pods, engines that load {:.0} s …",
        scenario.replicas,
        scenario.size,
        scenario.startup_seconds * scenario.time_scale
    );
    let mut stage = Stage::set_up(&scenario, &args.stage()).await?;
    let front = stage.front()?;
    println!("\nLeadgate serves. Try it:\n\n{}\n", curl_line(&front.to_string()));
    if let Some(admin) = stage.gateways.admin() {
        println!("Status: http://{admin}/debug/snapshot   Metrics: http://{admin}/metrics   Logs: {}\n", stage.folder().display());
    }
    println!("Sample traffic, once through Leadgate and once through a plain round-robin forwarder to the Service {DEPLOYMENT}-server,");
    println!("while the operator replaces every replica (it deletes before it creates):\n");
    let report = scenario::play(&scenario, &mut stage, &|line| println!("{line}")).await?;
    println!("\nWhat the clients saw:\n\n{}", report.text());
    println!("{}", verdict(&report));
    if !args.exit {
        println!("\nLeadgate goes on serving on http://{front} (model {MODEL}). Ctrl-C ends it.");
        tokio::signal::ctrl_c().await?;
    }
    Ok(report.pass)
}

fn curl_line(address: &str) -> String {
    let body = format!(r#"{{"model": "{MODEL}", "stream": true, "messages": [{{"role": "user", "content": "Hello"}}]}}"#);
    format!("  curl -N http://{address}/v1/chat/completions -H 'content-type: application/json' -d '{body}'")
}

fn verdict(report: &Report) -> String {
    let lost = report.plain.requests - report.plain.complete;
    match report.pass {
        true => format!(
            "Through Leadgate no client noticed anything but a pause; the plain forwarder lost {lost} of {} requests.",
            report.plain.requests
        ),
        false => "Clients of Leadgate noticed the rollout: see above.".to_owned(),
    }
}
