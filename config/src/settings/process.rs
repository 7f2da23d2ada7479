//! Settings of the whole process.
//!
//! Owns: their rows. Must not: hold what can differ from pool to pool (`pool`). Next step of the path: `overlay`.

use crate::model::{LogFormat, Membership};
use crate::setting::{Kind, Setting};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

pub(crate) const LISTEN: Setting = Setting::address("listen", "0.0.0.0:8080")
    .at_start()
    .doc("Where clients connect: `IP:PORT`, an IPv6 address in brackets. Port 0 takes a free one, which the log names.")
    .why("every address, because a Pod's own address is not known before it runs; 8080 needs no privilege");
pub(crate) const ADMIN: Setting = Setting::address("admin", "0.0.0.0:9090")
    .at_start()
    .doc("Where `/livez`, `/readyz`, `/metrics`, `/debug/snapshot` and the status page answer. Keep it away from clients.")
    .why("the kubelet probes and Prometheus scrapes from outside the Pod");
pub(crate) const WORKERS: Setting = Setting::count_or_auto("workers", 1, 1024)
    .at_start()
    .doc("Threads that serve requests; `auto`: one for each processor that the process may use (a CPU limit counts).")
    .why("the relay is bound by processor time, and further threads only switch");
pub(crate) const KUBECONFIG: Setting = Setting::unset("kubeconfig", Kind::File)
    .at_start()
    .doc("Reach the API server as this file says. Without it: in-cluster where a ServiceAccount is mounted, else `KUBECONFIG`, else `~/.kube/config`. Chooses the source Kubernetes.")
    .why("a Pod needs none");
pub(crate) const NAMESPACE: Setting = Setting::unset("namespace", Kind::List)
    .at_start()
    .doc("Namespaces to watch. Without it: the own one (of the ServiceAccount, or of the kubeconfig's context). Chooses the source Kubernetes.")
    .why("a Role in one namespace is the least right that works");
pub(crate) const ALL_NAMESPACES: Setting = Setting::unset("all_namespaces", Kind::Switch)
    .at_start()
    .doc("Watch every namespace; needs a ClusterRole. Excludes `namespace`. Chooses the source Kubernetes.")
    .why("off: it needs rights on the whole cluster");
pub(crate) const MANIFESTS: Setting = Setting::unset("manifests", Kind::Folder)
    .at_start()
    .doc("Take ModelDeployments, Pods and Services from the YAML files of this folder, watched for change, instead of an API server.")
    .why("a cluster is the usual source");
pub(crate) const LEADERS: Setting = Setting::unset("leaders", Kind::Leaders)
    .at_start()
    .doc("Fixed leaders instead of an API server: `MODEL=URL[,URL…]`, the model `*` takes every name. In the file a list of such texts, or a map from model to URL or URLs. A URL is `http://HOST:PORT` or `https://HOST:PORT` without a path.")
    .why("a cluster is the usual source");
pub(crate) const MEMBERSHIP: Setting = Setting::choice::<Membership>("membership", "strict")
    .at_start()
    .doc("What makes a replica group whole. `strict`: every member is present, Ready and not deleting. `service`: as the role's Service says, which looks at the leader alone.")
    .why("a leader whose follower is gone still answers `/health` and hangs on the first generation");

pub(crate) const PINS: Setting = Setting::unset("names.pins", Kind::Structure)
    .doc("Map from served name to `namespace` (the oldest deployment there) or `namespace/deployment`: nobody else serves the name.")
    .why("no rule: the oldest deployment owns a name, which never changes under a running client");
pub(crate) const MERGE: Setting = Setting::unset("names.merge", Kind::Structure)
    .doc("List of `{model: NAME, deployments: [namespace/deployment, …]}`: these deployments, at least two, serve the name together as one pool.")
    .why("no rule: two deployments with one name are more often an accident than a plan");
pub(crate) const DEFAULT_TO_ONLY_POOL: Setting = Setting::switch("names.default_to_only_pool", "false")
    .doc("A request without a `model` field goes to the only pool there is; with two pools it is refused all the same.")
    .why("engines refuse or guess, and a second deployment would change what an old client reaches");
pub(crate) const EXTRA_ROUTES: Setting = Setting::list("routes.extra", "")
    .doc("Further paths to route, like `/v1/audio/transcriptions`: exact, no patterns. Paths by which an engine is controlled (loading adapters, sleeping, profiling, resetting caches) are refused.")
    .why("an engine answers whoever reaches it, so only what is known to be inference is routed");

pub(crate) const CORS_ENABLED: Setting = Setting::switch("cors.enabled", "true")
    .doc("Answer preflights and add the headers. Off: a preflight is answered with 405 and no header is added.")
    .why("vLLM does it");
pub(crate) const CORS_ORIGINS: Setting = Setting::list("cors.allow_origins", "*")
    .doc("`*` alone, or origins such as `https://chat.example.com`, without a path.")
    .why("vLLM's default");
pub(crate) const CORS_METHODS: Setting =
    Setting::list("cors.allow_methods", "*").doc("`*` alone, or methods such as `POST`.").why("vLLM's default");
pub(crate) const CORS_HEADERS: Setting =
    Setting::list("cors.allow_headers", "*").doc("`*` alone, or header names such as `authorization`.").why("vLLM's default");
pub(crate) const CORS_CREDENTIALS: Setting = Setting::switch("cors.allow_credentials", "false")
    .doc("Let browsers send cookies and client certificates. Not together with the origin `*`, which browsers refuse.")
    .why("vLLM's default; keys travel in `Authorization`, which needs no such permission");
pub(crate) const CORS_MAX_AGE: Setting = Setting::duration("cors.max_age", "10min")
    .or_zero()
    .doc("How long a browser may keep a preflight's answer. `0s`: not at all.")
    .why("what vLLM sends");

pub(crate) const CONNECTIONS: Setting = Setting::count("limits.connections", "16384", 1, 1 << 20)
    .at_start()
    .doc("Client connections open at once; further ones wait in the kernel's backlog. The limit of open files must be at least twice as high.")
    .why("more than one process relays at full rate, and below the open-file limits that container runtimes set");
pub(crate) const H2_STREAMS: Setting = Setting::count("limits.h2_streams", "256", 1, 65_536)
    .doc("Concurrent streams of one HTTP/2 connection. Applies to connections opened after the change.")
    .why("RFC 9113 section 6.5.2 asks for at least 100; a gateway in front opens few connections and many streams");
pub(crate) const REQUESTS: Setting = Setting::count("limits.requests", "16384", 1, 1 << 20)
    .doc("Requests in the gateway at once, running and waiting. Beyond it: 429 `queue_full`.")
    .why("one for each connection");
pub(crate) const BODY: Setting = Setting::size("limits.body_bytes", "128MiB", KIB, 4 * GIB)
    .flag_name("body-limit")
    .doc("Bytes of one request body. Beyond it: 413 `body_too_large`.")
    .why("a hundred megabytes of base64 images is seen in the field; smaller caps are a frequent complaint");
pub(crate) const BODY_TOTAL: Setting = Setting::size("limits.body_bytes_total", "1GiB", KIB, 1024 * GIB)
    .flag_name("body-limit-total")
    .doc("Bytes of all request bodies held at once, at least `limits.body_bytes`. Beyond it: 429 `queue_full`.")
    .why("bodies are held whole until they are sent; this and the streams' own memory fit in 2 GiB");
pub(crate) const HEADER_BYTES: Setting = Setting::size("limits.header_bytes", "64KiB", 8 * KIB, MIB)
    .doc("Bytes of a request's header section. Beyond it: 431. Applies to connections opened after the change.")
    .why("proxies in front allow between 32 and 64 KiB");
pub(crate) const HEADER_TIMEOUT: Setting = Setting::duration("limits.header_timeout", "30s")
    .doc("Time for a client to send a request's header section.")
    .why("long enough for a bad mobile link, short enough that half-sent requests do not fill the connections");
pub(crate) const BODY_TIMEOUT: Setting = Setting::duration("limits.body_timeout", "1min")
    .doc("Longest silence while a client sends its body. Beyond it: 408.")
    .why("a silence, not a total: a large body over a slow link is fine while it moves");
pub(crate) const IDLE_TIMEOUT: Setting = Setting::duration("limits.idle_timeout", "620s")
    .doc("Time an idle client connection is kept.")
    .why("longer than load balancers in front keep theirs (up to 600 s), so that never the gateway closes a connection that is about to be used");
pub(crate) const WRITE_TIMEOUT: Setting = Setting::duration("limits.write_timeout", "5min")
    .doc("Longest time in which a client takes nothing of what is written to it. Beyond it its connection is closed.")
    .why("a slow client is served as long as it reads; one that does not holds a leader's answer open");

pub(crate) const SETTLE: Setting = Setting::duration("shutdown.settle", "10s")
    .or_zero()
    .doc("After SIGTERM `/readyz` says 503 and new connections are still accepted for this long.")
    .why("every node needs a moment to take the Pod's endpoint out; connections sent here meanwhile must not be refused");
pub(crate) const GRACE: Setting = Setting::duration("shutdown.grace", "10min")
    .or_zero()
    .doc("Then running streams get this long to end; what is left ends with an in-stream error. `terminationGracePeriodSeconds` must be longer than both together.")
    .why("longer than almost every generation; nodes drain within it");

pub(crate) const LOG_FORMAT: Setting = Setting::choice::<LogFormat>("log.format", "json")
    .at_start()
    .doc("`json`: one object a line. `text`: for people.")
    .why("logs of a cluster are collected by machines");
pub(crate) const LOG_LEVEL: Setting = Setting::text("log.level", "info")
    .doc("A filter: a level (`error`, `warn`, `info`, `debug`, `trace`, `off`), or several `target=level` separated by commas, such as `info,discovery=debug`.")
    .why("state changes of groups are worth a line, single probes are not");
pub(crate) const LOG_ACCESS: Setting =
    Setting::switch("log.access", "true").doc("One line a request.").why("the first question after an incident is where a request went");
pub(crate) const LOG_ACCESS_SAMPLE: Setting = Setting::ratio("log.access_sample", "1.0")
    .doc("Share of access lines that is written. Errors and resumed requests always are.")
    .why("generations are few and long: a line each is cheap");
pub(crate) const LOG_ACCESS_FIELDS: Setting = Setting::list("log.access_fields", "")
    .doc("Fields of the access line, in this order. Empty: all of them. Their names are in [operations.md](operations.md#logs).")
    .why("all: leaving out is easier than missing one");

pub(crate) const REQUEST_METRICS: Setting = Setting::switch("telemetry.request_metrics", "true")
    .at_start()
    .doc("Count and time requests, attempts, events and tokens by pool. Off: `/metrics` keeps what is read at each scrape (groups, requests at leaders and waiting, the snapshot, the process), refusals and connections, and the status page has no rates.")
    .why("a gateway that nobody can watch is of no use; what it costs is measured in [performance.md](performance.md)");
pub(crate) const MIRROR_NAMES: Setting = Setting::switch("telemetry.mirror_names", "false")
    .at_start()
    .doc("`/metrics` also carries the main figures under the names of the GenAI conventions (`gen_ai_server_*`) and of the Gateway API Inference Extension (`inference_*`).")
    .why("twice the series for those who do not ask for them");
pub(crate) const KEEP_NOTABLE: Setting = Setting::switch("telemetry.keep_notable", "true")
    .at_start()
    .doc("Where tracing is on: send the spans of requests that failed or moved although they were not sampled.")
    .why("they are few, and the ones that somebody asks about");

pub(crate) const POOLS: Setting = Setting::unset("pools", Kind::Structure)
    .doc("Map from served model name to settings of the sections `clocks`, `engine_key`, `tls`, `probe`, `hold`, `retry` and `resume` that differ for this pool. What is not given there is as at the top level.")
    .why("one set of settings suits every pool until one of them is special");

/// In the order of the reference.
pub(crate) const ROWS: &[&Setting] = &[
    &LISTEN,
    &ADMIN,
    &WORKERS,
    &KUBECONFIG,
    &NAMESPACE,
    &ALL_NAMESPACES,
    &MANIFESTS,
    &LEADERS,
    &MEMBERSHIP,
    &POOLS,
    &PINS,
    &MERGE,
    &DEFAULT_TO_ONLY_POOL,
    &EXTRA_ROUTES,
    &CORS_ENABLED,
    &CORS_ORIGINS,
    &CORS_METHODS,
    &CORS_HEADERS,
    &CORS_CREDENTIALS,
    &CORS_MAX_AGE,
    &CONNECTIONS,
    &H2_STREAMS,
    &REQUESTS,
    &BODY,
    &BODY_TOTAL,
    &HEADER_BYTES,
    &HEADER_TIMEOUT,
    &BODY_TIMEOUT,
    &IDLE_TIMEOUT,
    &WRITE_TIMEOUT,
    &SETTLE,
    &GRACE,
    &LOG_FORMAT,
    &LOG_LEVEL,
    &LOG_ACCESS,
    &LOG_ACCESS_SAMPLE,
    &LOG_ACCESS_FIELDS,
    &REQUEST_METRICS,
    &MIRROR_NAMES,
    &KEEP_NOTABLE,
];
