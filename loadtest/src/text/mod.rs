//! Seeded text: what a simulated engine writes, and its tokens.
//!
//! Owns the text ([`Script`]), the tokenizer ([`token`]) and the small random generator ([`Rng`]) that both are drawn
//! from. All of it is pure: the same key gives the same text in every process, so a client can compute what a stream must
//! say without asking the engine. Knows nothing of HTTP or of requests; `engine::job` turns a request into a key.

mod rng;
mod script;
pub mod token;
mod words;

pub use rng::{Rng, hash, mix};
pub use script::{Kind, Script};
pub(crate) use script::{arguments, record, thought};
