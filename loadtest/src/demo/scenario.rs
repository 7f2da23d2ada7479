//! What happens on a stage while clients stream: one event, and the replacement of every replica.

use std::time::Duration;

use clap::ValueEnum;
use serde::Serialize;

use super::Failure;
use super::load::Load;
use super::report::{Report, Summary, seconds};
use super::stage::{DEPLOYMENT, MODEL, Stage, StageConfig};
use super::traffic::LoadShape;
use crate::engine::Persona;

/// Who builds the engine's command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// The operator: probes and a drain hook.
    Managed,
    /// The user: none of them; SIGTERM comes at once.
    TakeOver,
}

/// What happens besides the rollout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Event {
    /// Nothing.
    Roll,
    /// A follower's process is killed before the rollout.
    FollowerKilled,
    /// A leader's process gets SIGKILL before the rollout.
    LeaderKilled,
    /// A leader's container is restarted before the rollout.
    ContainerRestart,
    /// The API server is away for a while in the middle of the rollout.
    ApiServerDown,
    /// Two gateways are replaced while the replicas are.
    GatewayRolled,
}

/// One run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Scenario {
    /// Managed or take-over.
    pub mode: Mode,
    /// Members of a replica.
    pub size: u32,
    /// Replicas.
    pub replicas: u32,
    /// What happens besides the rollout.
    pub event: Event,
    /// Factor on every time of the cluster and on the streams' lengths.
    pub time_scale: f64,
    /// Seconds that an engine loads, before scaling.
    pub startup_seconds: f64,
    /// Requests a second along each way.
    pub rate: f64,
    /// Seed of load and engines.
    pub seed: u64,
}

/// `terminationGracePeriodSeconds` of the demo's Pods: the default of both modes.
const GRACE_SECONDS: f64 = 30.0;
/// Quiet traffic before and after, before scaling.
const CALM_SECONDS: f64 = 10.0;
/// How long the API server is away, before scaling.
const OUTAGE_SECONDS: f64 = 40.0;

impl Scenario {
    /// Seconds on this scenario's clock.
    pub(super) fn scaled(&self, seconds: f64) -> Duration {
        Duration::from_secs_f64((seconds * self.time_scale).max(0.0))
    }

    /// How many gateways stand side by side.
    pub(super) fn gateways(&self) -> usize {
        if self.event == Event::GatewayRolled { 2 } else { 1 }
    }

    /// From token to token: a stream's length is scaled by its number of tokens, not by their pace.
    pub(super) fn token(&self) -> Duration {
        Duration::from_millis(30)
    }

    /// What the engines write.
    pub(super) fn persona(&self) -> Persona {
        Persona::named(MODEL)
    }

    /// A generous bound for a rollout of every replica: grace, admission and two starts for each, and a minute for the machine.
    pub(super) fn patience(&self) -> Duration {
        let slot = GRACE_SECONDS + 2.0 * self.startup_seconds + 60.0;
        self.scaled(slot * f64::from(self.replicas + 2)) + Duration::from_secs(120)
    }

    fn shape(&self) -> LoadShape {
        LoadShape { model: MODEL.to_owned(), rate: self.rate, grace: self.scaled(GRACE_SECONDS), token: self.token(), seed: self.seed }
    }
}

/// What happened, and when.
struct Timeline<'a> {
    rows: Vec<(f64, String)>,
    narrate: &'a (dyn Fn(&str) + Send + Sync),
}

impl Timeline<'_> {
    fn note(&mut self, load: &Load, text: impl Into<String>) {
        let (at, text) = (seconds(load.elapsed()), text.into());
        (self.narrate)(&format!("{at:6.1} s  {text}"));
        self.rows.push((at, text));
    }
}

/// Plays a scenario on a stage that stands; `narrate` hears what happens.
///
/// # Errors
/// When a part of the stage does not do what it should; what clients suffered is in the report.
pub async fn play(scenario: &Scenario, stage: &mut Stage, narrate: &(dyn Fn(&str) + Send + Sync)) -> Result<Report, Failure> {
    let load = Load::start(&scenario.shape(), &scenario.persona(), &[stage.front()?, stage.plain()]);
    let mut timeline = Timeline { rows: vec![], narrate };
    timeline.note(&load, "clients start to send");
    tokio::time::sleep(scenario.scaled(CALM_SECONDS)).await;
    strike(scenario, stage, &load, &mut timeline).await?;
    roll(scenario, stage, &load, &mut timeline).await?;
    timeline.note(&load, "every replica is replaced");
    stage.wait_serving(scenario.replicas, scenario.patience()).await?;
    timeline.note(&load, "every new engine serves");
    tokio::time::sleep(scenario.scaled(CALM_SECONDS)).await;
    let ways = load.finish(scenario.patience()).await?;
    let summaries: Vec<Summary> = ways.iter().map(Summary::of).collect();
    let [gateway, plain] = <[Summary; 2]>::try_from(summaries).map_err(|_| "two ways were to be reported")?;
    let misdirected = stage.operator.misdirected();
    let pass = gateway.is_clean() && misdirected == 0;
    let gateway_counters = stage.gateways.counters().await;
    Ok(Report { scenario: scenario.clone(), gateway, plain, misdirected, gateway_counters, timeline: timeline.rows, pass })
}

/// Sets the stage and plays.
///
/// # Errors
/// Those of [`Stage::set_up`] and [`play`].
pub(super) async fn run(scenario: &Scenario, config: &StageConfig, narrate: &(dyn Fn(&str) + Send + Sync)) -> Result<Report, Failure> {
    let mut stage = Stage::set_up(scenario, config).await?;
    let report = play(scenario, &mut stage, narrate).await;
    if !report.as_ref().is_ok_and(|report| report.pass) {
        narrate(&format!("logs are kept in {}", stage.keep_folder().display()));
    }
    report
}

/// The event that comes before the rollout; returns when the replica is whole again.
async fn strike(scenario: &Scenario, stage: &Stage, load: &Load, timeline: &mut Timeline<'_>) -> Result<(), Failure> {
    let victim = |member: u32| stage.operator.member(DEPLOYMENT, 0, member).ok_or("the Pod to strike is not there");
    let (pod, text) = match scenario.event {
        Event::FollowerKilled => {
            let pod = victim(1)?;
            stage.operator.kill(&stage.namespace, &pod.name)?;
            (pod, "the follower's process is killed")
        }
        Event::LeaderKilled => {
            let pod = victim(0)?;
            stage.operator.kill(&stage.namespace, &pod.name)?;
            (pod, "the leader's process gets SIGKILL")
        }
        Event::ContainerRestart => {
            let pod = victim(0)?;
            stage.operator.restart(&stage.namespace, &pod.name)?;
            (pod, "the leader's container is restarted")
        }
        Event::Roll | Event::ApiServerDown | Event::GatewayRolled => return Ok(()),
    };
    timeline.note(load, format!("{text}: {}", pod.name));
    let restarted = || async { stage.operator.pods().iter().any(|one| one.uid == pod.uid && one.running && one.restarts > pod.restarts) };
    super::gateways::wait_until(scenario.patience(), "the container does not come back", restarted).await?;
    timeline.note(load, "its container runs again");
    // A lost follower takes its leader along, but only after a while.
    tokio::time::sleep(scenario.scaled(CALM_SECONDS)).await;
    stage.wait_settled(scenario.patience()).await?;
    stage.wait_serving(scenario.replicas, scenario.patience()).await?;
    timeline.note(load, "every engine serves again");
    Ok(())
}

/// Replaces every replica, with the event that goes along.
async fn roll(scenario: &Scenario, stage: &mut Stage, load: &Load, timeline: &mut Timeline<'_>) -> Result<(), Failure> {
    let old = stage.uids();
    stage.operator.roll(&stage.namespace, DEPLOYMENT).await?;
    timeline.note(load, "an edit rolls the role, slot by slot");
    stage.wait_slot(scenario.patience()).await?;
    timeline.note(load, "the first slot is open");
    match scenario.event {
        Event::ApiServerDown => {
            stage.cut_line(true);
            timeline.note(load, "the API server is away");
            tokio::time::sleep(scenario.scaled(OUTAGE_SECONDS)).await;
            stage.cut_line(false);
            timeline.note(load, "the API server is back");
        }
        Event::GatewayRolled => {
            timeline.note(load, "the gateways are replaced one by one");
            stage.gateways.roll(scenario.patience()).await?;
            timeline.note(load, "both gateways are new");
        }
        Event::Roll | Event::FollowerKilled | Event::LeaderKilled | Event::ContainerRestart => {}
    }
    stage.wait_replaced(&old, scenario.patience()).await
}
