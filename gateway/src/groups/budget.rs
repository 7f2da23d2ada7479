//! Retry budget of one pool: a token bucket filled by requests, not by time, so that retries stay a bounded share of the traffic.

use std::sync::atomic::{AtomicI64, Ordering};

use config::RetrySettings;

const ONE: i64 = 1000;

/// Thousandths of a retry; starts full.
#[derive(Debug)]
pub struct RetryBudget {
    thousandths: AtomicI64,
}

impl RetryBudget {
    /// A full bucket.
    pub fn new(settings: &RetrySettings) -> Self {
        Self { thousandths: AtomicI64::new(i64::from(settings.burst) * ONE) }
    }

    /// A new request earns its share.
    pub fn earn(&self, settings: &RetrySettings) {
        let cap = i64::from(settings.burst) * ONE;
        if self.thousandths.load(Ordering::Relaxed) < cap {
            self.thousandths.fetch_add((settings.ratio * ONE as f64) as i64, Ordering::Relaxed);
        }
    }

    /// Takes one retry, if there is one.
    pub fn spend(&self) -> bool {
        self.thousandths.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| (left >= ONE).then(|| left - ONE)).is_ok()
    }

    /// Whole retries left.
    pub fn left(&self) -> u32 {
        u32::try_from(self.thousandths.load(Ordering::Relaxed).max(0) / ONE).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_bounded_by_burst_and_earned_by_requests() {
        let settings = RetrySettings { burst: 2, ratio: 0.5, attempts: 3 };
        let budget = RetryBudget::new(&settings);
        assert!(budget.spend() && budget.spend());
        assert!(!budget.spend());
        budget.earn(&settings);
        assert!(!budget.spend());
        budget.earn(&settings);
        assert!(budget.spend());
        (0..100).for_each(|_| budget.earn(&settings));
        assert_eq!(budget.left(), 2);
    }
}
