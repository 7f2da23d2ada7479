//! Requests that wait for a leader of one pool: bounded, first come first served, resumed streams before new requests.
//!
//! Owns: the order, the bounds and the pace of release: so many at once, one more for each first event delivered; once the leaders have begun
//! [`WARM`] times as many, two more for each, so that a pool that gets more requests than its first pace allows does not stay behind for good. Must not:
//! know leaders; it is told how many there are. Cancelled waiters leave at once, by drop.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

/// Windows of first events after which leaders are warm.
const WARM: usize = 4;

/// Order of release.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Priority {
    /// A stream that a client is already reading.
    Resume,
    /// Everything else.
    #[default]
    Fresh,
}

/// Which bound refused a waiter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Full {
    /// Waiting requests of this pool.
    Requests,
    /// Bytes of their bodies.
    Bytes,
    /// Held requests of the whole gateway.
    Gateway,
}

/// Bound over all pools, so that one pool's outage starves no other.
#[derive(Debug)]
pub struct HeldLimit {
    held: AtomicUsize,
    max: usize,
}

impl HeldLimit {
    /// At most `max` requests held at once.
    pub fn new(max: usize) -> Self {
        Self { held: AtomicUsize::new(0), max }
    }

    /// Held now.
    pub fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    fn take(&self) -> bool {
        self.held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |held| (held < self.max).then_some(held + 1)).is_ok()
    }

    fn give(&self) {
        self.held.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Bounds of one queue.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Requests waiting.
    pub requests: usize,
    /// Bytes of their bodies.
    pub bytes: u64,
}

#[derive(Debug, Default)]
struct Inner {
    waiting: BTreeMap<(Priority, u64), Entry>,
    next: u64,
    bytes: u64,
    /// Released, first event not yet seen.
    unstarted: usize,
    /// How many may be unstarted at once while leaders are cold: pace times leaders.
    window: usize,
    leaders: usize,
    /// Answers begun since a leader came up or was lost.
    begun: usize,
    /// By how much the window has grown since leaders are warm.
    grown: usize,
}

#[derive(Debug)]
struct Entry {
    wake: oneshot::Sender<Grant>,
    bytes: u64,
}

/// The waiting requests of one pool.
#[derive(Debug, Default)]
pub struct Queue {
    inner: Mutex<Inner>,
    waiting: AtomicUsize,
}

impl Queue {
    /// Requests waiting now. Cheap: read for every request.
    pub fn len(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Nobody waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Released, and no first event or end since.
    pub fn unstarted(&self) -> usize {
        self.lock().unstarted
    }

    /// Joins the queue.
    ///
    /// Errors: the bound that is reached. Resumed streams are held to the gateway's bound only: their clients are being served.
    pub fn join(self: &Arc<Self>, priority: Priority, bytes: u64, bounds: Bounds, limit: &Arc<HeldLimit>) -> Result<Waiting, Full> {
        let mut inner = self.lock();
        if priority == Priority::Fresh {
            if inner.waiting.len() >= bounds.requests {
                return Err(Full::Requests);
            }
            if inner.bytes.saturating_add(bytes) > bounds.bytes {
                return Err(Full::Bytes);
            }
        }
        if !limit.take() {
            return Err(Full::Gateway);
        }
        let key = (priority, inner.next);
        inner.next += 1;
        inner.bytes += bytes;
        let (wake, granted) = oneshot::channel();
        inner.waiting.insert(key, Entry { wake, bytes });
        self.waiting.store(inner.waiting.len(), Ordering::Relaxed);
        Ok(Waiting { queue: self.clone(), limit: limit.clone(), key, granted })
    }

    /// There are `leaders` that may take `pace` unstarted requests each: releases who may go.
    pub fn open(self: &Arc<Self>, leaders: usize, pace: usize) {
        let mut inner = self.lock();
        // One that came up is cold, and one that was lost leaves its waiters to the rest.
        if leaders != inner.leaders {
            (inner.begun, inner.grown) = (0, 0);
        }
        inner.leaders = leaders;
        inner.window = leaders.saturating_mul(pace.max(1));
        self.release(&mut inner);
    }

    fn release(self: &Arc<Self>, inner: &mut Inner) {
        while inner.unstarted < inner.window.saturating_add(inner.grown) {
            let Some((_, entry)) = inner.waiting.pop_first() else { break };
            inner.bytes -= entry.bytes;
            inner.unstarted += 1;
            if let Err(mut unused) = entry.wake.send(Grant { queue: Some(self.clone()) }) {
                // The waiter is leaving; its grant must not lock the queue again.
                unused.queue = None;
                inner.unstarted -= 1;
            }
        }
        self.waiting.store(inner.waiting.len(), Ordering::Relaxed);
    }

    /// A released request has begun or ended. `begun`: by a leader's answer.
    fn started(self: &Arc<Self>, begun: bool) {
        let mut inner = self.lock();
        inner.unstarted = inner.unstarted.saturating_sub(1);
        if begun && inner.leaders > 0 {
            inner.begun = inner.begun.saturating_add(1);
            if inner.begun >= inner.window.saturating_mul(WARM) {
                inner.grown = inner.grown.saturating_add(1);
            }
        }
        self.release(&mut inner);
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place in the queue; left by drop.
#[derive(Debug)]
pub struct Waiting {
    queue: Arc<Queue>,
    limit: Arc<HeldLimit>,
    key: (Priority, u64),
    granted: oneshot::Receiver<Grant>,
}

impl Waiting {
    /// Resolves when it is this waiter's turn.
    pub async fn granted(&mut self) -> Grant {
        match (&mut self.granted).await {
            Ok(grant) => grant,
            // The sender lives in the queue until it is used; without it there is nobody to pace.
            Err(_) => Grant { queue: None },
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut inner = self.queue.lock();
        if let Some(entry) = inner.waiting.remove(&self.key) {
            inner.bytes -= entry.bytes;
            self.queue.waiting.store(inner.waiting.len(), Ordering::Relaxed);
        }
        drop(inner);
        self.limit.give();
    }
}

/// A released waiter's slot in the release window; handed back at its first event, or by drop.
#[derive(Debug)]
pub struct Grant {
    queue: Option<Arc<Queue>>,
}

impl Grant {
    /// The leader has begun to answer: one more may go.
    pub fn started(&mut self) {
        if let Some(queue) = self.queue.take() {
            queue.started(true);
        }
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        if let Some(queue) = self.queue.take() {
            queue.started(false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    const BOUNDS: Bounds = Bounds { requests: 3, bytes: 100 };

    fn queue() -> (Arc<Queue>, Arc<HeldLimit>) {
        (Arc::new(Queue::default()), Arc::new(HeldLimit::new(10)))
    }

    fn turn(waiting: &mut Waiting) -> Option<Grant> {
        waiting.granted().now_or_never()
    }

    #[test]
    fn releases_in_order_at_a_pace_and_resumes_first() {
        let (queue, limit) = queue();
        let mut first = queue.join(Priority::Fresh, 1, BOUNDS, &limit).unwrap();
        let mut second = queue.join(Priority::Fresh, 1, BOUNDS, &limit).unwrap();
        let mut resumed = queue.join(Priority::Resume, 1, BOUNDS, &limit).unwrap();
        assert!(turn(&mut first).is_none());
        queue.open(1, 1);
        let mut grant = turn(&mut resumed).unwrap();
        assert!(turn(&mut first).is_none());
        grant.started();
        let grant = turn(&mut first).unwrap();
        assert!(turn(&mut second).is_none());
        drop(grant);
        assert!(turn(&mut second).is_some());
        assert!(queue.is_empty());
    }

    /// More requests come than the first pace lets through: the window opens, and a leader that comes up later is not flooded for it.
    #[test]
    fn warm_leaders_are_not_held_to_the_first_pace() {
        let (queue, limit) = (Arc::new(Queue::default()), Arc::new(HeldLimit::new(1000)));
        let bounds = Bounds { requests: 1000, bytes: 0 };
        let join = |n: usize| -> Vec<_> { (0..n).map(|_| queue.join(Priority::Fresh, 0, bounds, &limit).unwrap()).collect() };
        let mut waiting = join(200);
        queue.open(1, 4);
        let mut at_once = Vec::new();
        while !queue.is_empty() {
            let granted: Vec<_> = waiting.iter_mut().map_while(turn).collect();
            waiting.drain(..granted.len());
            at_once.push(granted.len());
            granted.into_iter().for_each(|mut grant| grant.started());
        }
        assert_eq!(at_once[..6], [4, 4, 4, 4, 5, 10], "four windows at the first pace, then twice as many each time");
        drop(waiting);
        for (leaders, at_once) in [(2, 8), (1, 4), (0, 0), (1, 4)] {
            let mut waiting = join(200);
            queue.open(leaders, 4);
            let granted: Vec<_> = waiting.iter_mut().map_while(turn).collect();
            assert_eq!(granted.len(), at_once, "with {leaders} it begins anew");
        }
    }

    /// Requests that end without an answer say nothing of a leader.
    #[test]
    fn failed_tries_open_nothing() {
        let (queue, limit) = (Arc::new(Queue::default()), Arc::new(HeldLimit::new(1000)));
        let bounds = Bounds { requests: 1000, bytes: 0 };
        let mut waiting: Vec<_> = (0..100).map(|_| queue.join(Priority::Fresh, 0, bounds, &limit).unwrap()).collect();
        queue.open(1, 4);
        for waiting in waiting.chunks_mut(4).take(20) {
            let granted: Vec<_> = waiting.iter_mut().filter_map(turn).collect();
            assert_eq!(granted.len(), 4);
        }
    }

    #[test]
    fn bounds_hold_and_leaving_gives_back() {
        let (queue, limit) = queue();
        let held: Vec<_> = (0..3).map(|_| queue.join(Priority::Fresh, 10, BOUNDS, &limit).unwrap()).collect();
        assert_eq!(queue.join(Priority::Fresh, 1, BOUNDS, &limit).unwrap_err(), Full::Requests);
        drop(held);
        assert_eq!((queue.len(), limit.held()), (0, 0));
        assert_eq!(queue.join(Priority::Fresh, 101, BOUNDS, &limit).unwrap_err(), Full::Bytes);
        let all: Vec<_> = (0..10).map(|_| queue.join(Priority::Resume, 0, BOUNDS, &limit).unwrap()).collect();
        assert_eq!(queue.join(Priority::Resume, 0, BOUNDS, &limit).unwrap_err(), Full::Gateway);
        assert_eq!(limit.held(), 10);
        drop(all);
    }

    #[test]
    fn a_grant_given_to_a_leaver_goes_to_the_next() {
        let (queue, limit) = queue();
        let gone = queue.join(Priority::Fresh, 0, BOUNDS, &limit).unwrap();
        let mut next = queue.join(Priority::Fresh, 0, BOUNDS, &limit).unwrap();
        queue.open(1, 1);
        assert!(turn(&mut next).is_none());
        drop(gone);
        assert!(turn(&mut next).is_some(), "the unused grant was handed on");
    }
}
