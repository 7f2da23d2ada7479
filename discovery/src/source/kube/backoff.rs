//! How long to wait after failures in a row. Pure.

use std::time::Duration;

/// Doubles from the first wait up to the longest one; a good answer starts it anew.
#[derive(Debug, Clone)]
pub(super) struct Backoff {
    first: Duration,
    longest: Duration,
    next: Duration,
}

impl Backoff {
    pub(super) fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest, next: first }
    }

    /// The wait after one more failure: between half and all of the step, by `random`, so that gateways that lost the same API server do
    /// not come back together.
    pub(super) fn failed(&mut self, random: u64) -> Duration {
        let step = self.next;
        self.next = step.saturating_mul(2).min(self.longest);
        let share = 0.5 + (random % 1024) as f64 / 2048.0;
        step.mul_f64(share)
    }

    pub(super) fn succeeded(&mut self) {
        self.next = self.first;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_to_the_bound_and_starts_anew() {
        let second = Duration::from_secs(1);
        let mut backoff = Backoff::new(second, second * 5);
        let waits: Vec<f64> = (0..5).map(|_| backoff.failed(1023).as_secs_f64().round()).collect();
        assert_eq!(waits, [1.0, 2.0, 4.0, 5.0, 5.0]);
        backoff.succeeded();
        assert_eq!(backoff.failed(0), second / 2);
    }
}
