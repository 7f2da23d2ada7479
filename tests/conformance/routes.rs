//! Which paths answer what: the allow-list, models, cross-origin requests, methods (RFC 9110 7.6.2, 15.5; WHATWG Fetch).

use serde_json::{Value, json};
use tests::Outcome;
use tests::gateway::GatewayHandle;

use crate::support::engine::ScriptedEngine;
use crate::support::gateway::{over, strict};
use crate::support::message::Head;
use crate::support::script::{answer, send};
use crate::support::wire::{Answer, CHAT, Wire, get, post_to};

#[tokio::test]
async fn listed_paths_are_routed_alike() -> Outcome<()> {
    let (gateway, engine) = strict(|_| send(answer(200, "", "{}"))).await?;
    let paths = "/v1/chat/completions /v1/completions /v1/embeddings /v1/responses /v1/messages /v1/rerank /v1/score /v1/pooling /v1/classify /tokenize /detokenize";
    for path in paths.split(' ') {
        let answer = Wire::ask(&gateway, post_to(path, "", CHAT)).await?;
        assert_eq!(answer.status(), 200, "{path}");
        assert_eq!(engine.last()?.head.start, format!("POST {path} HTTP/1.1"));
    }
    Ok(())
}

#[tokio::test]
async fn other_paths_are_404_and_reach_no_engine() -> Outcome<()> {
    let (gateway, engine) = strict(|_| send(answer(200, "", "{}"))).await?;
    let paths = "/ /health /metrics /v1/load_lora_adapter /v1/unload_lora_adapter /sleep /wake_up /reset_prefix_cache /v1/chat/completions/ \
        //v1/chat/completions /v1/./chat/completions /v1/chat/../chat/completions /v1/%63hat/completions /V1/chat/completions /v1/chat/completions; \
        /debug/snapshot /livez /v1 /v2/chat/completions";
    for path in paths.split_whitespace() {
        for request in [post_to(path, "", CHAT), get(path, "")] {
            let answer = Wire::ask(&gateway, request).await?;
            assert_eq!((answer.status(), answer.code()?.as_str()), (404, "path_not_found"), "{path}");
        }
    }
    assert_eq!(engine.received().len(), 0);
    Ok(())
}

/// P5: TRACE is refused, so Max-Forwards needs no count.
#[tokio::test]
async fn p5_other_methods_are_405() -> Outcome<()> {
    let (gateway, engine) = strict(|_| send(answer(200, "", "{}"))).await?;
    for (method, path, allow) in [
        ("GET", "/v1/chat/completions", "POST"),
        ("TRACE", "/v1/chat/completions", "POST"),
        ("PUT", "/tokenize", "POST"),
        ("OPTIONS", "/v1/chat/completions", "POST"),
        ("DELETE", "/v1/models/m", "GET, HEAD"),
    ] {
        let answer = Wire::ask(&gateway, format!("{method} {path} HTTP/1.1\r\nhost: a\r\nmax-forwards: 1\r\n\r\n")).await?;
        assert_eq!((answer.status(), answer.code()?.as_str()), (405, "method_not_allowed"), "{method} {path}");
        assert_eq!(answer.head.get("allow"), Some(allow));
    }
    let connect = Wire::ask(&gateway, "CONNECT a:80 HTTP/1.1\r\nhost: a:80\r\n\r\n").await?;
    assert!((400..500).contains(&connect.status()), "{:?}", connect.head);
    assert_eq!(engine.received().len(), 0);
    Ok(())
}

async fn json_of(gateway: &GatewayHandle, path: &str) -> Outcome<(u16, Value)> {
    let answer = Wire::ask(gateway, get(path, "")).await?;
    Ok((answer.status(), serde_json::from_slice(&answer.body)?))
}

#[tokio::test]
async fn models_are_the_union_in_a_stable_order() -> Outcome<()> {
    let engine = ScriptedEngine::start(|_| send(answer(200, "", "{}")))?;
    let other = ScriptedEngine::start(|_| send(answer(200, "", "{}")))?;
    let leaders = [engine.leader("z"), other.leader("org/a"), engine.leader("m")];
    let gateway = over(&leaders, "probe: {serving_interval: 1h}\n").await?;
    for _ in 0..3 {
        let (status, list) = json_of(&gateway, "/v1/models").await?;
        let ids: Vec<&str> = list["data"].as_array().ok_or("no list")?.iter().filter_map(|model| model["id"].as_str()).collect();
        assert_eq!((status, ids, &list["object"]), (200, vec!["m", "org/a", "z"], &json!("list")));
    }
    for path in ["/v1/models/org/a", "/v1/models/org%2Fa"] {
        let (status, model) = json_of(&gateway, path).await?;
        assert_eq!((status, &model["id"], &model["object"]), (200, &json!("org/a"), &json!("model")), "{path}");
    }
    let missing = Wire::ask(&gateway, get("/v1/models/none", "")).await?;
    assert_eq!((missing.status(), missing.code()?.as_str()), (404, "model_not_found"));
    let mut wire = Wire::open(&gateway).await?;
    wire.send("HEAD /v1/models HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").await?;
    assert_eq!(wire.head().await?.status(), 200);
    wire.closed().await?;
    assert_eq!(engine.received().len() + other.received().len(), 0);
    Ok(())
}

fn preflight(fields: &str) -> String {
    format!("OPTIONS /v1/chat/completions HTTP/1.1\r\nhost: a\r\norigin: http://app.test\r\n{fields}\r\n")
}

fn allowed(head: &Head) -> Option<&str> {
    head.get("access-control-allow-origin")
}

#[tokio::test]
async fn preflights_are_answered_as_engines_do() -> Outcome<()> {
    let (gateway, engine) = strict(|_| send(answer(200, "access-control-allow-origin: http://engine.test\r\n", "{}"))).await?;
    let ask = "access-control-request-method: POST\r\naccess-control-request-headers: authorization, x-a\r\n";
    let answer = Wire::ask(&gateway, preflight(ask)).await?;
    assert_eq!((answer.status(), allowed(&answer.head)), (200, Some("*")));
    assert_eq!(answer.head.get("access-control-allow-headers"), Some("authorization, x-a"));
    assert!(answer.head.get("access-control-allow-methods").is_some_and(|methods| methods.contains("POST")));
    assert_eq!(engine.received().len(), 0);
    // The answer itself, and refusals, may be read too; what the engine said of it does not stand beside.
    for (body, status) in [(CHAT, 200), (r#"{"model":"none"}"#, 404)] {
        let answer: Answer = Wire::ask(&gateway, post_to("/v1/chat/completions", "origin: http://app.test\r\n", body)).await?;
        assert_eq!((answer.status(), answer.head.all("access-control-allow-origin")), (status, vec!["*"]));
    }
    Ok(())
}

#[tokio::test]
async fn preflights_follow_the_configuration() -> Outcome<()> {
    let engine = ScriptedEngine::start(|_| send(answer(200, "", "{}")))?;
    let ask = "access-control-request-method: POST\r\n";
    for (config, status, origin) in [
        ("cors: {allow_origins: [\"http://app.test\"]}\n", 200, Some("http://app.test")),
        ("cors: {allow_origins: [\"http://other.test\"]}\n", 400, None),
        ("cors: {enabled: false}\n", 405, None),
    ] {
        let gateway = over(&[engine.leader("m")], config).await?;
        let answer = Wire::ask(&gateway, preflight(ask)).await?;
        assert_eq!((answer.status(), allowed(&answer.head)), (status, origin), "{config}");
    }
    Ok(())
}
