//! The gateway's own end, in steps: lame duck (not ready, still accepting), closing (no more accepts), cutting (what is left ends by an error).
//!
//! Owns: the phase and who is told of it. The order and the waits are in `app`.

use std::future::poll_fn;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::Poll;

use tokio::sync::watch;

/// How far the end has come; only grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
#[repr(u8)]
pub enum Phase {
    /// Serving.
    #[default]
    Up,
    /// `/readyz` says 503; connections are still accepted.
    LameDuck,
    /// Accepting ends; connections are told (GOAWAY, `Connection: close`).
    Closing,
    /// Streams that are left end with an error event.
    Cutting,
}

/// The phase and its watchers.
#[derive(Debug)]
pub struct LameDuck {
    phase: watch::Sender<Phase>,
    /// The same for those who only look: no lock, and no line of memory that is written at each look.
    at_a_glance: AtomicU8,
}

impl Default for LameDuck {
    fn default() -> Self {
        Self { phase: watch::Sender::new(Phase::Up), at_a_glance: AtomicU8::new(Phase::Up as u8) }
    }
}

impl LameDuck {
    /// Where it stands.
    pub fn phase(&self) -> Phase {
        *self.phase.borrow()
    }

    /// Moves on; never back.
    pub fn advance(&self, to: Phase) {
        self.phase.send_if_modified(|now| {
            let later = to > *now;
            if later {
                *now = to;
                // Before anybody is woken, so that whoever is polled for this sees it.
                self.at_a_glance.store(to as u8, Ordering::Release);
            }
            later
        });
    }

    /// Changes of the phase.
    pub fn subscribe(&self) -> watch::Receiver<Phase> {
        self.phase.subscribe()
    }

    /// Resolves when it is polled and the phase is at least `phase`, but wakes nobody. For what somebody polls again when the phase moves: the
    /// requests of an HTTP/1.1 connection, each of which would otherwise stand in one list with all others.
    pub async fn seen(&self, phase: Phase) {
        poll_fn(|_| if self.at_a_glance.load(Ordering::Acquire) >= phase as u8 { Poll::Ready(()) } else { Poll::Pending }).await;
    }

    /// Resolves when the phase is at least `phase`.
    pub async fn reached(&self, phase: Phase) {
        // The sender lives as long as the gateway; an error would mean that it is gone.
        let _ = self.subscribe().wait_for(|now| *now >= phase).await;
    }
}
