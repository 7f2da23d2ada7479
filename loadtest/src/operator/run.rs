//! The loop of the simulated operator: read the cluster, let the pure parts decide, carry it out, wait a moment.
//!
//! Level-triggered: every pass starts from what the API server says now, so a lost answer, a conflict or a server that was away is made
//! good by the next pass.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::jiff::Timestamp;
use tokio::sync::mpsc::Receiver;

use super::apply::Seen;
use super::kubelet::{self, Kubelet, Shared};
use super::kueue::Kueue;
use super::plan::{self, Action, Rules};
use super::retire::Moment;
use super::spec::Deployment;
use super::view::View;

/// What the handle asks of the loop.
#[derive(Debug)]
pub(super) enum Request {
    /// Nothing is admitted for this long (already scaled).
    HoldAdmission(Duration),
}

/// Longest time for one pass over one deployment; a server that hangs must not stop the kubelet.
const PASS_TIMEOUT: Duration = Duration::from_secs(10);

pub(super) struct Runner {
    shared: Arc<Shared>,
    kubelet: Kubelet,
    kueue: Kueue,
    /// Leaders that were idle at the last read, while they drain for a retirement.
    idle_once: BTreeSet<String>,
    unreadable: BTreeMap<String, String>,
    unreachable: bool,
}

impl Runner {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        let kubelet = Kubelet::new(Arc::clone(&shared));
        Self { shared, kubelet, kueue: Kueue::default(), idle_once: BTreeSet::new(), unreadable: BTreeMap::new(), unreachable: false }
    }

    /// Runs until the handle is gone.
    pub(super) async fn run(mut self, mut requests: Receiver<Request>) {
        let pause = self.shared.config.scaled(self.shared.config.timing.pass).max(Duration::from_millis(20));
        loop {
            self.pass().await;
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                request = requests.recv() => match request {
                    Some(Request::HoldAdmission(time)) => self.kueue.hold(Instant::now() + time),
                    None => return,
                },
            }
        }
    }

    async fn pass(&mut self) {
        match tokio::time::timeout(PASS_TIMEOUT, self.shared.server.read()).await {
            Ok(Ok(seen)) => {
                self.reachable(None);
                self.kueue.observe(&seen.pods, Instant::now());
                self.kubelet.sync(&seen.pods);
                self.deployments(&seen).await;
                self.admissions(&seen.pods).await;
            }
            Ok(Err(error)) => self.reachable(Some(error.to_string())),
            Err(_) => self.reachable(Some("the API server does not answer".to_owned())),
        }
    }

    async fn deployments(&mut self, seen: &Seen) {
        for object in &seen.deployments {
            match Deployment::read(object) {
                Ok(deployment) if deployment.spec.router.is_some() => self.complain(&deployment.name, "spec.router is not simulated"),
                Ok(deployment) => {
                    let turn = tokio::time::timeout(PASS_TIMEOUT, self.deployment(deployment, seen)).await;
                    if turn.is_err() {
                        tracing::warn!("a pass took too long");
                    }
                }
                Err(problem) => self.complain(&object.metadata.name.clone().unwrap_or_default(), &problem),
            }
        }
    }

    async fn deployment(&mut self, deployment: Deployment, seen: &Seen) {
        let mut view = self.view(deployment, seen);
        self.read_gauges(&mut view).await;
        let config = &self.shared.config;
        let moment = Moment { now: Timestamp::now(), time_scale: config.time_scale, confirmed: config.confirm_retirement };
        let actions = plan::pass(&view, Rules { moment, eligibility: config.eligibility });
        for action in &actions {
            if let Action::DropWorkload(group) = action {
                self.kueue.drop_workload(&view.deployment.namespace, group);
            }
            if let Err(error) = self.shared.server.carry_out(&view.deployment, action).await {
                tracing::debug!(deployment = view.deployment.name, ?action, %error, "put off to the next pass");
                return;
            }
        }
    }

    fn view(&self, deployment: Deployment, seen: &Seen) -> View {
        let pods = seen.pods.iter().filter(|pod| owned_by(&pod.metadata, &deployment)).cloned().collect();
        let services: Vec<Service> = seen.services.iter().filter(|service| owned_by(&service.metadata, &deployment)).cloned().collect();
        let workloads = self.kueue.of_owner(&deployment.uid);
        View { deployment, pods, services, workloads, idle: BTreeSet::new() }
    }

    /// While a retirement drains, its leader's gauges; two idle reads in a row count.
    async fn read_gauges(&mut self, view: &mut View) {
        if view.deployment.status["retirement"]["state"] != "Draining" {
            return;
        }
        let Some(leader) = view.deployment.status["retirement"]["targetMemberUIDs"][0].as_str().map(str::to_owned) else { return };
        let Some(info) = self.shared.pods().into_iter().find(|info| info.uid == leader) else { return };
        let idle = kubelet::idle((info.address, info.port).into(), Duration::from_secs(1)).await;
        if !idle {
            self.idle_once.remove(&leader);
        } else if !self.idle_once.insert(leader.clone()) {
            view.idle.insert(leader);
        }
    }

    async fn admissions(&mut self, pods: &[Pod]) {
        let delay = self.shared.config.scaled(self.shared.config.timing.admission);
        for (group, members) in self.kueue.admissions(pods, Instant::now(), delay) {
            let mut all = true;
            for pod in members {
                let node = format!("gpu-node-{}", super::view::member(pod));
                if let Err(error) = self.shared.server.admit(pod, &node).await {
                    tracing::debug!(%error, "admission is put off");
                    all = false;
                }
            }
            if all {
                self.kueue.admitted(&group);
            }
        }
        for pod in self.kueue.releases(pods) {
            if let Err(error) = self.shared.server.release(pod).await {
                tracing::debug!(%error, "a finalizer stays for now");
            }
        }
    }

    fn reachable(&mut self, problem: Option<String>) {
        match (&problem, self.unreachable) {
            (Some(problem), false) => tracing::warn!(problem, "the API server is away; engines go on"),
            (None, true) => tracing::info!("the API server is back"),
            _ => {}
        }
        self.unreachable = problem.is_some();
    }

    fn complain(&mut self, name: &str, problem: &str) {
        if self.unreadable.insert(name.to_owned(), problem.to_owned()).as_deref() != Some(problem) {
            tracing::warn!(deployment = name, problem, "left alone");
        }
    }
}

fn owned_by(metadata: &kube::api::ObjectMeta, deployment: &Deployment) -> bool {
    let owners = metadata.owner_references.as_deref().unwrap_or_default();
    metadata.namespace.as_deref() == Some(&deployment.namespace)
        && owners.iter().any(|owner| owner.controller == Some(true) && owner.uid == deployment.uid)
}
