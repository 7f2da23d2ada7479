//! Conformance of the real binary to the wire rules and the field reports, from the outside.
//!
//! A test's name begins with the rule that it checks: P (RFC 9110), H (RFC 9112), T (RFC 9113), S (server-sent events), or `report_` and
//! the number of a field report. Clients are raw sockets, so that a test sees each byte; engines are scripted ones where an engine
//! misbehaves, simulated ones where it generates.

mod accounts;
mod answer_headers;
mod bodies;
mod breaker;
mod broken_answers;
mod cancellation;
mod clocks;
mod drain_traces;
mod engine_connections;
mod events;
mod group_truth;
mod holds;
mod http2;
mod names;
mod request_framing;
mod request_headers;
mod resumes;
mod retries;
mod routes;
mod shutdown;
mod slow_clients;
mod support;
