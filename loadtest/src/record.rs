//! Observations summed up: histograms, counts, and a second-by-second line.
//!
//! Bounded: whatever the length of a run, it keeps histograms, one row for each second (a day of them at most) and a few
//! examples of what went wrong.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;

use crate::client::{End, Observation};

/// Examples of bad requests that are kept.
pub const MAX_EXAMPLES: usize = 50;

/// Rows of the time line.
const MAX_SECONDS: usize = 24 * 3600;

/// What ended in one second of the run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct Second {
    /// Requests that were due in it.
    pub due: u64,
    /// Good ones among those that ended in it.
    pub good: u64,
    /// Bad ones among those that ended in it.
    pub bad: u64,
    /// Longest time to first text of those that were due in it, in microseconds.
    pub first_text_max_us: u64,
    /// Longest gap of those that ended in it, in microseconds.
    pub gap_max_us: u64,
}

/// A day: longer times count as one.
const LONGEST_US: u64 = 24 * 3600 * 1_000_000;

/// Times in microseconds.
#[derive(Debug, Clone)]
pub struct Times(Histogram<u64>);

impl Default for Times {
    fn default() -> Self {
        // Bounds are given because a clamped value never makes a histogram grow. They cannot be refused.
        Self(Histogram::new_with_bounds(1, LONGEST_US, 3).unwrap_or_else(|_| unreachable!("a day in three digits is allowed")))
    }
}

impl Times {
    /// Adds one.
    pub fn add(&mut self, time: Duration) {
        self.add_us(u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
    }

    fn add_us(&mut self, us: u64) {
        self.0.saturating_record(us);
    }

    /// How many.
    pub fn len(&self) -> u64 {
        self.0.len()
    }

    /// True without any.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The time that this share (0 to 1) does not exceed.
    pub fn quantile(&self, share: f64) -> Duration {
        Duration::from_micros(self.0.value_at_quantile(share))
    }

    /// The longest.
    pub fn max(&self) -> Duration {
        Duration::from_micros(self.0.max())
    }

    /// The average.
    pub fn mean(&self) -> Duration {
        Duration::from_nanos((self.0.mean() * 1e3) as u64)
    }
}

/// The sum of a run.
#[derive(Debug, Clone, Default)]
pub struct Record {
    /// Requests sent.
    pub sent: u64,
    /// Requests that were due but not sent, because too many were open.
    pub not_sent: u64,
    /// Good ones.
    pub good: u64,
    /// By how they ended.
    pub ends: BTreeMap<String, u64>,
    /// By what was wrong with them.
    pub problems: BTreeMap<&'static str, u64>,
    /// By replica group.
    pub groups: BTreeMap<String, u64>,
    /// Until the head.
    pub head: Times,
    /// Until the first text, streams only.
    pub first_text: Times,
    /// Between events with text.
    pub gap: Times,
    /// The longest gap of each stream.
    pub longest_gap: Times,
    /// Until the end.
    pub total: Times,
    /// How late requests were sent: the load generator's own fault.
    pub lag: Times,
    /// Events.
    pub events: u64,
    /// Comments.
    pub comments: u64,
    /// Second by second.
    pub seconds: Vec<Second>,
    /// The first bad ones.
    pub examples: Vec<Observation>,
}

/// Names of groups that are counted apart.
const MAX_GROUPS: usize = 1000;

impl Record {
    /// Adds one.
    pub fn add(&mut self, seen: Observation) {
        self.sent += 1;
        self.events += seen.events;
        self.comments += seen.comments;
        self.count(&seen);
        if let Some(head) = seen.head {
            self.head.add(head);
        }
        if let Some(first) = seen.first_text {
            self.first_text.add(first);
            self.longest_gap.add(seen.longest_gap);
        }
        for gap in &seen.gaps {
            self.gap.add_us(u64::from(*gap));
        }
        self.lag.add(seen.lag);
        self.total.add(seen.total);
        self.line(&seen);
        if !seen.is_good() && self.examples.len() < MAX_EXAMPLES {
            self.examples.push(seen);
        }
    }

    /// Requests that were not good.
    pub fn bad(&self) -> u64 {
        self.sent - self.good
    }

    fn count(&mut self, seen: &Observation) {
        self.good += u64::from(seen.is_good());
        let end = if let End::Refused { status, .. } = seen.end { format!("refused {status}") } else { seen.end.name().to_owned() };
        *self.ends.entry(end).or_default() += 1;
        for problem in &seen.problems {
            *self.problems.entry(problem.name()).or_default() += 1;
        }
        if let Some(group) = &seen.group
            && (self.groups.len() < MAX_GROUPS || self.groups.contains_key(group))
        {
            *self.groups.entry(group.clone()).or_default() += 1;
        }
    }

    fn line(&mut self, seen: &Observation) {
        let us = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        if let Some(due) = self.second(seen.due) {
            due.due += 1;
            due.first_text_max_us = due.first_text_max_us.max(us(seen.first_text.unwrap_or_default()));
        }
        if let Some(end) = self.second(seen.due + seen.total) {
            *(if seen.is_good() { &mut end.good } else { &mut end.bad }) += 1;
            end.gap_max_us = end.gap_max_us.max(us(seen.longest_gap));
        }
    }

    fn second(&mut self, at: Duration) -> Option<&mut Second> {
        let at = usize::try_from(at.as_secs()).ok().filter(|at| *at < MAX_SECONDS)?;
        if self.seconds.len() <= at {
            self.seconds.resize(at + 1, Second::default());
        }
        self.seconds.get_mut(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_times_are_not_cut() {
        let mut times = Times::default();
        for time in [Duration::from_micros(70), Duration::from_secs(3), Duration::from_secs(1800)] {
            times.add(time);
        }
        assert!(times.quantile(0.5) > Duration::from_millis(2990) && times.max() > Duration::from_secs(1790), "{:?}", times.max());
    }
}
