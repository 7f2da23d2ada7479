//! `/metrics` under vLLM's names: the gauges and counters that gateways scrape.

use std::fmt::Write as _;

use super::shared::Shared;

pub(crate) fn render(shared: &Shared) -> String {
    let counts = shared.stats.counts();
    let model = shared.config.persona.base();
    let engine = format!("engine=\"0\",model_name=\"{model}\"");
    let usage = counts.running as f64 / shared.config.limits.running.max(1) as f64;
    let waiting = counts.waiting as f64;
    let mut page = Page(String::with_capacity(4096));
    page.gauge("process_start_time_seconds", "Start time of the process since unix epoch in seconds.").line("", shared.born);
    page.gauge("vllm:num_requests_running", "Number of requests in model execution batches.").line(&engine, counts.running as f64);
    page.gauge("vllm:num_requests_waiting", "Number of requests waiting to be processed.").line(&engine, waiting);
    page.gauge("vllm:num_requests_waiting_by_reason", "Number of requests waiting, by reason.")
        .line(&format!("{engine},reason=\"capacity\""), waiting)
        .line(&format!("{engine},reason=\"deferred\""), 0.0);
    page.gauge("vllm:kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent usage.").line(&engine, usage.min(1.0));
    page.counter("vllm:prefix_cache_queries_total", "Prefix cache queries.").line(&engine, counts.prompt_tokens as f64);
    page.counter("vllm:prefix_cache_hits_total", "Prefix cache hits.").line(&engine, 0.0);
    page.counter("vllm:num_preemptions_total", "Cumulative number of preemptions.").line(&engine, 0.0);
    page.counter("vllm:prompt_tokens_total", "Number of prefill tokens processed.").line(&engine, counts.prompt_tokens as f64);
    page.counter("vllm:generation_tokens_total", "Number of generation tokens processed.").line(&engine, counts.tokens as f64);
    let mut family = page.counter("vllm:request_success_total", "Count of successfully processed requests.");
    for reason in ["stop", "length", "abort", "error", "repetition"] {
        let done = |name: &str| counts.finished.get(name).copied().unwrap_or(0);
        // A finished tool call is a stop to the engine.
        let done = if reason == "stop" { done("stop") + done("tool_calls") } else { done(reason) };
        family = family.line(&format!("engine=\"0\",finished_reason=\"{reason}\",model_name=\"{model}\""), done as f64);
    }
    page.0
}

/// The page as it grows.
struct Page(String);

/// The lines of one name.
struct Family<'a>(&'a mut String, &'static str);

impl Page {
    fn gauge(&mut self, name: &'static str, help: &str) -> Family<'_> {
        self.family(name, "gauge", help)
    }

    fn counter(&mut self, name: &'static str, help: &str) -> Family<'_> {
        self.family(name, "counter", help)
    }

    fn family(&mut self, name: &'static str, kind: &str, help: &str) -> Family<'_> {
        // Writing to a string cannot fail.
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
        Family(&mut self.0, name)
    }
}

impl Family<'_> {
    fn line(self, labels: &str, value: f64) -> Self {
        let name = self.1;
        let _ = if labels.is_empty() { writeln!(self.0, "{name} {value:?}") } else { writeln!(self.0, "{name}{{{labels}}} {value:?}") };
        self
    }
}
