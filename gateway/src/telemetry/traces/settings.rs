//! The standard `OTEL_*` variables, read once.
//!
//! Owns: their reading. Must not: read the environment itself; the caller passes the look-up. Tracing is off unless a collector is named
//! (`OTEL_EXPORTER_OTLP_ENDPOINT` or `…_TRACES_ENDPOINT`), so that a default costs nothing.

use std::time::Duration;

use opentelemetry::trace::{SpanKind, TraceId};
use opentelemetry_sdk::trace::{Sampler, SamplingDecision, ShouldSample};

use super::TraceError;

/// How spans travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// OTLP over gRPC.
    Grpc,
    /// OTLP as protobuf over HTTP/1.1.
    Http,
}

/// Which requests are recorded.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sampling {
    /// Follow the caller's decision where there is a caller.
    pub parent_based: bool,
    /// Share of the other requests, 0.0 to 1.0.
    pub ratio: f64,
}

impl Sampling {
    /// Whether a request is sampled; `parent`: the caller's decision.
    pub fn decide(self, trace_id: TraceId, parent: Option<bool>) -> bool {
        if let (true, Some(sampled)) = (self.parent_based, parent) {
            return sampled;
        }
        // The SDK's own rule over the trace id, so that every service of a trace that uses the same ratio decides alike.
        let by_ratio = Sampler::TraceIdRatioBased(self.ratio).should_sample(None, trace_id, "", &SpanKind::Server, &[], &[]);
        by_ratio.decision == SamplingDecision::RecordAndSample
    }
}

/// What tracing is told by its variables.
#[derive(Debug, Clone, PartialEq)]
pub struct TraceSettings {
    /// Where the collector is, with the path for HTTP.
    pub endpoint: String,
    /// How spans travel.
    pub protocol: Protocol,
    /// Which requests are recorded.
    pub sampling: Sampling,
    /// Send requests that failed or moved although they were not sampled. No variable says so: `read` gives true.
    pub keep_notable: bool,
    /// Take part in the caller's trace (`OTEL_PROPAGATORS` has `tracecontext`).
    pub propagate: bool,
    /// Spans in the queue at most (`OTEL_BSP_MAX_QUEUE_SIZE`).
    pub queue: usize,
    /// Spans of one export at most (`OTEL_BSP_MAX_EXPORT_BATCH_SIZE`).
    pub batch: usize,
    /// Longest wait for a batch to fill (`OTEL_BSP_SCHEDULE_DELAY`).
    pub delay: Duration,
    /// Of one export (`OTEL_BSP_EXPORT_TIMEOUT`).
    pub timeout: Duration,
    /// PEM file with the roots that the collector's certificate is checked against.
    pub certificate: Option<String>,
    /// `OTEL_SERVICE_NAME` or the attribute names one already.
    pub named: bool,
}

type Lookup<'a> = &'a dyn Fn(&str) -> Option<String>;

impl TraceSettings {
    /// Reads the variables; `None`: tracing is off.
    ///
    /// # Errors
    /// Names the variable that cannot be read. (The specification would have it ignored; a typo that turns tracing off in silence helps
    /// nobody.)
    pub fn read(lookup: Lookup<'_>) -> Result<Option<Self>, TraceError> {
        let lookup = &|name: &str| lookup(name).map(|v| v.trim().to_owned()).filter(|v| !v.is_empty());
        let disabled = lookup("OTEL_SDK_DISABLED").is_some_and(|v| v.eq_ignore_ascii_case("true"));
        if disabled || lookup("OTEL_TRACES_EXPORTER").is_some_and(|v| v == "none") {
            return Ok(None);
        }
        let protocol = protocol(lookup)?;
        let Some(endpoint) = endpoint(lookup, protocol) else { return Ok(None) };
        let milliseconds = |name, default| Ok::<_, TraceError>(Duration::from_millis(number(lookup, name, default)?));
        let bound = |name, default| Ok::<_, TraceError>(usize::try_from(number(lookup, name, default)?.clamp(1, 1 << 20)).unwrap_or(1));
        let named = lookup("OTEL_SERVICE_NAME").is_some()
            || lookup("OTEL_RESOURCE_ATTRIBUTES").is_some_and(|a| a.split(',').any(|p| p.trim().starts_with("service.name=")));
        Ok(Some(Self {
            endpoint,
            protocol,
            sampling: sampling(lookup)?,
            keep_notable: true,
            propagate: lookup("OTEL_PROPAGATORS").is_none_or(|v| v.split(',').any(|p| p.trim() == "tracecontext")),
            queue: bound("OTEL_BSP_MAX_QUEUE_SIZE", 2048)?,
            batch: bound("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", 512)?,
            delay: milliseconds("OTEL_BSP_SCHEDULE_DELAY", 5000)?,
            timeout: milliseconds("OTEL_BSP_EXPORT_TIMEOUT", 30_000)?,
            certificate: lookup("OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE").or_else(|| lookup("OTEL_EXPORTER_OTLP_CERTIFICATE")),
            named,
        }))
    }
}

fn protocol(lookup: Lookup<'_>) -> Result<Protocol, TraceError> {
    let variable = "OTEL_EXPORTER_OTLP_PROTOCOL";
    match lookup("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL").or_else(|| lookup(variable)).as_deref() {
        None | Some("http/protobuf") => Ok(Protocol::Http),
        Some("grpc") => Ok(Protocol::Grpc),
        Some(other) => Err(TraceError::Variable { variable, value: other.to_owned(), expected: "`grpc` or `http/protobuf`" }),
    }
}

/// The signal's own variable is taken as it is; the general one is a base (OTLP exporter specification, endpoint URLs).
fn endpoint(lookup: Lookup<'_>, protocol: Protocol) -> Option<String> {
    if let Some(own) = lookup("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") {
        return Some(own);
    }
    let base = lookup("OTEL_EXPORTER_OTLP_ENDPOINT")?;
    Some(match protocol {
        Protocol::Grpc => base,
        Protocol::Http => format!("{}/v1/traces", base.trim_end_matches('/')),
    })
}

fn sampling(lookup: Lookup<'_>) -> Result<Sampling, TraceError> {
    let name = lookup("OTEL_TRACES_SAMPLER").unwrap_or_else(|| "parentbased_always_on".to_owned());
    let (parent_based, rule) = name.strip_prefix("parentbased_").map_or((false, name.as_str()), |rule| (true, rule));
    let ratio = match rule {
        "always_on" => 1.0,
        "always_off" => 0.0,
        "traceidratio" => ratio(lookup)?,
        _ => {
            let expected = "`always_on`, `always_off`, `traceidratio` or one of them behind `parentbased_`";
            return Err(TraceError::Variable { variable: "OTEL_TRACES_SAMPLER", value: name, expected });
        }
    };
    Ok(Sampling { parent_based, ratio })
}

fn ratio(lookup: Lookup<'_>) -> Result<f64, TraceError> {
    let variable = "OTEL_TRACES_SAMPLER_ARG";
    let Some(value) = lookup(variable) else { return Ok(1.0) };
    let parsed = value.parse::<f64>().ok().filter(|r| (0.0..=1.0).contains(r));
    parsed.ok_or(TraceError::Variable { variable, value, expected: "a number from 0 to 1" })
}

fn number(lookup: Lookup<'_>, variable: &'static str, default: u64) -> Result<u64, TraceError> {
    let Some(value) = lookup(variable) else { return Ok(default) };
    value.parse().map_err(|_| TraceError::Variable { variable, value, expected: "a whole number" })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Option<TraceSettings>, String> {
        let find = |name: &str| variables.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned());
        TraceSettings::read(&find).map_err(|e| e.to_string())
    }

    #[test]
    fn off_unless_a_collector_is_named() {
        assert_eq!(read(&[]), Ok(None));
        assert_eq!(read(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "")]), Ok(None));
        let named = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318");
        assert_eq!(read(&[named, ("OTEL_SDK_DISABLED", "true")]), Ok(None));
        assert_eq!(read(&[named, ("OTEL_TRACES_EXPORTER", "none")]), Ok(None));
        assert!(read(&[named]).unwrap().is_some());
    }

    #[test]
    fn endpoints_by_the_specification() {
        let endpoint = |variables: &[(&str, &str)]| read(variables).unwrap().unwrap().endpoint;
        assert_eq!(endpoint(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318/")]), "http://c:4318/v1/traces");
        let own = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://d/x");
        assert_eq!(endpoint(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318"), own]), "http://d/x");
        let grpc = ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc");
        assert_eq!(endpoint(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4317"), grpc]), "http://c:4317");
    }

    #[test]
    fn samplers() {
        let named = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c");
        let sampling = |name| read(&[named, ("OTEL_TRACES_SAMPLER", name), ("OTEL_TRACES_SAMPLER_ARG", "0.25")]).unwrap().unwrap().sampling;
        assert_eq!(sampling("parentbased_traceidratio"), Sampling { parent_based: true, ratio: 0.25 });
        assert_eq!(sampling("always_off"), Sampling { parent_based: false, ratio: 0.0 });
        assert!(read(&[named, ("OTEL_TRACES_SAMPLER", "sometimes")]).unwrap_err().contains("OTEL_TRACES_SAMPLER"));
        let bad = read(&[named, ("OTEL_TRACES_SAMPLER", "traceidratio"), ("OTEL_TRACES_SAMPLER_ARG", "2")]);
        assert!(bad.unwrap_err().contains("a number from 0 to 1"));
        let follow = Sampling { parent_based: true, ratio: 0.0 };
        assert!(follow.decide(TraceId::from(1_u128), Some(true)));
        assert!(!follow.decide(TraceId::from(1_u128), None));
        assert!(Sampling { parent_based: true, ratio: 1.0 }.decide(TraceId::from(u128::MAX), None));
        assert!(!Sampling { parent_based: true, ratio: 1.0 }.decide(TraceId::from(1_u128), Some(false)));
    }
}
