//! Streams driven as the relay drives them.

mod engine;
mod sweep;
