//! Leadgate's configuration: text in, typed values out.
//!
//! Owns: what can be configured, the defaults (each with its reason, `settings`), precedence (flag > environment > file > default)
//! and the messages for bad input. Must not: open sockets, know Kubernetes objects, or read the clock.
//! Next step of the path: `discovery` (which leaders there are) and `gateway` (what is done with a request).
//!
//! Inside, a value goes this way: `node` (YAML to a tree), `keys` (refuses what no setting owns), `layer` (where a value comes from),
//! `read` (text to type, within bounds), `overlay` (field by field, layer by layer), `source`, `names` and `rules` (what fields must
//! hold together). Everything that is said about a setting stands in one table, `settings`: flags, environment variables, known keys,
//! bounds, defaults and `docs/config.md` come from it.

mod args;
mod engine_url;
mod keys;
mod layer;
mod live;
mod load;
mod model;
mod names;
mod node;
mod overlay;
mod problem;
mod read;
mod reference;
mod reload;
mod routes;
mod rules;
mod setting;
mod settings;
mod source;
mod units;

pub use args::{CONFIG_VARIABLE, ServeArgs};
pub use load::check;
pub use model::{
    ACCESS_FIELDS, Clocks, Config, Cors, DeploymentRef, EngineKey, GenerationProbe, HoldSettings, KubernetesSource, Limits, LogFormat,
    LogSettings, Membership, MergedPool, NameRules, Pin, PoolSettings, ProbeSettings, ResumeSettings, RetrySettings, Routes,
    ShutdownSettings, Source, StaticLeaders, TelemetrySettings, TlsVerify, UpstreamTls,
};
pub use problem::{Problem, Problems};
pub use reference::reference;
pub use reload::{Reloaded, Watch, watch};
