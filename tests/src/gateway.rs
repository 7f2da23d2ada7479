//! The real gateway binary as a child process: started on free ports, asked over its own ports, ended by signals.
//!
//! Owns: flags that every test needs, the addresses it bound (read from its `--addr-file`), its log. Must not: reach into the gateway
//! by any other way than its ports, flags, files and signals.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;
use tempfile::TempDir;

use crate::http::{self, Answer};
use crate::poll::{PATIENCE, eventually};
use crate::process::{Process, Spec};
use crate::{Outcome, binaries};

/// Where the gateway finds leaders.
#[derive(Debug, Clone)]
pub enum Source {
    /// An API server by kubeconfig file, and the namespaces to watch.
    Kubernetes {
        /// Kubeconfig file.
        kubeconfig: PathBuf,
        /// Namespaces; empty means all.
        namespaces: Vec<String>,
    },
    /// A folder of YAML files.
    Manifests(PathBuf),
    /// `MODEL=URL[,URL…]`, each one `--leaders`.
    Leaders(Vec<String>),
}

/// How to start it.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where it finds leaders.
    pub source: Source,
    /// Text of its configuration file, if it gets one.
    pub config: Option<String>,
    /// Further flags.
    pub args: Vec<String>,
    /// Further variables.
    pub env: Vec<(String, String)>,
}

impl Options {
    /// The gateway with its defaults over one source.
    pub fn new(source: Source) -> Self {
        Self { source, config: None, args: vec![], env: vec![] }
    }

    /// With a configuration file of this text.
    pub fn config(mut self, text: impl Into<String>) -> Self {
        self.config = Some(text.into());
        self
    }

    /// With one more flag.
    pub fn arg(mut self, flag: impl Into<String>) -> Self {
        self.args.push(flag.into());
        self
    }
}

/// A running gateway; killed when dropped.
pub struct GatewayHandle {
    process: Process,
    addresses: Addresses,
    dir: TempDir,
}

#[derive(Debug, Clone, Copy, Deserialize)]
struct Addresses {
    listen: SocketAddr,
    admin: SocketAddr,
}

impl GatewayHandle {
    /// Starts it and waits until both ports are bound.
    pub async fn start(options: Options) -> Outcome<Self> {
        let program = binaries::gateway().await?.to_owned();
        let dir = TempDir::with_prefix("leadgate-gateway-")?;
        let addr_file = dir.path().join("addresses.json");
        let mut args: Vec<String> = ["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"].map(str::to_owned).into();
        args.extend(["--addr-file".to_owned(), addr_file.display().to_string()]);
        if let Some(text) = &options.config {
            let path = dir.path().join("config.yaml");
            std::fs::write(&path, text)?;
            args.extend(["--config".to_owned(), path.display().to_string()]);
        }
        args.extend(source_flags(&options.source));
        args.extend(options.args);
        let args = args.into_iter().map(Into::into).collect();
        let env = options.env.into_iter().map(|(name, value)| (name, value.into())).collect();
        let process = Process::start(Spec { program, args, env, log: dir.path().join("log"), litter: None })?;
        let addresses = read_addresses(&process, &addr_file).await?;
        Ok(Self { process, addresses, dir })
    }

    /// Starts it and waits until `/readyz` answers 200: configuration loaded and first list done.
    pub async fn start_ready(options: Options) -> Outcome<Self> {
        let handle = Self::start(options).await?;
        handle.wait_ready().await?;
        Ok(handle)
    }

    /// Waits until `/readyz` answers 200.
    pub async fn wait_ready(&self) -> Outcome<()> {
        let url = self.admin_url("/readyz");
        eventually(PATIENCE, "ready gateway", || async {
            if let Ok(Some(code)) = self.process.exit_status() {
                return Err(format!("it ended with {code}; log:\n{}", self.log_tail()));
            }
            match http::get(&url).await {
                Ok(answer) if answer.status == 200 => Ok(()),
                Ok(answer) => Err(format!("{} {}; log:\n{}", answer.status, answer.text(), self.log_tail())),
                Err(error) => Err(error.to_string()),
            }
        })
        .await
    }

    /// The address that clients use.
    pub fn listen(&self) -> SocketAddr {
        self.addresses.listen
    }

    /// `http://ADDRESS` + path, for clients.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.addresses.listen)
    }

    /// `http://ADDRESS` + path on the admin port.
    pub fn admin_url(&self, path: &str) -> String {
        format!("http://{}{path}", self.addresses.admin)
    }

    /// The folder of its configuration file (`config.yaml`), for tests that change it.
    pub fn folder(&self) -> &std::path::Path {
        self.dir.path()
    }

    /// One chat completion, not streamed.
    pub async fn chat(&self, body: &Value) -> Outcome<Answer> {
        http::post(&self.url("/v1/chat/completions"), body).await
    }

    /// `/debug/snapshot`.
    pub async fn snapshot(&self) -> Outcome<Value> {
        http::get(&self.admin_url("/debug/snapshot")).await?.json()
    }

    /// Waits until the snapshot satisfies `check`, which answers what it misses.
    pub async fn wait_snapshot(&self, what: &str, check: impl Fn(&Value) -> Result<(), String>) -> Outcome<Value> {
        eventually(PATIENCE, what, || async {
            let snapshot = self.snapshot().await.map_err(|error| error.to_string())?;
            check(&snapshot).map_err(|missing| format!("{missing} in {snapshot}"))?;
            Ok(snapshot)
        })
        .await
    }

    /// Waits until the groups of `phase` are exactly those with these keys (`namespace/deployment/role/ordinal`), in any order.
    pub async fn wait_groups(&self, phase: &str, keys: &[String]) -> Outcome<Value> {
        let mut wanted = keys.to_vec();
        wanted.sort();
        self.wait_snapshot(&format!("groups {wanted:?} in phase {phase}"), |snapshot| {
            let seen = groups_in(snapshot, phase);
            if seen == wanted { Ok(()) } else { Err(format!("{seen:?}")) }
        })
        .await
    }

    /// `/metrics`.
    pub async fn metrics(&self) -> Outcome<String> {
        Ok(http::get(&self.admin_url("/metrics")).await?.text())
    }

    /// Sends a signal by name.
    pub fn signal(&self, name: &str) -> Outcome<()> {
        self.process.signal(name)
    }

    /// Its exit status, once it ends.
    pub async fn wait(&self, within: Duration) -> Outcome<i32> {
        self.process.wait(within).await
    }

    /// The first access line with this outcome, once it is written.
    pub async fn wait_access(&self, outcome: &str) -> Outcome<Value> {
        eventually(PATIENCE, "access line", || async {
            let log = self.log();
            let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
            let mut found = lines.filter(|line| line["outcome"] == outcome);
            found.next().ok_or_else(|| format!("no {outcome} in {log}"))
        })
        .await
    }

    /// All that it logged.
    pub fn log(&self) -> String {
        self.process.log()
    }

    fn log_tail(&self) -> String {
        self.process.log_tail(20)
    }
}

/// The keys of the groups in a phase, sorted.
pub fn groups_in(snapshot: &Value, phase: &str) -> Vec<String> {
    let pools = snapshot["pools"].as_array().map_or(&[][..], Vec::as_slice);
    let groups = pools.iter().flat_map(|pool| pool["groups"].as_array().map_or(&[][..], Vec::as_slice));
    let mut keys: Vec<String> =
        groups.filter(|group| group["phase"] == phase).map(|group| group["key"].as_str().unwrap_or_default().to_owned()).collect();
    keys.sort();
    keys
}

fn source_flags(source: &Source) -> Vec<String> {
    match source {
        Source::Kubernetes { kubeconfig, namespaces } => {
            let mut flags = vec!["--kubeconfig".to_owned(), kubeconfig.display().to_string()];
            if namespaces.is_empty() {
                flags.push("--all-namespaces".to_owned());
            }
            flags.extend(namespaces.iter().flat_map(|namespace| ["--namespace".to_owned(), namespace.clone()]));
            flags
        }
        Source::Manifests(folder) => vec!["--manifests".to_owned(), folder.display().to_string()],
        Source::Leaders(leaders) => leaders.iter().flat_map(|leader| ["--leaders".to_owned(), leader.clone()]).collect(),
    }
}

async fn read_addresses(process: &Process, file: &std::path::Path) -> Outcome<Addresses> {
    eventually(PATIENCE, "bound gateway", || async {
        if let Ok(Some(code)) = process.exit_status() {
            return Err(format!("it ended with {code}; log:\n{}", process.log_tail(20)));
        }
        let text = std::fs::read(file).map_err(|error| error.to_string())?;
        serde_json::from_slice(&text).map_err(|error| error.to_string())
    })
    .await
}
