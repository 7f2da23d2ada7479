//! The results as Markdown and JSON: medians with their spread, and ratios from the same rounds.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde_json::{Value, json};

use super::proxies::Kind;
use super::round::Figures;
use super::rows::{Figure, Row};

/// All rounds of one row.
#[derive(Debug)]
pub(super) struct Measured {
    pub(super) row: &'static Row,
    /// Rounds of each proxy, in time.
    pub(super) rounds: BTreeMap<Kind, Vec<Figures>>,
    /// Who could not take part, and why.
    pub(super) failed: Vec<(Kind, String)>,
}

/// Median, lowest and highest.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Spread {
    median: f64,
    low: f64,
    high: f64,
}

impl Spread {
    fn of(mut values: Vec<f64>) -> Option<Self> {
        values.sort_by(f64::total_cmp);
        let (low, high) = (*values.first()?, *values.last()?);
        let middle = values.len() / 2;
        let median = if values.len() % 2 == 1 { values[middle] } else { f64::midpoint(values[middle - 1], values[middle]) };
        Some(Self { median, low, high })
    }

    fn text(&self) -> String {
        format!("{} ({}–{})", number(self.median), number(self.low), number(self.high))
    }

    fn json(&self) -> Value {
        json!({"median": self.median, "low": self.low, "high": self.high})
    }
}

fn number(value: f64) -> String {
    match value.abs() {
        100.0.. => format!("{value:.0}"),
        10.0.. => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

impl Measured {
    fn names(&self) -> Vec<&'static str> {
        let mut names: Vec<_> = self.rounds.values().flatten().flat_map(|figures| figures.keys().copied()).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    fn spread(&self, kind: Kind, name: &str) -> Option<Spread> {
        Spread::of(self.rounds.get(&kind)?.iter().filter_map(|round| round.get(name).copied()).collect())
    }

    /// `kind` against `peer`, round by round.
    fn ratio(&self, name: &str, kind: Kind, peer: Kind) -> Option<Spread> {
        self.compare(name, (kind, peer), |own, other| (other > 0.0).then(|| own / other))
    }

    /// What `kind` adds to a load without a proxy, round by round.
    fn added(&self, name: &str, kind: Kind) -> Option<Spread> {
        self.compare(name, (kind, Kind::Direct), |own, direct| Some(own - direct))
    }

    fn compare(&self, name: &str, (kind, peer): (Kind, Kind), by: impl Fn(f64, f64) -> Option<f64>) -> Option<Spread> {
        let pairs = self.rounds.get(&kind)?.iter().zip(self.rounds.get(&peer)?);
        Spread::of(pairs.filter_map(|(own, other)| by(*own.get(name)?, *other.get(name)?)).collect())
    }

    /// The figures that the table is about.
    fn headline(&self) -> &'static [&'static str] {
        match self.row.figure {
            Figure::PerRequest | Figure::ManyLeaders | Figure::PerEvent => &["proxy_cpu_us"],
            Figure::Latency => &["p50_us", "p99_us"],
            Figure::FirstToken => &["first_p50_ms", "first_p99_ms", "gap_p99_ms"],
            Figure::Growth => &["few_cpu_us", "many_cpu_us"],
            Figure::PerStream => &["stream_kib", "idle_mib"],
            Figure::Gone => &["decode_p50_ms", "prefill_p50_ms", "whole_p50_ms"],
        }
    }

    /// Times of which the share of the proxy is wanted; its name, and the one it is taken from.
    fn added_names(&self) -> &'static [(&'static str, &'static str)] {
        match self.row.figure {
            Figure::Latency => &[("added_p50_us", "p50_us"), ("added_p99_us", "p99_us")],
            Figure::FirstToken => {
                &[("added_first_p50_ms", "first_p50_ms"), ("added_first_p99_ms", "first_p99_ms"), ("added_gap_p99_ms", "gap_p99_ms")]
            }
            Figure::PerRequest | Figure::ManyLeaders | Figure::PerEvent | Figure::Growth | Figure::PerStream | Figure::Gone => &[],
        }
    }

    /// Every figure of `kind`, the measured ones first.
    fn all(&self, kind: Kind) -> impl Iterator<Item = (&'static str, Option<Spread>)> {
        let added = self.added_names().iter().map(move |(name, of)| (*name, self.added(of, kind)));
        self.names().into_iter().map(move |name| (name, self.spread(kind, name))).chain(added)
    }
}

/// Every row as a table of its own.
pub(super) fn markdown(all: &[Measured]) -> String {
    let mut text = String::new();
    for measured in all {
        // Writing to a text cannot fail.
        let _ = section(&mut text, measured);
    }
    text
}

fn section(text: &mut String, measured: &Measured) -> std::fmt::Result {
    writeln!(text, "### {}\n", measured.row.name)?;
    let columns: Vec<_> = measured.names().into_iter().chain(measured.added_names().iter().map(|(name, _)| *name)).collect();
    writeln!(text, "| | {} |\n|---|{}", columns.join(" | "), "---|".repeat(columns.len()))?;
    for kind in measured.rounds.keys().copied() {
        let cells: Vec<_> = measured.all(kind).map(|(_, spread)| spread.map_or_else(|| "–".to_owned(), |spread| spread.text())).collect();
        writeln!(text, "| {} | {} |", kind.name(), cells.join(" | "))?;
    }
    for (kind, why) in &measured.failed {
        writeln!(text, "\n{}: {why}", kind.name())?;
    }
    ratios(text, measured)?;
    writeln!(text)
}

fn ratios(text: &mut String, measured: &Measured) -> std::fmt::Result {
    for name in measured.headline() {
        let against: Vec<_> = [Kind::Forwarder, Kind::Haproxy, Kind::Nginx, Kind::Envoy]
            .into_iter()
            .filter_map(|peer| Some(format!("{} × {}", measured.ratio(name, Kind::Leadgate, peer)?.text(), peer.name())))
            .collect();
        if !against.is_empty() {
            writeln!(text, "\nleadgate, {name}: {}", against.join(", "))?;
        }
        for variant in Kind::ALL.into_iter().filter(|kind| kind.is_variant()) {
            if let Some(ratio) = measured.ratio(name, variant, Kind::Leadgate) {
                writeln!(text, "\n{}, {name}: {} × leadgate", variant.name(), ratio.text())?;
            }
        }
        // What it costs to be seen at all.
        if let Some(ratio) = measured.ratio(name, Kind::SampledOut, Kind::NoMetrics) {
            writeln!(text, "\n{}, {name}: {} × {}", Kind::SampledOut.name(), ratio.text(), Kind::NoMetrics.name())?;
        }
    }
    Ok(())
}

/// Everything, round by round.
pub(super) fn json(all: &[Measured], setup: &Value) -> Value {
    let rows = all.iter().map(|measured| {
        let kinds = measured.rounds.iter().map(|(kind, rounds)| {
            let medians = measured.all(*kind).filter_map(|(name, spread)| Some((name.to_owned(), spread?.json())));
            let against = |peer: Kind| {
                let ratios =
                    measured.headline().iter().filter_map(|name| Some((name.to_string(), measured.ratio(name, *kind, peer)?.json())));
                Value::Object(ratios.collect())
            };
            let ratios: serde_json::Map<_, _> =
                measured.rounds.keys().filter(|peer| *peer != kind).map(|peer| (peer.name().to_owned(), against(*peer))).collect();
            (kind.name().to_owned(), json!({"figures": Value::Object(medians.collect()), "ratios": ratios, "rounds": rounds}))
        });
        let failed: serde_json::Map<_, _> = measured.failed.iter().map(|(kind, why)| (kind.name().to_owned(), json!(why))).collect();
        (measured.row.name.to_owned(), json!({"proxies": Value::Object(kinds.collect()), "failed": failed}))
    });
    json!({"setup": setup, "rows": Value::Object(rows.collect())})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::rows::ROWS;

    #[test]
    fn ratios_come_from_the_same_round() {
        let round = |value: f64| Figures::from([("proxy_cpu_us", value)]);
        let rounds = BTreeMap::from([
            (Kind::Haproxy, vec![round(10.0), round(100.0), round(20.0)]),
            (Kind::Leadgate, vec![round(20.0), round(150.0), round(20.0)]),
        ]);
        let measured = Measured { row: &ROWS[0], rounds, failed: vec![] };
        let ratio = measured.ratio("proxy_cpu_us", Kind::Leadgate, Kind::Haproxy);
        assert_eq!(ratio, Some(Spread { median: 1.5, low: 1.0, high: 2.0 }));
        let text = markdown(&[measured]);
        assert!(text.contains("| leadgate | 20.0 (20.0–150) |"), "{text}");
        assert!(text.contains("leadgate, proxy_cpu_us: 1.50 (1.00–2.00) × haproxy"), "{text}");
    }

    #[test]
    fn a_proxy_adds_what_the_same_round_had_not_without_it() {
        let round = |first: f64| Figures::from([("first_p50_ms", first), ("first_p99_ms", 2.0 * first), ("gap_p99_ms", 21.0)]);
        let rounds = BTreeMap::from([(Kind::Direct, vec![round(1.0), round(5.0)]), (Kind::Leadgate, vec![round(1.25), round(5.75)])]);
        let row = ROWS.iter().find(|row| row.figure == Figure::FirstToken).unwrap();
        let measured = Measured { row, rounds, failed: vec![] };
        assert_eq!(measured.added("first_p50_ms", Kind::Leadgate), Some(Spread { median: 0.5, low: 0.25, high: 0.75 }));
        let all = json(&[measured], &Value::Null);
        let figures = &all["rows"][row.name]["proxies"]["leadgate"]["figures"];
        assert_eq!((&figures["added_first_p99_ms"]["median"], &figures["added_gap_p99_ms"]["median"]), (&json!(1.0), &json!(0.0)));
    }
}
