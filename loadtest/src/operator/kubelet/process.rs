//! What runs in a Pod's container: a simulated engine, or a follower that should never be asked. The only file that knows the engine.

use std::hash::{DefaultHasher, Hash, Hasher};

use k8s_openapi::api::core::v1::Pod;

use super::PodInfo;
use crate::engine::{Engine, EngineConfig, EngineHandle, Hang};
use crate::operator::config::OperatorConfig;
use crate::operator::{render, spec, view};

/// What the container's command line says.
#[derive(Debug, Clone)]
pub(super) struct Launch {
    pub(super) model: String,
    pub(super) port: u16,
    pub(super) image: String,
    /// Built by the operator, with probes and drain hook.
    pub(super) managed: bool,
    /// Serves HTTP: the leader, or any rank of an External-DP replica.
    pub(super) serves: bool,
}

impl Launch {
    /// Reads the Pod; the served name that no flag tells is the model argument, else the template's.
    pub(super) fn of(pod: &Pod, config: &OperatorConfig) -> Self {
        let container = pod.spec.as_ref().and_then(|spec| spec.containers.first());
        let command = container.and_then(|container| container.command.clone()).unwrap_or_default();
        let declared = container.and_then(|container| container.ports.as_ref()?.first()).map(|port| port.container_port);
        let words = spec::words(&command);
        let argument = words.iter().position(|word| word == "serve").and_then(|at| words.get(at + 1)).map(String::as_str);
        let named = spec::flag(&words, "--served-model-name").or(spec::flag(&words, "--model-path")).or(argument);
        let template = config.engine.persona.models.first().map(|model| model.id.as_str());
        let port = spec::flag(&words, "--port").and_then(|port| port.parse().ok());
        Self {
            model: named.or(template).unwrap_or("model").to_owned(),
            port: port.or(declared.and_then(|port| u16::try_from(port).ok())).unwrap_or(8000),
            image: container.and_then(|container| container.image.clone()).unwrap_or_default(),
            managed: render::is_managed(pod),
            serves: view::member(pod) == 0 || words.iter().any(|word| word.starts_with("--data-parallel-rank")),
        }
    }
}

/// One life of a container.
pub(super) struct Process {
    engine: EngineHandle,
    killed: bool,
    serves: bool,
}

impl Process {
    /// Starts it at the Pod's address. Each start has a seed of its own, so that engines die in different ways.
    pub(super) async fn start(launch: &Launch, info: &PodInfo, config: &OperatorConfig, restarts: u32) -> std::io::Result<Self> {
        let mut engine = EngineConfig { listen: (info.address, launch.port).into(), control: None, ..config.engine.clone() };
        engine.follower = !launch.serves;
        engine.seed = seed(config.engine.seed, info, restarts);
        if let Some(model) = engine.persona.models.first_mut() {
            model.id.clone_from(&launch.model);
        }
        if engine.follower {
            engine.pace.startup = std::time::Duration::ZERO;
        }
        Ok(Self { engine: Engine::start(engine).await?, killed: false, serves: launch.serves })
    }

    /// SIGTERM. A follower has no requests and ends at once.
    pub(super) fn terminate(&mut self) {
        if self.serves { self.engine.sigterm() } else { self.engine.kill() }
    }

    /// SIGKILL.
    pub(super) fn kill(&mut self) {
        self.killed = true;
        self.engine.kill();
    }

    /// Its collective is broken: it accepts and answers `/health`, and generates nothing.
    pub(super) fn hang(&mut self) {
        self.engine.hang(Hang::Engine);
    }

    /// Waits for its end; the exit code.
    pub(super) async fn exited(&mut self) -> i32 {
        self.engine.exited().await;
        if self.killed { 137 } else { 0 }
    }

    /// Requests that a follower got.
    pub(super) fn misdirected(&self) -> u64 {
        if self.serves { 0 } else { self.engine.stats().follower_requests }
    }
}

fn seed(base: u64, info: &PodInfo, restarts: u32) -> u64 {
    let mut hasher = DefaultHasher::new();
    (base, info.role.as_str(), info.ordinal, info.member, info.uid.as_str(), restarts).hash(&mut hasher);
    hasher.finish()
}
