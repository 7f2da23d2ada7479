//! The clients' side: sockets, HTTP versions, what every request gets whatever its path.
//!
//! Life of a connection: `listener` (accept) → `connection` (HTTP/1.1 or HTTP/2) → `stack` (panic guard, CORS) → `proxy::service`.

pub mod connection;
pub mod cors;
pub mod head_clock;
pub mod io;
pub mod listener;
pub mod stack;
