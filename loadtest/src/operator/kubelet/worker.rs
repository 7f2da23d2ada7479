//! The life of one Pod: created, started, probed, restarted, told to go, gone.
//!
//! Owns: the Pod's process and its reported status. A status that cannot be written (the API server is down) is written later; the
//! process does not wait for it. The times are the operator's contract: a take-over Pod gets SIGTERM at once; a managed leader serves on
//! for 5 s, then until it is idle or 5 s before its grace ends; SIGKILL comes at the end of the grace.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use tokio::sync::mpsc::Receiver;
use tokio::time::{Instant, interval, sleep, sleep_until, timeout};

use super::process::{Launch, Process};
use super::report::{Container, Report};
use super::{PodInfo, Shared, probe};
use crate::operator::apply::absent_is_fine;

/// Period of probes and failures until a verdict changes, as the operator renders them.
const PROBE_PERIOD_SECONDS: u32 = 10;
const PROBE_TIMEOUT_SECONDS: u32 = 3;
const UNREADY_AFTER: u32 = 3;
const RESTART_AFTER: u32 = 6;

/// The drain hook of managed roles: it serves on for this long, and ends this long before the grace does.
const SETTLE_SECONDS: u32 = 5;

/// Longest wait for one answer of the API server.
const WRITE_TIMEOUT: Duration = Duration::from_secs(2);

/// What a worker can be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// The Pod has a deletionTimestamp.
    Delete {
        /// `deletionGracePeriodSeconds`.
        grace_seconds: u32,
    },
    /// The Pod is no longer on the API server.
    Gone,
    /// SIGKILL to the process; the container is started again.
    Kill,
    /// SIGTERM to the process; the container is started again.
    Restart,
    /// Reports not Ready until told otherwise.
    SetReady(bool),
    /// The engine hangs: it accepts, `/health` answers, nothing is generated.
    Hang,
    /// Another member of the replica lost its process.
    MemberLost,
}

/// How the watch over a running process ended.
enum Turn {
    Exited(i32),
    Leaving { grace: Duration },
    Gone,
}

/// One Pod's worker.
pub(super) struct Worker {
    shared: Arc<Shared>,
    pod: Pod,
    info: PodInfo,
    launch: Launch,
    report: Report,
    written: Option<Report>,
    forced_unready: bool,
    healthy: bool,
    failures: u32,
}

impl Worker {
    pub(super) fn new(shared: Arc<Shared>, pod: Pod, info: PodInfo, launch: Launch) -> Self {
        let report = Report::new(&info.uid, &launch.image, info.address);
        Self { shared, pod, info, launch, report, written: None, forced_unready: false, healthy: false, failures: 0 }
    }

    /// Lives until the Pod is off the API server.
    pub(super) async fn run(mut self, mut inbox: Receiver<Order>) {
        let code = self.live(&mut inbox).await;
        self.report.container = Container::Ended { code };
        self.report.set_ready(false);
        self.leave(inbox).await;
    }

    async fn live(&mut self, inbox: &mut Receiver<Order>) -> i32 {
        self.write().await;
        if !self.pause(inbox, self.shared.config.timing.container_start).await {
            return 0;
        }
        loop {
            let mut process = match Process::start(&self.launch, &self.info, &self.shared.config, self.report.restarts).await {
                Ok(process) => process,
                Err(error) => {
                    tracing::error!(pod = self.info.name, %error, "the engine does not start");
                    return 127;
                }
            };
            self.started().await;
            let turn = self.attend(&mut process, inbox).await;
            let code = match turn {
                Turn::Exited(code) => code,
                Turn::Leaving { grace } => return self.terminate(&mut process, inbox, grace).await,
                Turn::Gone => {
                    process.kill();
                    return 137;
                }
            };
            self.exited(&process, code).await;
            if !self.pause(inbox, self.shared.config.timing.restart_delay).await {
                return code;
            }
            self.report.restarts += 1;
        }
    }

    /// Waits; false if the Pod is to go instead.
    async fn pause(&mut self, inbox: &mut Receiver<Order>, time: Duration) -> bool {
        let until = Instant::now() + self.shared.config.scaled(time);
        loop {
            tokio::select! {
                () = sleep_until(until) => return true,
                order = inbox.recv() => match order {
                    Some(Order::Delete { .. } | Order::Gone) | None => return false,
                    Some(Order::SetReady(ready)) => self.forced_unready = !ready,
                    Some(Order::Kill | Order::Restart | Order::Hang | Order::MemberLost) => {}
                },
            }
        }
    }

    async fn started(&mut self) {
        self.report.container = Container::Running { since: Timestamp::now() };
        // Without probes a Pod is Ready as soon as its process runs, whatever the process can do by then.
        self.healthy = !self.is_probed();
        self.failures = 0;
        self.refresh_ready();
        let restarts = self.report.restarts;
        self.shared.update(&self.info.uid, |info| (info.running, info.restarts) = (true, restarts));
        self.write().await;
    }

    async fn exited(&mut self, process: &Process, code: i32) {
        tracing::info!(pod = self.info.name, code, "container ended");
        self.note_end(process);
        self.report.container = Container::BackOff;
        self.report.last_exit = Some(code);
        self.healthy = false;
        self.refresh_ready();
        self.write().await;
    }

    /// Probes and obeys until the process ends or is to go.
    async fn attend(&mut self, process: &mut Process, inbox: &mut Receiver<Order>) -> Turn {
        let mut ticks = interval(self.shared.config.seconds(1).max(Duration::from_millis(10)));
        let (mut ticked, mut give_up): (u32, Option<Instant>) = (0, None);
        loop {
            tokio::select! {
                code = process.exited() => return Turn::Exited(code),
                () = sleep_until(give_up.unwrap_or_else(Instant::now)), if give_up.is_some() => {
                    give_up = None;
                    process.kill();
                }
                _ = ticks.tick() => {
                    ticked += 1;
                    self.tick(process, ticked).await;
                }
                order = inbox.recv() => match order {
                    Some(Order::Delete { grace_seconds }) => return Turn::Leaving { grace: self.shared.config.seconds(grace_seconds) },
                    Some(Order::Gone) | None => return Turn::Gone,
                    Some(Order::Kill) => process.kill(),
                    Some(Order::Restart) => process.terminate(),
                    Some(Order::Hang) => process.hang(),
                    Some(Order::SetReady(ready)) => {
                        self.forced_unready = !ready;
                        self.refresh_ready();
                        self.write().await;
                    }
                    Some(Order::MemberLost) if self.shared.config.followers_break_leader => {
                        process.hang();
                        give_up = Some(Instant::now() + self.shared.config.scaled(self.shared.config.timing.collective_timeout));
                    }
                    Some(Order::MemberLost) => {}
                },
            }
        }
    }

    async fn tick(&mut self, process: &mut Process, ticked: u32) {
        let misdirected = process.misdirected();
        self.shared.update(&self.info.uid, |info| info.misdirected = info.misdirected.max(misdirected));
        if self.is_probed() && ticked.is_multiple_of(PROBE_PERIOD_SECONDS) {
            self.probe(process).await;
        }
        self.write().await;
    }

    async fn probe(&mut self, process: &mut Process) {
        if probe::healthy(self.engine(), self.shared.config.seconds(PROBE_TIMEOUT_SECONDS).max(Duration::from_millis(300))).await {
            (self.healthy, self.failures) = (true, 0);
        } else if self.healthy {
            // Before the first success the startup probe counts, and it allows half an hour.
            self.failures += 1;
            self.healthy = self.failures < UNREADY_AFTER;
        } else if self.failures > 0 {
            self.failures += 1;
            if self.failures >= RESTART_AFTER {
                process.terminate();
            }
        }
        self.refresh_ready();
    }

    /// SIGTERM and SIGKILL as the role has it; the exit code.
    async fn terminate(&mut self, process: &mut Process, inbox: &mut Receiver<Order>, grace: Duration) -> i32 {
        self.shared.update(&self.info.uid, |info| info.terminating = true);
        let kill_at = Instant::now() + grace;
        let hook = self.hook(grace);
        tokio::pin!(hook);
        let mut in_hook = true;
        let code = loop {
            tokio::select! {
                code = process.exited() => break code,
                () = sleep_until(kill_at) => {
                    process.kill();
                    break 137;
                }
                () = &mut hook, if in_hook => {
                    in_hook = false;
                    process.terminate();
                }
                order = inbox.recv() => match order {
                    Some(Order::Gone | Order::Kill) | None => process.kill(),
                    // After SIGTERM the leader ends in its own way; before it, a lost member breaks it.
                    Some(Order::MemberLost) if in_hook && self.shared.config.followers_break_leader => process.hang(),
                    Some(Order::Hang) => process.hang(),
                    Some(Order::MemberLost | Order::Delete { .. } | Order::Restart | Order::SetReady(_)) => {}
                },
            }
        };
        self.note_end(process);
        code
    }

    /// The time before SIGTERM. Followers of managed replicas have nothing to wait for after the settle time.
    fn hook(&self, grace: Duration) -> impl Future<Output = ()> + use<> {
        let config = self.shared.config.clone();
        let (managed, drains, engine) = (self.launch.managed, self.launch.serves, self.engine());
        async move {
            if !managed {
                return;
            }
            let start = Instant::now();
            let settle = config.seconds(SETTLE_SECONDS);
            sleep(settle).await;
            let mut idle_reads = 0;
            while drains && idle_reads < 2 && start.elapsed() + settle < grace {
                let read = probe::idle(engine, config.seconds(PROBE_TIMEOUT_SECONDS)).await;
                idle_reads = if read { idle_reads + 1 } else { 0 };
                sleep(config.seconds(1)).await;
            }
        }
    }

    /// Reports the end and takes the Pod off the API server, however long that takes.
    async fn leave(&mut self, mut inbox: Receiver<Order>) {
        self.shared.update(&self.info.uid, |info| info.terminating = true);
        loop {
            if self.write().await && self.delete().await {
                return;
            }
            let retry = self.shared.config.seconds(1).max(Duration::from_millis(50));
            tokio::select! {
                () = sleep(retry) => {}
                order = inbox.recv() => if matches!(order, Some(Order::Gone) | None) { return },
            }
        }
    }

    async fn delete(&self) -> bool {
        let deletion = self.shared.server.delete_pod(&self.info.namespace, &self.info.name, &self.info.uid, Some(0));
        matches!(timeout(WRITE_TIMEOUT, deletion).await, Ok(Ok(())))
    }

    /// Writes the status if it changed; false if that failed and is still to do.
    async fn write(&mut self) -> bool {
        if self.written.as_ref() == Some(&self.report) {
            return true;
        }
        let patch = Patch::Merge(json!({"metadata": {"uid": self.info.uid}, "status": self.report.status()}));
        let pods = self.shared.server.pods(&self.info.namespace);
        let parameters = PatchParams::default();
        let done = match timeout(WRITE_TIMEOUT, pods.patch_status(&self.info.name, &parameters, &patch)).await {
            // Another Pod has the name by now: there is nobody left to report on.
            Ok(Err(kube::Error::Api(status))) if status.code == 409 => true,
            Ok(result) => absent_is_fine(result).is_ok(),
            Err(_) => false,
        };
        if done {
            self.written = Some(self.report.clone());
        }
        done
    }

    fn note_end(&self, process: &Process) {
        let misdirected = process.misdirected();
        self.shared.update(&self.info.uid, |info| {
            info.running = false;
            info.misdirected = info.misdirected.max(misdirected);
        });
        if self.info.member != 0 {
            self.shared.member_lost(&self.info);
        }
    }

    fn refresh_ready(&mut self) {
        self.report.set_ready(self.healthy && !self.forced_unready);
    }

    /// Managed Pods that serve HTTP. A follower of a managed replica serves none, so its process stands for its readiness.
    fn is_probed(&self) -> bool {
        self.launch.managed && self.launch.serves && self.pod.spec.is_some()
    }

    fn engine(&self) -> SocketAddr {
        (self.info.address, self.info.port).into()
    }
}
