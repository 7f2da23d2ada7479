//! One round: a load through one proxy, and what the kernel and the load say of it.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;

use super::process::{Pinned, children_cpu, command};
use super::proxies::{Place, Proxy};
use super::rows::{Figure, Row};

/// Figures of one round by name; the unit is the end of the name.
pub(super) type Figures = BTreeMap<&'static str, f64>;

/// How long streams have to open before memory is looked at.
const STREAMS_OPEN_AFTER: Duration = Duration::from_secs(4);

/// How long the connections of a row about growth have to open, and the few of them. Each connection sends for the first time within
/// `connections / rate` seconds.
const CONNECTIONS_OPEN_AFTER: Duration = Duration::from_secs(5);
const FEW_CONNECTIONS: usize = 10;

/// A load of one row.
#[derive(Debug)]
pub(super) struct Load<'a> {
    pub(super) place: &'a Place,
    pub(super) row: &'a Row,
    pub(super) program: PathBuf,
    pub(super) seconds: f64,
}

impl Load<'_> {
    /// Warms `proxy` up, loads it and takes the row's figures.
    pub(super) async fn round(&self, proxy: &Proxy, engine: &Pinned) -> io::Result<Figures> {
        match self.row.figure {
            Figure::PerStream => return self.streams(proxy).await,
            Figure::Growth => return self.growth(proxy).await,
            Figure::PerRequest | Figure::ManyLeaders | Figure::PerEvent | Figure::Latency | Figure::FirstToken | Figure::Gone => {}
        }
        self.closed_loop(proxy, engine).await
    }

    /// The row's figures of `many`, and what a request costs with the few leaders of `few`.
    pub(super) async fn many_leaders(&self, few: &Proxy, many: &Proxy, engine: &Pinned) -> io::Result<Figures> {
        let few = self.closed_loop(few, engine).await?["proxy_cpu_us"];
        let mut figures = self.closed_loop(many, engine).await?;
        figures.insert("few_leaders_cpu_us", few);
        if few > 0.0 {
            figures.insert("many_over_few", figures["proxy_cpu_us"] / few);
        }
        Ok(figures)
    }

    async fn closed_loop(&self, proxy: &Proxy, engine: &Pinned) -> io::Result<Figures> {
        self.flood(proxy.address, (self.seconds / 4.0).max(0.5)).await?;
        let (proxy_before, engine_before, load_before) = (proxy.cpu()?, engine.cpu()?, children_cpu()?);
        let seen = self.flood(proxy.address, self.seconds).await?;
        let spent = (proxy.cpu()? - proxy_before, engine.cpu()? - engine_before, children_cpu()? - load_before);
        Ok(figures(self.row.figure, &seen, spent))
    }

    async fn growth(&self, proxy: &Proxy) -> io::Result<Figures> {
        let few = self.steady(proxy, FEW_CONNECTIONS).await?;
        let many = self.steady(proxy, self.row.connections).await?;
        let mut figures = Figures::from([("few_cpu_us", few), ("many_cpu_us", many)]);
        if few > 0.0 {
            figures.insert("many_over_few", many / few);
        }
        Ok(figures)
    }

    /// Processor time of the proxy for each answer, in µs, while `connections` are open: their opening is not in it.
    async fn steady(&self, proxy: &Proxy, connections: usize) -> io::Result<f64> {
        let shape = Shape { connections, warmup: CONNECTIONS_OPEN_AFTER.as_secs_f64(), seconds: self.seconds };
        let mut load = tokio::process::Command::from(self.command(proxy.address, shape)).kill_on_drop(true).spawn()?;
        tokio::time::sleep(CONNECTIONS_OPEN_AFTER).await;
        let before = proxy.cpu()?;
        tokio::time::sleep(Duration::from_secs_f64(self.seconds)).await;
        let spent = proxy.cpu()? - before;
        load.wait().await?;
        let seen = self.without_failures(proxy.address)?;
        Ok(spent * 1e6 / number(&seen["good"]).max(1.0))
    }

    async fn streams(&self, proxy: &Proxy) -> io::Result<Figures> {
        let Some(process) = &proxy.process else { return Ok(Figures::new()) };
        let before = process.resident()?;
        let shape = self.shape(STREAMS_OPEN_AFTER.as_secs_f64() + self.seconds);
        let mut load = tokio::process::Command::from(self.command(proxy.address, shape)).kill_on_drop(true).spawn()?;
        tokio::time::sleep(STREAMS_OPEN_AFTER + Duration::from_secs_f64(self.seconds * 0.8)).await;
        let after = process.resident()?;
        load.wait().await?;
        let seen = self.result(proxy.address)?;
        if seen["events"].as_u64().unwrap_or(0) < self.row.connections as u64 {
            return Err(io::Error::other("not all streams opened; are there enough file descriptors?"));
        }
        Ok(Figures::from([
            ("stream_kib", (after - before) / 1024.0 / self.row.connections as f64),
            ("idle_mib", before / f64::from(1 << 20)),
        ]))
    }

    async fn flood(&self, address: SocketAddr, seconds: f64) -> io::Result<Value> {
        tokio::process::Command::from(self.command(address, self.shape(seconds))).kill_on_drop(true).status().await?;
        self.without_failures(address)
    }

    fn without_failures(&self, address: SocketAddr) -> io::Result<Value> {
        let seen = self.result(address)?;
        let done = seen["good"].as_u64().unwrap_or(0) + seen["events"].as_u64().unwrap_or(0);
        if done == 0 || seen["bad"].as_u64() != Some(0) {
            return Err(io::Error::other(format!("the load saw failures: {seen}")));
        }
        Ok(seen)
    }

    fn shape(&self, seconds: f64) -> Shape {
        Shape { connections: self.row.connections, warmup: 0.0, seconds }
    }

    fn command(&self, address: SocketAddr, shape: Shape) -> std::process::Command {
        let plain = ["flood".to_owned(), "--warmup".into(), shape.warmup.to_string(), "--url".into()];
        let numbers = [format!("http://{address}"), "--duration".into(), shape.seconds.to_string()];
        let rest = ["--connections".to_owned(), shape.connections.to_string(), "--json".into(), self.file(address).display().to_string()];
        let args = plain.into_iter().chain(numbers).chain(rest).chain(self.row.load.iter().map(|flag| (*flag).to_owned()));
        let mut command = command(&self.place.load_cpu, &self.program, args);
        command.stdout(std::process::Stdio::null());
        command
    }

    fn result(&self, address: SocketAddr) -> io::Result<Value> {
        Ok(serde_json::from_slice(&std::fs::read(self.file(address))?)?)
    }

    fn file(&self, address: SocketAddr) -> PathBuf {
        self.place.dir.join(format!("flood-{}.json", address.port()))
    }
}

/// What differs between the loads of one row.
#[derive(Debug, Clone, Copy)]
struct Shape {
    connections: usize,
    /// Seconds before those that are measured.
    warmup: f64,
    seconds: f64,
}

fn figures(figure: Figure, seen: &Value, (proxy, engine, load): (f64, f64, f64)) -> Figures {
    let streams = matches!(figure, Figure::PerEvent | Figure::FirstToken);
    let (count, name) = if streams { (number(&seen["events"]), "events") } else { (number(&seen["good"]), "requests") };
    let per = |seconds: f64| seconds * 1e6 / count.max(1.0);
    let mut figures =
        Figures::from([("proxy_cpu_us", per(proxy)), ("engine_cpu_us", per(engine)), ("load_cpu_us", per(load)), (name, count)]);
    if streams {
        figures.extend([
            ("first_p50_ms", number(&seen["first_ms"]["p50"])),
            ("first_p99_ms", number(&seen["first_ms"]["p99"])),
            ("gap_p50_ms", number(&seen["gap_ms"]["p50"])),
            ("gap_p99_ms", number(&seen["gap_ms"]["p99"])),
        ]);
    } else {
        figures.extend([("p50_us", number(&seen["total_ms"]["p50"]) * 1e3), ("p99_us", number(&seen["total_ms"]["p99"]) * 1e3)]);
    }
    figures
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or(0.0)
}
