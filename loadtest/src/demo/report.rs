//! What clients saw, in numbers, and the pass line. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use super::scenario::Scenario;

/// How one request ended for its client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "verdict", content = "detail", rename_all = "snake_case")]
pub enum Verdict {
    /// Whole, and every character as expected.
    Complete,
    /// Refused, not reachable, or ended by an error event.
    Failed(String),
    /// Ended without a finish.
    Truncated(String),
    /// Characters lost, repeated or others.
    Wrong(String),
}

/// One request as its client saw it.
#[derive(Debug, Clone)]
pub(super) struct Seen {
    pub(super) at: Duration,
    pub(super) streamed: bool,
    pub(super) verdict: Verdict,
    pub(super) first_event: Option<Duration>,
    pub(super) longest_pause: Duration,
    pub(super) took: Duration,
    pub(super) comments: u32,
    pub(super) usage_wrong: bool,
}

/// The numbers of one way to the engines.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Summary {
    /// Requests sent.
    pub requests: usize,
    /// Whole and exact.
    pub complete: usize,
    /// Refused, not reachable, or ended by an error event.
    pub failed: usize,
    /// Ended without a finish.
    pub truncated: usize,
    /// With lost, repeated or other characters.
    pub wrong: usize,
    /// Whole and exact, but `usage` does not count the tokens of one request.
    pub usage_wrong: usize,
    /// Streams that held comments while they waited.
    pub heartbeats: usize,
    /// Longest time without text inside a stream or before its first event, in seconds.
    pub longest_pause_seconds: f64,
    /// Median and highest time to the first event, in seconds.
    pub first_event_seconds: [f64; 2],
    /// The first few requests that were not complete.
    pub examples: Vec<String>,
}

/// Examples that a report keeps, and those that its text shows.
const EXAMPLES: usize = 12;
const SHOWN: usize = 3;

impl Summary {
    pub(super) fn of(seen: &[Seen]) -> Self {
        let mut summary = Self { requests: seen.len(), ..Self::default() };
        let mut firsts: Vec<f64> = seen.iter().filter_map(|seen| Some(seen.first_event?.as_secs_f64())).collect();
        firsts.sort_by(f64::total_cmp);
        summary.first_event_seconds =
            [firsts.get(firsts.len() / 2), firsts.last()].map(|value| rounded(value.copied().unwrap_or_default()));
        for one in seen {
            summary.count(one);
        }
        summary
    }

    fn count(&mut self, seen: &Seen) {
        let (counter, detail) = match &seen.verdict {
            Verdict::Complete => (&mut self.complete, None),
            Verdict::Failed(detail) => (&mut self.failed, Some(("failed", detail))),
            Verdict::Truncated(detail) => (&mut self.truncated, Some(("truncated", detail))),
            Verdict::Wrong(detail) => (&mut self.wrong, Some(("wrong", detail))),
        };
        *counter += 1;
        if let Some((word, detail)) = detail.filter(|_| self.examples.len() < EXAMPLES) {
            let kind = if seen.streamed { "streamed" } else { "whole" };
            let (at, took) = (seen.at.as_secs_f64(), seen.took.as_secs_f64());
            self.examples.push(format!("{word} ({kind}, sent at {at:.1} s, {took:.1} s long): {detail}"));
        }
        self.usage_wrong += usize::from(seen.usage_wrong);
        self.heartbeats += usize::from(seen.comments > 0);
        self.longest_pause_seconds = self.longest_pause_seconds.max(rounded(seen.longest_pause.as_secs_f64()));
    }

    /// No client noticed anything but a pause.
    pub fn is_clean(&self) -> bool {
        self.requests > 0 && self.complete == self.requests
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
    /// Requests that reached a follower through the gateway's pools; the plain forwarder goes to leaders too.
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
        let row = |name: &str, summary: &Summary| {
            format!(
                "{name:<18}{:>9}{:>10}{:>8}{:>11}{:>18}{:>16.1} s\n",
                summary.requests, summary.complete, summary.failed, summary.truncated, summary.wrong, summary.longest_pause_seconds
            )
        };
        let mut text = format!(
            "{:<18}{:>9}{:>10}{:>8}{:>11}{:>18}{:>18}\n",
            "", "requests", "complete", "failed", "truncated", "wrong characters", "longest pause"
        );
        text += &row("through Leadgate", &self.gateway);
        text += &row("plain forwarder", &self.plain);
        for (name, value) in &self.gateway_counters {
            text += &format!("{name} {value}\n");
        }
        for (way, summary) in [("Leadgate", &self.gateway), ("plain", &self.plain)] {
            for example in summary.examples.iter().take(SHOWN) {
                text += &format!("  {way}: {example}\n");
            }
        }
        text
    }
}

/// Milliseconds are enough.
pub(super) fn rounded(seconds: f64) -> f64 {
    (seconds * 1000.0).round() / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(verdict: Verdict, pause: u64) -> Seen {
        let (at, took) = (Duration::ZERO, Duration::from_secs(1));
        Seen {
            at,
            streamed: true,
            verdict,
            first_event: Some(took),
            longest_pause: Duration::from_secs(pause),
            took,
            comments: 0,
            usage_wrong: false,
        }
    }

    #[test]
    fn one_request_that_is_not_complete_breaks_the_line() {
        let good = Summary::of(&[seen(Verdict::Complete, 1), seen(Verdict::Complete, 4)]);
        assert!(good.is_clean() && (good.longest_pause_seconds - 4.0).abs() < f64::EPSILON);
        for verdict in [Verdict::Failed("x".into()), Verdict::Truncated("x".into()), Verdict::Wrong("x".into())] {
            let bad = Summary::of(&[seen(Verdict::Complete, 1), seen(verdict, 1)]);
            assert!(!bad.is_clean() && bad.examples.len() == 1);
        }
        assert!(!Summary::of(&[]).is_clean());
    }
}
