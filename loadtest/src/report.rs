//! A run told to people and to programs: text, JSON, and one HTML page with its plots inside.
//!
//! Writes strings only. The page needs no network: plots are SVG, styles are inline, and it follows the reader's colours.

use std::fmt::Write as _;
use std::time::Duration;

use serde_json::{Value, json};

use crate::record::{Record, Second, Times};

const QUANTILES: [(&str, f64); 4] = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999)];

/// A finished run.
#[derive(Debug, Clone)]
pub struct Report {
    /// What was run, in one line.
    pub title: String,
    /// The plan and other facts, for the JSON.
    pub setup: Value,
    /// What came of it.
    pub record: Record,
}

impl Report {
    /// For a terminal.
    pub fn text(&self) -> String {
        let record = &self.record;
        let mut out = format!("{}\n\n", self.title);
        let _ = writeln!(out, "requests {}  good {}  bad {}  not sent {}", record.sent, record.good, record.bad(), record.not_sent);
        let _ = writeln!(out, "events {}  comments {}", record.events, record.comments);
        for (end, count) in &record.ends {
            let _ = writeln!(out, "  {count:>8}  {end}");
        }
        for (problem, count) in &record.problems {
            let _ = writeln!(out, "  {count:>8}  PROBLEM {problem}");
        }
        let _ = writeln!(out, "\n{:<22}{:>10}{:>12}{:>12}{:>12}{:>12}{:>12}", "time in ms", "count", "p50", "p90", "p99", "p99.9", "max");
        for (name, times) in self.times() {
            let _ = write!(out, "{name:<22}{:>10}", times.len());
            for (_, share) in QUANTILES {
                let _ = write!(out, "{:>12.3}", ms(times.quantile(share)));
            }
            let _ = writeln!(out, "{:>12.3}", ms(times.max()));
        }
        for (group, count) in &record.groups {
            let _ = writeln!(out, "  {count:>8}  {group}");
        }
        for seen in record.examples.iter().take(10) {
            let _ = writeln!(out, "\n{}", seen.story());
            if let Some((came, due)) = &seen.differs {
                let _ = writeln!(out, "  came {came:?}\n  due  {due:?}");
            }
        }
        out
    }

    /// For programs.
    pub fn json(&self) -> Value {
        let record = &self.record;
        let times: serde_json::Map<_, _> = self.times().into_iter().map(|(name, times)| (name.replace(' ', "_"), summary(times))).collect();
        json!({
            "title": self.title, "setup": self.setup, "sent": record.sent, "good": record.good, "bad": record.bad(),
            "not_sent": record.not_sent, "events": record.events, "comments": record.comments, "ends": record.ends,
            "problems": record.problems, "groups": record.groups, "times_ms": times, "seconds": record.seconds,
            "examples": record.examples
        })
    }

    /// A page of its own.
    pub fn html(&self) -> String {
        let record = &self.record;
        let seconds = &record.seconds;
        let mut body = String::new();
        let verdict = if record.bad() == 0 { "no request failed" } else { "requests failed" };
        let _ = write!(
            body,
            "<h1>{}</h1><p><b>{}</b>: {} sent, {} good, {} bad, {} not sent.</p>",
            escape(&self.title),
            verdict,
            record.sent,
            record.good,
            record.bad(),
            record.not_sent
        );
        body.push_str("<h2>Ended in each second</h2>");
        body.push_str(&bars(seconds));
        body.push_str("<h2>Longest time to first text, by the second it was due (ms)</h2>");
        body.push_str(&curve(seconds.iter().map(|second| second.first_text_max_us as f64 / 1e3)));
        body.push_str("<h2>Longest pause in a stream, by the second it ended (ms)</h2>");
        body.push_str(&curve(seconds.iter().map(|second| second.gap_max_us as f64 / 1e3)));
        body.push_str(&self.table());
        for (heading, counts) in [
            ("Ends", record.ends.iter().map(|(name, count)| (name.clone(), *count)).collect::<Vec<_>>()),
            ("Problems", record.problems.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()),
            ("Replica groups", record.groups.iter().map(|(name, count)| (name.clone(), *count)).collect()),
        ] {
            if !counts.is_empty() {
                let rows: String = counts.iter().map(|(name, count)| format!("<tr><td>{}<td>{count}", escape(name))).collect();
                let _ = write!(body, "<h2>{heading}</h2><table>{rows}</table>");
            }
        }
        for seen in &record.examples {
            let _ = write!(body, "<pre>{}</pre>", escape(&seen.story()));
        }
        format!(
            "<!doctype html><html lang=en><meta charset=utf-8><title>{}</title><style>{STYLE}</style>{body}</html>",
            escape(&self.title)
        )
    }

    fn table(&self) -> String {
        let mut out = String::from("<h2>Times in ms</h2><table><tr><th>what<th>count<th>p50<th>p90<th>p99<th>p99.9<th>max");
        for (name, times) in self.times() {
            let _ = write!(out, "<tr><td>{name}<td>{}", times.len());
            for (_, share) in QUANTILES {
                let _ = write!(out, "<td>{:.3}", ms(times.quantile(share)));
            }
            let _ = write!(out, "<td>{:.3}", ms(times.max()));
        }
        out.push_str("</table>");
        out
    }

    fn times(&self) -> [(&'static str, &Times); 6] {
        let record = &self.record;
        [
            ("head", &record.head),
            ("first text", &record.first_text),
            ("between events", &record.gap),
            ("longest pause", &record.longest_gap),
            ("whole answer", &record.total),
            ("client lateness", &record.lag),
        ]
    }
}

const STYLE: &str = "body{font:15px/1.5 system-ui;max-width:60rem;margin:2rem auto;padding:0 1rem;color-scheme:light dark}\
table{border-collapse:collapse}td,th{padding:.2rem .8rem;text-align:right;border-bottom:1px solid #8884}\
td:first-child,th:first-child{text-align:left}svg{width:100%;height:auto}pre{white-space:pre-wrap}\
.good{fill:#2a9d5c}.bad{fill:#d33}.line{fill:none;stroke:#3a78c9;stroke-width:1.5}.axis{fill:currentColor;font-size:11px}";

const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 160.0;

/// Good and bad requests, stacked.
fn bars(seconds: &[Second]) -> String {
    let top = seconds.iter().map(|second| second.good + second.bad).max().unwrap_or(0).max(1) as f64;
    let step = WIDTH / seconds.len().max(1) as f64;
    let mut out = String::new();
    for (at, second) in seconds.iter().enumerate() {
        let (x, good, bad) = (at as f64 * step, second.good as f64 / top * HEIGHT, second.bad as f64 / top * HEIGHT);
        let width = (step - 0.5).max(0.5);
        let _ = write!(out, "<rect class=good x={x:.1} y={:.1} width={width:.1} height={good:.1} />", HEIGHT - good);
        if second.bad > 0 {
            let _ = write!(out, "<rect class=bad x={x:.1} y={:.1} width={width:.1} height={bad:.1} />", HEIGHT - good - bad);
        }
    }
    svg(&out, top, seconds.len())
}

fn curve(values: impl Iterator<Item = f64> + Clone) -> String {
    let top = values.clone().fold(1.0, f64::max);
    let count = values.clone().count();
    let step = WIDTH / count.max(1) as f64;
    let points: String =
        values.enumerate().map(|(at, value)| format!("{:.1},{:.1} ", at as f64 * step, HEIGHT - value / top * HEIGHT)).collect();
    svg(&format!("<polyline class=line points=\"{points}\" />"), top, count)
}

fn svg(inside: &str, top: f64, seconds: usize) -> String {
    format!(
        "<svg viewBox=\"0 -14 {WIDTH} {}\" role=img>{inside}<text class=axis x=0 y=-3>{top:.0}</text>\
         <text class=axis x={} y={}>{seconds} s</text></svg>",
        HEIGHT + 30.0,
        WIDTH - 40.0,
        HEIGHT + 13.0
    )
}

pub(crate) fn summary(times: &Times) -> Value {
    let mut out = json!({"count": times.len(), "mean": ms(times.mean()), "max": ms(times.max())});
    for (name, share) in QUANTILES {
        out[name] = ms(times.quantile(share)).into();
    }
    out
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
