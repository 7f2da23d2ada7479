//! `loadtest demo`: the gateway beside a simulated cluster, on one machine, under load, while replicas are replaced.
//!
//! Owns: the stage (API server, operator, engines, gateways, a plain forwarder), what happens on it, the load, and the report with its pass
//! line. Must not: know the gateway but by its flags, ports and signals.
//!
//! Life of a run: `cli` → `scenario` (what happens) on a `stage` (what is there), while `load` sends `traffic` through the crate's checking
//! client → `report`. `matrix` picks many scenarios. `relay` is every plain TCP forwarder of the stage.

mod ask;
pub mod cli;
mod gateways;
mod load;
mod matrix;
mod relay;
mod report;
mod scenario;
mod stage;
mod traffic;

pub use report::{Report, Summary};
pub use scenario::{Event, Mode, Scenario, play};
pub use stage::{ApiSource, Stage, StageConfig};

/// Why a run could not be made at all. A run that was made and failed is a [`Report`].
pub type Failure = Box<dyn std::error::Error + Send + Sync>;
