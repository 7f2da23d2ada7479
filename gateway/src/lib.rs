//! gateway

pub mod admin;
pub mod cli;
pub mod sse;
pub mod telemetry;
