//! What clients saw of a scenario, in numbers, and the pass line. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use super::scenario::Scenario;
use crate::record::Record;

/// Examples that a report keeps, and those that its text shows.
const EXAMPLES: usize = 12;
const SHOWN: usize = 3;

/// The numbers of one way to the engines.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Summary {
    /// Requests sent.
    pub requests: u64,
    /// Whole, and every character, finish reason and token count as due.
    pub complete: u64,
    /// Refused, not answered, or ended by an error event.
    pub failed: u64,
    /// Ended without a finish.
    pub truncated: u64,
    /// Ended properly, but characters were lost, repeated or others, or counts were wrong; `problems` says which.
    pub wrong: u64,
    /// Requests that were due but not sent: the load generator's own limit.
    pub not_sent: u64,
    /// What was wrong, by kind.
    pub problems: BTreeMap<String, u64>,
    /// Comments that kept waiting streams alive.
    pub heartbeats: u64,
    /// Longest time without text inside a stream, in seconds.
    pub longest_pause_seconds: f64,
    /// Median and highest time to the first text of a stream, in seconds.
    pub first_text_seconds: [f64; 2],
    /// The first few requests that were not complete.
    pub examples: Vec<String>,
}

impl Summary {
    pub(super) fn of(record: &Record) -> Self {
        let ended = |names: &[&str]| {
            let counted = record.ends.iter().filter(|(end, _)| names.iter().any(|name| end.starts_with(name)));
            counted.map(|(_, count)| count).sum::<u64>()
        };
        Self {
            requests: record.sent,
            complete: record.good,
            failed: ended(&["refused", "error event", "unanswered", "timed out"]),
            truncated: ended(&["unfinished", "cut"]),
            wrong: ended(&["complete"]).saturating_sub(record.good),
            not_sent: record.not_sent,
            problems: record.problems.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect(),
            heartbeats: record.comments,
            longest_pause_seconds: seconds(record.longest_gap.max()),
            first_text_seconds: [seconds(record.first_text.quantile(0.5)), seconds(record.first_text.max())],
            examples: record
                .examples
                .iter()
                .take(EXAMPLES)
                .map(|seen| format!("at {:.1} s: {}", seen.due.as_secs_f64(), seen.story()))
                .collect(),
        }
    }

    /// No client noticed anything but a pause.
    pub fn is_clean(&self) -> bool {
        self.requests > 0 && self.complete == self.requests && self.not_sent == 0
    }
}

/// The report of one scenario.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// What was played.
    pub scenario: Scenario,
    /// Through the gateway.
    pub gateway: Summary,
    /// The same load through a plain round-robin forwarder to the Service's endpoints.
    pub plain: Summary,
    /// Requests that reached a follower. The plain forwarder goes to leaders only, as the Service does.
    pub misdirected: u64,
    /// The gateway's counters whose names speak of retries, resumes and holds.
    pub gateway_counters: BTreeMap<String, f64>,
    /// Times of what happened, in seconds after the start of the load.
    pub timeline: Vec<(f64, String)>,
    /// The pass line: nothing failed, truncated, repeated or lost, and no follower was asked.
    pub pass: bool,
}

impl Report {
    /// The report for people.
    pub fn text(&self) -> String {
        let heads = ["requests", "complete", "failed", "truncated", "wrong", "longest pause", "first text at most"];
        let [a, b, c, d, e, f, g] = heads;
        let mut text = format!("{:<18}{a:>9}{b:>10}{c:>8}{d:>11}{e:>7}{f:>15}{g:>20}\n", "");
        for (way, summary) in [("through Leadgate", &self.gateway), ("plain forwarder", &self.plain)] {
            let Summary {
                requests, complete, failed, truncated, wrong, longest_pause_seconds: pause, first_text_seconds: [_, first], ..
            } = summary;
            text += &format!("{way:<18}{requests:>9}{complete:>10}{failed:>8}{truncated:>11}{wrong:>7}{pause:>13.1} s{first:>18.1} s\n");
        }
        for (name, value) in &self.gateway_counters {
            text += &format!("{name} {value}\n");
        }
        for (way, summary) in [("Leadgate", &self.gateway), ("plain", &self.plain)] {
            for example in summary.examples.iter().take(SHOWN) {
                text += &format!("  {way} {example}\n");
            }
        }
        text
    }
}

/// Milliseconds are enough.
pub(super) fn seconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 1000.0).round() / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(ends: &[(&str, u64)], good: u64) -> Record {
        let sent = ends.iter().map(|(_, count)| count).sum();
        let ends = ends.iter().map(|(end, count)| ((*end).to_owned(), *count)).collect();
        Record { sent, good, ends, ..Record::default() }
    }

    #[test]
    fn ends_are_told_apart() {
        let ends = [("complete", 5), ("refused 503", 2), ("unanswered", 1), ("cut", 3), ("unfinished", 4), ("error event", 1)];
        let summary = Summary::of(&record(&ends, 4));
        assert_eq!((summary.requests, summary.complete, summary.failed), (16, 4, 4));
        assert_eq!((summary.truncated, summary.wrong), (7, 1));
        assert!(!summary.is_clean());
    }

    #[test]
    fn only_a_run_without_any_fault_is_clean() {
        assert!(Summary::of(&record(&[("complete", 3)], 3)).is_clean());
        assert!(!Summary::of(&record(&[("complete", 3)], 2)).is_clean());
        assert!(!Summary::of(&record(&[], 0)).is_clean());
        assert!(!Summary::of(&Record { not_sent: 1, ..record(&[("complete", 3)], 3) }).is_clean());
    }
}
