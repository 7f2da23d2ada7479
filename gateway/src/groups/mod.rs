//! The gateway's side of replica groups: what is kept per incarnation and per pool while requests run.
//!
//! Owns: permits, health, waiting queues, and the table that pairs them with a snapshot. Must not: decide phases (discovery does) or speak HTTP.

pub mod budget;
pub mod health;
mod incarnations;
pub mod permits;
pub mod queue;
pub mod state;
pub mod table;
