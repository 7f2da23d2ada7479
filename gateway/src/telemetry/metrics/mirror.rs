//! The same figures under the names of other conventions, for dashboards and autoscalers that exist already.
//!
//! Owns: the table of names. Must not: count anything: a mirror is made from our own families at the scrape, so it costs nothing when
//! it is off. GenAI conventions: `gen_ai.server.*`; Gateway API Inference Extension: `inference_pool_*`, `inference_objective_*`.

use std::collections::BTreeMap;

use prometheus::proto::{LabelPair, Metric, MetricFamily, MetricType};

/// (our family, the other name, its help, the other name of our `pool` label).
const RENAMED: &[(&str, &str, &str, &str)] = &[
    (
        "leadgate_request_duration_seconds",
        "gen_ai_server_request_duration_seconds",
        "Time from the request to the end of its answer.",
        "gen_ai_request_model",
    ),
    (
        "leadgate_time_to_first_token_seconds",
        "gen_ai_server_time_to_first_token_seconds",
        "Time from the request to its first token.",
        "gen_ai_request_model",
    ),
    (
        "leadgate_inter_event_seconds",
        "gen_ai_server_time_per_output_token_seconds",
        "Time between tokens after the first.",
        "gen_ai_request_model",
    ),
    ("leadgate_request_duration_seconds", "inference_objective_request_duration_seconds", "Duration of requests.", "model_name"),
];

/// Families under other names, made from one scrape's families.
pub(super) fn mirrors(families: &[MetricFamily]) -> Vec<MetricFamily> {
    let find = |name: &str| families.iter().find(|f| f.name() == name);
    let renamed = RENAMED.iter().filter_map(|(ours, theirs, help, label)| {
        let mut family = find(ours)?.clone();
        family.set_name((*theirs).to_owned());
        family.set_help((*help).to_owned());
        for pair in family.mut_metric().iter_mut().flat_map(|m| m.mut_label().iter_mut()).filter(|l| l.name() == "pool") {
            pair.set_name((*label).to_owned());
        }
        Some(family)
    });
    let mut made: Vec<_> = renamed.collect();
    made.extend(find("leadgate_requests_total").map(|f| requests(f, "inference_objective_request_total", &[])));
    made.extend(
        find("leadgate_requests_total").map(|f| {
            requests(f, "inference_objective_request_error_total", &["refused", "stream_error", "upstream_error", "client_error"])
        }),
    );
    made.extend(
        find("leadgate_running").map(|f| per_pool(f, "inference_objective_running_requests", "Requests at leaders.", "model_name")),
    );
    if let Some(groups) = find("leadgate_groups") {
        made.extend(pools(&only(groups, "phase", "Serving"), find("leadgate_waiting"), find("leadgate_running")));
    }
    made
}

/// `inference_pool_*`: averages are over the leaders that serve. While none does, all that wait stand for the average, so that an
/// autoscaler sees them.
fn pools(serving: &MetricFamily, waiting: Option<&MetricFamily>, running: Option<&MetricFamily>) -> Vec<MetricFamily> {
    let ready = sums(serving);
    let average = |of: &MetricFamily, name, help| {
        let share = |(pool, value): (String, f64)| {
            let leaders = ready.get(&pool).copied().unwrap_or_default().max(1.0);
            (pool, value / leaders)
        };
        family(name, help, ("name", MetricType::GAUGE), sums(of).into_iter().map(share))
    };
    let mut made = vec![family("inference_pool_ready_pods", "Leaders that take requests.", ("name", MetricType::GAUGE), ready.clone())];
    made.extend(waiting.map(|f| average(f, "inference_pool_average_queue_size", "Requests that wait, per leader that serves.")));
    made.extend(running.map(|f| average(f, "inference_pool_average_running_requests", "Requests at leaders, per leader that serves.")));
    made
}

/// Sums a counter family by pool, over the outcomes named (empty: all).
fn requests(family: &MetricFamily, name: &str, outcomes: &[&str]) -> MetricFamily {
    let mut chosen = family.clone();
    let wanted = |m: &Metric| outcomes.is_empty() || m.get_label().iter().any(|l| l.name() == "outcome" && outcomes.contains(&l.value()));
    chosen.set_metric(family.get_metric().iter().filter(|m| wanted(m)).cloned().collect());
    per_pool(&chosen, name, "Requests by model.", "model_name")
}

fn only(family: &MetricFamily, label: &str, value: &str) -> MetricFamily {
    let mut chosen = family.clone();
    let wanted = |m: &&Metric| m.get_label().iter().any(|l| l.name() == label && l.value() == value);
    chosen.set_metric(family.get_metric().iter().filter(wanted).cloned().collect());
    chosen
}

/// A family of sums by pool under another name.
fn per_pool(of: &MetricFamily, name: &str, help: &str, label: &str) -> MetricFamily {
    family(name, help, (label, of.get_field_type()), sums(of))
}

/// Sums series by their `pool` label.
fn sums(of: &MetricFamily) -> BTreeMap<String, f64> {
    let counter = of.get_field_type() == MetricType::COUNTER;
    let mut sums: BTreeMap<String, f64> = BTreeMap::new();
    for metric in of.get_metric() {
        let pool = metric.get_label().iter().find(|l| l.name() == "pool").map_or("", |l| l.value());
        let value = if counter { metric.get_counter().get_value() } else { metric.get_gauge().get_value() };
        *sums.entry(pool.to_owned()).or_default() += value;
    }
    sums
}

fn family(name: &str, help: &str, (label, kind): (&str, MetricType), values: impl IntoIterator<Item = (String, f64)>) -> MetricFamily {
    let counter = kind == MetricType::COUNTER;
    let mut made = MetricFamily::default();
    made.set_name(name.to_owned());
    made.set_help(help.to_owned());
    made.set_field_type(kind);
    made.set_metric(values.into_iter().map(|(pool, value)| single(label, pool, value, counter)).collect());
    made
}

fn single(label: &str, pool: String, value: f64, counter: bool) -> Metric {
    let mut pair = LabelPair::default();
    pair.set_name(label.to_owned());
    pair.set_value(pool);
    let mut metric = Metric::from_label(vec![pair]);
    if counter {
        let mut held = prometheus::proto::Counter::default();
        held.set_value(value);
        metric.set_counter(held);
    } else {
        let mut held = prometheus::proto::Gauge::default();
        held.set_value(value);
        metric.set_gauge(held);
    }
    metric
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pools_of(name: &str, values: &[(&str, f64)]) -> MetricFamily {
        family(name, "h", ("pool", MetricType::GAUGE), values.iter().map(|(pool, value)| ((*pool).to_owned(), *value)))
    }

    #[test]
    fn averages_are_over_the_leaders_that_serve() {
        let serving = pools_of("s", &[("a", 4.0), ("b", 0.0)]);
        let made = pools(&serving, Some(&pools_of("w", &[("a", 6.0), ("b", 5.0)])), Some(&pools_of("r", &[("a", 8.0)])));
        let value = |of: usize, at: usize| made[of].get_metric()[at].get_gauge().get_value();
        assert_eq!([value(0, 0), value(0, 1), value(1, 0), value(1, 1), value(2, 0)], [4.0, 0.0, 1.5, 5.0, 2.0]);
    }
}
