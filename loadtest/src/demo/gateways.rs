//! Real gateway processes: found or built, started, put behind one address, replaced, ended.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use serde::Deserialize;
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep};

use super::relay::Relay;
use super::{Failure, ask};

/// Longest wait for a gateway to be ready, and longest wait for its end beyond the longest stream.
const PATIENCE: Duration = Duration::from_secs(60);

/// Parts of metric names that tell what the gateway did for its clients.
const TELLING: &[&str] = &["resume", "retr", "hold", "held", "moved"];

/// How gateways are started.
#[derive(Debug, Clone)]
pub(super) struct GatewayPlan {
    pub(super) binary: PathBuf,
    pub(super) kubeconfig: PathBuf,
    pub(super) namespace: String,
    pub(super) args: Vec<String>,
    /// Folder for address files and logs.
    pub(super) dir: PathBuf,
}

/// The gateways of a stage, one or several behind one address.
pub(super) struct Gateways {
    plan: GatewayPlan,
    running: Vec<Gateway>,
    front: Option<Relay>,
    started: u32,
    /// Counters of gateways that have ended.
    ended: BTreeMap<String, f64>,
}

struct Gateway {
    process: Child,
    addresses: Addresses,
    log: PathBuf,
}

#[derive(Debug, Clone, Copy, Deserialize)]
struct Addresses {
    listen: SocketAddr,
    admin: SocketAddr,
}

impl Gateways {
    /// Starts `count` of them and waits until they are ready. One is reached directly, several through a plain TCP forwarder.
    pub(super) async fn start(plan: GatewayPlan, count: usize) -> Result<Self, Failure> {
        let mut gateways = Self { plan, running: vec![], front: None, started: 0, ended: BTreeMap::new() };
        for _ in 0..count {
            gateways.add().await?;
        }
        if count > 1 {
            gateways.front = Some(Relay::start(gateways.listening(), false).await?);
        }
        Ok(gateways)
    }

    /// Where clients go.
    pub(super) fn address(&self) -> Option<SocketAddr> {
        self.front.as_ref().map(Relay::address).or_else(|| self.listening().first().copied())
    }

    /// The admin port of the first one.
    pub(super) fn admin(&self) -> Option<SocketAddr> {
        self.running.first().map(|gateway| gateway.addresses.admin)
    }

    /// Replaces all of them as a Deployment with maxSurge 1 does: a new one, ready; then SIGTERM to an old one, which no longer gets new
    /// connections once its `/readyz` says so. `patience` is for the end of its streams.
    pub(super) async fn roll(&mut self, patience: Duration) -> Result<(), Failure> {
        for _ in 0..self.running.len() {
            self.add().await?;
            let mut old = self.running.remove(0);
            add_counters(&mut self.ended, old.addresses.admin).await;
            let mut targets = self.listening();
            targets.push(old.addresses.listen);
            self.point(targets);
            signal(&old.process, "TERM").await?;
            wait_until(PATIENCE, "a gateway that was told to stop is still ready", || not_ready(old.addresses.admin)).await?;
            self.point(self.listening());
            let status = tokio::time::timeout(patience + PATIENCE, old.process.wait()).await.map_err(|_| "a gateway does not end")??;
            if !status.success() {
                return Err(format!("a gateway ended with {status}; its log is {}", old.log.display()).into());
            }
        }
        Ok(())
    }

    /// What the counters that speak of retries, resumes and holds say, over all gateways that ever ran.
    pub(super) async fn counters(&self) -> BTreeMap<String, f64> {
        let mut sum = self.ended.clone();
        for gateway in &self.running {
            add_counters(&mut sum, gateway.addresses.admin).await;
        }
        sum
    }

    fn listening(&self) -> Vec<SocketAddr> {
        self.running.iter().map(|gateway| gateway.addresses.listen).collect()
    }

    fn point(&self, targets: Vec<SocketAddr>) {
        if let Some(front) = &self.front {
            front.point_at(targets);
        }
    }

    async fn add(&mut self) -> Result<(), Failure> {
        self.started += 1;
        let gateway = Gateway::start(&self.plan, self.started).await?;
        self.running.push(gateway);
        Ok(())
    }
}

impl Gateway {
    async fn start(plan: &GatewayPlan, number: u32) -> Result<Self, Failure> {
        let file = plan.dir.join(format!("gateway-{number}.json"));
        let log = plan.dir.join(format!("gateway-{number}.log"));
        let output = std::fs::File::create(&log)?;
        let mut process = Command::new(&plan.binary)
            .args(["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"])
            .args([Path::new("--addr-file"), &file, Path::new("--kubeconfig"), &plan.kubeconfig])
            .args(["--namespace", &plan.namespace])
            .args(&plan.args)
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| format!("{}: {error}", plan.binary.display()))?;
        let deadline = Instant::now() + PATIENCE;
        let addresses: Addresses = loop {
            if let Some(status) = process.try_wait()? {
                return Err(format!("the gateway ended with {status}:\n{}", std::fs::read_to_string(&log)?).into());
            }
            if let Some(addresses) = std::fs::read(&file).ok().and_then(|text| serde_json::from_slice(&text).ok()) {
                break addresses;
            }
            if Instant::now() > deadline {
                return Err(format!("the gateway wrote no {}", file.display()).into());
            }
            sleep(Duration::from_millis(20)).await;
        };
        wait_until(PATIENCE, "the gateway is not ready", || ready(addresses.admin)).await?;
        Ok(Self { process, addresses, log })
    }
}

/// The `leadgate` binary: the one given, else what cargo builds now if we were started by cargo, else the one beside this program.
pub(super) async fn find_binary(given: Option<PathBuf>) -> Result<PathBuf, Failure> {
    if let Some(path) = given {
        return Ok(path);
    }
    let own = std::env::current_exe()?;
    let folder = own.parent().ok_or("this program is in no folder")?;
    let folder = if folder.ends_with("deps") { folder.parent().unwrap_or(folder) } else { folder };
    if let (Some(cargo), Some(target)) = (std::env::var_os("CARGO"), folder.parent()) {
        let mut build = Command::new(cargo);
        build.current_dir(env!("CARGO_MANIFEST_DIR")).args(["build", "--quiet", "--package", "gateway", "--bin", "leadgate"]);
        build.arg("--target-dir").arg(target).args(folder.ends_with("release").then_some("--release"));
        let status = build.status().await?;
        if !status.success() {
            return Err(format!("cargo could not build the gateway: {status}").into());
        }
    }
    let binary = folder.join("leadgate");
    if binary.exists() { Ok(binary) } else { Err(format!("there is no {}: build it, or name one with --gateway", binary.display()).into()) }
}

async fn ready(admin: SocketAddr) -> bool {
    matches!(ask::get(admin, "/readyz").await, Ok((200, _)))
}

async fn not_ready(admin: SocketAddr) -> bool {
    !ready(admin).await
}

/// Looks again and again until `holds`; an error that says `problem` after `patience`.
pub(super) async fn wait_until<Look, Answer>(patience: Duration, problem: &str, mut holds: Look) -> Result<(), Failure>
where
    Look: FnMut() -> Answer,
    Answer: Future<Output = bool>,
{
    let deadline = Instant::now() + patience;
    while !holds().await {
        if Instant::now() > deadline {
            return Err(format!("{problem} (waited {patience:?})").into());
        }
        sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

async fn signal(process: &Child, name: &str) -> Result<(), Failure> {
    let pid = process.id().ok_or("the gateway has ended already")?;
    let status = Command::new("kill").arg(format!("-{name}")).arg(pid.to_string()).status().await?;
    if status.success() { Ok(()) } else { Err(format!("no signal to process {pid}").into()) }
}

async fn add_counters(sum: &mut BTreeMap<String, f64>, admin: SocketAddr) {
    // Counters are decoration: a gateway that does not tell them is not at fault here.
    let Ok((200, text)) = ask::get(admin, "/metrics").await else { return };
    for (name, value) in telling(&text) {
        *sum.entry(name).or_default() += value;
    }
}

fn telling(metrics: &str) -> Vec<(String, f64)> {
    let lines = metrics.lines().filter(|line| !line.starts_with('#'));
    let rows = lines.filter_map(|line| {
        let (name, value) = line.rsplit_once(' ')?;
        let plain = name.split('{').next().unwrap_or_default();
        let wanted = plain.ends_with("_total") && TELLING.iter().any(|word| plain.contains(word));
        (wanted && value != "0").then(|| Some((name.to_owned(), value.parse().ok()?)))?
    });
    rows.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_telling_counters_that_moved_are_kept() {
        let text = "# HELP x\nleadgate_resumes_total{way=\"continue\"} 3\nleadgate_resumes_total{way=\"replay\"} 0\nleadgate_requests_total 9\nleadgate_resume_seconds_bucket{le=\"1\"} 2\n";
        assert_eq!(telling(text), [("leadgate_resumes_total{way=\"continue\"}".to_owned(), 3.0)]);
    }
}
