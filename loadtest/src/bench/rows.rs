//! What is measured: each row names its engines, its load and the figure that is taken from it.

use super::proxies::Kind;

/// The figure of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Figure {
    /// Processor time of the proxy for each whole answer, in µs.
    PerRequest,
    /// Processor time of the proxy for each event, in µs.
    PerEvent,
    /// Median and 99th percentile of the time to a whole answer, in µs.
    Latency,
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
    /// Connections of the load.
    pub(super) connections: usize,
    /// The gateway's set-ups are compared too.
    pub(super) variants: bool,
}

const AT_ONCE: &[&str] = &["--ttft-ms", "0", "--itl-ms", "0"];

/// All rows, in order.
pub(super) const ROWS: &[Row] = &[
    Row { name: "small", figure: Figure::PerRequest, leaders: 4, engine: AT_ONCE, load: &[], connections: 16, variants: true },
    Row { name: "1,000 leaders", figure: Figure::PerRequest, leaders: 1000, engine: AT_ONCE, load: &[], connections: 16, variants: false },
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
        !two_workers_share_the_load_cpu && (self.variants || !kind.is_variant())
    }
}
