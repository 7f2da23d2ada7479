//! The gateway's own end, in steps: lame duck (not ready, still accepting), closing (no more accepts), cutting (what is left ends by an error).
//!
//! Owns: the phase and who is told of it. The order and the waits are in `app`.

use tokio::sync::watch;

/// How far the end has come; only grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
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
}

impl Default for LameDuck {
    fn default() -> Self {
        Self { phase: watch::Sender::new(Phase::Up) }
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
            }
            later
        });
    }

    /// Changes of the phase.
    pub fn subscribe(&self) -> watch::Receiver<Phase> {
        self.phase.subscribe()
    }

    /// Resolves when the phase is at least `phase`.
    pub async fn reached(&self, phase: Phase) {
        // The sender lives as long as the gateway; an error would mean that it is gone.
        let _ = self.subscribe().wait_for(|now| *now >= phase).await;
    }
}
