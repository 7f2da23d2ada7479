//! A client that is gone frees its leader at once: during prefill, during a stream, without a stream, by each way of going
//! (reports 55 to 61; rule H17).

use std::time::Duration;

use loadtest::engine::{Engine, EngineConfig, EngineHandle, Pace};
use socket2::SockRef;
use tests::Outcome;
use tests::gateway::GatewayHandle;
use tests::poll::{PATIENCE, eventually};
use tokio::io::AsyncWriteExt;

use crate::support::gateway::{over, wait_idle};
use crate::support::h2::H2;
use crate::support::own_address;
use crate::support::wire::{Wire, post};

/// Ways of going.
#[derive(Debug, Clone, Copy)]
enum Way {
    Close,
    Reset,
    HalfClose,
    ResetStream,
}

/// What the leader is at when the client goes.
#[derive(Debug, Clone, Copy)]
enum Moment {
    Prefill,
    Decode,
    Whole,
}

async fn engine(pace: Pace) -> Outcome<EngineHandle> {
    Ok(Engine::start(EngineConfig { listen: own_address(), pace, ..EngineConfig::fast("m") }).await?)
}

/// The probe is a generation, so that a leader that takes minutes would never serve.
async fn gateway(engine: &EngineHandle) -> Outcome<GatewayHandle> {
    over(&[format!("m={}", engine.url())], "probe: {generation: false, serving_interval: 1h}\n").await
}

fn body(moment: Moment) -> String {
    let stream = !matches!(moment, Moment::Whole);
    format!(r#"{{"model":"m","stream":{stream},"max_tokens":100000,"ignore_eos":true,"messages":[{{"role":"user","content":"x"}}]}}"#)
}

async fn leaves(moment: Moment) -> Outcome<()> {
    let prefill = if matches!(moment, Moment::Prefill) { Duration::from_secs(3600) } else { Duration::ZERO };
    let engine = engine(Pace::steady(prefill, Duration::from_millis(20))).await?;
    let gateway = gateway(&engine).await?;
    for (n, way) in [Way::Close, Way::Reset, Way::HalfClose, Way::ResetStream].into_iter().enumerate() {
        match way {
            Way::ResetStream => by_h2(&gateway, &engine, moment).await?,
            Way::Close | Way::Reset | Way::HalfClose => by_h1(&gateway, &engine, moment, way).await?,
        }
        eventually(PATIENCE, "a cancelled request", || async {
            let stats = engine.stats();
            let seen = (stats.cancelled, stats.running, stats.waiting);
            if seen == (n as u64 + 1, 0, 0) { Ok(()) } else { Err(format!("{moment:?} {way:?}: {seen:?}")) }
        })
        .await?;
        wait_idle(&gateway).await?;
        // Whatever the leader was at, it is counted how long its connection outlived the client.
        let counted = format!("leadgate_cancel_delay_seconds_count {}\n", n + 1);
        eventually(PATIENCE, "a measured delay", || async {
            let metrics = gateway.metrics().await.map_err(|error| error.to_string())?;
            if metrics.contains(&counted) { Ok(()) } else { Err(format!("{moment:?} {way:?}: no {counted}")) }
        })
        .await?;
    }
    Ok(())
}

async fn running(engine: &EngineHandle) -> Outcome<()> {
    eventually(PATIENCE, "a running request", || async {
        let stats = engine.stats();
        if stats.running == 1 { Ok(()) } else { Err(format!("{stats:?}")) }
    })
    .await
}

/// The half-closed connection is kept to the end: its other half is no sign.
async fn by_h1(gateway: &GatewayHandle, engine: &EngineHandle, moment: Moment, way: Way) -> Outcome<()> {
    let mut wire = Wire::open(gateway).await?;
    wire.send(post("", &body(moment))).await?;
    running(engine).await?;
    if matches!(moment, Moment::Decode) {
        wire.head().await?;
        wire.until("data: ").await?;
    }
    match way {
        Way::Reset => SockRef::from(&wire.0.stream).set_linger(Some(Duration::ZERO))?,
        Way::HalfClose => {
            wire.0.stream.shutdown().await?;
            wire.0.rest().await?;
        }
        Way::Close | Way::ResetStream => {}
    }
    Ok(())
}

async fn by_h2(gateway: &GatewayHandle, engine: &EngineHandle, moment: Moment) -> Outcome<()> {
    let mut h2 = H2::connect(gateway).await?;
    h2.post(1, &[], &body(moment)).await?;
    running(engine).await?;
    if matches!(moment, Moment::Decode) {
        h2.wait(|frame| frame.kind == crate::support::h2::DATA && frame.stream == 1).await?;
    }
    h2.cancel(1).await?;
    eventually(PATIENCE, "an idle engine", || async {
        let stats = engine.stats();
        if stats.running == 0 { Ok(()) } else { Err(format!("{stats:?}")) }
    })
    .await?;
    // The connection itself lives on.
    h2.frame(crate::support::h2::PING, 0, 0, &[7; 8]).await?;
    h2.wait(|frame| frame.kind == crate::support::h2::PING && frame.flags == 1).await.map(drop)
}

#[tokio::test]
async fn report_55_a_client_that_leaves_during_prefill_frees_its_leader() -> Outcome<()> {
    leaves(Moment::Prefill).await
}

#[tokio::test]
async fn report_56_60_a_client_that_leaves_a_stream_frees_its_leader() -> Outcome<()> {
    leaves(Moment::Decode).await
}

#[tokio::test]
async fn report_57_59_a_client_that_leaves_without_a_stream_frees_its_leader() -> Outcome<()> {
    leaves(Moment::Whole).await
}
