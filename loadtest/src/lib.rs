//! loadtest

pub mod operator;
pub mod standin;
