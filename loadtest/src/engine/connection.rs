//! The life of one connection: requests one after the other until either side ends it.
//!
//! Owns keep-alive, the idle clock and how a connection is closed (FIN or RST). What is answered is `routes`' and
//! `generate`'s matter.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::Instant;

use super::exchange::{Exchange, Stop};
use super::fault::Fault;
use super::generate::{self, Done};
use super::http::reply::{Context, Reply};
use super::http::request::{Input, ReadError, Request};
use super::mood::Hang;
use super::other;
use super::routes::{self, Route};
use super::shared::Shared;
use super::stats::Outcome;

/// uvicorn starts its idle clock behind the first answer; before it only this bound holds.
const FIRST_REQUEST: Duration = Duration::from_secs(600);

pub(crate) async fn serve(shared: Arc<Shared>, stream: TcpStream) {
    let _held = shared.stats.connection();
    let _ = stream.set_nodelay(true);
    let mut input = Input::new(stream, shared.config.limits.body);
    let mut idle = FIRST_REQUEST;
    loop {
        let request = match next(&shared, &mut input, idle).await {
            Ok(request) => request,
            Err(ReadError::Closed) => return,
            Err(ReadError::Bad) => {
                let _ = input.stream.write_all(b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\n\r\n").await;
                return;
            }
        };
        let done = answer(&shared, &mut input, request).await;
        if done.reset {
            reset(&input.stream);
        }
        if !done.reusable {
            return;
        }
        idle = shared.config.limits.idle;
    }
}

/// The next request, unless the engine stops to listen first: idle connections are closed then.
async fn next(shared: &Shared, input: &mut Input, idle: Duration) -> Result<Request, ReadError> {
    let mut mood = shared.mood.subscribe();
    let closing = mood.wait_for(|mood| !mood.listening);
    tokio::select! {
        biased;
        request = input.next(idle) => request,
        _ = closing => Err(ReadError::Closed),
    }
}

async fn answer(shared: &Shared, input: &mut Input, request: Request) -> Done {
    let number = shared.stats.arrived(&request);
    let context = Context::of(&request, shared.config.request_id_headers);
    let (reader, writer) = input.stream.split();
    let mood = shared.mood.subscribe();
    let began = mood.borrow().once.0;
    let mut exchange = Exchange {
        reader,
        writer,
        ahead: &mut input.ahead,
        mood,
        began,
        fault: None,
        keep_alive: None,
        written: 0,
        last_write: Instant::now(),
    };
    if let Err(stop) = exchange.while_hung(Hang::Process).await {
        let done = written(Err(stop), true, Outcome::Broken);
        shared.stats.ended(number, done.outcome, done.events);
        return done;
    }
    let done = match routes::route(shared, &request) {
        Route::Reply(reply) => plain(&mut exchange, &context, &reply).await,
        Route::Raw(bytes) => written(exchange.send(&bytes).await, context.close, Outcome::Complete),
        Route::Other(api) => other::answer(shared, &mut exchange, &request, &context, api).await,
        Route::Generate(endpoint) => generate::generate(shared, &mut exchange, &request, &context, endpoint).await,
    };
    shared.stats.ended(number, done.outcome, done.events);
    done
}

async fn plain(x: &mut Exchange<'_>, context: &Context, reply: &Reply) -> Done {
    let mut bytes = reply.head(context, reply.body.len()).into_bytes();
    bytes.extend_from_slice(&reply.body);
    let outcome = if reply.status < 400 { Outcome::Complete } else { Outcome::Refused };
    written(x.send(&bytes).await, context.close, outcome)
}

pub(crate) fn written(sent: Result<(), Stop>, close: bool, outcome: Outcome) -> Done {
    match sent {
        Ok(()) => Done { outcome, events: 0, reusable: !close, reset: false },
        Err(Stop::Gone) => Done { outcome: Outcome::Cancelled, events: 0, reusable: false, reset: false },
        Err(stop) => Done { outcome: Outcome::Broken, events: 0, reusable: false, reset: stop == Stop::Reset },
    }
}

/// Writes an answer whose length may be a lie.
pub(crate) async fn reply(x: &mut Exchange<'_>, context: &Context, reply: &Reply) -> Done {
    let (length, cut) = match x.fault {
        Some(Fault::LengthLong { by }) => (reply.body.len() + by, true),
        Some(Fault::NoLastChunk) => (reply.body.len() + 1, true),
        Some(Fault::LengthShort { by }) => (reply.body.len().saturating_sub(by), true),
        _ => (reply.body.len(), false),
    };
    let mut bytes = reply.head(context, length).into_bytes();
    bytes.extend_from_slice(&reply.body);
    let outcome = if reply.status >= 400 { Outcome::Refused } else { Outcome::Complete };
    written(x.send(&bytes).await, context.close || cut, if cut { Outcome::Broken } else { outcome })
}

/// Makes the close that follows an RST.
fn reset(stream: &TcpStream) {
    let _ = socket2::SockRef::from(stream).set_linger(Some(Duration::ZERO));
}
