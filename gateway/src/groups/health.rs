//! What the gateway itself saw of one incarnation: failures in a row, and whether it is trusted.
//!
//! Owns: `Health`. Rules: 4xx and 429/503 are never a fault (pressure or the request's own error); a connection that fails or a stream that
//! breaks is one at once; other 5xx are after `SERVER_ERRORS_IN_A_ROW`. A distrusted group is trusted again only when discovery has proven
//! a generation since (`proof` grows), because `/health` answers 200 while an engine hangs (engine fact 0.4).

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

const TRUSTED: u64 = u64::MAX;
const SERVER_ERRORS_IN_A_ROW: u32 = 3;

/// State of one incarnation. All operations are lock-free.
#[derive(Debug)]
pub struct Health {
    /// Proof number at which the fault was seen; `TRUSTED` while there is none.
    distrusted_at: AtomicU64,
    server_errors: AtomicU32,
}

/// As shown to people.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HealthState {
    /// Trusted.
    Closed,
    /// Distrusted until a good generation.
    Open,
    /// Trusted, but its last answers were server errors.
    HalfOpen,
}

impl HealthState {
    /// `closed`, `open` or `half-open`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open => "open",
            Self::HalfOpen => "half-open",
        }
    }
}

impl Default for Health {
    fn default() -> Self {
        Self { distrusted_at: AtomicU64::new(TRUSTED), server_errors: AtomicU32::new(0) }
    }
}

impl Health {
    /// Whether new requests may go to the group, whose newest proof is number `proof`.
    pub fn trusted(&self, proof: u64) -> bool {
        let at = self.distrusted_at.load(Ordering::Relaxed);
        at == TRUSTED || proof > at
    }

    /// A fault of the engine (refused, reset, hang, broken stream) while `proof` was the newest. True if this is news.
    pub fn fault(&self, proof: u64) -> bool {
        let before = self.distrusted_at.swap(proof, Ordering::Relaxed);
        before == TRUSTED || before < proof
    }

    /// An answer with a 5xx that is no pressure. True when this makes it a fault.
    pub fn server_error(&self, proof: u64) -> bool {
        let seen = self.server_errors.fetch_add(1, Ordering::Relaxed) + 1;
        if seen < SERVER_ERRORS_IN_A_ROW {
            return false;
        }
        self.server_errors.store(0, Ordering::Relaxed);
        self.fault(proof)
    }

    /// A good answer.
    pub fn success(&self) {
        if self.server_errors.load(Ordering::Relaxed) != 0 {
            self.server_errors.store(0, Ordering::Relaxed);
        }
    }

    /// Recent server errors in a row: makes a fast-failing leader look loaded, not idle.
    pub fn penalty(&self) -> u32 {
        self.server_errors.load(Ordering::Relaxed)
    }

    /// For the admin port.
    pub fn state(&self, proof: u64) -> HealthState {
        if !self.trusted(proof) {
            HealthState::Open
        } else if self.penalty() > 0 {
            HealthState::HalfOpen
        } else {
            HealthState::Closed
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_newer_proof_brings_a_group_back() {
        let health = Health::default();
        assert!(health.trusted(5));
        assert!(health.fault(5));
        assert!(!health.fault(5), "known already");
        assert!(!health.trusted(5));
        assert!(health.trusted(6));
        assert!(health.fault(6), "a new fault after the new proof");
    }

    #[test]
    fn server_errors_count_only_in_a_row() {
        let health = Health::default();
        assert!(!health.server_error(1));
        assert!(!health.server_error(1));
        health.success();
        assert_eq!(health.state(1), HealthState::Closed);
        assert!(!health.server_error(1));
        assert_eq!(health.state(1), HealthState::HalfOpen);
        assert!(!health.server_error(1));
        assert!(health.server_error(1));
        assert_eq!(health.state(1), HealthState::Open);
    }
}
