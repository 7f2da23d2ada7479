//! The harness of the integration tests: real parts around the gateway, started, watched and stopped.
//!
//! Owns: processes (`process`), a real API server (`apiserver`), objects on it (`cluster`, `fixture`), the real gateway binary
//! (`gateway`), clients of it (`http`, `python`) and waiting for a state (`poll`). Must not: hold a test, sleep for a fixed time, or
//! know how the gateway works inside. A test starts with [`apiserver::ApiServer::shared`] and [`cluster::Cluster::new`].
//!
//! Everything listens on loopback addresses and on ports that were free a moment ago; every process ends with the handle that started
//! it, and also when the test process is killed.

pub mod apiserver;
pub mod binaries;
pub mod cluster;
pub mod deployments;
pub mod fixture;
pub mod gateway;
pub mod http;
pub mod poll;
pub mod process;
pub mod python;
pub mod service_account;

/// Why a harness step could not be done; a test passes it on with `?`.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The answer of every harness step.
pub type Outcome<T> = Result<T, Failure>;
