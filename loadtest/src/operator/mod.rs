//! A simulated operator with kubelet: reconciles ModelDeployments of an API server into Pods, Services and status as the GPUStack operator
//! does, and runs a simulated engine behind every leader.
//!
//! Owns: everything that operator, Kueue, scheduler and kubelet do in a real cluster, with its times. Must not: share code with the
//! gateway's view of the same objects, so that one can disagree with the other.
//!
//! Life of a pass (`run`): read (`apply`) → `view` → decide (`plan` over `slots`, `retire`, `eligibility`, `services`, `render`,
//! `status`; all pure) → carry out (`apply`) → admit (`kueue`) → tell the `kubelet`. A test starts with [`Operator::start`].

mod apply;
pub mod cli;
mod config;
mod control;
mod eligibility;
mod handle;
mod keys;
mod kubelet;
mod kueue;
pub mod loopback;
mod plan;
mod render;
mod retire;
mod run;
mod services;
mod slots;
mod spec;
mod status;
#[cfg(test)]
mod testing;
mod view;

pub use config::{OperatorConfig, Timing};
pub use handle::{Operator, OperatorError, OperatorHandle};
pub use kubelet::{Order, PodInfo};

pub(crate) use apply::resource;

/// The CRD that a cluster needs before the operator can be started on it.
pub const CRD: &str = include_str!("crd.yaml");
