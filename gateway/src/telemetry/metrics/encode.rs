//! Metric families as text: the Prometheus text format 0.0.4 and OpenMetrics 1.0.
//!
//! Owns: which of the two a scraper gets, and the writing. Must not: know families. One writer for both: they differ in the name of a
//! counter's family, in the last line, and in nothing else that is used here.

use std::fmt::Write;

use prometheus::proto::{Histogram, Metric, MetricFamily, MetricType};

/// A text format of a scrape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Text format 0.0.4.
    Prometheus,
    /// OpenMetrics 1.0.
    OpenMetrics,
}

impl Format {
    /// By the `Accept` header: OpenMetrics where a scraper names it with a weight above 0.
    pub fn accepted(accept: Option<&str>) -> Self {
        let takes = |part: &str| {
            let mut words = part.split(';').map(str::trim);
            let named = words.next().is_some_and(|t| t.eq_ignore_ascii_case("application/openmetrics-text"));
            named && !words.any(|w| w.strip_prefix("q=").and_then(|q| q.parse::<f64>().ok()) == Some(0.0))
        };
        if accept.unwrap_or("").split(',').any(takes) { Self::OpenMetrics } else { Self::Prometheus }
    }

    /// Value of `Content-Type`.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// Writes every family. Families without series are left out.
pub(super) fn encode(families: &[MetricFamily], format: Format) -> String {
    let mut out = String::with_capacity(64 * 1024);
    for family in families.iter().filter(|f| !f.get_metric().is_empty()) {
        head(&mut out, family, format);
        for metric in family.get_metric() {
            series(&mut out, family, metric);
        }
    }
    if format == Format::OpenMetrics {
        out.push_str("# EOF\n");
    }
    out
}

fn head(out: &mut String, family: &MetricFamily, format: Format) {
    let (name, kind) = match (family.get_field_type(), format) {
        (MetricType::COUNTER, Format::OpenMetrics) => (family.name().strip_suffix("_total").unwrap_or(family.name()), "counter"),
        (MetricType::COUNTER, Format::Prometheus) => (family.name(), "counter"),
        (MetricType::HISTOGRAM, _) => (family.name(), "histogram"),
        (MetricType::GAUGE | MetricType::SUMMARY | MetricType::UNTYPED, _) => (family.name(), "gauge"),
    };
    // Writing to a String does not fail.
    let _ = writeln!(out, "# HELP {name} {}\n# TYPE {name} {kind}", escape(family.help(), false));
}

fn series(out: &mut String, family: &MetricFamily, metric: &Metric) {
    let name = family.name();
    match family.get_field_type() {
        MetricType::COUNTER => sample(out, (name, ""), metric, None, metric.get_counter().get_value()),
        MetricType::HISTOGRAM => histogram(out, name, metric, metric.get_histogram()),
        MetricType::GAUGE | MetricType::SUMMARY | MetricType::UNTYPED => {
            sample(out, (name, ""), metric, None, metric.get_gauge().get_value());
        }
    }
}

fn histogram(out: &mut String, name: &str, metric: &Metric, histogram: &Histogram) {
    for bucket in histogram.get_bucket().iter().filter(|b| b.upper_bound().is_finite()) {
        let bound = format!("{:?}", bucket.upper_bound());
        sample(out, (name, "_bucket"), metric, Some(&bound), whole(bucket.cumulative_count()));
    }
    let count = whole(histogram.get_sample_count());
    sample(out, (name, "_bucket"), metric, Some("+Inf"), count);
    sample(out, (name, "_sum"), metric, None, histogram.get_sample_sum());
    sample(out, (name, "_count"), metric, None, count);
}

fn sample(out: &mut String, name: (&str, &str), metric: &Metric, bound: Option<&str>, value: f64) {
    out.push_str(name.0);
    out.push_str(name.1);
    let labels = metric.get_label().iter().map(|l| (l.name(), l.value())).chain(bound.map(|b| ("le", b)));
    let mut open = '{';
    for (label, text) in labels {
        let _ = write!(out, "{open}{label}=\"{}\"", escape(text, true));
        open = ',';
    }
    if open == ',' {
        out.push('}');
    }
    let _ = writeln!(out, " {value}");
}

// Counts beyond 2^53 lose their last digits, as in every Prometheus client: samples are floats.
#[allow(clippy::cast_precision_loss)]
fn whole(count: u64) -> f64 {
    count as f64
}

fn escape(text: &str, quoted: bool) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '"' if quoted => out.push_str("\\\""),
            _ => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accept_header_decides() {
        let prometheus = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.1";
        assert_eq!(Format::accepted(Some(prometheus)), Format::OpenMetrics);
        assert_eq!(Format::accepted(Some("text/plain")), Format::Prometheus);
        assert_eq!(Format::accepted(Some("application/openmetrics-text; q=0, text/plain")), Format::Prometheus);
        assert_eq!(Format::accepted(None), Format::Prometheus);
    }
}
