//! Child processes that cannot outlive the test: each runs under a small shell that kills it once our end of a pipe is gone.
//!
//! A parent-death signal would not do: the kernel ties it to the *thread* that forked, and every test has a thread of its own, so a
//! shared server would die with the first test. Closing a pipe is tied to the process. Owns: start, log file, signals, end. Next:
//! `apiserver` and `gateway` say what is run.

use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::Outcome;
use crate::poll::eventually;

/// `$1` log file, `$2` folder to remove at the end (may be empty), then the command. Prints the command's process id.
const SUPERVISOR: &str = r#"
log=$1; litter=$2; shift 2
exec 3<&0
"$@" </dev/null 3<&- >>"$log" 2>&1 &
child=$!
echo "$child"
( read -r _ <&3; kill -KILL "$child" ) 2>/dev/null &
watch=$!
wait "$child"
code=$?
kill "$watch" 2>/dev/null
[ -z "$litter" ] || rm -rf "$litter"
exit "$code"
"#;

/// What to run.
pub struct Spec {
    /// Program path.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// Variables set on top of the inherited environment.
    pub env: Vec<(String, OsString)>,
    /// File that receives stdout and stderr, appended to.
    pub log: PathBuf,
    /// Folder to delete once the process has ended, whoever ended it.
    pub litter: Option<PathBuf>,
}

/// A running child. Dropping it kills the child with SIGKILL.
pub struct Process {
    pid: u32,
    log: PathBuf,
    supervisor: Mutex<Child>,
    leash: Mutex<Option<ChildStdin>>,
}

impl Process {
    /// Starts it; an error also when the supervisor shell itself cannot be started. That the program exists is only seen later, by
    /// its exit status 127 and its log.
    pub fn start(spec: Spec) -> Outcome<Self> {
        let litter = spec.litter.as_deref().unwrap_or(Path::new(""));
        let mut supervisor = Command::new("sh")
            .args(["-c", SUPERVISOR, "supervisor"])
            .args([spec.log.as_path(), litter, &spec.program])
            .args(spec.args)
            .envs(spec.env)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let stdout = supervisor.stdout.take().ok_or("the supervisor has no stdout")?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        let pid = line.trim().parse().map_err(|_| format!("the supervisor printed {line:?} instead of a process id"))?;
        let leash = Mutex::new(supervisor.stdin.take());
        Ok(Self { pid, log: spec.log, supervisor: Mutex::new(supervisor), leash })
    }

    /// The child's process id.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// All that it has written so far.
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    /// The last `lines` lines of its log, for an error message.
    pub fn log_tail(&self, lines: usize) -> String {
        let text = self.log();
        let all: Vec<&str> = text.lines().collect();
        all[all.len().saturating_sub(lines)..].join("\n")
    }

    /// Sends a signal by name (`TERM`, `KILL`, `HUP`, `STOP`, …).
    pub fn signal(&self, name: &str) -> Outcome<()> {
        let status = Command::new("kill").arg(format!("-{name}")).arg(self.pid.to_string()).stderr(Stdio::null()).status()?;
        if status.success() { Ok(()) } else { Err(format!("process {} took no signal {name}", self.pid).into()) }
    }

    /// Its exit status (128 + N after signal N), once it has ended.
    pub fn exit_status(&self) -> Outcome<Option<i32>> {
        Ok(lock(&self.supervisor).try_wait()?.map(|status| status.code().unwrap_or(-1)))
    }

    /// Waits for the end; an error after `within`.
    pub async fn wait(&self, within: Duration) -> Outcome<i32> {
        let what = format!("end of process {}", self.pid);
        eventually(within, &what, || async {
            match self.exit_status() {
                Ok(Some(code)) => Ok(code),
                Ok(None) => Err(format!("it runs; log:\n{}", self.log_tail(20))),
                Err(error) => Err(error.to_string()),
            }
        })
        .await
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        lock(&self.leash).take();
        // The shell ends right after the child that it killed; reaping it leaves no zombie. Its own failure changes nothing.
        let _ = lock(&self.supervisor).wait();
    }
}

/// A poisoned lock only says that another test panicked; the child is still ours to end.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::poll::PATIENCE;

    fn shell(dir: &Path, script: &str) -> Process {
        let spec = Spec {
            program: "sh".into(),
            args: vec!["-c".into(), script.into()],
            env: vec![("GREETING".into(), "hello".into())],
            log: dir.join("log"),
            litter: None,
        };
        Process::start(spec).unwrap()
    }

    #[tokio::test]
    async fn reports_exit_status_and_log() {
        let dir = tempfile::tempdir().unwrap();
        let process = shell(dir.path(), "echo $GREETING; exit 7");
        assert_eq!(process.wait(PATIENCE).await.unwrap(), 7);
        assert_eq!(process.log(), "hello\n");
    }

    #[tokio::test]
    async fn signals_reach_the_child() {
        let dir = tempfile::tempdir().unwrap();
        let process = shell(dir.path(), "exec sleep 1000");
        process.signal("TERM").unwrap();
        assert_eq!(process.wait(PATIENCE).await.unwrap(), 128 + 15);
    }

    #[tokio::test]
    async fn dropping_kills_and_removes_the_litter() {
        let dir = tempfile::tempdir().unwrap();
        let litter = dir.path().join("litter");
        std::fs::create_dir(&litter).unwrap();
        let args = vec!["1000".into()];
        let spec = Spec { program: "sleep".into(), args, env: vec![], log: dir.path().join("log"), litter: Some(litter.clone()) };
        let process = Process::start(spec).unwrap();
        let pid = process.pid();
        drop(process);
        assert!(!Path::new(&format!("/proc/{pid}")).exists());
        assert!(!litter.exists());
    }
}
