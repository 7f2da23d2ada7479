//! How the simulated operator is set up: times, switches, and what its engines are like.

use std::time::Duration;

use crate::engine::EngineConfig;

/// The set-up of a simulated operator with kubelet.
#[derive(Debug, Clone)]
pub struct OperatorConfig {
    /// The one namespace that it serves; all of them by default.
    pub namespace: Option<String>,
    /// Factor on every time of operator, Kueue and kubelet (grace, hook, probes, budgets). 1 is real time. The engine template is
    /// taken as it is.
    pub time_scale: f64,
    /// Times that a cluster, not the operator, decides on; before scaling.
    pub timing: Timing,
    /// What every engine is like. Address, served name, follower flag and seed are set for each Pod.
    pub engine: EngineConfig,
    /// Qualify roles whose engine version the operator has verified (the endpoint-eligible label).
    pub eligibility: bool,
    /// Play a router that confirms withdrawals, so that scale-downs of managed roles complete instead of being aborted.
    pub confirm_retirement: bool,
    /// A follower that is gone makes its leader hang, as a broken collective does.
    pub followers_break_leader: bool,
}

impl Default for OperatorConfig {
    fn default() -> Self {
        Self {
            namespace: None,
            time_scale: 1.0,
            timing: Timing::default(),
            engine: EngineConfig::default(),
            eligibility: false,
            confirm_retirement: false,
            followers_break_leader: true,
        }
    }
}

/// Times of the simulated cluster, before scaling.
#[derive(Debug, Clone)]
pub struct Timing {
    /// Between two passes of the operator; its own requeue is 2 s while a slot is open, and events come in between.
    pub pass: Duration,
    /// From a complete group of gated Pods to its admission.
    pub admission: Duration,
    /// From admission to the start of the process: scheduling, volumes, image.
    pub container_start: Duration,
    /// Before a container that ended is started again. Kubernetes starts with about a second and doubles; a test restarts once.
    pub restart_delay: Duration,
    /// How long a leader hangs over a lost follower before its own process gives up.
    pub collective_timeout: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            pass: Duration::from_millis(500),
            admission: Duration::from_secs(2),
            container_start: Duration::from_secs(3),
            restart_delay: Duration::from_secs(1),
            collective_timeout: Duration::from_secs(30),
        }
    }
}

impl OperatorConfig {
    /// A duration on this operator's clock.
    pub(super) fn scaled(&self, time: Duration) -> Duration {
        time.mul_f64(self.time_scale.max(0.0))
    }

    /// Seconds on this operator's clock.
    pub(super) fn seconds(&self, seconds: u32) -> Duration {
        self.scaled(Duration::from_secs(seconds.into()))
    }
}
