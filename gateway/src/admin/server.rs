//! The admin port's listener.
//!
//! Owns: its connections: how many, how long they may take. Must not: know paths (`routes`).

use std::convert::Infallible;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use super::history::{self, History};
use super::{Admin, events, routes};
use crate::telemetry::labels::Side;

/// Connections at once; further ones wait in the kernel's backlog. Probes, scrapers and a few people fit many times over.
const CONNECTIONS: usize = 64;
/// For a request's header section, and for an idle connection.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes of a request's header section.
const HEADER_BYTES: usize = 16 * 1024;
/// Pause after a failed accept (out of descriptors): it would fail again at once.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What the connections of one port share.
pub(super) struct Port {
    pub(super) admin: Arc<Admin>,
    pub(super) places: Arc<Semaphore>,
    pub(super) history: History,
}

/// Serves until `stop` is done, then drops what is open: nothing here is worth waiting for. Stop it last, so that the end of the
/// process can be watched.
pub async fn serve(listener: TcpListener, admin: Arc<Admin>, stop: impl Future<Output = ()>) {
    let permits = Arc::new(Semaphore::new(CONNECTIONS));
    let port = Arc::new(Port { admin, places: events::places(), history: History::default() });
    let mut connections = JoinSet::new();
    let mut pace = tokio::time::interval(history::PACE);
    pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut stop = pin!(stop);
    loop {
        let accepted = tokio::select! {
            () = &mut stop => return,
            accepted = accept(&listener, &permits) => accepted,
            Some(_) = connections.join_next() => continue,
            _ = pace.tick() => {
                port.history.sample(&port.admin, SystemTime::now());
                continue;
            }
        };
        if let Some((socket, permit)) = accepted {
            let port = port.clone();
            connections.spawn(async move {
                let _permit = permit;
                connection(socket, port).await;
            });
        }
    }
}

async fn accept(listener: &TcpListener, permits: &Arc<Semaphore>) -> Option<(TcpStream, tokio::sync::OwnedSemaphorePermit)> {
    let permit = permits.clone().acquire_owned().await.ok()?;
    match listener.accept().await {
        Ok((socket, _)) => Some((socket, permit)),
        Err(error) => {
            tracing::warn!(%error, "admin port cannot accept");
            tokio::time::sleep(ACCEPT_PAUSE).await;
            None
        }
    }
}

async fn connection(socket: TcpStream, port: Arc<Port>) {
    let _open = port.admin.metrics.connection(Side::Admin);
    let service = service_fn(move |request| {
        let port = port.clone();
        async move { Ok::<_, Infallible>(routes::answer(request, &port).await) }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_buf_size(HEADER_BYTES)
        .serve_connection(TokioIo::new(socket), service)
        .await;
    if let Err(error) = served {
        tracing::debug!(%error, "admin connection ended");
    }
}
