//! A simulated vLLM leader: the wire form, the text and the deaths of a real one, without a model.
//!
//! Two halves. The pure one turns a request into text: [`ask`] (fields), [`template`] (prompt), [`job`] (checks, key of
//! the text), [`source`] → [`decode`] → [`parser`] → [`choice`] (tokens to events), [`events`] and [`whole`] (bytes),
//! [`expect`] (the same for clients). The other one is a server: `lifecycle` → `connection` → `routes` → `generate` →
//! `stream`, writing through `exchange`, which is where faults and changes of `mood` strike.
//!
//! Markers in the last 4 KiB of a prompt choose the text: `#kind=prose|cjk|code|mixed`, `#sentences=N` (its natural length;
//! 4 to 12 without), `#nothink`, `#blank` (it begins with a newline); a request with tools calls one if the prompt says
//! `tool`. A raw prompt of `/v1/completions` is continued behind [`template::RAW_MARK`].
//!
//! Every way to carry a broken answer on that is wrong with a real engine comes out as wrong text here, marked with its
//! reason where there is one. The measured behaviour that this follows is called *engine facts* in comments.

pub mod ask;
mod canned;
pub mod choice;
pub mod cli;
mod config;
mod connection;
mod control;
pub mod decode;
pub mod errors;
pub mod events;
mod exchange;
pub mod expect;
mod fault;
mod form;
mod generate;
mod guarded;
mod handle;
mod http;
pub mod job;
mod lifecycle;
mod limits;
mod metrics;
mod mood;
mod other;
pub mod parser;
pub mod persona;
mod routes;
mod shared;
pub mod source;
mod stats;
mod stream;
pub mod template;
pub mod whole;

pub use config::{Death, Ending, EngineConfig, EngineLimits, Pace};
pub use expect::{expected_chat, expected_completion, expected_text};
pub use fault::{Fault, Rule};
pub use handle::{Engine, EngineHandle, Remote};
pub use mood::Hang;
pub use persona::{ModelName, Persona, Template, Unseeded};
pub use stats::{Counts, Outcome, Seen};
