//! How an engine starts, stops and dies.
//!
//! Owns the listener, every connection's task and the time lines of engine facts, sections 1 and 4. The port is bound at
//! once, so that its number is known, but only *listened* on when the start-up time is over: until then it refuses.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::config::Ending;
use super::connection;
use super::mood::{Door, Fate};
use super::shared::Shared;

/// What happens to the whole engine over time.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Blow {
    /// SIGTERM, with an ending or a drawn one.
    Terminate(Option<Ending>),
    /// The engine process is killed, as by the OOM killer.
    KillCore,
}

/// Backlog of the port: thousands of streams may connect at once.
const BACKLOG: i32 = 4096;

/// Reserves an address without accepting on it.
pub(crate) fn reserve(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    Ok(socket)
}

/// Runs an engine to its end.
pub(crate) async fn run(shared: Arc<Shared>, socket: Socket, mut blows: mpsc::Receiver<Blow>, exited: watch::Sender<bool>) {
    let mut lines = JoinSet::new();
    let mut early = None;
    tokio::select! {
        () = sleep(shared.config.pace.startup) => {}
        blow = blows.recv() => early = blow,
        () = killed(&shared) => {}
    }
    let gone_early = early.is_some() || shared.mood.borrow().killed;
    if !gone_early && let Ok(listener) = listen(socket) {
        shared.change(|mood| mood.listening = true);
        accept(&shared, listener, &mut blows, &mut lines).await;
    }
    exited.send_replace(true);
}

async fn killed(shared: &Shared) {
    let mut mood = shared.mood.subscribe();
    // The sender lives as long as `shared`.
    let _ = mood.wait_for(|mood| mood.killed).await;
}

fn listen(socket: Socket) -> io::Result<TcpListener> {
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    TcpListener::from_std(socket.into())
}

async fn accept(shared: &Arc<Shared>, listener: TcpListener, blows: &mut mpsc::Receiver<Blow>, lines: &mut JoinSet<()>) {
    let mut connections = JoinSet::new();
    let mut listener = Some(listener);
    let mut mood = shared.mood.subscribe();
    loop {
        let now = *mood.borrow_and_update();
        if now.killed || (now.leaving && connections.is_empty()) {
            // Dropping the set closes every connection between two events, as a SIGKILL does.
            return;
        }
        if !now.listening {
            listener = None;
        }
        let room = connections.len() < shared.config.limits.connections;
        tokio::select! {
            accepted = next(listener.as_ref()), if room && listener.is_some() => {
                if let Some(stream) = accepted {
                    connections.spawn(connection::serve(shared.clone(), stream));
                }
            }
            _ = connections.join_next(), if !connections.is_empty() => {}
            changed = mood.changed() => if changed.is_err() { return },
            Some(blow) = blows.recv() => { lines.spawn(fall(shared.clone(), blow)); }
        }
    }
}

async fn next(listener: Option<&TcpListener>) -> Option<tokio::net::TcpStream> {
    match listener?.accept().await {
        Ok((stream, _)) => Some(stream),
        Err(_) => {
            // Out of descriptors, for example: without a pause this would spin.
            sleep(Duration::from_millis(10)).await;
            None
        }
    }
}

async fn fall(shared: Arc<Shared>, blow: Blow) {
    match blow {
        Blow::Terminate(ending) => terminate(&shared, ending).await,
        Blow::KillCore => kill_core(&shared).await,
    }
}

async fn terminate(shared: &Shared, ending: Option<Ending>) {
    let death = &shared.config.death;
    shared.change(|mood| mood.door = Door::Stopping);
    if death.shutdown_timeout.is_zero() {
        let ending = ending.unwrap_or_else(|| shared.draw_ending());
        sleep(death.failing).await;
        shared.change(|mood| {
            mood.fate = Fate::End(ending);
            mood.listening = false;
        });
    } else {
        let drained = tokio::time::timeout(death.shutdown_timeout, idle(shared)).await.is_ok();
        if drained {
            // `/health` says 200 for a while behind the last answer.
            sleep(death.linger).await;
        }
        shared.change(|mood| {
            mood.fate = Fate::End(Ending::Silence);
            mood.listening = false;
        });
    }
    sleep(death.linger).await;
    shared.change(|mood| mood.leaving = true);
}

/// Ends when nothing runs or waits.
async fn idle(shared: &Shared) {
    loop {
        let counts = shared.stats.counts();
        if counts.running == 0 && counts.waiting == 0 {
            return;
        }
        sleep(Duration::from_millis(5)).await;
    }
}

async fn kill_core(shared: &Shared) {
    sleep(shared.config.death.notice).await;
    shared.change(|mood| {
        mood.fate = Fate::End(Ending::Error);
        mood.door = Door::CoreDead;
        mood.health = 503;
    });
    sleep(shared.config.death.failing).await;
    shared.change(|mood| mood.listening = false);
    sleep(shared.config.death.linger).await;
    shared.change(|mood| mood.leaving = true);
}
