//! Accepts client connections on one worker thread.
//!
//! Owns: the accept loop, the bound of open connections, and the tasks of this worker's connections. All workers accept from one socket: when
//! one of them is busy the others take over, and no connection waits in the queue of a worker that ends (as with `SO_REUSEPORT`).

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::{Instant, interval, sleep, timeout_at};

use crate::gateway::Gateway;
use crate::server::connection;
use crate::shutdown::Phase;
use crate::telemetry::labels::Side;

/// Connections that the kernel completes while no worker accepts.
const BACKLOG: i32 = 4096;
/// Pause after a failed accept (out of descriptors): it would fail again at once.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// How often idle leader connections are looked through.
const SWEEP: Duration = Duration::from_secs(1);
/// From the cut of the last streams to the drop of their connections.
const LAST_FLUSH: Duration = Duration::from_secs(3);

/// Binds the clients' port. Errors name the address.
pub fn bind(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    let named = |error: io::Error| io::Error::new(error.kind(), format!("cannot listen on {address}: {error}"));
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP)).map_err(named)?;
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into()).map_err(named)?;
    socket.listen(BACKLOG).map_err(named)?;
    Ok(socket.into())
}

/// One worker's part of the listener.
#[derive(Debug)]
pub struct Worker {
    /// Shared services.
    pub gateway: Arc<Gateway>,
    /// Which worker.
    pub index: usize,
    /// Open connections of all workers.
    pub permits: Arc<Semaphore>,
}

impl Worker {
    /// Accepts until the gateway closes, then waits for the connections; returns how many had to be dropped.
    pub async fn run(self, listener: std::net::TcpListener) -> io::Result<usize> {
        let listener = TcpListener::from_std(listener)?;
        let mut connections = JoinSet::new();
        let mut sweep = interval(SWEEP);
        let closing = self.gateway.lame_duck.reached(Phase::Closing);
        tokio::pin!(closing);
        loop {
            tokio::select! {
                () = &mut closing => break,
                Some(accepted) = accept(&listener, &self.permits) => self.start(accepted, &mut connections),
                Some(_) = connections.join_next() => {}
                _ = sweep.tick() => self.sweep(),
            }
        }
        drop(listener);
        Ok(self.wait_for(connections).await)
    }

    fn start(&self, (tcp, peer, permit): (TcpStream, SocketAddr, OwnedSemaphorePermit), connections: &mut JoinSet<()>) {
        let (gateway, worker) = (self.gateway.clone(), self.index);
        let open = gateway.telemetry.metrics.connection(Side::Downstream);
        if let Err(error) = tcp.set_nodelay(true) {
            tracing::debug!(%error, "TCP_NODELAY not set");
        }
        connections.spawn(async move {
            connection::serve(tcp, peer.ip(), gateway, worker).await;
            drop((permit, open));
        });
    }

    fn sweep(&self) {
        let table = self.gateway.tables.load();
        table.groups().for_each(|group| group.idle.sweep(self.index));
    }

    async fn wait_for(&self, mut connections: JoinSet<()>) -> usize {
        let cutting = self.gateway.lame_duck.reached(Phase::Cutting);
        tokio::pin!(cutting);
        let mut end: Option<Instant> = None;
        loop {
            let next = async {
                match end {
                    Some(end) => timeout_at(end, connections.join_next()).await.ok(),
                    None => Some(connections.join_next().await),
                }
            };
            tokio::select! {
                next = next => match next {
                    Some(Some(_)) => {}
                    Some(None) => return 0,
                    None => return connections.len(),
                },
                () = &mut cutting, if end.is_none() => end = Some(Instant::now() + LAST_FLUSH),
            }
        }
    }
}

async fn accept(listener: &TcpListener, permits: &Arc<Semaphore>) -> Option<(TcpStream, SocketAddr, OwnedSemaphorePermit)> {
    // No permit, no accept: further clients wait in the kernel's queue.
    let permit = permits.clone().acquire_owned().await.ok()?;
    match listener.accept().await {
        Ok((tcp, peer)) => Some((tcp, peer, permit)),
        Err(error) => {
            tracing::warn!(%error, "cannot accept");
            sleep(ACCEPT_PAUSE).await;
            None
        }
    }
}
