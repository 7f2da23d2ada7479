//! The handle on a running engine: commands, counters, and its end.
//!
//! Dropping the handle kills the engine as a SIGKILL would.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::config::{Ending, EngineConfig};
use super::control;
use super::fault::Rule;
use super::lifecycle::{self, Blow};
use super::mood::{Door, Fate, Hang};
use super::persona::Persona;
use super::shared::Shared;
use super::stats::{Counts, Seen};

/// A simulated engine.
#[derive(Debug)]
pub struct Engine;

impl Engine {
    /// Starts an engine on the current runtime. Its address is known at once; it refuses connections until the start-up
    /// time is over.
    ///
    /// # Errors
    ///
    /// If an address cannot be bound.
    pub async fn start(config: EngineConfig) -> io::Result<EngineHandle> {
        let socket = lifecycle::reserve(config.listen)?;
        let address = socket.local_addr()?.as_socket().ok_or_else(|| io::Error::other("no address"))?;
        let control = match config.control {
            Some(at) => Some(tokio::net::TcpListener::bind(at).await?),
            None => None,
        };
        let control_address = control.as_ref().map(tokio::net::TcpListener::local_addr).transpose()?;
        let shared = Arc::new(Shared::new(config));
        let (blows, falling) = mpsc::channel(8);
        let (exited, has_exited) = watch::channel(false);
        let mut tasks = JoinSet::new();
        tasks.spawn(lifecycle::run(shared.clone(), socket, falling, exited));
        let remote = Remote { shared, blows };
        if let Some(listener) = control {
            tasks.spawn(control::serve(remote.clone(), listener));
        }
        Ok(EngineHandle { remote, address, control_address, exited: has_exited, _tasks: tasks })
    }
}

/// Owns a running engine.
#[derive(Debug)]
pub struct EngineHandle {
    remote: Remote,
    address: SocketAddr,
    control_address: Option<SocketAddr>,
    exited: watch::Receiver<bool>,
    _tasks: JoinSet<()>,
}

impl EngineHandle {
    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.address
    }

    /// `http://` and the address.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Where it takes commands.
    pub fn control_addr(&self) -> Option<SocketAddr> {
        self.control_address
    }

    /// Something that gives commands and can be kept elsewhere.
    pub fn remote(&self) -> Remote {
        self.remote.clone()
    }

    /// Waits until the port accepts, or the engine has ended.
    pub async fn listening(&self) {
        let mut mood = self.remote.shared.mood.subscribe();
        let mut exited = self.exited.clone();
        tokio::select! {
            _ = mood.wait_for(|mood| mood.listening) => {}
            _ = exited.wait_for(|exited| *exited) => {}
        }
    }

    /// Waits until the process would be gone.
    pub async fn exited(&self) {
        // The sender is dropped only behind its last word.
        let _ = self.exited.clone().wait_for(|exited| *exited).await;
    }

    /// True when the process would be gone.
    pub fn has_exited(&self) -> bool {
        *self.exited.borrow()
    }
}

impl std::ops::Deref for EngineHandle {
    type Target = Remote;

    fn deref(&self) -> &Remote {
        &self.remote
    }
}

/// Commands and counters of an engine. Outliving the engine does no harm.
#[derive(Debug, Clone)]
pub struct Remote {
    pub(crate) shared: Arc<Shared>,
    blows: mpsc::Sender<Blow>,
}

impl Remote {
    /// What it writes: needed to know what to expect.
    pub fn persona(&self) -> &Persona {
        &self.shared.config.persona
    }

    /// SIGTERM; the ending is drawn from the seed unless the set-up names one.
    pub fn sigterm(&self) {
        self.fall(Blow::Terminate(None));
    }

    /// SIGTERM with an ending of one's choice.
    pub fn sigterm_with(&self, ending: Ending) {
        self.fall(Blow::Terminate(Some(ending)));
    }

    /// SIGKILL: every connection ends between two events, the port refuses.
    pub fn kill(&self) {
        self.shared.change(|mood| mood.killed = true);
    }

    /// The engine process is killed and the server notices.
    pub fn kill_core(&self) {
        self.fall(Blow::KillCore);
    }

    /// Hangs, or goes on with [`Hang::None`].
    pub fn hang(&self, hang: Hang) {
        self.shared.change(|mood| mood.hang = hang);
    }

    /// Answers this status to every new request for text while `/health` says 200; `None` goes on.
    pub fn refuse(&self, status: Option<u16>) {
        self.shared.change(|mood| mood.door = status.map_or(Door::Open, Door::Status));
    }

    /// Answers this status to `/health` and `/ping`.
    pub fn health(&self, status: u16) {
        self.shared.change(|mood| mood.health = status);
    }

    /// RST to everything that runs now.
    pub fn reset_running(&self) {
        self.end_running(Fate::Reset);
    }

    /// One of the endings to everything that runs now; the engine goes on.
    pub fn end_running_with(&self, ending: Ending) {
        self.end_running(Fate::End(ending));
    }

    /// Adds a rule; false if there are too many.
    pub fn fault(&self, rule: Rule) -> bool {
        self.shared.rules.add(rule)
    }

    /// Forgets all rules.
    pub fn clear_faults(&self) {
        self.shared.rules.clear();
    }

    /// All counters.
    pub fn stats(&self) -> Counts {
        self.shared.stats.counts()
    }

    /// The newest requests, oldest first.
    pub fn requests(&self) -> Vec<Seen> {
        self.shared.stats.seen()
    }

    /// How many of the remembered requests had this `X-Request-Id`.
    pub fn times_seen(&self, id: &str) -> usize {
        self.requests().iter().filter(|seen| seen.id.as_deref() == Some(id)).count()
    }

    /// Time since the start.
    pub fn age(&self) -> Duration {
        self.shared.started.elapsed()
    }

    fn fall(&self, blow: Blow) {
        // A full channel means that the engine is falling eight times over already.
        let _ = self.blows.try_send(blow);
    }

    /// Running requests see the change at once; requests that come later see an engine that runs.
    fn end_running(&self, fate: Fate) {
        let round = self.shared.rounds.fetch_add(1, std::sync::atomic::Ordering::Relaxed) + 1;
        self.shared.change(|mood| mood.once = (round, fate));
    }
}
