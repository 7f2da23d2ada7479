//! The generating endpoints besides the two of OpenAI's older API: `/v1/responses` and `/v1/messages`.
//!
//! They write the same seeded text in their own envelopes and with named events, enough to show that a gateway passes
//! them on untouched, ends them when a client goes away, and refuses to carry them on. Their events are rendered before
//! the first is written, since their texts are short.

use serde_json::{Value, json};
use tokio::time::Instant;

use super::ask::{Ask, Endpoint, Prompt};
use super::connection::{reply, written};
use super::errors::ApiError;
use super::events::chunked;
use super::exchange::{Exchange, Stop};
use super::fault::{Fault, Strike};
use super::generate::Done;
use super::http::reply::{Context, Reply, now, stream_head};
use super::http::request::Request;
use super::job::Job;
use super::shared::Shared;
use super::stats::Outcome;
use super::whole::{Answer, Said};

/// Which API is spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Api {
    /// `/v1/responses`
    Responses,
    /// `/v1/messages`
    Messages,
}

/// Tokens of an answer at most: its events are held.
const MAX_TOKENS: i64 = 4096;

pub(crate) async fn answer(shared: &Shared, x: &mut Exchange<'_>, request: &Request, context: &Context, api: Api) -> Done {
    let asked = read(&request.body, api);
    let streamed = asked.as_ref().is_ok_and(|ask| ask.stream);
    x.fault = shared.rules.take(streamed, request.header("x-request-id"));
    if let Some(fault) = &x.fault {
        shared.stats.fault(fault.name());
    }
    let job = match asked.and_then(|ask| Job::new(ask, &shared.config.persona, shared.nonce())) {
        Ok(job) => job,
        Err(error) => return reply(x, context, &Reply::json(error.status, error.body())).await,
    };
    let running = shared.stats.run();
    shared.stats.generation(job.prompt_tokens);
    let answer = Answer::of(&job);
    shared.stats.made(answer.usage.completion);
    let frames = if streamed { events(api, &job, &answer) } else { Vec::new() };
    let done = match send(shared, x, context, &frames).await {
        Ok(events) if streamed => Done { events, ..written(Ok(()), context.close, Outcome::Complete) },
        Ok(_) => reply(x, context, &Reply::json(200, whole(api, &job, &answer).to_string())).await,
        Err(Stop::Ending(_)) => {
            x.be_silent().await;
            written(Err(Stop::Fin), true, Outcome::Broken)
        }
        Err(stop) => written(Err(stop), true, Outcome::Broken),
    };
    drop(running);
    done
}

/// Maps the body to a chat.
fn read(body: &[u8], api: Api) -> Result<Ask, ApiError> {
    let mut value: Value = serde_json::from_slice(body).map_err(|_| ApiError::no_json(body.len()))?;
    let (from, limit) = match api {
        Api::Responses => ("input", "max_output_tokens"),
        Api::Messages => ("messages", "max_tokens"),
    };
    let missing = || ApiError::invalid("missing", &format!("body.{from}"), "Field required", "'<dict>'");
    let input = value.get_mut(from).map(Value::take).ok_or_else(missing)?;
    let messages = if let Value::String(text) = input { json!([{"role": "user", "content": text}]) } else { input };
    let tokens = value.get(limit).and_then(Value::as_i64).unwrap_or(64).min(MAX_TOKENS);
    let chat = json!({
        "model": value["model"], "messages": messages, "max_tokens": tokens, "stream": value["stream"].as_bool().unwrap_or(false),
        "temperature": value["temperature"].as_f64().unwrap_or(1.0)
    });
    let ask = Ask::from_value(Endpoint::Chat, &chat)?;
    if ask.prompt == Prompt::Messages(Vec::new()) { Err(missing()) } else { Ok(ask) }
}

/// Writes head and events; nothing for an answer that is not streamed, which only waits.
async fn send(shared: &Shared, x: &mut Exchange<'_>, context: &Context, frames: &[Vec<u8>]) -> Result<u64, Stop> {
    let pace = &shared.config.pace;
    let mut due = Instant::now() + pace.first_token;
    if frames.is_empty() {
        x.pause(due).await?;
        return Ok(0);
    }
    x.send(stream_head(context).as_bytes()).await?;
    let strike = x.fault.as_ref().and_then(Fault::strike);
    let mut sent = 0;
    for frame in frames {
        x.pause(due).await?;
        match strike.filter(|(events, _)| *events == sent) {
            Some((_, Strike::Reset)) => return Err(Stop::Reset),
            Some((_, Strike::Ending(ending))) => return Err(Stop::Ending(ending)),
            Some(_) => return Err(Stop::Fin),
            None => x.send(frame).await?,
        }
        sent += 1;
        due += pace.token;
    }
    x.send(b"0\r\n\r\n").await?;
    Ok(sent)
}

fn first(answer: &Answer) -> (&str, bool) {
    let said = answer.choices.first();
    let cut = said.and_then(|said| said.finish) == Some(super::decode::Finish::Length);
    (said.map_or("", |said: &Said| said.content.as_str()), cut)
}

fn whole(api: Api, job: &Job, answer: &Answer) -> Value {
    let (text, cut) = first(answer);
    let usage = json!({"input_tokens": answer.usage.prompt, "output_tokens": answer.usage.completion});
    match api {
        Api::Responses => json!({
            "id": format!("resp_{:016x}", rand::random::<u64>()), "object": "response", "created_at": now(), "model": job.model,
            "status": if cut { "incomplete" } else { "completed" },
            "output": [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text, "annotations": []}]}],
            "usage": usage
        }),
        Api::Messages => json!({
            "id": format!("msg_{:016x}", rand::random::<u64>()), "type": "message", "role": "assistant", "model": job.model,
            "content": [{"type": "text", "text": text}], "stop_reason": if cut { "max_tokens" } else { "end_turn" }, "usage": usage
        }),
    }
}

/// All events of a stream, each a chunk.
fn events(api: Api, job: &Job, answer: &Answer) -> Vec<Vec<u8>> {
    let end = whole(api, job, answer);
    let mut begin = end.clone();
    let mut out = Vec::new();
    let mut put = |name: &str, data: Value| {
        let mut chunk = Vec::new();
        chunked(&mut chunk, format!("event: {name}\ndata: {data}\n\n").as_bytes());
        out.push(chunk);
    };
    let text = first(answer).0;
    // A few letters an event; the pieces need not be tokens.
    let letters: Vec<char> = text.chars().collect();
    let pieces = letters.chunks(4).map(|piece| piece.iter().collect::<String>());
    match api {
        Api::Responses => {
            (begin["status"], begin["output"]) = ("in_progress".into(), json!([]));
            put("response.created", json!({"type": "response.created", "response": begin}));
            for delta in pieces {
                put("response.output_text.delta", json!({"type": "response.output_text.delta", "output_index": 0, "delta": delta}));
            }
            put("response.completed", json!({"type": "response.completed", "response": end}));
        }
        Api::Messages => {
            (begin["content"], begin["stop_reason"]) = (json!([]), Value::Null);
            put("message_start", json!({"type": "message_start", "message": begin}));
            let block = json!({"type": "text", "text": ""});
            put("content_block_start", json!({"type": "content_block_start", "index": 0, "content_block": block}));
            for text in pieces {
                let delta = json!({"type": "text_delta", "text": text});
                put("content_block_delta", json!({"type": "content_block_delta", "index": 0, "delta": delta}));
            }
            put("content_block_stop", json!({"type": "content_block_stop", "index": 0}));
            let stopped = json!({"type": "message_delta", "delta": {"stop_reason": end["stop_reason"]}, "usage": end["usage"]});
            put("message_delta", stopped);
            put("message_stop", json!({"type": "message_stop"}));
        }
    }
    out
}
