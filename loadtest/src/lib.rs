//! loadtest

pub mod operator;
