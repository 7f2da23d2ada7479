//! A client that checks what it gets.
//!
//! Sends the requests of a plan over HTTP/1.1 or HTTP/2, reads streams with its own event reader, and compares every
//! character with what the engine's persona must say. `connect` owns connections, `observe` one request, `watch` its
//! answer while it comes, `transcript` puts an answer together, `check` says what is wrong with it. It never retries: what
//! a user's plain client would see is what is to be measured.

mod check;
mod connect;
mod expectation;
mod observe;
mod transcript;
mod watch;

pub use check::{Problem, TextFault, compare};
pub use connect::{Client, ClientError, Protocol, Target};
pub use expectation::Expectation;
pub use observe::{End, Observation};
