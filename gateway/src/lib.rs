//! The leader-routing inference gateway.
//!
//! One request, file by file: `server/listener` → `server/connection` → `server/stack` → `proxy/service` → `proxy/ingress` → `proxy/job`
//! (`route`, `admit`, `pick`, `attempt`, `retry`) → `proxy/exchange` (`relay`, `resume`) → hyper writes the frames.
//! One snapshot: `discovery` → `app::follow` → `groups/table`.

pub mod admin;
pub mod app;
pub mod cli;
pub mod gateway;
pub mod groups;
pub mod proxy;
pub mod reject;
pub mod resume;
pub mod server;
pub mod shutdown;
pub mod sse;
pub mod telemetry;
#[cfg(test)]
mod testing;
pub mod upstream;
pub mod view;
