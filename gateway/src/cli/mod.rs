//! Commands that look at a running gateway through its admin port: `topology` and `explain`.
//!
//! Owns: fetching and printing. Must not: read the cluster by itself, so that what is printed is what the gateway believes.

mod explain;
mod fetch;
mod table;
mod topology;

pub use explain::{ExplainArgs, explain};
pub use fetch::FetchError;
pub use topology::{Output, TopologyArgs, topology};

/// Where the admin port is if the command line does not say.
pub const ADMIN: &str = "http://127.0.0.1:9090";
