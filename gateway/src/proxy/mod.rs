//! The life of a request, from its head to its last byte. All branching is here and in `job`; the leaves compute.
//!
//! Forward only: `ingress` (read) → `route` (whose) → `admit` (wait) → `pick` (where) → `attempt` (try) → `retry` (again?) → `relay` (pass on), under
//! an `exchange`. The backward edges are the bounded retry (`job`) and the resume (`carry`).

pub mod admit;
pub mod attempt;
pub mod body;
pub mod carry;
pub mod dice;
pub mod exchange;
pub mod gone;
pub mod headers;
pub mod ingress;
pub mod job;
pub mod kept;
pub mod late_error;
pub mod later;
pub mod models;
pub mod opened;
pub mod pick;
pub mod record;
pub mod relay;
pub mod retry;
pub mod route;
pub mod scan;
pub mod service;
pub mod trail;
pub mod whole;
