//! gateway

pub mod sse;
