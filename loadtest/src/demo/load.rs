//! Sends one traffic, open loop, along several ways at once, and sums up what the clients of each way saw.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::header::{CONNECTION, HeaderValue};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::Failure;
use super::traffic::{LoadShape, Traffic};
use crate::client::{Client, Expectation, Target};
use crate::engine::Persona;
use crate::record::Record;
use crate::run::{RunOptions, run};

/// A load under way.
pub(super) struct Load {
    started: Instant,
    stop: Arc<AtomicBool>,
    senders: JoinSet<(usize, Record)>,
}

impl Load {
    /// Starts to send the same traffic to every address of `to`.
    pub(super) fn start(shape: &LoadShape, persona: &Persona, to: &[SocketAddr]) -> Self {
        let (stop, mut senders) = (Arc::new(AtomicBool::new(false)), JoinSet::new());
        let due = Arc::new(Expectation::of(persona.clone()));
        for (way, to) in to.iter().copied().enumerate() {
            let (traffic, stop) = (Traffic::new(shape.clone()), Arc::clone(&stop));
            let traffic = traffic.take_while(move |_| !stop.load(Ordering::Relaxed));
            let options = RunOptions { due: Some(Arc::clone(&due)), ..RunOptions::default() };
            senders.spawn(async move { (way, run(client(to), traffic, options).await) });
        }
        Self { started: Instant::now(), stop, senders }
    }

    /// Time since the load began.
    pub(super) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// Sends no more than one further request, waits for all that was sent, at most `patience`.
    pub(super) async fn finish(mut self, patience: Duration) -> Result<Vec<Record>, Failure> {
        self.stop.store(true, Ordering::Relaxed);
        let mut ways = vec![Record::default(); self.senders.len()];
        let all = async {
            while let Some(done) = self.senders.join_next().await {
                let (way, record) = done?;
                ways[way] = record;
            }
            Ok::<_, Failure>(())
        };
        tokio::time::timeout(patience, all)
            .await
            .map_err(|_| format!("some requests were still open {patience:?} after the last was sent"))??;
        Ok(ways)
    }
}

/// A new connection for each request, so that a plain TCP forwarder spreads requests and not clients.
fn client(to: SocketAddr) -> Arc<Client> {
    let mut target = Target::at(to);
    target.headers.insert(CONNECTION, HeaderValue::from_static("close"));
    Arc::new(Client::new(target))
}
