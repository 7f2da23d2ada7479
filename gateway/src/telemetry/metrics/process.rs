//! Figures of the process under the names that Prometheus clients agree on, read from `/proc/self` at each scrape.
//!
//! Owns: the reading. Must not: fail a scrape; what cannot be read is left out.

use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{Counter, Gauge, Opts};

/// Clock ticks a second of `/proc/self/stat`: the kernel's user interface has it at 100 on every platform this runs on.
const TICKS: f64 = 100.0;

/// CPU, memory, descriptors, threads and start of this process.
#[derive(Debug)]
pub(super) struct Process {
    cpu: Counter,
    resident: Gauge,
    virtual_: Gauge,
    open_fds: Gauge,
    max_fds: Gauge,
    threads: Gauge,
    start: Gauge,
}

impl Process {
    pub(super) fn new() -> Result<Self, prometheus::Error> {
        let gauge = |name: &str, help: &str| Gauge::with_opts(Opts::new(name, help));
        let started = Self {
            cpu: Counter::with_opts(Opts::new("process_cpu_seconds_total", "User and system CPU time in seconds."))?,
            resident: gauge("process_resident_memory_bytes", "Resident memory in bytes.")?,
            virtual_: gauge("process_virtual_memory_bytes", "Virtual memory in bytes.")?,
            open_fds: gauge("process_open_fds", "Open file descriptors.")?,
            max_fds: gauge("process_max_fds", "Most file descriptors that may be open.")?,
            threads: gauge("process_threads", "Threads.")?,
            start: gauge("process_start_time_seconds", "Start of the process, seconds since the epoch.")?,
        };
        if let Ok(now) = SystemTime::now().duration_since(UNIX_EPOCH) {
            started.start.set(now.as_secs_f64());
        }
        Ok(started)
    }

    fn read(&self) {
        if let Some(seconds) = fs::read_to_string("/proc/self/stat").ok().as_deref().and_then(cpu_seconds) {
            self.cpu.inc_by((seconds - self.cpu.get()).max(0.0));
        }
        if let Ok(status) = fs::read_to_string("/proc/self/status") {
            for (key, gauge, unit) in
                [("VmRSS:", &self.resident, 1024.0), ("VmSize:", &self.virtual_, 1024.0), ("Threads:", &self.threads, 1.0)]
            {
                if let Some(value) = figure(&status, key) {
                    gauge.set(value * unit);
                }
            }
        }
        if let Ok(open) = fs::read_dir("/proc/self/fd") {
            // The directory that is being read is one of them.
            self.open_fds.set(f64::from(u32::try_from(open.count().saturating_sub(1)).unwrap_or(u32::MAX)));
        }
        if let Some(most) = fs::read_to_string("/proc/self/limits").ok().as_deref().and_then(|l| figure(l, "Max open files")) {
            self.max_fds.set(most);
        }
    }

    fn all(&self) -> [&dyn Collector; 7] {
        [&self.cpu, &self.resident, &self.virtual_, &self.open_fds, &self.max_fds, &self.threads, &self.start]
    }
}

impl Collector for Process {
    fn desc(&self) -> Vec<&Desc> {
        self.all().iter().flat_map(|c| c.desc()).collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        self.read();
        self.all().iter().flat_map(|c| c.collect()).collect()
    }
}

/// Fields 14 and 15 of `stat`; the name in parentheses before them may hold spaces.
fn cpu_seconds(stat: &str) -> Option<f64> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace().skip(11);
    let user: f64 = fields.next()?.parse().ok()?;
    let system: f64 = fields.next()?.parse().ok()?;
    Some((user + system) / TICKS)
}

/// The first number behind a key at the start of a line.
fn figure(text: &str, key: &str) -> Option<f64> {
    let rest = text.lines().find_map(|l| l.strip_prefix(key))?;
    rest.split_ascii_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_kernels_forms() {
        assert_eq!(cpu_seconds("7 (a b) c) S 1 1 1 0 -1 4 9 0 0 0 150 50 0 0 20 0 8 0"), Some(2.0));
        assert_eq!(cpu_seconds("7 (x) S"), None);
        assert_eq!(figure("Name:\tx\nVmRSS:\t  812 kB\n", "VmRSS:"), Some(812.0));
        assert_eq!(figure("Max open files            1024                 4096                 files", "Max open files"), Some(1024.0));
    }
}
