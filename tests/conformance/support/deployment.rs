//! A deployment of two replicas of two members each, as files: the operator's example objects, with leaders of the test's own behind them.
//!
//! Owns: those objects and what happens to a Pod. Must not: start engines, or know what follows from a change (tests do).

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use loadtest::engine::{Engine, EngineConfig, EngineHandle, Pace};
use tempfile::TempDir;
use tests::gateway::{GatewayHandle, Options, Source};
use tests::{Outcome, binaries};

use super::own_address;

/// The name that the deployment serves.
pub(crate) const MODEL: &str = "demo-chat";

/// What happens to a Pod: the text of it that changes, and to what.
pub(crate) type Sign = (&'static str, &'static str);

/// It is Ready no more.
pub(crate) const NOT_READY: Sign = ("- type: Ready\n    status: 'True'", "- type: Ready\n    status: 'False'");
/// It is being deleted.
pub(crate) const DELETING: Sign =
    ("  creationTimestamp:", "  deletionTimestamp: '2026-11-30T10:30:00Z'\n  deletionGracePeriodSeconds: 30\n  creationTimestamp:");

/// A running gateway over the deployment.
pub(crate) struct Deployment {
    /// The gateway.
    pub(crate) gateway: GatewayHandle,
    folder: TempDir,
    pods: Vec<String>,
}

impl Deployment {
    /// A gateway with `config` and further variables over replicas whose leaders are at `leaders`, which share a port: a role has one.
    pub(crate) async fn up(leaders: (SocketAddr, IpAddr), config: &str, env: &[(&str, &str)]) -> Outcome<Self> {
        let addresses = [("10.244.1.10", leaders.0.ip()), ("10.244.2.10", leaders.1)];
        let placed = |text: String| {
            let text = addresses.iter().fold(text, |text, (from, to)| text.replace(from, &to.to_string()));
            text.replace("8000", &leaders.0.port().to_string())
        };
        let folder = tempfile::tempdir()?;
        for name in ["00-modeldeployment-steady.yaml", "02-services-endpointslices-steady.yaml"] {
            std::fs::write(folder.path().join(name), placed(example(name)?))?;
        }
        let pods = placed(example("01-pods-steady.yaml")?).split("\n---\n").map(str::to_owned).collect();
        let mut options = Options::new(Source::Manifests(folder.path().to_owned())).config(config);
        options.env = env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let deployment = Self { gateway: GatewayHandle::start_ready(options).await?, folder, pods };
        deployment.write()?;
        Ok(deployment)
    }

    /// Waits until exactly these replicas are in this phase.
    pub(crate) async fn wait(&self, phase: &str, replicas: &[usize]) -> Outcome<()> {
        let keys: Vec<String> = replicas.iter().map(|replica| group(*replica)).collect();
        self.gateway.wait_groups(phase, &keys).await.map(drop)
    }

    /// Does this to one member of a replica.
    pub(crate) fn show(&mut self, (replica, member): (usize, usize), (from, to): Sign) -> Outcome<()> {
        let name = format!("  name: demo-mh-server-r{replica}-m{member}\n");
        for document in self.pods.iter_mut().filter(|document| document.contains(&name)) {
            let edited = document.replacen(from, to, 1);
            assert_ne!(edited, *document, "{name} has {from:?}");
            *document = edited;
        }
        self.write()
    }

    /// Writes all Pods anew, renamed into place.
    fn write(&self) -> Outcome<()> {
        let part = self.folder.path().join("pods.part");
        std::fs::write(&part, self.pods.join("\n---\n"))?;
        Ok(std::fs::rename(part, self.folder.path().join("pods.yaml"))?)
    }
}

/// A replica's name in the gateway.
pub(crate) fn group(replica: usize) -> String {
    format!("gpustack-elastic/demo-mh/server/{replica}")
}

/// Simulated engines for both leaders: an event each 10 ms.
pub(crate) async fn simulated() -> Outcome<[EngineHandle; 2]> {
    let start = |listen| async move {
        let pace = Pace::steady(Duration::ZERO, Duration::from_millis(10));
        Engine::start(EngineConfig { listen, pace, ..EngineConfig::fast(MODEL) }).await
    };
    let first = start(own_address()).await?;
    // The second address is nobody else's, so that the first one's port is free there too.
    let second = start(SocketAddr::new(own_address().ip(), first.addr().port())).await?;
    Ok([first, second])
}

/// Where they are, as [`Deployment::up`] takes it.
pub(crate) fn places(engines: &[EngineHandle; 2]) -> (SocketAddr, IpAddr) {
    (engines[0].addr(), engines[1].addr().ip())
}

fn example(name: &str) -> Outcome<String> {
    let path = binaries::in_tests("../discovery/tests/fixtures/operator").join(name);
    Ok(std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?)
}
