//! What the gateway says about itself: metrics, log lines, traces and the read model that the admin port shows.
//!
//! Owns: every metric family, every label set, the log writer and the access line. Must not: decide anything about a request,
//! block one, or carry a prompt, a completion or a key. The path of a request calls in here; nothing here calls back.

pub mod changes;
pub mod labels;
pub mod logs;
pub mod metrics;
pub mod recent;
pub mod traces;
pub mod usage;
pub mod view;
