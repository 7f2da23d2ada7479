//! Sends a plan, open loop, along two ways at once, and collects what the clients saw.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::client;
use super::plan::{LoadShape, Plan};
use super::report::Seen;
use crate::engine::Persona;

/// A load under way.
pub(super) struct Load {
    started: Instant,
    stop: watch::Sender<bool>,
    senders: JoinSet<(usize, Vec<Seen>)>,
}

impl Load {
    /// Starts to send the same plan to every address of `to`.
    pub(super) fn start(shape: &LoadShape, persona: &Persona, to: &[SocketAddr]) -> Self {
        let (stop, stopped) = watch::channel(false);
        let (started, persona) = (Instant::now(), Arc::new(persona.clone()));
        let mut senders = JoinSet::new();
        for (way, to) in to.iter().copied().enumerate() {
            let (plan, stopped, persona) = (Plan::new(shape.clone()), stopped.clone(), Arc::clone(&persona));
            senders.spawn(async move { (way, send(plan, to, persona, stopped).await) });
        }
        Self { started, stop, senders }
    }

    /// Time since the load began.
    pub(super) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// Sends no more, waits for all that was sent, at most `patience`; what the clients of each way saw.
    pub(super) async fn finish(mut self, patience: Duration) -> Result<Vec<Vec<Seen>>, super::Failure> {
        // A sender that ended already needs no telling.
        let _ = self.stop.send(true);
        let mut ways = vec![Vec::new(); self.senders.len()];
        let all = async {
            while let Some(done) = self.senders.join_next().await {
                let (way, seen) = done?;
                ways[way] = seen;
            }
            Ok::<_, super::Failure>(())
        };
        tokio::time::timeout(patience, all)
            .await
            .map_err(|_| format!("some requests were still open {patience:?} after the last was sent"))??;
        Ok(ways)
    }
}

async fn send(plan: Plan, to: SocketAddr, persona: Arc<Persona>, mut stopped: watch::Receiver<bool>) -> Vec<Seen> {
    let started = Instant::now();
    let mut clients = JoinSet::new();
    let mut seen = Vec::new();
    for planned in plan {
        tokio::select! {
            () = tokio::time::sleep_until(started + planned.at) => {}
            _ = stopped.wait_for(|stopped| *stopped) => break,
        }
        let persona = Arc::clone(&persona);
        clients.spawn(async move { client::ask(to, &planned, &persona).await });
        while let Some(done) = clients.try_join_next() {
            seen.extend(done.ok());
        }
    }
    while let Some(done) = clients.join_next().await {
        seen.extend(done.ok());
    }
    seen
}
