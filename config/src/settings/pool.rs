//! Settings that can differ from pool to pool.
//!
//! Owns: their rows. Must not: hold what the whole process shares (`process`). Next step of the path: `overlay`.

use crate::model::TlsVerify;
use crate::setting::{Kind, Setting};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

pub(crate) const CONNECT: Setting = Setting::duration("clocks.connect", "2s")
    .per_pool()
    .doc("TCP connect, and TLS handshake, each.")
    .why("a Pod of the same cluster answers within milliseconds; two lost SYNs still fit");
pub(crate) const FIRST_EVENT: Setting = Setting::duration("clocks.first_event", "10min")
    .per_pool()
    .doc("From the request sent to the first `data:` event of a stream. Headers and comments prove nothing.")
    .why("long prompts queue behind others for minutes; a shorter clock would send their work twice");
pub(crate) const RESPONSE: Setting = Setting::duration("clocks.response", "1h")
    .per_pool()
    .doc("From the request sent to the end of a non-streamed answer.")
    .why("nothing is seen of such an answer until it is whole, so this bounds a lost one only");
pub(crate) const IDLE: Setting = Setting::duration("clocks.idle", "10min")
    .per_pool()
    .doc("Longest silence between `data:` events; comments do not reset it.")
    .why("engines pre-empt a running request for minutes under load");

pub(crate) const KEY_FILE: Setting = Setting::unset("engine_key.file", Kind::File)
    .per_pool()
    .doc("File that holds the key, read again when it changes. White space around the key is ignored.")
    .why("most engines in a cluster ask for none; a file, so that no key stands in a configuration");
pub(crate) const KEY_FORWARD: Setting = Setting::switch("engine_key.forward", "false")
    .per_pool()
    .doc("Also put the key on clients' requests, in place of their `Authorization`. Otherwise only probes carry it.")
    .why("it would let every client in whom the gateway lets in");

pub(crate) const TLS_VERIFY: Setting = Setting::choice::<TlsVerify>("tls.verify", "none")
    .per_pool()
    .doc("`none`: nothing is checked, as the kubelet's https probes do. `chain`: the certificate's chain, not its name. `full`: chain and name.")
    .why("engines carry self-signed certificates whose name never matches a Pod's address");
pub(crate) const TLS_CA: Setting = Setting::unset("tls.ca_file", Kind::File)
    .per_pool()
    .doc("PEM bundle of trusted roots, for `chain` and `full`. Without it: the system's.")
    .why("the system's roots are what every other client uses");
pub(crate) const TLS_NAME: Setting = Setting::unset("tls.server_name", Kind::Text)
    .per_pool()
    .doc("Name to ask for (SNI) and, with `full`, to check. Without it: the address dialled.")
    .why("no name fits all engines");

pub(crate) const GENERATION: Setting = Setting::switch("probe.generation", "on")
    .per_pool()
    .doc("One completion of `max_tokens: 1` is part of the proof, where the model generates. Off: `/health` and `/v1/models` alone.")
    .why("`/health` says 200 while an engine hangs");
pub(crate) const TRUST_MANAGED: Setting = Setting::switch("probe.trust_managed", "false")
    .per_pool()
    .doc("Take the readiness of a managed role, which has probes of its own, as proof.")
    .why("its probes ask `/health` only");
pub(crate) const WARMING_INTERVAL: Setting = Setting::duration("probe.warming_interval", "1s")
    .per_pool()
    .doc("Pace while a group is Warming.")
    .why("a request may be waiting for this group; the probe of an engine that does not listen yet costs nothing");
pub(crate) const SERVING_INTERVAL: Setting = Setting::duration("probe.serving_interval", "10s")
    .per_pool()
    .doc("Pace while a group serves. A probe is left out when requests were answered well since the one before; every sixth is not. Behind a probe whose port refused, the next ones come at `probe.warming_interval`: no load does that.")
    .why("three misses take an idle group whose `/health` fails out within half a minute, and a busy one's requests say so at once");
pub(crate) const PROBE_TIMEOUT: Setting = Setting::duration("probe.timeout", "5s")
    .per_pool()
    .doc("Limit of `/health` and `/v1/models`, each.")
    .why("both are answered by the HTTP process alone, which stalls for a second or two under large prompts");
pub(crate) const GENERATION_TIMEOUT: Setting = Setting::duration("probe.generation_timeout", "1min")
    .per_pool()
    .doc("Limit of the one-token generation.")
    .why("the first one compiles kernels, and a later one waits behind long prompts");
pub(crate) const MISSES: Setting = Setting::count("probe.misses", "3", 1, 1000)
    .per_pool()
    .doc("Misses in a row that take a serving group out.")
    .why("one miss is load, three are a fault");

pub(crate) const HOLD_TIMEOUT: Setting = Setting::duration("hold.timeout", "30min")
    .or_zero()
    .per_pool()
    .doc("Longest wait of a streamed request while something is coming (a slot being replaced, Pods forming or warming). `0s`: no wait.")
    .why("a large model loads for ten to twenty minutes");
pub(crate) const HOLD_UNARY: Setting = Setting::duration("hold.timeout_unary", "5min")
    .or_zero()
    .per_pool()
    .doc("The same for requests that are not streamed. `0s`: no wait.")
    .why("nothing can be sent to keep such a client waiting, and most give up after ten minutes including the answer");
pub(crate) const HOLD_NOTHING: Setting = Setting::duration("hold.timeout_nothing", "5s")
    .or_zero()
    .per_pool()
    .doc("Longest wait when nothing is coming (deployment deleted, or scaled to zero). `0s`: no wait.")
    .why("long enough for the moment between two deployments");
pub(crate) const HEARTBEAT_AFTER: Setting = Setting::duration("hold.heartbeat_after", "5s")
    .per_pool()
    .doc("After this wait a streamed request gets 200 and comments. From then on a failure is an in-stream error event.")
    .why("shorter waits keep an honest status code; longer ones would run into clients' and middle boxes' timeouts");
pub(crate) const HEARTBEAT_INTERVAL: Setting = Setting::duration("hold.heartbeat_interval", "10s")
    .per_pool()
    .doc("Pace of the comments.")
    .why("three of them within the shortest idle timeout of common middle boxes, 30 s");
pub(crate) const HOLD_REQUESTS: Setting = Setting::count("hold.max_requests", "2048", 0, 1 << 20)
    .per_pool()
    .doc("Requests waiting at once in one pool; beyond it 429 `queue_full`. All pools together never take more than half of the connections. `0`: none waits.")
    .why("eight replicas' worth of requests at an engine's usual batch of 256");
pub(crate) const HOLD_BYTES: Setting = Setting::size("hold.max_bytes", "256MiB", 0, 1024 * GIB)
    .per_pool()
    .doc("Bytes of the bodies waiting at once in one pool; beyond it 429 `queue_full`.")
    .why("a quarter of what the process holds, so that one pool's outage starves no other; 128 KiB for each waiting request");
pub(crate) const RELEASE: Setting = Setting::count("hold.release", "4", 1, 65_536)
    .per_pool()
    .doc("Requests released at once when a leader comes up; one more for each answer that it begins, and two for each when it has begun four times as many.")
    .why("a cold engine compiles and fills caches with its first requests");

pub(crate) const RETRY_BURST: Setting = Setting::count("retry.burst", "512", 0, 1 << 20)
    .per_pool()
    .doc("Retries that may be saved up. `0`: no retries.")
    .why("everything that one leader had accepted and not begun, at a large batch, may have to move at once");
pub(crate) const RETRY_RATIO: Setting = Setting::ratio("retry.ratio", "0.2")
    .per_pool()
    .doc("Retries earned by each request.")
    .why("a fault of everything adds a fifth to the load and no more");
pub(crate) const RETRY_ATTEMPTS: Setting = Setting::count("retry.attempts", "4", 1, 100)
    .per_pool()
    .doc("Attempts of one request, the first among them. `1`: no retries.")
    .why("three groups in a row may be on their way out during one rollout");

pub(crate) const RESUME_ENABLED: Setting = Setting::switch("resume.enabled", "true")
    .per_pool()
    .doc("Carry broken streams on. Off: a broken stream ends with an error event.")
    .why("nobody shall notice a rollout");
pub(crate) const RESUME_STALL: Setting = Setting::duration("resume.stall", "5s")
    .per_pool()
    .doc("Silence after which a stream is moved whose group is leaving or broken. A healthy group has `clocks.idle`.")
    .why("a dying engine often keeps the stream open and sends nothing; a live one seldom pauses for seconds");
pub(crate) const MAX_MOVES: Setting = Setting::count("resume.max_moves", "3", 0, 100)
    .per_pool()
    .doc("Planned moves of one request. A move after an unplanned death happens once at most.")
    .why("a stream that outlives three leaders of a rollout is at the end of it");
pub(crate) const RESUME_TEXT: Setting = Setting::size("resume.text_bytes", "64KiB", 0, 64 * MIB)
    .per_pool()
    .doc("Bytes of generated text kept per stream. A longer stream is not resumable from then on.")
    .why("some sixteen thousand tokens");
pub(crate) const RESUME_REQUEST: Setting = Setting::size("resume.request_bytes", "1MiB", 0, GIB)
    .per_pool()
    .doc("Bytes of request body kept per stream. A stream with a larger body is not resumable.")
    .why("text prompts fit, images do not");
pub(crate) const RESUME_TOTAL: Setting = Setting::size("resume.total_bytes", "256MiB", KIB, 1024 * GIB)
    .doc("Bytes kept in the whole process. Streams beyond it are not resumable; a metric counts them.")
    .why("some eight thousand streams with prompts and answers of 32 KiB together");
pub(crate) const TOKEN_IDS: Setting = Setting::switch("resume.token_ids", "false")
    .per_pool()
    .doc("Ask engines for token ids and use them where they are exact.")
    .why("it makes every event larger and needs a recent engine");
pub(crate) const COMMENT: Setting = Setting::switch("resume.comment", "false")
    .per_pool()
    .doc("Tell the client by an SSE comment that its stream moved.")
    .why("some clients fail on comments in the middle of a stream");

/// In the order of the reference.
pub(crate) const ROWS: &[&Setting] = &[
    &CONNECT,
    &FIRST_EVENT,
    &RESPONSE,
    &IDLE,
    &KEY_FILE,
    &KEY_FORWARD,
    &TLS_VERIFY,
    &TLS_CA,
    &TLS_NAME,
    &GENERATION,
    &TRUST_MANAGED,
    &WARMING_INTERVAL,
    &SERVING_INTERVAL,
    &PROBE_TIMEOUT,
    &GENERATION_TIMEOUT,
    &MISSES,
    &HOLD_TIMEOUT,
    &HOLD_UNARY,
    &HOLD_NOTHING,
    &HEARTBEAT_AFTER,
    &HEARTBEAT_INTERVAL,
    &HOLD_REQUESTS,
    &HOLD_BYTES,
    &RELEASE,
    &RETRY_BURST,
    &RETRY_RATIO,
    &RETRY_ATTEMPTS,
    &RESUME_ENABLED,
    &RESUME_STALL,
    &MAX_MOVES,
    &RESUME_TEXT,
    &RESUME_REQUEST,
    &RESUME_TOTAL,
    &TOKEN_IDS,
    &COMMENT,
];
