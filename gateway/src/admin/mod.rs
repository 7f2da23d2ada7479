//! The admin port: health, metrics, the snapshot as JSON, explanations, the log level, the status page.
//!
//! Owns: its own listener and connections, bounded apart from the clients' ones, so that a scrape still works when clients have used up
//! theirs. Must not: change anything but the log level, or show prompts, completions or keys. It speaks HTTP/1.1 without TLS and
//! without authentication: bind it where only operators reach it. Next step: `server` → `routes` → `state`, `explain`.

mod events;
pub mod explain;
mod history;
pub mod model;
mod routes;
mod server;
mod state;

use std::sync::Arc;
use std::time::SystemTime;

use crate::telemetry::logs::Logs;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::recent::Recent;
use crate::telemetry::view::View;

pub use server::serve;
pub use state::state;

/// What the admin port shows.
#[derive(Clone)]
pub struct Admin {
    /// Served at `/metrics`.
    pub metrics: Arc<Metrics>,
    /// The running gateway.
    pub view: Arc<dyn View>,
    /// The last refusals and resumes.
    pub recent: Arc<Recent>,
    /// Whose level may be changed.
    pub logs: Arc<Logs>,
    /// `/metrics` also carries the names of other conventions.
    pub mirror_names: bool,
    /// When the process started.
    pub started: SystemTime,
}

impl std::fmt::Debug for Admin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Admin").field("mirror_names", &self.mirror_names).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
