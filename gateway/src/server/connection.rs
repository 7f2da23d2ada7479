//! One client connection: which HTTP version it speaks, and hyper's server for it.
//!
//! Owns: the version sniff (prior-knowledge HTTP/2 begins with a fixed preface, RFC 9113 3.4), the limits of both versions and the graceful end.
//! Half-closed clients count as gone (wire rule H17; hyper's default).

use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use config::Config;
use futures_util::TryFutureExt;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::time::timeout;

use crate::gateway::Gateway;
use crate::proxy::later::Polled;
use crate::proxy::service::Caller;
use crate::server::head_clock::{HeadClock, Timed};
use crate::server::io::ClientIo;
use crate::server::stack;
use crate::shutdown::Phase;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Header fields of one request. hyper has room for as many without asking the allocator for each request.
const MAX_HEADERS: usize = 100;
/// Bytes that a client may send ahead on one HTTP/2 stream, and on all of a connection: request bodies are large.
const H2_STREAM_WINDOW: u32 = 256 * 1024;
const H2_CONNECTION_WINDOW: u32 = 1024 * 1024;
/// Bytes of answers that wait in one HTTP/2 stream for a slow client.
const H2_SEND_BUFFER: usize = 64 * 1024;
/// Streams that a client may reset before they were served (rapid reset).
const H2_PENDING_RESETS: usize = 64;
const H2_PING: Duration = Duration::from_secs(30);

/// Serves a connection to its end.
pub async fn serve<S>(mut socket: S, client: IpAddr, gateway: Arc<Gateway>, worker: usize)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let config = gateway.config.load_full();
    let mut prefix = Vec::with_capacity(PREFACE.len());
    // Silence before the first byte is an idle connection; behind it a header section is under way.
    let first = timeout(config.limits.idle_timeout, (&mut socket).take(PREFACE.len() as u64).read_buf(&mut prefix)).await;
    let Ok(Ok(1..)) = first else { return };
    let Ok(Ok(h2)) = timeout(config.limits.header_timeout, sniff(&mut socket, &mut prefix)).await else { return };
    let io = ClientIo::new(socket, prefix, config.clone());
    let caller = Caller { gateway, worker, client, written: io.written().clone() };
    let result = if h2 { serve_h2(io, caller, &config).await } else { serve_h1(io, caller, &config).await };
    if let Err(error) = result {
        tracing::debug!(%client, %error, "client connection ended");
    }
}

/// Reads until the preface is complete or cannot be one any more; whether it is.
async fn sniff(socket: &mut (impl AsyncRead + Unpin), prefix: &mut Vec<u8>) -> std::io::Result<bool> {
    while PREFACE.starts_with(prefix) && prefix.len() < PREFACE.len() {
        let left = PREFACE.len() - prefix.len();
        if (&mut *socket).take(left as u64).read_buf(prefix).await? == 0 {
            return Ok(false);
        }
    }
    Ok(prefix == PREFACE)
}

async fn serve_h1<S: AsyncRead + AsyncWrite + Unpin>(mut io: ClientIo<S>, caller: Caller, config: &Config) -> hyper::Result<()> {
    let gateway = caller.gateway.clone();
    let clock = Arc::new(HeadClock::default());
    io.time_heads(clock.clone());
    let service = service_fn(move |request| {
        let (answering, answer) = (clock.answering(), stack::call(caller.clone(), request));
        answer.map_ok(|answer| answer.map(|body| Timed::new(body, answering)))
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        // hyper starts this clock when it waits for a request, so it is the one for idle connections; `head_clock` bounds slow heads.
        .header_read_timeout(config.limits.idle_timeout)
        .max_headers(MAX_HEADERS)
        .max_header_size(config.limits.header_bytes as usize)
        .serve_connection(TokioIo::new(io), service);
    let mut connection = pin!(connection);
    tokio::select! {
        biased;
        result = Polled(connection.as_mut()) => return result,
        () = gateway.lame_duck.reached(Phase::Closing) => connection.as_mut().graceful_shutdown(),
    }
    tokio::select! {
        biased;
        result = Polled(connection.as_mut()) => return result,
        // The poll below is what the request waits for (`LameDuck::seen`).
        () = gateway.lame_duck.reached(Phase::Cutting) => {}
    }
    Polled(connection).await
}

async fn serve_h2<S: AsyncRead + AsyncWrite + Unpin>(io: ClientIo<S>, caller: Caller, config: &Config) -> hyper::Result<()> {
    let gateway = caller.gateway.clone();
    let service = service_fn(move |request| stack::call(caller.clone(), request));
    let connection = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .max_concurrent_streams(config.limits.h2_streams)
        .max_header_list_size(config.limits.header_bytes)
        .initial_stream_window_size(H2_STREAM_WINDOW)
        .initial_connection_window_size(H2_CONNECTION_WINDOW)
        .max_send_buf_size(H2_SEND_BUFFER)
        .max_pending_accept_reset_streams(H2_PENDING_RESETS)
        .keep_alive_interval(H2_PING)
        .serve_connection(TokioIo::new(io), service);
    let mut connection = pin!(connection);
    tokio::select! {
        biased;
        result = connection.as_mut() => return result,
        () = gateway.lame_duck.reached(Phase::Closing) => connection.as_mut().graceful_shutdown(),
    }
    connection.await
}
