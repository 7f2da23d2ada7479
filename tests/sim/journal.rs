//! What happened in one run, in the order of virtual time: printed when a seed fails.
//!
//! Owns: the lines. Must not: be asked by the simulation itself, only by people.

use std::fmt::Display;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Lines kept at most; a run has some hundreds.
const MAX_LINES: usize = 20_000;

/// See the module.
#[derive(Debug)]
pub(crate) struct Journal {
    begin: Instant,
    lines: Mutex<Vec<(Duration, String)>>,
}

impl Journal {
    /// Begins now.
    pub(crate) fn begin() -> Self {
        Self { begin: Instant::now(), lines: Mutex::default() }
    }

    /// Virtual time since the beginning.
    pub(crate) fn now(&self) -> Duration {
        self.begin.elapsed()
    }

    /// The moment that is `at` after the beginning.
    pub(crate) fn at(&self, at: Duration) -> Instant {
        self.begin + at
    }

    /// Adds a line.
    pub(crate) fn note(&self, line: impl Display) {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() < MAX_LINES {
            lines.push((self.now(), line.to_string()));
        }
    }

    /// All lines.
    pub(crate) fn print(&self) -> String {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.iter().map(|(at, line)| format!("{:>10.3}  {line}\n", at.as_secs_f64())).collect()
    }
}
