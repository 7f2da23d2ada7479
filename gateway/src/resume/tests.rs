//! Streams driven as the relay drives them.

mod engine;
mod support;
mod sweep;
mod transcripts;
