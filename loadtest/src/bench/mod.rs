//! `loadtest bench`: what a request, an event and an open stream cost in the gateway, beside HAProxy, nginx and Envoy.
//!
//! The proxies share one processor, load and engines the other. All proxies of a row run at the same time and take turns, so that whatever
//! else the machine does hits them alike; ratios are taken between neighbours in time. Next step: `rows` says what is measured, `round` how.

mod configs;
mod gone;
mod process;
mod proxies;
mod round;
mod rows;
mod table;

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use serde_json::json;

use process::{Pinned, command as pinned};
use proxies::{Kind, Place, Proxy, accepts, free_address};
use round::{Figures, Load};
use rows::{Figure, ROWS, Row};
use table::Measured;

/// Compares the gateway with its peers.
#[derive(Debug, Clone, clap::Args)]
pub struct BenchArgs {
    /// The gateway's binary; without it the one beside this program.
    #[arg(long)]
    leadgate: Option<PathBuf>,
    /// HAProxy's binary.
    #[arg(long, default_value = "/usr/sbin/haproxy")]
    haproxy: PathBuf,
    /// nginx's binary.
    #[arg(long, default_value = "/usr/sbin/nginx")]
    nginx: PathBuf,
    /// Envoy's binary.
    #[arg(long)]
    envoy: Option<PathBuf>,
    /// The processor of the proxies.
    #[arg(long, default_value = "0")]
    proxy_cpu: String,
    /// The processor of load and engines.
    #[arg(long, default_value = "1")]
    load_cpu: String,
    /// Rounds of each proxy in each row.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Seconds of each round.
    #[arg(long, default_value_t = 4.0)]
    seconds: f64,
    /// One short round of each row, to see that all works; figures of no weight.
    #[arg(long)]
    quick: bool,
    /// Only rows whose name contains one of these.
    #[arg(long)]
    row: Vec<String>,
    /// Only these proxies (and `direct`), by name.
    #[arg(long)]
    proxy: Vec<String>,
    /// Write all rounds as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Write the tables as Markdown; they are printed in any case.
    #[arg(long)]
    markdown: Option<PathBuf>,
}

/// Clients that leave, in each mode and round.
const LEAVING: usize = 40;
/// Leaders that a row about many of them is compared with.
const FEW_LEADERS: usize = 4;
const QUICK_LEAVING: usize = 5;
const QUICK_SECONDS: f64 = 0.8;

/// Runs the command; true if every row has figures of the gateway.
///
/// # Errors
///
/// If programs or files are not there.
pub async fn command(args: BenchArgs) -> io::Result<bool> {
    let dir = tempfile::tempdir()?;
    let bench = Bench { place: place(&args, dir.path().to_owned())?, program: std::env::current_exe()?, args };
    let mut all = Vec::new();
    for row in ROWS.iter().filter(|row| bench.wants(row)) {
        eprintln!("{}", row.name);
        all.push(bench.row(row).await?);
    }
    let setup = json!({
        "rounds": bench.rounds(), "seconds": bench.seconds(), "proxy_cpu": bench.place.proxy_cpu, "load_cpu": bench.place.load_cpu,
        "cpu_time": "utime + stime of /proc/PID/stat"
    });
    let text = table::markdown(&all);
    println!("{text}");
    if let Some(path) = &bench.args.markdown {
        std::fs::write(path, &text)?;
    }
    if let Some(path) = &bench.args.json {
        std::fs::write(path, format!("{:#}\n", table::json(&all, &setup)))?;
    }
    Ok(all.iter().all(|measured| measured.failed.iter().all(|(kind, _)| *kind != Kind::Leadgate)))
}

fn place(args: &BenchArgs, dir: PathBuf) -> io::Result<Place> {
    let beside = || Ok::<_, io::Error>(std::env::current_exe()?.with_file_name("leadgate"));
    Ok(Place {
        leadgate: args.leadgate.clone().map_or_else(beside, Ok)?,
        haproxy: args.haproxy.clone(),
        nginx: args.nginx.clone(),
        envoy: args.envoy.clone(),
        proxy_cpu: args.proxy_cpu.clone(),
        load_cpu: args.load_cpu.clone(),
        dir,
    })
}

struct Bench {
    args: BenchArgs,
    place: Place,
    program: PathBuf,
}

impl Bench {
    fn rounds(&self) -> usize {
        if self.args.quick { 1 } else { self.args.rounds }
    }

    fn seconds(&self) -> f64 {
        if self.args.quick { QUICK_SECONDS } else { self.args.seconds }
    }

    fn wants(&self, row: &Row) -> bool {
        self.args.row.is_empty() || self.args.row.iter().any(|part| row.name.contains(part.as_str()))
    }

    fn kinds(&self, row: &'static Row) -> impl Iterator<Item = Kind> {
        let chosen =
            |kind: &Kind| *kind == Kind::Direct || self.args.proxy.is_empty() || self.args.proxy.iter().any(|name| name == kind.name());
        Kind::ALL.into_iter().filter(|kind| row.takes(*kind)).filter(chosen)
    }

    async fn row(&self, row: &'static Row) -> io::Result<Measured> {
        let mut measured = Measured { row, rounds: BTreeMap::new(), failed: Vec::new() };
        if row.figure == Figure::Gone {
            let mut engine = gone::Engine::start().await?;
            let mut running = self.start(&[engine.address], &mut measured).await;
            for nth in 0..self.rounds() {
                self.turn(&mut running, nth);
                for proxy in &running {
                    let clients = if self.args.quick { QUICK_LEAVING } else { LEAVING };
                    note(&mut measured, proxy.kind, engine.round(proxy.address, clients).await);
                }
            }
            return Ok(measured);
        }
        let (engine, leaders) = self.engine(row).await?;
        let mut running = self.start(&leaders, &mut measured).await;
        let few = if row.figure == Figure::ManyLeaders { self.start(&leaders[..FEW_LEADERS], &mut measured).await } else { Vec::new() };
        let load = Load { place: &self.place, row, program: self.program.clone(), seconds: self.seconds() };
        for nth in 0..self.rounds() {
            // Memory that is free again is not given back: each round of a memory row needs a fresh process.
            if row.figure == Figure::PerStream && nth > 0 {
                running = self.start(&leaders, &mut measured).await;
            }
            self.turn(&mut running, nth);
            for proxy in &running {
                let figures = match few.iter().find(|few| few.kind == proxy.kind) {
                    Some(few) => load.many_leaders(few, proxy, &engine).await,
                    None => load.round(proxy, &engine).await,
                };
                note(&mut measured, proxy.kind, figures);
            }
        }
        Ok(measured)
    }

    /// Another one begins in each round.
    fn turn(&self, running: &mut [Proxy], nth: usize) {
        if nth > 0 && !running.is_empty() {
            running.rotate_left(1);
        }
    }

    async fn engine(&self, row: &Row) -> io::Result<(Pinned, Vec<SocketAddr>)> {
        let port = free_address()?.port();
        let listen = SocketAddr::from((Ipv4Addr::UNSPECIFIED, port));
        let fixed = ["engine", "--canned", "--max-num-seqs", "100000", "--jitter", "0", "--listen"].map(str::to_owned);
        let args = fixed.into_iter().chain([listen.to_string()]).chain(row.engine.iter().map(|flag| (*flag).to_owned()));
        let engine = Pinned::start(pinned(&self.place.load_cpu, &self.program, args), &self.place.dir.join("engine.log"))?;
        let leader = |nth: usize| SocketAddr::from((Ipv4Addr::from(0x7F00_0101 + u32::try_from(nth).unwrap_or(0)), port));
        let leaders: Vec<_> = (0..row.leaders).map(leader).collect();
        for leader in &leaders[..1] {
            accepts(*leader).await?;
        }
        Ok((engine, leaders))
    }

    async fn start(&self, leaders: &[SocketAddr], measured: &mut Measured) -> Vec<Proxy> {
        let mut running = Vec::new();
        for kind in self.kinds(measured.row) {
            if !self.place.has(kind) {
                note(measured, kind, Err(io::Error::other("its program is not here")));
                continue;
            }
            match self.place.start(kind, leaders).await {
                Ok(proxy) => running.push(proxy),
                Err(error) => note(measured, kind, Err(error)),
            }
        }
        running
    }
}

fn note(measured: &mut Measured, kind: Kind, round: io::Result<Figures>) {
    match round {
        Ok(figures) => measured.rounds.entry(kind).or_default().push(figures),
        Err(error) => {
            eprintln!("  {}: {error}", kind.name());
            measured.failed.push((kind, error.to_string()));
        }
    }
}
