//! The table of every setting: path, bounds, default, reason, documentation.
//!
//! Owns: the one list that flags, environment variables, the file's known keys and docs/config.md all come from.
//! Must not: read values. Next step of the path: `overlay` reads the rows into the typed configuration.

pub(crate) mod pool;
pub(crate) mod process;

use crate::setting::Setting;

/// A section of the file, for the reference: its name, what it is about.
pub(crate) const SECTIONS: &[(&str, &str)] = &[
    ("", "Top-level keys."),
    ("names", "Which deployment owns which served name. Without a rule the oldest deployment that serves a name owns it."),
    (
        "routes",
        "Which paths are routed to engines. The built-in list is `/v1/` `chat/completions`, `completions`, `embeddings`, `responses`, `messages`, `rerank`, `score`, `pooling`, `classify`, and `/tokenize` and `/detokenize`.",
    ),
    ("cors", "How cross-origin requests from browsers are answered."),
    ("limits", "Bounds of the whole process."),
    ("shutdown", "The gateway's own end, from the first SIGTERM. A second signal ends it at once."),
    ("log", "What is logged and how. Prompts, completions and credentials never are."),
    ("telemetry", "Metrics and traces. Where spans go is said by the standard `OTEL_*` variables (see [tracing.md](tracing.md))."),
    ("clocks", "Waits towards a leader. There is no total timeout on a stream."),
    ("engine_key", "The key of engines that were started with `--api-key`."),
    ("tls", "How https engines are dialled. They are dialled at the Pod's address."),
    ("probe", "Proof that a leader really serves. Without it no request is sent there."),
    ("hold", "Waiting while nothing serves: a pause instead of an error."),
    ("retry", "Second tries before the first event, only where the first try provably did nothing."),
    ("resume", "Carrying a broken stream on at another leader."),
];

/// Every row, in the order of the reference.
pub(crate) fn all() -> impl Iterator<Item = &'static Setting> {
    process::ROWS.iter().chain(pool::ROWS).copied()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_row_is_complete_and_unique() {
        let mut seen = BTreeSet::new();
        for row in all() {
            assert!(seen.insert(row.path), "{} twice", row.path);
            assert!(row.variable().is_none_or(|name| seen.insert(name.leak())), "{}: variable twice", row.path);
            assert!(!row.doc.is_empty() && !row.why.is_empty(), "{}: no documentation or no reason", row.path);
            assert!(SECTIONS.iter().any(|(name, _)| *name == row.section()), "{}: unknown section", row.path);
        }
    }
}
