//! Commands over HTTP, on a listener of their own.
//!
//! `POST /control/sigterm|kill|kill-core|hang|resume|refuse|accept|health|reset|end|fault|clear` with a JSON body where there is
//! something to say, `GET /control/stats` and `GET /control/requests`. Only for tests and demos: no key guards it, so it
//! must listen on a loopback address.

use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::config::Ending;
use super::fault::Rule;
use super::handle::Remote;
use super::http::reply::{Context, Reply};
use super::http::request::{Input, Request};
use super::mood::Hang;

/// Longest command in bytes.
const MAX_COMMAND: usize = 64 * 1024;

/// Open connections at a time.
const MAX_CONNECTIONS: usize = 64;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Said {
    ending: Option<Ending>,
    hang: Option<Hang>,
    status: Option<u16>,
}

pub(crate) async fn serve(remote: Remote, listener: TcpListener) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            Ok((stream, _)) = listener.accept(), if connections.len() < MAX_CONNECTIONS => {
                connections.spawn(connection(remote.clone(), stream));
            }
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
        }
    }
}

async fn connection(remote: Remote, stream: TcpStream) {
    let mut input = Input::new(stream, MAX_COMMAND);
    while let Ok(request) = input.next(std::time::Duration::from_secs(60)).await {
        let reply = answer(&remote, &request);
        let context = Context { close: request.close, ..Context::default() };
        let mut bytes = reply.head(&context, reply.body.len()).into_bytes();
        bytes.extend_from_slice(&reply.body);
        if input.stream.write_all(&bytes).await.is_err() || request.close {
            return;
        }
    }
}

fn answer(remote: &Remote, request: &Request) -> Reply {
    let result = match (request.method.as_str(), request.path.strip_prefix("/control/")) {
        ("GET", Some("stats")) => serde_json::to_value(remote.stats()),
        ("GET", Some("requests")) => serde_json::to_value(remote.requests()),
        ("POST", Some("fault")) => add(remote, &request.body),
        ("POST", Some(command)) => match said(&request.body) {
            Ok(said) => return apply(remote, command, &said),
            Err(error) => Err(error),
        },
        _ => return Reply::not_found(),
    };
    match result {
        Ok(value) => Reply::json(200, value.to_string()),
        Err(error) => Reply::json(400, json!({"error": error.to_string()}).to_string()),
    }
}

fn add(remote: &Remote, body: &[u8]) -> serde_json::Result<Value> {
    let rule: Rule = serde_json::from_slice(body)?;
    Ok(json!({"added": remote.fault(rule)}))
}

fn said(body: &[u8]) -> serde_json::Result<Said> {
    if body.is_empty() { Ok(Said::default()) } else { serde_json::from_slice(body) }
}

fn apply(remote: &Remote, command: &str, said: &Said) -> Reply {
    match command {
        "sigterm" => match said.ending {
            Some(ending) => remote.sigterm_with(ending),
            None => remote.sigterm(),
        },
        "kill" => remote.kill(),
        "kill-core" => remote.kill_core(),
        "hang" => remote.hang(said.hang.unwrap_or(Hang::Engine)),
        "resume" => remote.hang(Hang::None),
        "refuse" => remote.refuse(Some(said.status.unwrap_or(503))),
        "accept" => remote.refuse(None),
        "health" => remote.health(said.status.unwrap_or(503)),
        "reset" => remote.reset_running(),
        "end" => remote.end_running_with(said.ending.unwrap_or(Ending::Silence)),
        "clear" => remote.clear_faults(),
        _ => return Reply::not_found(),
    }
    Reply::json(200, "{}")
}
