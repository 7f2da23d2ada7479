//! Names of models: unknown, not yet learned, without a leader; and that no client can make series of them
//! (reports 94, 102).

use std::collections::BTreeSet;

use tests::Outcome;
use tests::gateway::{GatewayHandle, Options, Source};
use tests::http;

use crate::support::engine::ScriptedEngine;
use crate::support::gateway::over;
use crate::support::script::{answer, send};
use crate::support::wire::{CHAT, Wire, post};

/// Report 102: readiness never means that leaders exist.
#[tokio::test]
async fn report_102_a_gateway_without_leaders_is_ready() -> Outcome<()> {
    let folder = tempfile::tempdir()?;
    let gateway = GatewayHandle::start_ready(Options::new(Source::Manifests(folder.path().to_owned()))).await?;
    for path in ["/readyz", "/livez"] {
        assert_eq!(http::get(&gateway.admin_url(path)).await?.status, 200, "{path}");
    }
    let unknown = Wire::ask(&gateway, post("", CHAT)).await?;
    assert_eq!((unknown.status(), unknown.code()?.as_str()), (404, "model_not_found"));
    Ok(())
}

/// A leader that has never served: its name is known, so its requests wait and end in 503; other names are 404.
#[tokio::test]
async fn a_known_name_without_a_leader_is_503_and_an_unknown_one_404() -> Outcome<()> {
    let engine = ScriptedEngine::start_unready(|_| vec![])?;
    let options = Options::new(Source::Leaders(vec![engine.leader("m")])).config("hold: {timeout_unary: 100ms, timeout_nothing: 100ms}\n");
    let gateway = GatewayHandle::start_ready(options).await?;
    let known = Wire::ask(&gateway, post("", CHAT)).await?;
    assert_eq!((known.status(), known.code()?.as_str()), (503, "no_serving_group"));
    assert!(known.head.get("retry-after").is_some());
    let unknown = Wire::ask(&gateway, post("", r#"{"model":"none"}"#)).await?;
    assert_eq!((unknown.status(), unknown.code()?.as_str()), (404, "model_not_found"));
    let error: serde_json::Value = serde_json::from_slice(&unknown.body)?;
    assert_eq!(error["error"]["param"], "model");
    Ok(())
}

#[tokio::test]
async fn the_model_star_takes_every_name() -> Outcome<()> {
    let (engine, own) = (ScriptedEngine::start(|_| send(answer(200, "", "{}")))?, ScriptedEngine::start(|_| send(answer(200, "", "{}")))?);
    let gateway = over(&[engine.leader("*"), own.leader("m")], "probe: {serving_interval: 1h}\n").await?;
    let body = r#"{"model":"any/name"}"#;
    assert_eq!(Wire::ask(&gateway, post("", body)).await?.status(), 200);
    assert_eq!(engine.last()?.body, body.as_bytes());
    assert_eq!(Wire::ask(&gateway, post("", CHAT)).await?.status(), 200);
    assert_eq!((engine.received().len(), own.received().len()), (1, 1));
    Ok(())
}

/// A series: a line of `/metrics` without its value.
async fn series(gateway: &GatewayHandle) -> Outcome<BTreeSet<String>> {
    let text = gateway.metrics().await?;
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    Ok(lines.filter_map(|line| Some(line.rsplit_once(' ')?.0.to_owned())).collect())
}

async fn ask_for_names(gateway: &GatewayHandle, names: std::ops::Range<usize>) -> Outcome<()> {
    let mut wire = Wire::open(gateway).await?;
    let names: Vec<usize> = names.collect();
    for batch in names.chunks(100) {
        let requests: Vec<Vec<u8>> =
            batch.iter().map(|n| post(&format!("x-user: {n}\r\n"), &format!(r#"{{"model":"none-{n}"}}"#))).collect();
        wire.send(requests.concat()).await?;
        for _ in batch {
            assert_eq!(wire.answer().await?.status(), 404);
        }
    }
    Ok(())
}

/// Report 94: 10,000 names that no pool serves add no series, nor do names that the catch-all pool takes.
#[tokio::test]
async fn report_94_names_of_clients_make_no_series() -> Outcome<()> {
    let engine = ScriptedEngine::start(|_| send(answer(200, "", "{}")))?;
    let gateway = over(&[engine.leader("m")], "log: {access: false}\n").await?;
    ask_for_names(&gateway, 0..100).await?;
    let before = series(&gateway).await?;
    ask_for_names(&gateway, 100..10_000).await?;
    let after = series(&gateway).await?;
    assert_eq!(after.difference(&before).collect::<Vec<_>>(), Vec::<&String>::new());
    assert!(!after.iter().any(|series| series.contains("none-")));
    let all = over(&[engine.leader("*")], "log: {access: false}\n").await?;
    for n in 0..50 {
        assert_eq!(Wire::ask(&all, post("", &format!(r#"{{"model":"none-{n}"}}"#))).await?.status(), 200);
    }
    assert!(!series(&all).await?.iter().any(|series| series.contains("none-")), "the catch-all pool has one name");
    Ok(())
}
