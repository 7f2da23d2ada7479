//! Idle connections of one incarnation, one list per worker thread.
//!
//! Rules: engines close idle connections after 5 s (engine fact 2), so none older than [`KEEP`] is used; each is polled before use, which
//! shows a FIN that came meanwhile; the list dies with the incarnation, never handed to another one at the same address.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::upstream::link::Link;

/// How long an idle connection may be used again.
pub const KEEP: Duration = Duration::from_secs(4);
/// Idle connections per worker and incarnation.
const MAX_IDLE: usize = 512;

#[derive(Debug)]
struct Idle {
    link: Link,
    since: Instant,
}

/// The lists of one incarnation.
#[derive(Debug)]
pub struct IdlePool {
    workers: Box<[Mutex<Vec<Idle>>]>,
}

impl IdlePool {
    /// Empty lists for so many workers.
    pub fn new(workers: usize) -> Self {
        Self { workers: (0..workers.max(1)).map(|_| Mutex::default()).collect() }
    }

    /// The connection used last, if it still lives. The caller drives it on `worker`'s runtime.
    pub fn take(&self, worker: usize) -> Option<Link> {
        loop {
            let Idle { mut link, since } = self.list(worker).pop()?;
            if since.elapsed() >= KEEP {
                // All below it are older.
                self.list(worker).clear();
                return None;
            }
            if link.is_alive() {
                return Some(link);
            }
        }
    }

    /// Keeps a connection whose answer has been read to its end.
    pub fn put(&self, worker: usize, link: Link) {
        let mut list = self.list(worker);
        if list.len() < MAX_IDLE {
            list.push(Idle { link, since: Instant::now() });
        }
    }

    /// Closes what is too old on `worker`.
    pub fn sweep(&self, worker: usize) {
        let mut list = self.list(worker);
        // The oldest are first.
        let old = list.iter().take_while(|idle| idle.since.elapsed() >= KEEP).count();
        list.drain(..old);
    }

    /// Closes all.
    pub fn clear(&self) {
        (0..self.workers.len()).for_each(|worker| self.list(worker).clear());
    }

    fn list(&self, worker: usize) -> std::sync::MutexGuard<'_, Vec<Idle>> {
        self.workers[worker % self.workers.len()].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use discovery::dial::Conn;
    use tokio::net::{TcpListener, TcpStream};

    use super::*;
    use crate::telemetry::labels::Side;
    use crate::testing;

    /// An engine that ends closes all its idle connections at once; there may be more of them than a task may look at in one go.
    #[tokio::test]
    async fn no_dead_connection_is_taken_however_many_there_are() {
        let (pool, metrics) = (IdlePool::new(1), testing::metrics());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        for _ in 0..300 {
            let (client, server) = tokio::join!(TcpStream::connect(listener.local_addr().unwrap()), listener.accept());
            drop(server);
            let client = client.unwrap();
            client.readable().await.unwrap();
            pool.put(0, Link::new(Conn::Plain(client), metrics.connection(Side::Upstream)));
        }
        tokio::task::yield_now().await;
        assert!(pool.take(0).is_none());
    }
}
