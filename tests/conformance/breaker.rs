//! What takes a leader out of the choice: its own faults, never a client's and never pressure (reports 89 to 91).

use serde_json::Value;
use tests::Outcome;
use tests::gateway::GatewayHandle;
use tests::poll::{PATIENCE, eventually};

use crate::support::engine::{Received, ScriptedEngine};
use crate::support::gateway::{group, over, strict};
use crate::support::script::{Step, answer, send, whole_stream};
use crate::support::wire::{CHAT, Wire, post, post_to};

/// Answers by the status that the request's body asks for.
fn as_asked(received: &Received) -> Vec<Step> {
    let body: Value = serde_json::from_slice(&received.body).unwrap_or_default();
    let status = body["status"].as_u64().and_then(|status| u16::try_from(status).ok()).unwrap_or(200);
    if status == 200 && body["stream"] == true {
        return send(whole_stream("well"));
    }
    send(answer(status, "retry-after: 3\r\n", format!("{{\"status\":{status}}}")))
}

fn asking(status: u16) -> Vec<u8> {
    post("", &format!(r#"{{"model":"m","status":{status}}}"#))
}

async fn health(gateway: &GatewayHandle, engine: &ScriptedEngine) -> Outcome<(Value, Value)> {
    let group = group(&gateway.snapshot().await?, &engine.key());
    Ok((group["health"].clone(), group["phase"].clone()))
}

/// Reports 89 and 90: one bad client must not open every breaker.
#[tokio::test]
async fn report_89_90_client_errors_open_nothing() -> Outcome<()> {
    let (gateway, engine) = strict(as_asked).await?;
    for status in [400, 401, 404, 413, 422] {
        for _ in 0..20 {
            let answer = Wire::ask(&gateway, asking(status)).await?;
            assert_eq!((answer.status(), answer.text()), (status, format!("{{\"status\":{status}}}")), "passed on as it is");
        }
        assert_eq!(health(&gateway, &engine).await?, ("closed".into(), "Serving".into()), "{status}");
    }
    assert_eq!(Wire::ask(&gateway, post("", CHAT)).await?.status(), 200);
    assert_eq!(engine.received().len(), 101, "none was sent twice");
    Ok(())
}

/// Report 91.
#[tokio::test]
async fn report_91_pressure_opens_nothing() -> Outcome<()> {
    let (gateway, engine) = strict(as_asked).await?;
    for status in [503, 429] {
        for _ in 0..20 {
            let answer = Wire::ask(&gateway, asking(status)).await?;
            assert_eq!((answer.status(), answer.head.get("retry-after")), (status, Some("3")), "{}", answer.text());
        }
        assert_eq!(health(&gateway, &engine).await?, ("closed".into(), "Serving".into()), "{status}");
    }
    assert_eq!(Wire::ask(&gateway, post("", CHAT)).await?.status(), 200);
    Ok(())
}

/// A full leader did nothing: another one is asked.
#[tokio::test]
async fn a_full_leader_gives_way_to_another() -> Outcome<()> {
    let full = ScriptedEngine::start(|_| send(answer(503, "", "{}")))?;
    let free = ScriptedEngine::start(|_| send(answer(200, "", "{}")))?;
    let gateway =
        over(&[format!("{},http://{}", full.leader("m"), free.address())], "retry: {burst: 100}\nprobe: {serving_interval: 1h}\n").await?;
    for _ in 0..20 {
        assert_eq!(Wire::ask(&gateway, post("", CHAT)).await?.status(), 200);
    }
    assert_eq!(free.received().len(), 20);
    Ok(())
}

/// Errors count in a row: a good answer ends it, streamed or not, whatever it is an answer to.
#[tokio::test]
async fn good_answers_end_a_row_of_server_errors() -> Outcome<()> {
    let (gateway, engine) = strict(as_asked).await?;
    let embedding = post_to("/v1/embeddings", "", r#"{"model":"m","input":"a"}"#);
    for good in [post("", CHAT), post("", r#"{"model":"m","stream":true}"#), embedding] {
        for _ in 0..6 {
            assert_eq!(Wire::ask(&gateway, asking(500)).await?.status(), 500);
            assert_eq!(health(&gateway, &engine).await?, ("half_open".into(), "Serving".into()));
            assert_eq!(Wire::ask(&gateway, good.clone()).await?.status(), 200);
            assert_eq!(health(&gateway, &engine).await?, ("closed".into(), "Serving".into()), "{}", String::from_utf8_lossy(&good));
        }
    }
    Ok(())
}

/// The counter-check: server errors in a row do open it, and a good generation closes it again.
#[tokio::test]
async fn server_errors_open_until_a_good_generation() -> Outcome<()> {
    let engine = ScriptedEngine::start(as_asked)?;
    let gateway = over(&[engine.leader("m")], "retry: {attempts: 1}\nprobe: {warming_interval: 50ms, serving_interval: 1h}\n").await?;
    // The probe that follows the fault is not answered, so that the state can be seen.
    engine.set_ready(false);
    for _ in 0..3 {
        assert_eq!(Wire::ask(&gateway, asking(500)).await?.status(), 500);
    }
    eventually(PATIENCE, "an open breaker", || async {
        match health(&gateway, &engine).await {
            Ok((health, _)) if health == "open" => Ok(()),
            seen => Err(format!("{seen:?}")),
        }
    })
    .await?;
    engine.set_ready(true);
    // Held until the probe has proven the leader again.
    assert_eq!(Wire::ask(&gateway, post("", CHAT)).await?.status(), 200);
    assert_eq!(health(&gateway, &engine).await?.0, "closed");
    Ok(())
}

async fn left_out(gateway: &GatewayHandle) -> Outcome<u64> {
    let series = r#"leadgate_probes_total{probe="health",result="skipped"} "#;
    let metrics = gateway.metrics().await?;
    let count = metrics.lines().find_map(|line| line.strip_prefix(series)).ok_or("no such series")?;
    Ok(count.parse()?)
}

/// Answers show what a probe of a serving leader would ask: most of its probes are left out while there are any.
#[tokio::test]
async fn good_answers_stand_in_for_probes() -> Outcome<()> {
    let engine = ScriptedEngine::start(as_asked)?;
    let gateway = over(&[engine.leader("m")], "probe: {serving_interval: 10ms}\n").await?;
    for good in [post("", CHAT), post("", r#"{"model":"m","stream":true}"#)] {
        let before = left_out(&gateway).await?;
        eventually(PATIENCE, "a probe that was left out", || async {
            let status = Wire::ask(&gateway, good.clone()).await.map_err(|error| error.to_string())?.status();
            let now = left_out(&gateway).await.map_err(|error| error.to_string())?;
            if status == 200 && now > before { Ok(()) } else { Err(format!("{status}, {now} left out")) }
        })
        .await?;
    }
    Ok(())
}
