//! Streams driven as the relay drives them.

mod client;
mod engine;
mod refusals;
mod support;
mod sweep;
mod transcripts;
