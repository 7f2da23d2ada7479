//! Rollouts under load on the real API server, by the command that users have: `loadtest demo --scenario rollout`.
//!
//! Time is scaled; the gateway runs with its defaults. Each test is one cell of the matrix; the command plays all of them.

use std::time::Duration;

use serde_json::Value;
use tests::apiserver::ApiServer;
use tests::process::{Process, Spec};
use tests::{Outcome, binaries};

/// Ten times faster than life: grace 3 s, streams of up to 5.4 s, engines that load for 4 s.
const TIME_SCALE: &str = "0.1";

/// A run that takes this long has hung.
const LIMIT: Duration = Duration::from_secs(300);

async fn play(flags: &[&str]) -> Outcome<Value> {
    let server = ApiServer::shared().await?;
    let dir = tempfile::tempdir()?;
    let kubeconfig = server.kubeconfig().display().to_string();
    let gateway = binaries::gateway().await?.display().to_string();
    let common = ["demo", "--scenario", "rollout", "--time-scale", TIME_SCALE, "--kubeconfig", &kubeconfig, "--gateway", &gateway];
    let args = common.iter().chain(flags).map(Into::into).collect();
    let program = binaries::loadtest().await?.to_owned();
    let process = Process::start(Spec { program, args, env: vec![], log: dir.path().join("log"), litter: None })?;
    let code = process.wait(LIMIT).await?;
    let log = process.log();
    let json = log.split_once("\n{\n").map(|(_, rest)| format!("{{\n{rest}")).unwrap_or_default();
    let end = json.rfind("\n}").map_or(json.len(), |at| at + 2);
    let report: Value = serde_json::from_str(&json[..end]).map_err(|error| format!("{error}; exit {code}; {log}"))?;
    if code != 0 || report["pass"] != true {
        return Err(format!("exit {code}: {log}").into());
    }
    Ok(report)
}

#[tokio::test]
async fn take_over_roles_are_replaced_without_a_trace() -> Outcome<()> {
    let report = play(&["--mode", "take-over", "--replicas", "2", "--size", "2"]).await?;
    let lost = report["plain"]["requests"].as_u64().unwrap_or(0) - report["plain"]["complete"].as_u64().unwrap_or(0);
    assert!(lost > 0, "the rollout hurt nobody, so the test shows nothing: {report}");
    Ok(())
}

#[tokio::test]
async fn managed_roles_are_replaced_without_a_trace() -> Outcome<()> {
    play(&["--mode", "managed", "--replicas", "2", "--size", "2"]).await.map(drop)
}

#[tokio::test]
async fn single_replica_with_a_killed_follower_only_pauses() -> Outcome<()> {
    play(&["--mode", "take-over", "--replicas", "1", "--size", "3", "--event", "follower-killed"]).await.map(drop)
}

#[tokio::test]
async fn api_server_may_be_away_in_the_middle() -> Outcome<()> {
    play(&["--mode", "managed", "--replicas", "2", "--size", "2", "--event", "api-server-down"]).await.map(drop)
}

#[tokio::test]
async fn gateways_are_replaced_along_with_the_replicas() -> Outcome<()> {
    play(&["--mode", "take-over", "--replicas", "2", "--size", "2", "--event", "gateway-rolled"]).await.map(drop)
}
