//! Plain TCP forwarders: connections go to targets in turn, byte for byte, and that is all.
//!
//! One type serves three parts of the stage: the round-robin forwarder that Leadgate is compared with (targets: the Service's endpoints),
//! the address in front of several gateways, and the line to the API server that a scenario can cut.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Where connections may go at present. No target means that new connections are closed at once.
pub(super) type Targets = Vec<SocketAddr>;

/// A running forwarder; dropping it closes all that it carries.
pub(super) struct Relay {
    address: SocketAddr,
    targets: watch::Sender<Targets>,
    _task: JoinSet<()>,
}

impl Relay {
    /// Listens on a free port of 127.0.0.1. With `cuts`, connections whose target is taken away are closed as well.
    pub(super) async fn start(targets: Targets, cuts: bool) -> std::io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let (targets, seen) = watch::channel(targets);
        let mut task = JoinSet::new();
        task.spawn(accept(listener, seen, cuts));
        Ok(Self { address, targets, _task: task })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sets the targets; nothing happens if they are the same.
    pub(super) fn point_at(&self, targets: Targets) {
        self.pointer().point_at(targets);
    }

    /// Sets targets from elsewhere, also after the forwarder is gone.
    pub(super) fn pointer(&self) -> Pointer {
        Pointer(self.targets.clone())
    }
}

/// The right to say where a forwarder goes.
pub(super) struct Pointer(watch::Sender<Targets>);

impl Pointer {
    pub(super) fn point_at(&self, targets: Targets) {
        self.0.send_if_modified(|current| {
            let changed = *current != targets;
            *current = targets;
            changed
        });
    }
}

async fn accept(listener: TcpListener, targets: watch::Receiver<Targets>, cuts: bool) {
    let turn = Arc::new(AtomicUsize::new(0));
    let mut connections = JoinSet::new();
    loop {
        let Ok((client, _)) = listener.accept().await else { continue };
        while connections.try_join_next().is_some() {}
        let (targets, turn) = (targets.clone(), Arc::clone(&turn));
        connections.spawn(async move { carry(client, targets, &turn, cuts).await });
    }
}

async fn carry(mut client: TcpStream, mut targets: watch::Receiver<Targets>, turn: &AtomicUsize, cuts: bool) {
    let Some(target) = pick(&targets.borrow(), turn) else { return };
    let Ok(mut server) = TcpStream::connect(target).await else { return };
    // Both sides are small messages; the two calls cannot fail on a connected socket in a way that matters here.
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    tokio::select! {
        // Whichever side broke off, the other sees its connection end.
        _ = copy_bidirectional(&mut client, &mut server) => {}
        _ = targets.wait_for(|targets| cuts && !targets.contains(&target)) => {}
    }
}

fn pick(targets: &[SocketAddr], turn: &AtomicUsize) -> Option<SocketAddr> {
    let at = turn.fetch_add(1, Ordering::Relaxed).checked_rem(targets.len())?;
    targets.get(at).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    async fn said(address: SocketAddr) -> String {
        let mut text = String::new();
        TcpStream::connect(address).await.unwrap().read_to_string(&mut text).await.unwrap();
        text
    }

    async fn speaker(tasks: &mut JoinSet<()>, word: &'static str) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tasks.spawn(async move {
            while let Ok((mut socket, _)) = listener.accept().await {
                socket.write_all(word.as_bytes()).await.unwrap();
            }
        });
        address
    }

    #[tokio::test]
    async fn takes_targets_in_turn_and_none_when_there_is_none() {
        let mut tasks = JoinSet::new();
        let targets = vec![speaker(&mut tasks, "one").await, speaker(&mut tasks, "two").await];
        let relay = Relay::start(targets.clone(), false).await.unwrap();
        let mut words = vec![said(relay.address()).await, said(relay.address()).await];
        words.sort();
        assert_eq!(words, ["one", "two"]);
        relay.point_at(vec![]);
        assert_eq!(said(relay.address()).await, "");
    }
}
