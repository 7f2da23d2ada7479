//! The proxies that are compared, and how each is started.
//!
//! Every one gets a port of its own on loopback and one processor. A peer whose program is not there is left out, by name.

use std::ffi::OsString;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::configs;
use super::process::{Pinned, command as pinned};

/// Longest time until a proxy or an engine accepts.
const PATIENCE: Duration = Duration::from_secs(20);

/// What stands between load and engines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Kind {
    /// Nothing.
    Direct,
    /// HAProxy in mode tcp: forwards bytes.
    Forwarder,
    /// HAProxy in mode http.
    Haproxy,
    /// nginx.
    Nginx,
    /// Envoy.
    Envoy,
    /// The gateway with its defaults and one worker.
    Leadgate,
    /// The same without the watch for broken streams.
    NoResume,
    /// The same without the access log.
    NoLog,
    /// The same without counting and timing requests.
    NoMetrics,
    /// The same with tracing on, no request of it sampled and no collector there.
    SampledOut,
    /// The same with two workers on both processors.
    TwoWorkers,
}

impl Kind {
    /// All of them in the order of the table.
    pub(super) const ALL: [Self; 11] = [
        Self::Direct,
        Self::Forwarder,
        Self::Haproxy,
        Self::Nginx,
        Self::Envoy,
        Self::Leadgate,
        Self::NoResume,
        Self::NoLog,
        Self::NoMetrics,
        Self::SampledOut,
        Self::TwoWorkers,
    ];

    /// The name in the results.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Forwarder => "forwarder",
            Self::Haproxy => "haproxy",
            Self::Nginx => "nginx",
            Self::Envoy => "envoy",
            Self::Leadgate => "leadgate",
            Self::NoResume => "leadgate, no resume",
            Self::NoLog => "leadgate, no access log",
            Self::NoMetrics => "leadgate, no request metrics",
            Self::SampledOut => "leadgate, traced at 0",
            Self::TwoWorkers => "leadgate, two workers",
        }
    }

    /// One of the set-ups of the gateway that are compared with its defaults.
    pub(super) fn is_variant(self) -> bool {
        matches!(self, Self::NoResume | Self::NoLog | Self::NoMetrics | Self::SampledOut | Self::TwoWorkers)
    }

    /// What the gateway is started with besides its addresses.
    fn flags(self) -> &'static [&'static str] {
        match self {
            Self::NoResume => &["--workers", "1", "--resume-enabled=false"],
            Self::NoLog => &["--workers", "1", "--log-access=false"],
            Self::NoMetrics => &["--workers", "1", "--telemetry-request-metrics=false"],
            Self::TwoWorkers => &["--workers", "2"],
            Self::Leadgate | Self::SampledOut | Self::Direct | Self::Forwarder | Self::Haproxy | Self::Nginx | Self::Envoy => {
                &["--workers", "1"]
            }
        }
    }

    fn environment(self) -> &'static [(&'static str, &'static str)] {
        match self {
            // Port 9 is nobody's here: what would be sent all the same is lost.
            Self::SampledOut => &[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9"), ("OTEL_TRACES_SAMPLER", "parentbased_always_off")],
            Self::NoResume | Self::NoLog | Self::NoMetrics | Self::TwoWorkers | Self::Leadgate => &[],
            Self::Direct | Self::Forwarder | Self::Haproxy | Self::Nginx | Self::Envoy => &[],
        }
    }
}

/// Where the programs are, and which processors they get.
#[derive(Debug, Clone)]
pub(super) struct Place {
    pub(super) leadgate: PathBuf,
    pub(super) haproxy: PathBuf,
    pub(super) nginx: PathBuf,
    pub(super) envoy: Option<PathBuf>,
    pub(super) proxy_cpu: String,
    pub(super) load_cpu: String,
    /// Folder for configurations and logs.
    pub(super) dir: PathBuf,
}

/// A running proxy.
#[derive(Debug)]
pub(super) struct Proxy {
    pub(super) kind: Kind,
    /// `None` where there is nothing in between.
    pub(super) process: Option<Pinned>,
    /// Where clients go.
    pub(super) address: SocketAddr,
}

impl Proxy {
    /// Seconds of processor time so far; 0 where there is nothing in between.
    pub(super) fn cpu(&self) -> io::Result<f64> {
        self.process.as_ref().map_or(Ok(0.0), Pinned::cpu)
    }
}

impl Place {
    /// Whether the program for `kind` is there.
    pub(super) fn has(&self, kind: Kind) -> bool {
        let there = |program: &Path| program.is_file();
        match kind {
            Kind::Direct => true,
            Kind::Forwarder | Kind::Haproxy => there(&self.haproxy),
            Kind::Nginx => there(&self.nginx),
            Kind::Envoy => self.envoy.as_deref().is_some_and(there),
            Kind::Leadgate | Kind::NoResume | Kind::NoLog | Kind::NoMetrics | Kind::SampledOut | Kind::TwoWorkers => there(&self.leadgate),
        }
    }

    /// Starts `kind` in front of `leaders` and waits until it accepts.
    pub(super) async fn start(&self, kind: Kind, leaders: &[SocketAddr]) -> io::Result<Proxy> {
        let address = match (kind, leaders) {
            (Kind::Direct, [first, ..]) => return Ok(Proxy { kind, process: None, address: *first }),
            _ => free_address()?,
        };
        let log = self.dir.join(format!("{}.log", kind.name().replace([' ', ','], "-")));
        let (program, args) = self.command(kind, address, leaders)?;
        let cpus = if kind == Kind::TwoWorkers { format!("{},{}", self.proxy_cpu, self.load_cpu) } else { self.proxy_cpu.clone() };
        let mut command = pinned(&cpus, &program, args);
        command.envs(kind.environment().iter().copied());
        let process = Pinned::start(command, &log)?;
        accepts(address).await.map_err(|error| io::Error::other(format!("{}: {error}; see {}", kind.name(), log.display())))?;
        Ok(Proxy { kind, process: Some(process), address })
    }

    fn command(&self, kind: Kind, listen: SocketAddr, leaders: &[SocketAddr]) -> io::Result<(PathBuf, Vec<OsString>)> {
        let write = |name: &str, text: String| {
            let path = self.dir.join(format!("{name}-{}.conf", listen.port()));
            std::fs::write(&path, text).map(|()| path)
        };
        Ok(match kind {
            Kind::Forwarder | Kind::Haproxy => {
                let mode = if kind == Kind::Haproxy { "http" } else { "tcp" };
                let file = write(mode, configs::haproxy(mode, listen, leaders))?;
                (self.haproxy.clone(), vec!["-db".into(), "-f".into(), file.into()])
            }
            Kind::Nginx => {
                let dir = self.dir.display().to_string();
                let file = write("nginx", configs::nginx(&dir, listen, leaders))?;
                (self.nginx.clone(), vec!["-p".into(), dir.into(), "-c".into(), file.into()])
            }
            Kind::Envoy => {
                let file = write("envoy", configs::envoy(listen, leaders))?.with_extension("yaml");
                std::fs::rename(file.with_extension("conf"), &file)?;
                let args = ["--concurrency", "1", "--disable-hot-restart", "--log-level", "error", "-c"].map(OsString::from);
                (self.envoy.clone().unwrap_or_default(), args.into_iter().chain([file.into()]).collect())
            }
            Kind::Direct | Kind::Leadgate | Kind::NoResume | Kind::NoLog | Kind::NoMetrics | Kind::SampledOut | Kind::TwoWorkers => {
                (self.leadgate.clone(), leadgate(kind, listen, leaders))
            }
        })
    }
}

fn leadgate(kind: Kind, listen: SocketAddr, leaders: &[SocketAddr]) -> Vec<OsString> {
    let urls: Vec<_> = leaders.iter().map(|leader| format!("http://{leader}")).collect();
    let mut args = vec!["serve".to_owned(), "--admin".into(), "127.0.0.1:0".into(), "--listen".into(), listen.to_string()];
    args.extend(["--leaders".into(), format!("tiny={}", urls.join(","))]);
    args.into_iter().map(OsString::from).chain(kind.flags().iter().map(OsString::from)).collect()
}

/// A port that nobody has now. Somebody could take it before it is used; the start fails then and says so.
pub(super) fn free_address() -> io::Result<SocketAddr> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()
}

/// Waits until `address` takes a connection.
pub(super) async fn accepts(address: SocketAddr) -> io::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match tokio::net::TcpStream::connect(address).await {
            Ok(_) => return Ok(()),
            Err(error) if Instant::now() > deadline => return Err(error),
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
}
