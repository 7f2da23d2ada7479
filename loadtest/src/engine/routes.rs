//! Paths of the engine, and the answers that need no generating.

use serde_json::{Value, json};

use super::ask::{Ask, Endpoint, Prompt};
use super::errors::ApiError;
use super::http::reply::{Reply, now, preflight};
use super::http::request::Request;
use super::job;
use super::metrics;
use super::other::Api;
use super::persona::VERSION;
use super::shared::Shared;
use crate::text::{Rng, hash, token};

/// How a request is answered.
pub(crate) enum Route {
    /// At once.
    Reply(Reply),
    /// At once, with these bytes.
    Raw(Vec<u8>),
    /// With text.
    Generate(Endpoint),
    /// With text in another envelope.
    Other(Api),
}

const GET: &[&str] = &["/health", "/ping", "/version", "/load", "/v1/models", "/metrics"];
const POST: &[&str] = &[
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/responses",
    "/v1/messages",
    "/v1/embeddings",
    "/v1/pooling",
    "/v1/classify",
    "/v1/score",
    "/v1/rerank",
    "/tokenize",
    "/detokenize",
    "/ping",
];

pub(crate) fn route(shared: &Shared, request: &Request) -> Route {
    if shared.config.follower {
        shared.stats.follower();
        return Route::Reply(Reply::json(500, r#"{"detail":"this is a follower: it serves nobody"}"#));
    }
    let (method, path) = (request.method.as_str(), request.path.as_str());
    let known = |list: &[&str]| list.contains(&path);
    if method == "OPTIONS" && request.header("origin").is_some() && request.header("access-control-request-method").is_some() {
        return Route::Raw(preflight(request).into_bytes());
    }
    if path.starts_with("/v1") && !has_key(shared, request) {
        return Route::Reply(Reply::unauthorized());
    }
    match method {
        "GET" if known(GET) => Route::Reply(get(shared, path)),
        "POST" if known(POST) => post(shared, request),
        _ if known(GET) => Route::Reply(Reply::wrong_method("GET")),
        _ if known(POST) => Route::Reply(Reply::wrong_method("POST")),
        _ => Route::Reply(Reply::not_found()),
    }
}

fn has_key(shared: &Shared, request: &Request) -> bool {
    let Some(key) = &shared.config.api_key else { return true };
    request.header("authorization").and_then(|value| value.strip_prefix("Bearer ")) == Some(key)
}

fn get(shared: &Shared, path: &str) -> Reply {
    let mood = *shared.mood.borrow();
    match path {
        "/version" => Reply::json(200, json!({ "version": VERSION }).to_string()),
        "/load" => Reply::json(200, r#"{"server_load":0}"#),
        "/v1/models" => Reply::json(200, models(shared)),
        "/metrics" => Reply {
            content_type: Some("text/plain; version=1.0.0; charset=utf-8"),
            body: metrics::render(shared).into_bytes(),
            ..Reply::empty()
        },
        _ => Reply { status: mood.health, ..Reply::empty() },
    }
}

fn models(shared: &Shared) -> String {
    let persona = &shared.config.persona;
    let entry = |(at, model): (usize, &super::persona::ModelName)| {
        let root = model.parent.as_deref().unwrap_or(&model.id);
        json!({
            "id": model.id, "object": "model", "created": now(), "owned_by": "vllm", "root": format!("/models/{root}"),
            "parent": model.parent, "max_model_len": if model.parent.is_some() { Value::Null } else { persona.max_model_len.into() },
            "permission": [{
                "id": format!("modelperm-{:016x}", hash(model.id.as_bytes()).wrapping_add(at as u64)), "object": "model_permission",
                "created": now(), "allow_create_engine": false, "allow_sampling": true, "allow_logprobs": true,
                "allow_search_indices": false, "allow_view": true, "allow_fine_tuning": false, "organization": "*", "group": null,
                "is_blocking": false
            }]
        })
    };
    json!({"object": "list", "data": persona.models.iter().enumerate().map(entry).collect::<Vec<_>>()}).to_string()
}

fn post(shared: &Shared, request: &Request) -> Route {
    let answer = match request.path.as_str() {
        "/v1/chat/completions" => return Route::Generate(Endpoint::Chat),
        "/v1/completions" => return Route::Generate(Endpoint::Completion),
        "/v1/responses" => return Route::Other(Api::Responses),
        "/v1/messages" => return Route::Other(Api::Messages),
        "/tokenize" => tokenize(shared, &request.body),
        "/detokenize" => detokenize(&request.body),
        "/v1/embeddings" | "/v1/pooling" | "/v1/classify" => embeddings(shared, &request.body),
        "/v1/score" | "/v1/rerank" => scores(shared, &request.body),
        _ => return Route::Reply(Reply::empty()),
    };
    Route::Reply(match answer {
        Ok(body) => Reply::json(200, body.to_string()),
        Err(error) => Reply::json(error.status, error.body()),
    })
}

fn parse(body: &[u8]) -> Result<Value, ApiError> {
    serde_json::from_slice(body).map_err(|_| ApiError::no_json(body.len()))
}

fn tokenize(shared: &Shared, body: &[u8]) -> Result<Value, ApiError> {
    let value = parse(body)?;
    let endpoint = if value.get("messages").is_some() { Endpoint::Chat } else { Endpoint::Completion };
    let ask = Ask::from_value(endpoint, &value)?;
    let tokens = match &ask.prompt {
        Prompt::Text(text) => token::encode(text),
        Prompt::Messages(_) | Prompt::Ids(_) => job::tokenize(&ask, shared.config.persona.template)?,
    };
    let strings = value.get("return_token_strs").and_then(Value::as_bool).unwrap_or(false);
    let strings = strings.then(|| tokens.iter().map(|id| String::from_utf8_lossy(token::bytes_of(*id)).into_owned()).collect::<Vec<_>>());
    let limit = shared.config.persona.max_model_len;
    Ok(json!({"count": tokens.len(), "max_model_len": limit, "tokens": tokens, "token_strs": strings}))
}

fn detokenize(body: &[u8]) -> Result<Value, ApiError> {
    let value = parse(body)?;
    let tokens = value
        .get("tokens")
        .and_then(Value::as_array)
        .ok_or_else(|| ApiError::invalid("missing", "body.tokens", "Field required", "'<dict>'"))?;
    let ids: Vec<u32> = tokens.iter().filter_map(Value::as_u64).filter_map(|id| u32::try_from(id).ok()).collect();
    Ok(json!({"prompt": String::from_utf8_lossy(&token::decode(&ids, true))}))
}

/// The body and the model that it names.
fn served<'a>(shared: &'a Shared, value: &'a Value) -> Result<&'a str, ApiError> {
    let persona = &shared.config.persona;
    let model = value.get("model").and_then(Value::as_str).unwrap_or(persona.base());
    if persona.serves(model) { Ok(model) } else { Err(ApiError::unknown_model(model, persona.base())) }
}

fn texts(value: &Value, name: &str) -> Result<Vec<String>, ApiError> {
    match value.get(name) {
        Some(Value::String(text)) => Ok(vec![text.clone()]),
        Some(Value::Array(list)) => Ok(list.iter().map(|item| item.as_str().map_or_else(|| item.to_string(), str::to_owned)).collect()),
        _ => Err(ApiError::invalid("missing", &format!("body.{name}"), "Field required", "'<dict>'")),
    }
}

fn embeddings(shared: &Shared, body: &[u8]) -> Result<Value, ApiError> {
    let value = parse(body)?;
    let model = served(shared, &value)?;
    let inputs = texts(&value, "input")?;
    let tokens: usize = inputs.iter().map(|text| token::count(text)).sum();
    let vector = |text: &str| {
        let mut rng = Rng::new(hash(text.as_bytes()));
        (0..8).map(|_| rng.unit() * 2.0 - 1.0).collect::<Vec<_>>()
    };
    let entry = |(index, text): (usize, &String)| json!({"index": index, "object": "embedding", "embedding": vector(text)});
    let data: Vec<_> = inputs.iter().enumerate().map(entry).collect();
    Ok(json!({
        "id": format!("embd-{:016x}", rand::random::<u64>()), "object": "list", "created": now(), "model": model, "data": data,
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens, "completion_tokens": 0, "prompt_tokens_details": null}
    }))
}

fn scores(shared: &Shared, body: &[u8]) -> Result<Value, ApiError> {
    let value = parse(body)?;
    let model = served(shared, &value)?;
    let documents = texts(&value, if value.get("documents").is_some() { "documents" } else { "text_2" })?;
    let score = |text: &str| Rng::new(hash(text.as_bytes())).unit();
    let entry =
        |(index, text): (usize, &String)| json!({"index": index, "object": "score", "score": score(text), "relevance_score": score(text)});
    let data: Vec<_> = documents.iter().enumerate().map(entry).collect();
    let id = format!("score-{:016x}", rand::random::<u64>());
    Ok(json!({"id": id, "object": "list", "created": now(), "model": model, "data": data.clone(), "results": data}))
}
