//! Load generator, simulated engine, simulated operator and demo.
//!
//! Keeps its own view of the protocol and of time, so that it can disagree with the gateway: nothing here may depend on
//! the gateway's crates, except the demo, which starts it.

pub mod bench;
pub mod client;
pub mod demo;
pub mod engine;
pub mod flood;
pub mod operator;
pub mod plan;
pub mod record;
pub mod report;
pub mod resume_check;
pub mod run;
pub mod sse;
pub mod standin;
pub mod text;
