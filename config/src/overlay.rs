//! Lays the layers over each other, field by field, into the typed configuration.
//!
//! Owns: which row of the table fills which field. Must not: know where a value comes from (`layer`) or what it may be (`read`).
//! Next step of the path: `rules` compares the finished fields with each other.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::model::{
    Clocks, Config, Cors, EngineKey, GenerationProbe, HoldSettings, KubernetesSource, Limits, LogFormat, LogSettings, Membership,
    NameRules, PoolSettings, ProbeSettings, ResumeSettings, RetrySettings, Routes, ShutdownSettings, Source, TelemetrySettings, TlsVerify,
    UpstreamTls,
};
use crate::problem::{Place, Problems};
use crate::read::Reader;
use crate::setting::Words;
use crate::settings::{pool, process};

impl Words for Membership {
    const WORDS: &'static [(&'static str, Self)] = &[("strict", Self::Strict), ("service", Self::Service)];
}

impl Words for LogFormat {
    const WORDS: &'static [(&'static str, Self)] = &[("json", Self::Json), ("text", Self::Text)];
}

impl Words for TlsVerify {
    const WORDS: &'static [(&'static str, Self)] = &[("none", Self::None), ("chain", Self::Chain), ("full", Self::Full)];
}

/// The settings of the whole process that are not a structure. `processors` is what `workers: auto` means.
pub(crate) fn process(reader: &mut Reader<'_>, processors: usize, config: &mut Config) {
    reader.address(&process::LISTEN, &mut config.listen);
    reader.address(&process::ADMIN, &mut config.admin);
    reader.count_or(&process::WORKERS, processors, &mut config.workers);
    reader.choice(&process::MEMBERSHIP, &mut config.membership);
    reader.switch(&process::DEFAULT_TO_ONLY_POOL, &mut config.names.default_to_only_pool);
    reader.list(&process::EXTRA_ROUTES, &mut config.routes.extra);
    cors(reader, &mut config.cors);
    limits(reader, &mut config.limits);
    reader.duration(&process::SETTLE, &mut config.shutdown.settle);
    reader.duration(&process::GRACE, &mut config.shutdown.grace);
    reader.choice(&process::LOG_FORMAT, &mut config.log.format);
    reader.text(&process::LOG_LEVEL, &mut config.log.level);
    reader.switch(&process::LOG_ACCESS, &mut config.log.access);
    reader.ratio(&process::LOG_ACCESS_SAMPLE, &mut config.log.access_sample);
    reader.list(&process::LOG_ACCESS_FIELDS, &mut config.log.access_fields);
    reader.switch(&process::REQUEST_METRICS, &mut config.telemetry.request_metrics);
    reader.switch(&process::MIRROR_NAMES, &mut config.telemetry.mirror_names);
    reader.switch(&process::KEEP_NOTABLE, &mut config.telemetry.keep_notable);
}

fn cors(reader: &mut Reader<'_>, cors: &mut Cors) {
    reader.switch(&process::CORS_ENABLED, &mut cors.enabled);
    reader.list(&process::CORS_ORIGINS, &mut cors.allow_origins);
    reader.list(&process::CORS_METHODS, &mut cors.allow_methods);
    reader.list(&process::CORS_HEADERS, &mut cors.allow_headers);
    reader.switch(&process::CORS_CREDENTIALS, &mut cors.allow_credentials);
    reader.duration(&process::CORS_MAX_AGE, &mut cors.max_age);
}

fn limits(reader: &mut Reader<'_>, limits: &mut Limits) {
    reader.count(&process::CONNECTIONS, &mut limits.connections);
    reader.count(&process::H2_STREAMS, &mut limits.h2_streams);
    reader.count(&process::REQUESTS, &mut limits.requests);
    reader.size(&process::BODY, &mut limits.body_bytes);
    reader.size(&process::BODY_TOTAL, &mut limits.body_bytes_total);
    reader.size(&process::HEADER_BYTES, &mut limits.header_bytes);
    reader.duration(&process::HEADER_TIMEOUT, &mut limits.header_timeout);
    reader.duration(&process::BODY_TIMEOUT, &mut limits.body_timeout);
    reader.duration(&process::IDLE_TIMEOUT, &mut limits.idle_timeout);
    reader.duration(&process::WRITE_TIMEOUT, &mut limits.write_timeout);
}

/// A pool's settings while layers are laid over each other. The engine key's parts come from different layers, and one without a file
/// has no place in the typed settings.
#[derive(Clone)]
pub(crate) struct PoolDraft {
    settings: PoolSettings,
    key_file: Option<PathBuf>,
    key_forward: bool,
}

impl PoolDraft {
    pub(crate) fn blank() -> Self {
        Self { settings: blank_pool(), key_file: None, key_forward: false }
    }

    /// The settings; `path` is where the pool stands, for the problem of a key without a file.
    pub(crate) fn finish(self, path: &str, problems: &mut Problems) -> PoolSettings {
        let Self { mut settings, key_file, key_forward } = self;
        if key_forward && key_file.is_none() {
            problems.add(&Place::new(path), "is on, but there is no key", "set engine_key.file too");
        }
        settings.engine_key = key_file.map(|file| EngineKey { file, forward: key_forward });
        settings
    }
}

/// The settings of a pool.
pub(crate) fn pool(reader: &mut Reader<'_>, draft: &mut PoolDraft) {
    reader.optional_path(&pool::KEY_FILE, &mut draft.key_file);
    reader.switch(&pool::KEY_FORWARD, &mut draft.key_forward);
    let settings = &mut draft.settings;
    reader.duration(&pool::CONNECT, &mut settings.clocks.connect);
    reader.duration(&pool::FIRST_EVENT, &mut settings.clocks.first_event);
    reader.duration(&pool::RESPONSE, &mut settings.clocks.response);
    reader.duration(&pool::IDLE, &mut settings.clocks.idle);
    reader.choice(&pool::TLS_VERIFY, &mut settings.tls.verify);
    reader.optional_path(&pool::TLS_CA, &mut settings.tls.ca_file);
    reader.optional_text(&pool::TLS_NAME, &mut settings.tls.server_name);
    probe(reader, &mut settings.probe);
    hold(reader, &mut settings.hold);
    reader.count(&pool::RETRY_BURST, &mut settings.retry.burst);
    reader.ratio(&pool::RETRY_RATIO, &mut settings.retry.ratio);
    reader.count(&pool::RETRY_ATTEMPTS, &mut settings.retry.attempts);
    resume(reader, &mut settings.resume);
}

fn probe(reader: &mut Reader<'_>, probe: &mut ProbeSettings) {
    let mut generation = probe.generation == GenerationProbe::On;
    reader.switch(&pool::GENERATION, &mut generation);
    probe.generation = if generation { GenerationProbe::On } else { GenerationProbe::Off };
    reader.switch(&pool::TRUST_MANAGED, &mut probe.trust_managed);
    reader.duration(&pool::WARMING_INTERVAL, &mut probe.warming_interval);
    reader.duration(&pool::SERVING_INTERVAL, &mut probe.serving_interval);
    reader.duration(&pool::PROBE_TIMEOUT, &mut probe.timeout);
    reader.duration(&pool::GENERATION_TIMEOUT, &mut probe.generation_timeout);
    reader.count(&pool::MISSES, &mut probe.misses);
}

fn hold(reader: &mut Reader<'_>, hold: &mut HoldSettings) {
    reader.duration(&pool::HOLD_TIMEOUT, &mut hold.timeout);
    reader.duration(&pool::HOLD_UNARY, &mut hold.timeout_unary);
    reader.duration(&pool::HOLD_NOTHING, &mut hold.timeout_nothing);
    reader.duration(&pool::HEARTBEAT_AFTER, &mut hold.heartbeat_after);
    reader.duration(&pool::HEARTBEAT_INTERVAL, &mut hold.heartbeat_interval);
    reader.count(&pool::HOLD_REQUESTS, &mut hold.max_requests);
    reader.size(&pool::HOLD_BYTES, &mut hold.max_bytes);
    reader.count(&pool::RELEASE, &mut hold.release);
}

fn resume(reader: &mut Reader<'_>, resume: &mut ResumeSettings) {
    reader.switch(&pool::RESUME_ENABLED, &mut resume.enabled);
    reader.duration(&pool::RESUME_STALL, &mut resume.stall);
    reader.count(&pool::MAX_MOVES, &mut resume.max_moves);
    reader.size(&pool::RESUME_TEXT, &mut resume.text_bytes);
    reader.size(&pool::RESUME_REQUEST, &mut resume.request_bytes);
    reader.size(&pool::RESUME_TOTAL, &mut resume.total_bytes);
    reader.switch(&pool::TOKEN_IDS, &mut resume.token_ids);
    reader.switch(&pool::COMMENT, &mut resume.comment);
}

/// A configuration with nothing in it, for the layer of defaults to fill; a test holds that every field is filled.
pub(crate) fn blank() -> Config {
    let nowhere = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
    Config {
        listen: nowhere,
        admin: nowhere,
        workers: 0,
        source: Source::Kubernetes(KubernetesSource::default()),
        membership: Membership::Strict,
        names: NameRules::default(),
        routes: Routes::default(),
        cors: Cors {
            enabled: false,
            allow_origins: Vec::new(),
            allow_methods: Vec::new(),
            allow_headers: Vec::new(),
            allow_credentials: false,
            max_age: Duration::ZERO,
        },
        limits: blank_limits(),
        shutdown: ShutdownSettings { settle: Duration::ZERO, grace: Duration::ZERO },
        log: LogSettings { format: LogFormat::Json, level: String::new(), access: false, access_sample: 0.0, access_fields: Vec::new() },
        telemetry: TelemetrySettings { request_metrics: false, mirror_names: false, keep_notable: false },
        defaults: Arc::new(blank_pool()),
        pools: BTreeMap::new(),
    }
}

fn blank_limits() -> Limits {
    Limits {
        connections: 0,
        h2_streams: 0,
        requests: 0,
        body_bytes: 0,
        body_bytes_total: 0,
        header_bytes: 0,
        header_timeout: Duration::ZERO,
        body_timeout: Duration::ZERO,
        idle_timeout: Duration::ZERO,
        write_timeout: Duration::ZERO,
    }
}

fn blank_pool() -> PoolSettings {
    let zero = Duration::ZERO;
    PoolSettings {
        clocks: Clocks { connect: zero, first_event: zero, response: zero, idle: zero },
        engine_key: None,
        tls: UpstreamTls { verify: TlsVerify::None, ca_file: None, server_name: None },
        probe: ProbeSettings {
            generation: GenerationProbe::Off,
            trust_managed: false,
            warming_interval: zero,
            serving_interval: zero,
            timeout: zero,
            generation_timeout: zero,
            misses: 0,
        },
        hold: HoldSettings {
            timeout: zero,
            timeout_unary: zero,
            timeout_nothing: zero,
            heartbeat_after: zero,
            heartbeat_interval: zero,
            max_requests: 0,
            max_bytes: 0,
            release: 0,
        },
        retry: RetrySettings { burst: 0, ratio: 0.0, attempts: 0 },
        resume: ResumeSettings {
            enabled: false,
            stall: zero,
            max_moves: 0,
            text_bytes: 0,
            request_bytes: 0,
            total_bytes: 0,
            token_ids: false,
            comment: false,
        },
    }
}
