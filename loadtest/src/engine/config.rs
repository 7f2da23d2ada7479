//! How an engine is set up: everything besides what it writes.
//!
//! Owns the defaults and their reasons. The persona says what is written, this says when, to whom and how it dies.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use super::persona::Persona;

/// The set-up of one engine.
#[derive(Debug, Clone)]
pub struct EngineConfig {
    /// Where it listens; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Where it takes commands; none by default.
    pub control: Option<SocketAddr>,
    /// What it writes.
    pub persona: Persona,
    /// How fast it is.
    pub pace: Pace,
    /// How much it takes.
    pub limits: EngineLimits,
    /// How it dies.
    pub death: Death,
    /// `--api-key`: guards `/v1`.
    pub api_key: Option<String>,
    /// `--enable-request-id-headers`.
    pub request_id_headers: bool,
    /// `--sse-keep-alive-interval`.
    pub sse_keep_alive: Option<Duration>,
    /// For benchmarks: answers that are rendered once and say nothing.
    pub canned: bool,
    /// A follower: it should never be asked anything. Each request is counted as a fault and answered with 500.
    pub follower: bool,
    /// How many requests are remembered.
    pub requests_log: usize,
    /// Seed of the jitter, of sampled texts and of the endings.
    pub seed: u64,
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            control: None,
            persona: Persona::default(),
            pace: Pace::default(),
            limits: EngineLimits::default(),
            death: Death::default(),
            api_key: None,
            request_id_headers: false,
            sse_keep_alive: None,
            canned: false,
            follower: false,
            requests_log: 4096,
            seed: 0,
        }
    }
}

impl EngineConfig {
    /// An engine for tests: serves `model`, starts at once, takes no time.
    pub fn fast(model: &str) -> Self {
        Self { persona: Persona::named(model), pace: Pace::none(), ..Self::default() }
    }
}

/// Times of generating.
#[derive(Debug, Clone)]
pub struct Pace {
    /// From the start until the port accepts.
    pub startup: Duration,
    /// From the request to its first token.
    pub first_token: Duration,
    /// From token to token.
    pub token: Duration,
    /// Each of these times is longer or shorter by up to this share, in percent.
    pub jitter: u32,
    /// Rounds of tokens that go into one write.
    pub batch: usize,
}

impl Default for Pace {
    fn default() -> Self {
        Self { startup: Duration::ZERO, first_token: Duration::from_millis(80), token: Duration::from_millis(20), jitter: 20, batch: 1 }
    }
}

impl Pace {
    /// As fast as the machine can.
    pub fn none() -> Self {
        Self { startup: Duration::ZERO, first_token: Duration::ZERO, token: Duration::ZERO, jitter: 0, batch: 1 }
    }

    /// A steady pace.
    pub fn steady(first_token: Duration, token: Duration) -> Self {
        Self { first_token, token, ..Self::none() }
    }
}

/// Bounds of an engine.
#[derive(Debug, Clone)]
pub struct EngineLimits {
    /// Requests that generate at the same time; more of them wait (`--max-num-seqs`).
    pub running: usize,
    /// Requests that may wait; the next one gets 503 (`--max-num-queued-reqs`, off by default).
    pub queued: Option<usize>,
    /// Longest body in bytes.
    pub body: usize,
    /// Open connections; beyond it the backlog fills.
    pub connections: usize,
    /// How long an idle connection is kept (engine facts, section 2).
    pub idle: Duration,
}

impl Default for EngineLimits {
    fn default() -> Self {
        Self { running: 256, queued: None, body: 64 << 20, connections: 20_000, idle: Duration::from_secs(5) }
    }
}

/// Times and chances of dying, from engine facts, section 4.
#[derive(Debug, Clone)]
pub struct Death {
    /// `--shutdown-timeout`: how long running requests may go on after a SIGTERM.
    pub shutdown_timeout: Duration,
    /// The ending of a default SIGTERM; `None` draws one by the measured chances.
    pub ending: Option<Ending>,
    /// How long new requests get 500 before the port refuses.
    pub failing: Duration,
    /// How long the process stays when nothing is left to do.
    pub linger: Duration,
    /// How long a dead engine process goes unnoticed.
    pub notice: Duration,
}

impl Default for Death {
    fn default() -> Self {
        Self {
            shutdown_timeout: Duration::ZERO,
            ending: None,
            failing: Duration::from_millis(250),
            linger: Duration::from_secs(1),
            notice: Duration::from_millis(1100),
        }
    }
}

impl Death {
    /// All times shorter, for tests.
    pub fn quick() -> Self {
        let short = Duration::from_millis(20);
        Self { failing: short, linger: short, notice: short, ..Self::default() }
    }
}

/// What a default SIGTERM does to running requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Ending {
    /// A last event with `finish_reason: "abort"`, the mark, a clean end.
    Abort,
    /// An error event, the mark, a clean end.
    Error,
    /// Nothing ever again on an open connection.
    Silence,
}
