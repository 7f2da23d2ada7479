//! A request for text, from its body to the end of its answer.
//!
//! Order of decisions: key, door (is the engine stopping?), fault, body, queue, then the stream or the whole answer.

use std::time::Duration;

use tokio::time::Instant;

use super::ask::{Ask, Endpoint};
use super::config::Ending;
use super::connection::{reply, written};
use super::errors::ApiError;
use super::exchange::{Exchange, Stop};
use super::fault::{Fault, Strike};
use super::http::reply::{Context, Reply, now, stream_head};
use super::http::request::Request;
use super::job::Job;
use super::mood::{Door, Hang};
use super::shared::{Shared, jittered};
use super::stats::{Held, Outcome};
use super::stream::Stream;
use super::whole::Answer;
use crate::text::Rng;

/// What came of one request.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) outcome: Outcome,
    pub(crate) events: u64,
    /// The connection can take another request.
    pub(crate) reusable: bool,
    /// The connection is to be reset.
    pub(crate) reset: bool,
}

pub(crate) async fn generate(shared: &Shared, x: &mut Exchange<'_>, request: &Request, context: &Context, endpoint: Endpoint) -> Done {
    if let Some(canned) = &shared.canned {
        return canned.answer(shared, x, request, context).await;
    }
    if let Err(stop) = x.while_hung(Hang::Silent).await {
        return written(Err(stop), true, Outcome::Broken);
    }
    let asked = Ask::read(endpoint, &request.body);
    let streamed = asked.as_ref().is_ok_and(|ask| ask.stream);
    x.fault = shared.rules.take(streamed, request.header("x-request-id"));
    if let Some(fault) = &x.fault {
        shared.stats.fault(fault.name());
    }
    let mood = *x.mood.borrow_and_update();
    if let Some(done) = closed_door(x, context, mood.door, streamed).await {
        return done;
    }
    let job = asked.and_then(|ask| Job::new(ask, &shared.config.persona, shared.nonce()));
    let job = match job {
        Ok(job) => job,
        Err(error) => return refuse(x, context, &error).await,
    };
    let full = shared.config.limits.queued.is_some_and(|limit| shared.stats.counts().waiting >= limit);
    if full && shared.places.available_permits() == 0 {
        return refuse(x, context, &ApiError::busy()).await;
    }
    shared.stats.generation(job.prompt_tokens);
    let id = answer_id(request, &job, endpoint);
    if job.ask.stream { stream(shared, x, context, &job, &id).await } else { whole(shared, x, context, &job, &id).await }
}

/// Not one byte, until the client goes away.
pub(crate) async fn hung(x: &mut Exchange<'_>) -> Done {
    x.be_silent().await;
    Done { outcome: Outcome::Cancelled, events: 0, reusable: false, reset: false }
}

/// Refuses what is refused before the body is even looked at.
async fn closed_door(x: &mut Exchange<'_>, context: &Context, door: Door, streamed: bool) -> Option<Done> {
    let error = match (&x.fault, door) {
        (Some(Fault::Garbage), _) => {
            let sent = x.send(b"\x16\x03\x01\x02\x00 this is no HTTP\r\n\r\n").await;
            return Some(Done { reusable: false, ..written(sent, true, Outcome::Broken) });
        }
        (Some(Fault::Status { status }), _) => status_error(*status),
        (None, Door::Status(status)) => status_error(status),
        (_, Door::Stopping) => ApiError::stopping(),
        (_, Door::CoreDead) if streamed => return Some(error_first(x, context).await),
        (_, Door::CoreDead) => ApiError::core_dead(),
        (_, Door::Open | Door::Status(_)) => return None,
    };
    Some(refuse(x, context, &error).await)
}

fn status_error(status: u16) -> ApiError {
    match status {
        503 => ApiError::busy(),
        500 => ApiError::stopping(),
        _ => ApiError { status, ..ApiError::internal("refused on command") },
    }
}

/// 200, and the error as the first event.
async fn error_first(x: &mut Exchange<'_>, context: &Context) -> Done {
    let mut bytes = stream_head(context).into_bytes();
    super::events::chunked(&mut bytes, ApiError::core_dead().event().as_bytes());
    bytes.extend_from_slice(super::events::DONE);
    written(x.send(&bytes).await, context.close, Outcome::Broken)
}

async fn refuse(x: &mut Exchange<'_>, context: &Context, error: &ApiError) -> Done {
    reply(x, context, &Reply::json(error.status, error.body())).await
}

fn answer_id(request: &Request, job: &Job, endpoint: Endpoint) -> String {
    let kind = if endpoint == Endpoint::Chat { "chatcmpl" } else { "cmpl" };
    match request.header("x-request-id").or(job.ask.request_id.as_deref()) {
        Some(id) => format!("{kind}-{id}"),
        None => format!("{kind}-{:016x}", rand::random::<u64>()),
    }
}

/// A place among the running requests.
struct Place<'a> {
    _permit: tokio::sync::SemaphorePermit<'a>,
    _running: Held<'a>,
}

async fn place<'a>(shared: &'a Shared, x: &mut Exchange<'_>) -> Result<Place<'a>, Stop> {
    if let Ok(permit) = shared.places.try_acquire() {
        return Ok(Place { _permit: permit, _running: shared.stats.run() });
    }
    let waiting = shared.stats.wait();
    // The semaphore is never closed.
    let permit = x.watch(shared.places.acquire()).await?.map_err(|_| Stop::Fin)?;
    drop(waiting);
    Ok(Place { _permit: permit, _running: shared.stats.run() })
}

async fn stream(shared: &Shared, x: &mut Exchange<'_>, context: &Context, job: &Job, id: &str) -> Done {
    x.keep_alive = shared.config.sse_keep_alive;
    if let Err(stop) = x.send(stream_head(context).as_bytes()).await {
        return written(Err(stop), true, Outcome::Broken);
    }
    let place = match place(shared, x).await {
        Ok(place) => place,
        Err(Stop::Ending(Ending::Silence)) => return hung(x).await,
        Err(stop) => return written(Err(stop), true, Outcome::Broken),
    };
    let streamed = Stream::new(shared, job, id, now()).run(x).await;
    drop(place);
    Done { outcome: streamed.outcome, events: streamed.events, reusable: streamed.reusable && !context.close, reset: streamed.reset }
}

async fn whole(shared: &Shared, x: &mut Exchange<'_>, context: &Context, job: &Job, id: &str) -> Done {
    let began = Instant::now();
    let answer = match wait_for_whole(shared, x, job).await {
        Ok(answer) => answer,
        Err(Stop::Ending(Ending::Silence)) => {
            let gone = hung(x).await;
            return Done { outcome: Outcome::Broken, ..gone };
        }
        Err(Stop::Ending(Ending::Error)) => return Done { outcome: Outcome::Broken, ..refuse(x, context, &ApiError::core_dead()).await },
        Err(Stop::Ending(Ending::Abort)) => Answer::aborted(job, tokens_in(shared, began.elapsed())),
        Err(stop) => return written(Err(stop), true, Outcome::Broken),
    };
    shared.stats.made(answer.usage.completion);
    let mut aborted = false;
    for finish in answer.choices.iter().filter_map(|said| said.finish) {
        aborted |= finish == super::decode::Finish::Abort;
        shared.stats.finished(finish.as_str());
    }
    let body = answer.body(job, id, now(), &shared.fingerprint);
    let done = reply(x, context, &Reply::json(200, body)).await;
    if aborted { Done { outcome: Outcome::Broken, ..done } } else { done }
}

async fn wait_for_whole(shared: &Shared, x: &mut Exchange<'_>, job: &Job) -> Result<Answer, Stop> {
    let _place = place(shared, x).await?;
    let answer = Answer::of(job);
    let pace = &shared.config.pace;
    let tokens = u32::try_from(answer.longest().saturating_sub(1)).unwrap_or(u32::MAX);
    let mut time = pace.first_token + pace.token.saturating_mul(tokens);
    if let Some(Fault::Delay { ms }) = x.fault {
        time += Duration::from_millis(ms);
    }
    if let Some((events, strike)) = x.fault.as_ref().and_then(Fault::strike) {
        let events = u32::try_from(events).unwrap_or(u32::MAX).min(tokens);
        x.pause(Instant::now() + pace.first_token + pace.token.saturating_mul(events)).await?;
        return match strike {
            Strike::Ending(Ending::Abort) => Ok(Answer::aborted(job, events as usize)),
            Strike::Ending(ending) => Err(Stop::Ending(ending)),
            Strike::Reset => Err(Stop::Reset),
            Strike::Fin | Strike::End | Strike::Done | Strike::BadChunk => Err(Stop::Fin),
            Strike::Malformed => Ok(answer),
        };
    }
    let mut rng = Rng::new(shared.nonce());
    x.pause(Instant::now() + jittered(time, pace.jitter, &mut rng)).await?;
    Ok(answer)
}

fn tokens_in(shared: &Shared, time: Duration) -> usize {
    let pace = &shared.config.pace;
    let token = pace.token.as_secs_f64();
    if token <= 0.0 {
        return 1;
    }
    // Never negative, and far below what a float can count.
    (time.saturating_sub(pace.first_token).as_secs_f64() / token) as usize
}
