//! The real gateway over fixed leaders.

use serde_json::Value;
use tests::Outcome;
use tests::gateway::{GatewayHandle, Options, Source};
use tests::poll::{PATIENCE, eventually};

use super::engine::{Received, ScriptedEngine};
use super::script::Step;

/// Settings under which a broken answer is told at once instead of being carried on.
pub(crate) const STRICT: &str = "resume: {enabled: false}\nretry: {attempts: 1}\nprobe: {warming_interval: 50ms, serving_interval: 1h}\n";

/// A gateway that has proven each of these `MODEL=URL`.
pub(crate) async fn over(leaders: &[String], config: &str) -> Outcome<GatewayHandle> {
    let gateway = GatewayHandle::start_ready(Options::new(Source::Leaders(leaders.to_vec())).config(config)).await?;
    // `MODEL=http://A,http://B`: a group for each model and address.
    let addresses = leaders.iter().flat_map(|leader| leader.split("http://").skip(1));
    let mut keys: Vec<String> = addresses.map(|address| format!("static/{}", address.trim_end_matches(','))).collect();
    keys.sort();
    gateway.wait_groups("Serving", &keys).await?;
    Ok(gateway)
}

/// A scripted engine that serves `m`, and a gateway with [`STRICT`] over it.
pub(crate) async fn strict(script: impl Fn(&Received) -> Vec<Step> + Send + Sync + 'static) -> Outcome<(GatewayHandle, ScriptedEngine)> {
    let engine = ScriptedEngine::start(script)?;
    let gateway = over(&[engine.leader("m")], STRICT).await?;
    Ok((gateway, engine))
}

/// The group with this key in a snapshot.
pub(crate) fn group(snapshot: &Value, key: &str) -> Value {
    let pools = snapshot["pools"].as_array().into_iter().flatten();
    let mut groups = pools.flat_map(|pool| pool["groups"].as_array().into_iter().flatten());
    groups.find(|group| group["key"] == key).cloned().unwrap_or_default()
}

/// Waits until no request runs at any group.
pub(crate) async fn wait_idle(gateway: &GatewayHandle) -> Outcome<()> {
    let idle = |snapshot: &Value| {
        let pools = snapshot["pools"].as_array().into_iter().flatten();
        let running: u64 =
            pools.flat_map(|pool| pool["groups"].as_array().into_iter().flatten()).filter_map(|group| group["in_flight"].as_u64()).sum();
        if running == 0 { Ok(()) } else { Err(format!("{running} requests run")) }
    };
    gateway.wait_snapshot("no running request", idle).await.map(drop)
}

/// Waits until the gateway trusts this group.
pub(crate) async fn wait_trusted(gateway: &GatewayHandle, key: &str) -> Outcome<()> {
    eventually(PATIENCE, "a trusted leader", || async {
        let snapshot = gateway.snapshot().await.map_err(|error| error.to_string())?;
        let group = group(&snapshot, key);
        if group["health"] == "closed" && group["phase"] == "Serving" { Ok(()) } else { Err(group.to_string()) }
    })
    .await
}
