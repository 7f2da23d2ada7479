//! The typed configuration: what the rest of Leadgate reads. Plain values, no behaviour beyond look-ups.
//!
//! Every duration, size and count has its unit in its documentation; every default and its reason stands in `settings`.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The whole configuration, complete and checked.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Where clients connect. Not changed live.
    pub listen: SocketAddr,
    /// Where `/livez`, `/readyz`, `/metrics` and `/debug` answer. Not changed live.
    pub admin: SocketAddr,
    /// Threads that serve requests, at least 1. Not changed live.
    pub workers: usize,
    /// Where leaders come from. Not changed live.
    pub source: Source,
    /// What makes a replica group whole. Not changed live.
    pub membership: Membership,
    /// Which deployment owns which served name.
    pub names: NameRules,
    /// Which paths are routed.
    pub routes: Routes,
    /// How cross-origin requests are answered.
    pub cors: Cors,
    /// Bounds of the whole process.
    pub limits: Limits,
    /// The gateway's own end.
    pub shutdown: ShutdownSettings,
    /// What is logged and how.
    pub log: LogSettings,
    /// Metrics and traces. Not changed live.
    pub telemetry: TelemetrySettings,
    /// Settings of a pool that `pools` does not name.
    pub defaults: Arc<PoolSettings>,
    /// Settings by served model name, already merged over `defaults`.
    pub pools: BTreeMap<String, Arc<PoolSettings>>,
}

impl Config {
    /// The settings of the pool that serves `model`.
    pub fn pool(&self, model: &str) -> &Arc<PoolSettings> {
        self.pools.get(model).unwrap_or(&self.defaults)
    }
}

/// The one discovery source of a process.
#[derive(Debug, Clone, PartialEq)]
pub enum Source {
    /// The API server: ModelDeployments, Pods and Services by watch.
    Kubernetes(KubernetesSource),
    /// A folder of YAML files with the same objects, watched for change.
    Manifests(PathBuf),
    /// Fixed leaders, one entry for each `--leaders`.
    Leaders(Vec<StaticLeaders>),
}

/// How to reach the API server and what to watch there.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct KubernetesSource {
    /// `None`: in-cluster if the ServiceAccount files exist, else `KUBECONFIG` or `~/.kube/config`.
    pub kubeconfig: Option<PathBuf>,
    /// Namespaces to watch; empty: the own one (of the ServiceAccount or of the kubeconfig's context).
    pub namespaces: Vec<String>,
    /// Watch every namespace (needs a ClusterRole). Excludes `namespaces`.
    pub all_namespaces: bool,
}

/// Leaders given by hand for one model name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StaticLeaders {
    /// Served name; `*` takes every name.
    pub model: String,
    /// `http://HOST:PORT` or `https://HOST:PORT`, at least one, no path; the port is always written out.
    pub urls: Vec<String>,
}

/// When a replica group counts as whole (operator contract 11.1 step 6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Membership {
    /// Every member present, Ready and not deleting.
    Strict,
    /// The role Service's own answer: only the leader counts.
    Service,
}

/// A ModelDeployment by name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeploymentRef {
    /// Kubernetes namespace.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
}

impl fmt::Display for DeploymentRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// Who may serve a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pin {
    /// Any deployment of this namespace (the oldest of them).
    Namespace(String),
    /// This deployment only.
    Deployment(DeploymentRef),
}

/// Deployments that together serve one name as one pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MergedPool {
    /// The served name.
    pub model: String,
    /// At least two.
    pub deployments: Vec<DeploymentRef>,
}

/// Ownership of served names where the oldest-deployment rule is not wanted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NameRules {
    /// By served name.
    pub pins: BTreeMap<String, Pin>,
    /// Pools of several deployments.
    pub merge: Vec<MergedPool>,
    /// A request without a `model` field goes to the only pool there is.
    pub default_to_only_pool: bool,
}

/// The allow-list of routed paths.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Routes {
    /// Paths routed like `/v1/chat/completions` besides the built-in ones; exact, each begins with `/`.
    pub extra: Vec<String>,
}

/// Cross-origin answers. The default is what vLLM answers: any origin, method and header, no credentials.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cors {
    /// Off: preflights get 405 and no header is added.
    pub enabled: bool,
    /// `["*"]` or exact origins.
    pub allow_origins: Vec<String>,
    /// `["*"]` or methods.
    pub allow_methods: Vec<String>,
    /// `["*"]` or header names.
    pub allow_headers: Vec<String>,
    /// Sends `access-control-allow-credentials: true`; refused together with the origin `*`.
    pub allow_credentials: bool,
    /// How long a browser may keep a preflight's answer.
    pub max_age: Duration,
}

/// Bounds of the whole process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Client connections open at once; further ones wait in the kernel's backlog. Not changed live.
    pub connections: usize,
    /// Concurrent streams of one HTTP/2 connection.
    pub h2_streams: u32,
    /// Requests in the gateway at once (running and waiting); beyond it 429 `queue_full`.
    pub requests: usize,
    /// Bytes of one request body.
    pub body_bytes: u64,
    /// Bytes of all request bodies held at once.
    pub body_bytes_total: u64,
    /// Bytes of a request's header section.
    pub header_bytes: u32,
    /// Time for a client to send a request's header section.
    pub header_timeout: Duration,
    /// Longest silence while a client sends its body.
    pub body_timeout: Duration,
    /// Time an idle client connection is kept.
    pub idle_timeout: Duration,
    /// Longest time in which a client takes nothing of what is written to it.
    pub write_timeout: Duration,
}

/// The gateway's own end (`LameDuck`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShutdownSettings {
    /// After SIGTERM `/readyz` says 503 and new connections are still accepted for this long.
    pub settle: Duration,
    /// Then running streams get this long before an explicit in-stream error.
    pub grace: Duration,
}

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// One JSON object a line.
    Json,
    /// For people.
    Text,
}

/// What is logged.
#[derive(Debug, Clone, PartialEq)]
pub struct LogSettings {
    /// Line format. Not changed live.
    pub format: LogFormat,
    /// A `tracing` filter such as `info` or `info,discovery=debug`.
    pub level: String,
    /// One line a request.
    pub access: bool,
    /// Share of access lines written, 0.0 to 1.0; errors and resumed requests are always written.
    pub access_sample: f64,
    /// Fields of the access line, in this order; empty: all.
    pub access_fields: Vec<String>,
}

/// Every field of the access line by its name, in the default order. The gateway writes them.
pub const ACCESS_FIELDS: &[&str] = &[
    "request_id",
    "trace_id",
    "client",
    "method",
    "path",
    "protocol",
    "route",
    "pool",
    "model",
    "group",
    "status",
    "outcome",
    "reason",
    "ending",
    "stream",
    "attempts",
    "resumes",
    "queue_ms",
    "first_byte_ms",
    "first_token_ms",
    "duration_ms",
    "prompt_tokens",
    "completion_tokens",
    "cached_tokens",
    "request_bytes",
    "response_bytes",
];

/// Metrics and traces. Where spans go is said by the standard `OTEL_*` variables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TelemetrySettings {
    /// Requests are counted and timed by pool.
    pub request_metrics: bool,
    /// `/metrics` also carries the names of other conventions.
    pub mirror_names: bool,
    /// Spans of requests that failed or moved are sent although they were not sampled.
    pub keep_notable: bool,
}

/// What can differ from pool to pool.
#[derive(Debug, Clone, PartialEq)]
pub struct PoolSettings {
    /// Waits towards a leader.
    pub clocks: Clocks,
    /// Key of engines that were started with `--api-key`.
    pub engine_key: Option<EngineKey>,
    /// Dialling of https engines.
    pub tls: UpstreamTls,
    /// Proof of serving.
    pub probe: ProbeSettings,
    /// Waiting while nothing serves.
    pub hold: HoldSettings,
    /// Second tries before the first event.
    pub retry: RetrySettings,
    /// Carrying broken streams on.
    pub resume: ResumeSettings,
}

/// Waits towards a leader. There is no total timeout on a generation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Clocks {
    /// TCP connect, and TLS handshake, each.
    pub connect: Duration,
    /// From the request sent to the first `data:` event of a stream; headers and comments prove nothing.
    pub first_event: Duration,
    /// From the request sent to the end of a non-streamed answer.
    pub response: Duration,
    /// Longest silence between `data:` events; comments do not reset it.
    pub idle: Duration,
}

/// A bearer token that engines ask for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineKey {
    /// File that holds the key; read again when it changes.
    pub file: PathBuf,
    /// Also put it on clients' requests (replacing their `Authorization`); otherwise only probes carry it.
    pub forward: bool,
}

/// How an https engine's certificate is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlsVerify {
    /// Not at all (as the kubelet does it: the name never matches a Pod IP).
    None,
    /// The chain, not the name.
    Chain,
    /// Chain and name.
    Full,
}

/// Dialling of https engines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpstreamTls {
    /// What is checked.
    pub verify: TlsVerify,
    /// PEM bundle of trusted roots; `None`: the system's.
    pub ca_file: Option<PathBuf>,
    /// SNI and, with `full`, the name to check; `None`: the address dialled.
    pub server_name: Option<String>,
}

/// Whether a one-token generation is part of the proof.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GenerationProbe {
    /// One completion of `max_tokens: 1`, skipped where the model does not generate.
    On,
    /// `/health` and `/v1/models` alone.
    Off,
}

/// Proof of serving.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbeSettings {
    /// Whether a generation is part of the proof.
    pub generation: GenerationProbe,
    /// Take a managed role's Ready (it has probes of its own) as proof.
    pub trust_managed: bool,
    /// Pace while a group is Warming.
    pub warming_interval: Duration,
    /// Pace while a group serves.
    pub serving_interval: Duration,
    /// Limit of `/health` and `/v1/models`.
    pub timeout: Duration,
    /// Limit of the one-token generation.
    pub generation_timeout: Duration,
    /// Misses in a row that take a serving group out, at least 1.
    pub misses: u32,
}

/// Waiting while nothing serves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HoldSettings {
    /// Longest wait of a streamed request while something is coming.
    pub timeout: Duration,
    /// Longest wait of any other request while something is coming.
    pub timeout_unary: Duration,
    /// Longest wait when nothing is coming.
    pub timeout_nothing: Duration,
    /// After this wait a streamed request gets 200 and comments.
    pub heartbeat_after: Duration,
    /// Pace of the comments.
    pub heartbeat_interval: Duration,
    /// Requests waiting at once in one pool.
    pub max_requests: usize,
    /// Bytes of the bodies waiting at once in one pool.
    pub max_bytes: u64,
    /// Released at once when a leader comes up; one more for each answer that it begins, two when it is warm.
    pub release: usize,
}

/// Second tries before the first event.
#[derive(Debug, Clone, PartialEq)]
pub struct RetrySettings {
    /// Retries that may be saved up (the bucket's size).
    pub burst: u32,
    /// Retries earned by each request, 0.0 to 1.0.
    pub ratio: f64,
    /// Attempts of one request, the first among them, at least 1.
    pub attempts: u32,
}

/// Carrying broken streams on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResumeSettings {
    /// Off: a broken stream ends with an error event.
    pub enabled: bool,
    /// Silence of a stream whose group is leaving or broken.
    pub stall: Duration,
    /// Planned moves of one request.
    pub max_moves: u32,
    /// Bytes of generated text kept per stream.
    pub text_bytes: usize,
    /// Bytes of request body kept per stream.
    pub request_bytes: usize,
    /// Bytes kept in the whole process; the same for every pool.
    pub total_bytes: usize,
    /// Ask engines for token ids and use them where they are exact.
    pub token_ids: bool,
    /// Tell the client by an SSE comment that its stream moved.
    pub comment: bool,
}
