//! Bytes kept so that streams can be carried on, over all streams.
//!
//! Owns: the account. A stream that finds it full is not resumable (counted and visible), and its text is let go.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Charged in steps, so that not every event touches shared memory.
const STEP: usize = 4 * 1024;

/// Bytes kept by all streams.
#[derive(Debug, Default)]
pub struct KeptTotal {
    bytes: AtomicUsize,
}

impl KeptTotal {
    /// Now.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }
}

/// One stream's share, given back by drop.
#[derive(Debug)]
pub struct Kept {
    total: Arc<KeptTotal>,
    charged: usize,
}

impl Kept {
    /// Nothing yet.
    pub fn new(total: &Arc<KeptTotal>) -> Self {
        Self { total: total.clone(), charged: 0 }
    }

    /// The stream keeps `bytes` now; false: that is too much for all of them together, `max`.
    pub fn grow(&mut self, bytes: usize, max: usize) -> bool {
        if bytes <= self.charged {
            return true;
        }
        let more = (bytes - self.charged).next_multiple_of(STEP);
        self.charged += more;
        self.total.bytes.fetch_add(more, Ordering::Relaxed) + more <= max
    }

    /// The stream keeps nothing any more.
    pub fn clear(&mut self) {
        self.total.bytes.fetch_sub(std::mem::take(&mut self.charged), Ordering::Relaxed);
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_charged_in_steps_and_given_back() {
        let total = Arc::new(KeptTotal::default());
        let mut kept = Kept::new(&total);
        assert!(kept.grow(1, 10_000) && kept.grow(4096, 10_000));
        assert_eq!(total.bytes(), 4096);
        assert!(!kept.grow(9000, 10_000));
        drop(kept);
        assert_eq!(total.bytes(), 0);
    }
}
