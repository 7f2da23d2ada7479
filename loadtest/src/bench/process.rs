//! Processes that are measured: pinned to one processor, with the time and memory that the kernel counts for them.
//!
//! Only children of this program are looked at, through `/proc`. Ticks of a whole process, threads that ended included.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Ticks for each second in `/proc` (`USER_HZ`): fixed on every Linux of this kind, whatever the kernel's own tick.
const TICKS: f64 = 100.0;

/// A child on one processor; dropped, it is killed and waited for.
#[derive(Debug)]
pub(super) struct Pinned {
    child: Child,
}

impl Pinned {
    /// Starts `command`, its output going to `log`.
    pub(super) fn start(mut command: Command, log: &Path) -> io::Result<Self> {
        let log = File::create(log)?;
        let child = command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).spawn()?;
        Ok(Self { child })
    }

    /// Its number.
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Seconds of processor time so far.
    pub(super) fn cpu(&self) -> io::Result<f64> {
        Ok(stat(&self.child.id().to_string())?.own)
    }

    /// Resident bytes now.
    pub(super) fn resident(&self) -> io::Result<f64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid()))?;
        let kib = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB")?.trim().parse::<f64>().ok());
        kib.map(|kib| kib * 1024.0).ok_or_else(|| io::Error::other("no VmRSS"))
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // It may have ended by itself; nothing is left to do then.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `program` on the processors `cpus` (as `taskset -c` takes them).
pub(super) fn command<I, A>(cpus: &str, program: &Path, args: I) -> Command
where
    I: IntoIterator<Item = A>,
    A: AsRef<OsStr>,
{
    let mut all = vec![OsString::from("-c"), cpus.into(), program.into()];
    all.extend(args.into_iter().map(|arg| arg.as_ref().to_owned()));
    let mut command = Command::new("taskset");
    command.args(all);
    command
}

/// Seconds of processor time of all children that have ended and were waited for.
pub(super) fn children_cpu() -> io::Result<f64> {
    Ok(stat("self")?.children)
}

struct Stat {
    own: f64,
    children: f64,
}

fn stat(process: &str) -> io::Result<Stat> {
    let text = std::fs::read_to_string(format!("/proc/{process}/stat"))?;
    parse(&text).ok_or_else(|| io::Error::other("unknown form of /proc/PID/stat"))
}

/// proc(5): the name in brackets may hold anything, so counting begins behind the last bracket; utime is field 14.
fn parse(text: &str) -> Option<Stat> {
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = |at: usize| fields.get(at)?.parse::<f64>().ok();
    Some(Stat { own: (ticks(11)? + ticks(12)?) / TICKS, children: (ticks(13)? + ticks(14)?) / TICKS })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_found_behind_any_name() {
        let stat = parse("7 (a) b 9) S 1 7 7 0 -1 4194560 100 0 0 0 150 50 30 20 20 0 1 0 5 6 7").unwrap();
        assert_eq!((stat.own, stat.children), (2.0, 0.5));
        assert!(parse("7 a").is_none());
    }
}
