//! Integration tests of Leadgate on real parts: the real binary, a real API server, simulated engines.

mod apiserver;
mod deploy;
mod examples;
mod operator;
mod rollout;
mod serving;
mod watch_faults;
