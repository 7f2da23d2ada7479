//! Leadgate's configuration: text in, typed values out.
//!
//! Owns: what can be configured, the defaults (each with its reason, `defaults`), precedence (flag > environment > file > default)
//! and the messages for bad input. Must not: open sockets, know Kubernetes objects, or read the clock.
//! Next step of the path: `discovery` (which leaders there are) and `gateway` (what is done with a request).

mod model;

pub use model::{
    Clocks, Config, Cors, DeploymentRef, EngineKey, GenerationProbe, HoldSettings, KubernetesSource, Limits, LogFormat, LogSettings,
    Membership, MergedPool, NameRules, Pin, PoolSettings, ProbeSettings, ResumeSettings, RetrySettings, Routes, ShutdownSettings, Source,
    StaticLeaders, TlsVerify, UpstreamTls,
};
