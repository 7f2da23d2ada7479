//! Idle connections of one incarnation, one list per worker thread.
//!
//! Rules: engines close idle connections after 5 s (engine fact 2), so none older than [`KEEP`] is used; each is polled before use, which
//! shows a FIN that came meanwhile; the list dies with the incarnation, never handed to another one at the same address.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use discovery::dial::Conn;
use tokio::time::Instant;

use crate::telemetry::metrics::GaugeGuard;
use crate::upstream::link::Link;

/// How long an idle connection may be used again.
pub const KEEP: Duration = Duration::from_secs(4);
/// Idle connections per worker and incarnation.
const MAX_IDLE: usize = 512;

/// What is left of a [`Link`] between two answers.
#[derive(Debug)]
struct Idle {
    conn: Conn,
    open: GaugeGuard,
    since: Instant,
}

/// The idle connections of one worker. The one used last lies here and not in memory of its own: of many leaders most have one at most.
#[derive(Debug, Default)]
struct Shelf {
    last: Option<Idle>,
    /// Older than `last`, the oldest first.
    older: Vec<Idle>,
}

impl Shelf {
    fn pop(&mut self) -> Option<Idle> {
        self.last.take().or_else(|| self.older.pop())
    }

    fn push(&mut self, idle: Idle) {
        self.older.extend(self.last.replace(idle));
    }

    fn len(&self) -> usize {
        self.older.len() + usize::from(self.last.is_some())
    }

    fn sweep(&mut self) {
        let too_old = |idle: &Idle| idle.since.elapsed() >= KEEP;
        let old = self.older.iter().take_while(|idle| too_old(idle)).count();
        self.older.drain(..old);
        self.last.take_if(|last| too_old(last));
    }

    fn clear(&mut self) {
        *self = Self::default();
    }
}

/// The shelves of one incarnation.
#[derive(Debug)]
pub struct IdlePool {
    workers: Box<[Mutex<Shelf>]>,
}

impl IdlePool {
    /// Empty lists for so many workers.
    pub fn new(workers: usize) -> Self {
        Self { workers: (0..workers.max(1)).map(|_| Mutex::default()).collect() }
    }

    /// The connection used last, if it still lives. The caller drives it on `worker`'s runtime.
    pub fn take(&self, worker: usize) -> Option<Link> {
        loop {
            let Idle { conn, open, since } = self.shelf(worker).pop()?;
            if since.elapsed() >= KEEP {
                // All others are older.
                self.shelf(worker).clear();
                return None;
            }
            let mut link = Link::new(conn, open);
            if link.is_alive() {
                return Some(link);
            }
        }
    }

    /// Keeps a connection whose answer has been read to its end, if another request may follow on it.
    pub fn put(&self, worker: usize, link: Link) {
        let Some((conn, open)) = link.into_idle() else { return };
        let mut shelf = self.shelf(worker);
        if shelf.len() < MAX_IDLE {
            shelf.push(Idle { conn, open, since: Instant::now() });
        }
    }

    /// Closes what is too old on `worker`.
    pub fn sweep(&self, worker: usize) {
        self.shelf(worker).sweep();
    }

    /// Closes all.
    pub fn clear(&self) {
        (0..self.workers.len()).for_each(|worker| self.shelf(worker).clear());
    }

    fn shelf(&self, worker: usize) -> MutexGuard<'_, Shelf> {
        self.workers[worker % self.workers.len()].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
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
