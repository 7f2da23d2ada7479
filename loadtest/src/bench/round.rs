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
        if self.row.figure == Figure::PerStream {
            return self.streams(proxy).await;
        }
        self.flood(proxy.address, (self.seconds / 4.0).max(0.5)).await?;
        let cpu = || proxy.process.as_ref().map_or(Ok(0.0), Pinned::cpu);
        let (proxy_before, engine_before, load_before) = (cpu()?, engine.cpu()?, children_cpu()?);
        let seen = self.flood(proxy.address, self.seconds).await?;
        let spent = (cpu()? - proxy_before, engine.cpu()? - engine_before, children_cpu()? - load_before);
        Ok(figures(self.row.figure, &seen, spent))
    }

    async fn streams(&self, proxy: &Proxy) -> io::Result<Figures> {
        let Some(process) = &proxy.process else { return Ok(Figures::new()) };
        let before = process.resident()?;
        let seconds = STREAMS_OPEN_AFTER.as_secs_f64() + self.seconds;
        let mut load = tokio::process::Command::from(self.command(proxy.address, seconds)).kill_on_drop(true).spawn()?;
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
        tokio::process::Command::from(self.command(address, seconds)).kill_on_drop(true).status().await?;
        let seen = self.result(address)?;
        let done = seen["good"].as_u64().unwrap_or(0) + seen["events"].as_u64().unwrap_or(0);
        if done == 0 || seen["bad"].as_u64() != Some(0) {
            return Err(io::Error::other(format!("the load saw failures: {seen}")));
        }
        Ok(seen)
    }

    fn command(&self, address: SocketAddr, seconds: f64) -> std::process::Command {
        let plain = ["flood", "--warmup", "0", "--url"].map(str::to_owned);
        let numbers = [format!("http://{address}"), "--duration".into(), seconds.to_string()];
        let rest =
            ["--connections".to_owned(), self.row.connections.to_string(), "--json".into(), self.file(address).display().to_string()];
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

fn figures(figure: Figure, seen: &Value, (proxy, engine, load): (f64, f64, f64)) -> Figures {
    let number = |value: &Value| value.as_f64().unwrap_or(0.0);
    let (count, each) = match figure {
        Figure::PerEvent => (&seen["events"], "events"),
        Figure::PerRequest | Figure::Latency | Figure::PerStream | Figure::Gone => (&seen["good"], "good"),
    };
    let per = |seconds: f64| seconds * 1e6 / number(count).max(1.0);
    let mut figures = Figures::from([
        ("proxy_cpu_us", per(proxy)),
        ("engine_cpu_us", per(engine)),
        ("load_cpu_us", per(load)),
        (if each == "events" { "events" } else { "requests" }, number(count)),
        ("p50_us", number(&seen["total_ms"]["p50"]) * 1e3),
        ("p99_us", number(&seen["total_ms"]["p99"]) * 1e3),
    ]);
    if figure == Figure::PerEvent {
        figures.retain(|name, _| !name.starts_with('p') || *name == "proxy_cpu_us");
        figures.insert("first_p50_ms", number(&seen["first_ms"]["p50"]));
        figures.insert("gap_p50_ms", number(&seen["gap_ms"]["p50"]));
        figures.insert("gap_p99_ms", number(&seen["gap_ms"]["p99"]));
    }
    figures
}
