//! Rollouts under load on the real API server, by the command that users have: `loadtest demo --scenario rollout`.
//!
//! Time is scaled; the gateway runs with its defaults. The pairwise selection of the matrix holds every pair of mode, size, replicas and
//! event; `loadtest demo --scenario rollout --matrix` plays all of them.

use std::time::Duration;

use serde_json::Value;
use tests::apiserver::ApiServer;
use tests::process::{Process, Spec};
use tests::{Outcome, binaries};

/// Ten times faster than life: grace 3 s, streams of up to 5.4 s, engines that load for 4 s.
const TIME_SCALE: &str = "0.1";

/// Stages side by side: a stage mostly waits.
const JOBS: &str = "3";

/// A run that takes this long has hung.
const LIMIT: Duration = Duration::from_secs(1800);

async fn play(flags: &[&str]) -> Outcome<Value> {
    let server = ApiServer::shared().await?;
    let dir = tempfile::tempdir()?;
    let file = dir.path().join("report.json");
    let gateway = binaries::gateway().await?.to_owned();
    let mut args: Vec<std::ffi::OsString> =
        ["demo", "--scenario", "rollout", "--time-scale", TIME_SCALE, "--jobs", JOBS].map(Into::into).into();
    args.extend(["--kubeconfig".into(), server.kubeconfig().into(), "--gateway".into(), gateway.into()]);
    args.extend(["--report".into(), file.clone().into()]);
    args.extend(flags.iter().map(Into::into));
    let program = binaries::loadtest().await?.to_owned();
    let process = Process::start(Spec { program, args, env: vec![], log: dir.path().join("log"), litter: None })?;
    match process.wait(LIMIT).await? {
        0 => Ok(serde_json::from_slice(&std::fs::read(&file)?)?),
        code => Err(format!("exit {code}: {}", process.log()).into()),
    }
}

#[tokio::test]
async fn every_pair_of_settings_is_replaced_without_a_trace() -> Outcome<()> {
    let reports = play(&["--pairwise"]).await?;
    let reports = reports.as_array().ok_or("no list of reports")?;
    assert!(reports.len() >= 18, "{}", reports.len());
    for report in reports {
        let (gateway, plain) = (&report["gateway"], &report["plain"]);
        assert_eq!(gateway["complete"], gateway["requests"], "{report}");
        // A play in which nobody is hurt would show nothing.
        assert!(plain["complete"].as_u64() < plain["requests"].as_u64(), "{report}");
    }
    Ok(())
}

#[tokio::test]
async fn a_broken_pass_line_is_an_exit_status() -> Outcome<()> {
    // Without resumes, streams that outlast the grace period are lost.
    let lost = play(&["--mode", "take-over", "--gateway-arg", "--resume-enabled=false"]).await;
    let text = lost.map(|report| report.to_string()).unwrap_err().to_string();
    assert!(text.starts_with("exit 1") && text.contains("broke the pass line"), "{text}");
    Ok(())
}
