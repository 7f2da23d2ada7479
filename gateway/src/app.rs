//! The composition root: what is built in which order, how a new snapshot or configuration reaches the table, and the order in which all ends.
//!
//! Threads: the main thread runs discovery, the admin port and the reload (control side); each worker thread runs one single-threaded runtime with
//! its own connections (data side), so that a request never crosses threads.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use config::{Config, Problems, ServeArgs};
use discovery::SnapshotReader;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Semaphore, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::admin::{self, Admin};
use crate::gateway::Gateway;
use crate::proxy::record::Telemetry;
use crate::server::listener::{self, Worker};
use crate::shutdown::Phase;
use crate::telemetry::changes::Changes;
use crate::telemetry::labels::Verdict;
use crate::telemetry::logs::Logs;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::recent::Recent;
use crate::telemetry::traces::{Export, OtlpExporter, TraceError, Traces};
use crate::view::GatewayView;

/// Longest wait for log lines at the end.
const LAST_LINES: Duration = Duration::from_secs(2);

/// Longest wait for spans at the end.
const LAST_SPANS: Duration = Duration::from_secs(5);

/// Why the gateway could not start or had to give up.
#[derive(Debug, thiserror::Error)]
pub enum AppError {
    /// The configuration has problems.
    #[error("{0}")]
    Config(Problems),
    /// A port, thread or file could not be had.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The discovery source cannot start.
    #[error("discovery: {0}")]
    Discovery(#[from] discovery::StartError),
    /// Logging could not be set up.
    #[error("{0}")]
    Logs(#[from] crate::telemetry::logs::LogError),
    /// Tracing could not be set up.
    #[error("tracing: {0}")]
    Traces(#[from] TraceError),
    /// Two metrics of one name: a mistake in this program.
    #[error("metrics: {0}")]
    Metrics(#[from] prometheus::Error),
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// Nothing was cut.
    Clean,
    /// Streams were cut, or a second signal came.
    Cut,
}

/// Runs the gateway until SIGTERM or SIGINT. `addr_file`: gets the bound addresses as JSON.
pub async fn serve(args: ServeArgs, addr_file: Option<PathBuf>) -> Result<Ended, AppError> {
    let started = SystemTime::now();
    let config = Arc::new(Config::load(&args, env, |path| std::fs::read_to_string(path)).map_err(AppError::Config)?);
    let metrics = Metrics::with_requests(config.telemetry.request_metrics)?;
    let logs = Logs::install(&config.log, metrics.log_lines_dropped.clone())?;
    let ended = run((args, addr_file), config, metrics, &logs, started).await;
    // Also when it could not start: the lines before that say why.
    logs.flush(LAST_LINES);
    ended
}

async fn run(
    (args, addr_file): (ServeArgs, Option<PathBuf>),
    config: Arc<Config>,
    metrics: Arc<Metrics>,
    logs: &Arc<Logs>,
    started: SystemTime,
) -> Result<Ended, AppError> {
    let (traces, export) = Traces::from_env(config.telemetry.keep_notable, &metrics)?;
    let exporting = Exporting::start(export);
    let telemetry = Arc::new(Telemetry {
        traces,
        metrics: metrics.clone(),
        access: ArcSwap::from_pointee(Some(logs.access(&config.log))),
        recent: Recent::new(),
    });
    // Bound first: a port that is taken must be known before anything is asked of the cluster.
    let client_port = listener::bind(config.listen)?;
    let admin_port =
        TcpListener::bind(config.admin).await.map_err(|e| io::Error::new(e.kind(), format!("cannot listen on {}: {e}", config.admin)))?;
    let (configs, configured) = watch::channel(config.clone());
    let discovery = discovery::start(configured.clone()).await?;
    let gateway = Arc::new(Gateway::new(config.clone(), discovery.dialer.clone(), discovery.faults.clone(), telemetry.clone()));
    let traffic: Weak<Gateway> = Arc::downgrade(&gateway);
    discovery.heed(traffic);
    let reload = reload(args, &config, configs, (gateway.clone(), logs.clone()))?;
    let view = Arc::new(GatewayView::new(gateway.clone(), &discovery));
    metrics.observe(view.clone())?;
    let admin = Arc::new(Admin {
        metrics,
        view,
        recent: telemetry.recent.clone(),
        logs: logs.clone(),
        mirror_names: config.telemetry.mirror_names,
        started,
    });
    announce(addr_file, client_port.local_addr()?, admin_port.local_addr()?)?;

    let mut control = JoinSet::new();
    control.spawn(follow(gateway.clone(), discovery.snapshots.clone(), configured));
    control.spawn(admin::serve(admin_port, admin, std::future::pending()));
    let workers = start_workers(&gateway, &client_port, &config)?;
    drop(client_port);
    let ended = wind_down(&gateway, workers).await?;
    drop(reload);
    control.shutdown().await;
    discovery.shutdown().await;
    exporting.finish().await;
    Ok(ended)
}

/// The task that sends spans, from the start to after the last request.
struct Exporting {
    task: JoinSet<()>,
    stop: oneshot::Sender<()>,
}

impl Exporting {
    fn start(export: Option<Export<OtlpExporter>>) -> Self {
        let (stop, stopped) = oneshot::channel();
        let mut task = JoinSet::new();
        if let Some(export) = export {
            task.spawn(export.run(async move { drop(stopped.await) }, LAST_SPANS));
        }
        Self { task, stop }
    }

    /// Sends what is left, for `LAST_SPANS` at most.
    async fn finish(mut self) {
        drop(self.stop);
        while self.task.join_next().await.is_some() {}
    }
}

fn env(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

fn announce(file: Option<PathBuf>, listen: SocketAddr, admin: SocketAddr) -> io::Result<()> {
    tracing::info!(%listen, %admin, version = env!("CARGO_PKG_VERSION"), "leadgate is up");
    let Some(file) = file else { return Ok(()) };
    // Renamed into place: a reader never sees half of it.
    let part = file.with_extension("part");
    std::fs::write(&part, serde_json::json!({ "listen": listen.to_string(), "admin": admin.to_string() }).to_string())?;
    std::fs::rename(part, file)
}

/// Rebuilds the routing table at every snapshot and every configuration.
async fn follow(gateway: Arc<Gateway>, snapshots: SnapshotReader, mut configured: watch::Receiver<Arc<Config>>) {
    let mut published = snapshots.subscribe();
    let mut changes = Changes::default();
    loop {
        let config = configured.borrow_and_update().clone();
        published.borrow_and_update();
        let snapshot = snapshots.load();
        let now = SystemTime::now();
        changes.observe(&snapshot, &gateway.telemetry.recent, now);
        gateway.tables.rebuild(snapshot, &config, now);
        gateway.config.store(config);
        let more = tokio::select! {
            changed = published.changed() => changed.is_ok(),
            changed = configured.changed() => changed.is_ok(),
        };
        if !more {
            return;
        }
    }
}

type Reload = (Option<config::Watch>, Arc<watch::Sender<Arc<Config>>>);

fn reload(
    args: ServeArgs,
    current: &Arc<Config>,
    configs: watch::Sender<Arc<Config>>,
    (gateway, logs): (Arc<Gateway>, Arc<Logs>),
) -> io::Result<Reload> {
    let telemetry = gateway.telemetry.clone();
    // Without a file nothing will ever be sent, but the receivers must not see the channel closed.
    let configs = Arc::new(configs);
    let kept = configs.clone();
    let watch = config::watch(args, env, current.clone(), move |result| match result {
        Ok(reloaded) => {
            telemetry.metrics.config_reload(Verdict::Ok);
            tracing::info!(needs_restart = ?reloaded.kept, "configuration read again and applied");
            if let Err(error) = logs.set_level(&reloaded.config.log.level) {
                tracing::error!(%error, "log level kept");
            }
            telemetry.access.store(Arc::new(Some(logs.access(&reloaded.config.log))));
            configs.send_replace(reloaded.config);
        }
        Err(problems) => {
            telemetry.metrics.config_reload(Verdict::Failed);
            tracing::error!(%problems, "the new configuration is not valid; the old one stays");
        }
    })?;
    Ok((watch, kept))
}

type Workers = Vec<JoinHandle<io::Result<usize>>>;

fn start_workers(gateway: &Arc<Gateway>, port: &std::net::TcpListener, config: &Config) -> io::Result<Workers> {
    let permits = Arc::new(Semaphore::new(config.limits.connections));
    let start = |index| {
        let worker = Worker { gateway: gateway.clone(), index, permits: permits.clone() };
        let port = port.try_clone()?;
        std::thread::Builder::new().name(format!("worker-{index}")).spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(worker.run(port))
        })
    };
    (0..config.workers).map(start).collect()
}

/// Waits for the signal to end, and ends in steps: lame duck, closing, cutting. A second signal cuts at once.
async fn wind_down(gateway: &Arc<Gateway>, workers: Workers) -> io::Result<Ended> {
    let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let mut stop = async || {
        tokio::select! {
            _ = term.recv() => {}
            _ = int.recv() => {}
        }
    };
    stop().await;
    let shutdown = gateway.config.load().shutdown.clone();
    tracing::info!(settle = ?shutdown.settle, grace = ?shutdown.grace, requests = gateway.requests(), "shutting down");
    gateway.lame_duck.advance(Phase::LameDuck);
    let mut hurried = timeout(shutdown.settle, stop()).await.is_ok();
    gateway.lame_duck.advance(Phase::Closing);
    let joined = tokio::task::spawn_blocking(move || join(workers));
    tokio::pin!(joined);
    if !hurried {
        tokio::select! {
            dropped = &mut joined => return Ok(ended(dropped?, 0)),
            () = sleep(shutdown.grace) => {}
            () = stop() => hurried = true,
        }
    }
    let cut = gateway.requests();
    tracing::warn!(hurried, requests = cut, "cutting what is left");
    gateway.cut();
    let dropped = joined.await?;
    Ok(ended(dropped, cut))
}

fn ended(dropped: usize, cut: usize) -> Ended {
    if dropped + cut == 0 { Ended::Clean } else { Ended::Cut }
}

/// Connections that had to be dropped.
fn join(workers: Workers) -> usize {
    let ended = workers.into_iter().map(JoinHandle::join);
    ended
        .map(|worker| match worker {
            Ok(Ok(dropped)) => dropped,
            Ok(Err(error)) => {
                tracing::error!(%error, "a worker failed");
                1
            }
            Err(_) => 1,
        })
        .sum()
}
