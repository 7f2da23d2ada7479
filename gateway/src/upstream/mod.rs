//! Connections to leaders: HTTP/1.1, one request at a time, idle ones kept per incarnation.
//!
//! Owns: dialling through `discovery::dial`, the idle pool, and the answer's body with its connection. Must not: choose leaders or retry.
//! There is no task per connection: whoever uses a connection polls it, so that dropping an answer closes its socket at once.

pub mod body;
pub mod h1;
pub mod keys;
pub mod link;
pub mod pool;
mod sending;
