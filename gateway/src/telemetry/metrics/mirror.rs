//! The same figures under the names of other conventions, for dashboards and autoscalers that exist already.
//!
//! Owns: the table of names. Must not: count anything: a mirror is made from our own families at the scrape, so it costs nothing when
//! it is off. GenAI conventions: `gen_ai.server.*`; Gateway API Inference Extension: `inference_pool_*`, `inference_objective_*`.

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
    made.extend(find("leadgate_waiting").map(|f| per_pool(f, "inference_pool_average_queue_size", "Requests that wait.", "name")));
    made.extend(
        find("leadgate_groups")
            .map(|f| per_pool(&only(f, "phase", "Serving"), "inference_pool_ready_pods", "Leaders that take requests.", "name")),
    );
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

/// Sums series by their `pool` label.
fn per_pool(family: &MetricFamily, name: &str, help: &str, label: &str) -> MetricFamily {
    let counter = family.get_field_type() == MetricType::COUNTER;
    let mut sums: std::collections::BTreeMap<String, f64> = std::collections::BTreeMap::new();
    for metric in family.get_metric() {
        let pool = metric.get_label().iter().find(|l| l.name() == "pool").map_or("", |l| l.value());
        let value = if counter { metric.get_counter().get_value() } else { metric.get_gauge().get_value() };
        *sums.entry(pool.to_owned()).or_default() += value;
    }
    let mut made = MetricFamily::default();
    made.set_name(name.to_owned());
    made.set_help(help.to_owned());
    made.set_field_type(family.get_field_type());
    made.set_metric(sums.into_iter().map(|(pool, value)| single(label, pool, value, counter)).collect());
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
