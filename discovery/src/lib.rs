//! Finds the replica groups of ModelDeployments, proves that their leaders serve, and publishes snapshots.
//!
//! Owns: everything between the API server (or its stand-ins) and one `Arc<Snapshot>`. Must not: route, count requests, or know HTTP
//! clients other than its own probes. Life of a watch event: `source` → `operator` → `index` → `group` → `probe` → `publish`.

pub mod dial;
pub mod probe;
pub mod snapshot;
pub mod source;
pub mod tasks;
