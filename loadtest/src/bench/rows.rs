//! What is measured: each row names its engines, its load and the figure that is taken from it.

use super::proxies::Kind;

/// The figure of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Figure {
    /// Processor time of the proxy for each whole answer, in µs.
    PerRequest,
    /// The same, in turns with a process of its own over the first few of the leaders.
    ManyLeaders,
    /// Processor time of the proxy for each event, in µs.
    PerEvent,
    /// Median and 99th percentile of the time to a whole answer, in µs, and what each proxy adds to the time without one.
    Latency,
    /// Time to the first event and between events, in ms, and what each proxy adds to the times without one.
    FirstToken,
    /// Processor time of the proxy for each whole answer, in µs, at the same rate over few connections and over many that are all open.
    Growth,
    /// Resident memory for each open stream, in KiB.
    PerStream,
    /// Until the engine sees a client's disconnect, in ms: decode, prefill, not streamed.
    Gone,
}

/// One row.
#[derive(Debug, Clone, Copy)]
pub(super) struct Row {
    pub(super) name: &'static str,
    pub(super) figure: Figure,
    /// Addresses of the one engine process.
    pub(super) leaders: usize,
    /// Flags of `loadtest engine`.
    pub(super) engine: &'static [&'static str],
    /// Flags of `loadtest flood`.
    pub(super) load: &'static [&'static str],
    /// Connections of the load; of a row about growth, the many.
    pub(super) connections: usize,
    /// The gateway's set-ups are compared too.
    pub(super) variants: bool,
}

const AT_ONCE: &[&str] = &["--ttft-ms", "0", "--itl-ms", "0"];

/// All rows, in order.
pub(super) const ROWS: &[Row] = &[
    Row { name: "small", figure: Figure::PerRequest, leaders: 4, engine: AT_ONCE, load: &[], connections: 16, variants: true },
    Row { name: "1,000 leaders", figure: Figure::ManyLeaders, leaders: 1000, engine: AT_ONCE, load: &[], connections: 16, variants: false },
    Row {
        name: "SSE 12,500/s",
        figure: Figure::PerEvent,
        leaders: 4,
        engine: &["--ttft-ms", "5", "--itl-ms", "20"],
        load: &["--stream", "--max-tokens", "100000"],
        connections: 250,
        variants: true,
    },
    Row {
        name: "batched, 32 a write",
        figure: Figure::PerEvent,
        leaders: 4,
        engine: &["--ttft-ms", "0", "--itl-ms", "0", "--batch", "32"],
        load: &["--stream", "--max-tokens", "32000"],
        connections: 16,
        variants: true,
    },
    Row {
        name: "body 100 KiB",
        figure: Figure::PerRequest,
        leaders: 4,
        engine: AT_ONCE,
        load: &["--body-bytes", "102400"],
        connections: 16,
        variants: false,
    },
    Row {
        name: "body 4 MiB",
        figure: Figure::PerRequest,
        leaders: 4,
        engine: AT_ONCE,
        load: &["--body-bytes", "4194304"],
        connections: 4,
        variants: false,
    },
    Row {
        name: "1,000 req/s",
        figure: Figure::Latency,
        leaders: 4,
        engine: AT_ONCE,
        load: &["--rate", "1000"],
        connections: 50,
        variants: false,
    },
    // Open loop, about 100 streams at a time and 5,000 events a second: no process is near the end of its processor. The engine waits for
    // nothing before the first event, so that no timer of its own is in that time.
    Row {
        name: "time to first token",
        figure: Figure::FirstToken,
        leaders: 4,
        engine: &["--ttft-ms", "0", "--itl-ms", "20"],
        load: &["--stream", "--max-tokens", "50", "--rate", "100"],
        connections: 200,
        variants: false,
    },
    Row {
        name: "10 and 10,000 connections",
        figure: Figure::Growth,
        leaders: 4,
        engine: AT_ONCE,
        load: &["--rate", "2500"],
        connections: 10_000,
        variants: false,
    },
    Row {
        name: "2,000 streams",
        figure: Figure::PerStream,
        leaders: 4,
        engine: &["--ttft-ms", "100", "--itl-ms", "1000"],
        load: &["--stream", "--max-tokens", "100000"],
        connections: 2000,
        variants: true,
    },
    Row {
        name: "9,500 streams",
        figure: Figure::PerStream,
        leaders: 4,
        engine: &["--ttft-ms", "100", "--itl-ms", "2000"],
        load: &["--stream", "--max-tokens", "100000"],
        connections: 9500,
        variants: false,
    },
    Row { name: "client gone", figure: Figure::Gone, leaders: 1, engine: &[], load: &[], connections: 0, variants: false },
];

impl Row {
    /// Whether `kind` takes part.
    pub(super) fn takes(&self, kind: Kind) -> bool {
        let two_workers_share_the_load_cpu = kind == Kind::TwoWorkers && self.figure == Figure::PerStream;
        // Nothing in between costs nothing. The forwarder has a connection to an engine for each one that is open, used or not, and the
        // usual hard limit is 20,000 descriptors.
        let out_of_growth = self.figure == Figure::Growth && matches!(kind, Kind::Direct | Kind::Forwarder);
        !two_workers_share_the_load_cpu && !out_of_growth && (self.variants || !kind.is_variant())
    }
}
