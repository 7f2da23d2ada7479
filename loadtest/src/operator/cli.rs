//! `loadtest operator`: flags, start, and run until Ctrl-C or SIGTERM.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

use super::{Operator, OperatorConfig, OperatorError, control};
use crate::engine::{EngineConfig, Pace};

/// Simulates the operator, Kueue and a kubelet on an API server without Nodes; every leader is a simulated engine on loopback.
#[derive(Debug, Clone, clap::Args)]
pub struct OperatorArgs {
    /// Kubeconfig file; by default KUBECONFIG or the usual places.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// The one namespace to serve; all of them by default.
    #[arg(long, value_name = "NAME")]
    pub namespace: Option<String>,
    /// Factor on every time: 0.1 makes ten seconds of the cluster last one.
    #[arg(long, default_value_t = 1.0, value_name = "FACTOR")]
    pub time_scale: f64,
    /// Seconds that an engine loads before its port accepts (scaled).
    #[arg(long, default_value_t = 35.0, value_name = "SECONDS")]
    pub startup: f64,
    /// Milliseconds to the first token (not scaled).
    #[arg(long, default_value_t = 200, value_name = "MS")]
    pub first_token: u64,
    /// Milliseconds from token to token (not scaled).
    #[arg(long, default_value_t = 30, value_name = "MS")]
    pub token: u64,
    /// Seed of the engines' jitter and of the way in which each dies.
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// Label qualified replicas of roles whose engine version the operator has verified.
    #[arg(long)]
    pub eligibility: bool,
    /// Complete scale-downs as if a router confirmed them.
    #[arg(long)]
    pub confirm_retirement: bool,
    /// Address for commands (see `GET /pods` and the documentation).
    #[arg(long, value_name = "ADDR")]
    pub control: Option<SocketAddr>,
}

impl OperatorArgs {
    /// The set-up that the flags describe.
    pub fn config(&self) -> OperatorConfig {
        let pace = Pace {
            startup: Duration::from_secs_f64((self.startup * self.time_scale).max(0.0)),
            first_token: Duration::from_millis(self.first_token),
            token: Duration::from_millis(self.token),
            ..Pace::default()
        };
        OperatorConfig {
            namespace: self.namespace.clone(),
            time_scale: self.time_scale,
            engine: EngineConfig { pace, seed: self.seed, ..EngineConfig::default() },
            eligibility: self.eligibility,
            confirm_retirement: self.confirm_retirement,
            ..OperatorConfig::default()
        }
    }
}

/// Runs it until a signal comes.
///
/// # Errors
/// A kubeconfig that cannot be read, a control address that cannot be bound, and those of [`Operator::start`].
pub async fn run(args: OperatorArgs) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let client = client(args.kubeconfig.as_ref()).await?;
    let operator = Arc::new(Operator::start(client, args.config()).await?);
    let control = match args.control {
        Some(address) => {
            let listener = tokio::net::TcpListener::bind(address).await?;
            tracing::info!(address = %listener.local_addr()?, "control port");
            Some(listener)
        }
        None => None,
    };
    let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    let serving = async {
        match control {
            Some(listener) => control::serve(listener, Arc::clone(&operator)).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        () = serving => {}
        result = tokio::signal::ctrl_c() => result?,
        _ = terminate.recv() => {}
    }
    match operator.misdirected() {
        0 => Ok(()),
        count => Err(format!("followers got {count} requests").into()),
    }
}

async fn client(kubeconfig: Option<&PathBuf>) -> Result<Client, Box<dyn std::error::Error + Send + Sync>> {
    let config = match kubeconfig {
        Some(path) => Config::from_custom_kubeconfig(Kubeconfig::read_from(path)?, &KubeConfigOptions::default()).await?,
        None => Config::infer().await?,
    };
    Ok(Client::try_from(config).map_err(OperatorError::from)?)
}
