//! Integration tests of Leadgate on real parts: the real binary, a real API server, simulated engines.

mod apiserver;
mod watch_faults;
