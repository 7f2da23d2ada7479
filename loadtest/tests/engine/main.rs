//! The simulated engine from outside: its bytes against recorded answers of a real engine, its faults, its deaths.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod death;
mod faults;
mod limits;
mod raw;
mod wire;
