//! Just enough of HTTP/1.1 to look like uvicorn on the wire, and to be wrong on purpose.
//!
//! Written by hand because the faults need it: a reset at byte N, a chunk size that is no number, an answer shorter than
//! its length. [`request`] reads, [`reply`] writes heads; neither knows what an engine is.

pub(crate) mod reply;
pub(crate) mod request;
