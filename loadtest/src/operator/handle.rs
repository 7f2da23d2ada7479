//! Start, commands and end of a simulated operator, for tests, the demo and the control port.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::Client;
use kube::api::{Api, ListParams};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::apply::Server;
use super::config::OperatorConfig;
use super::kubelet::{Order, PodInfo, Shared};
use super::run::{Request, Runner};

/// Requests to the loop that may wait; it takes them between two passes.
const REQUESTS: usize = 16;

/// Why the simulated operator does not start or a command fails.
#[derive(Debug, thiserror::Error)]
pub enum OperatorError {
    /// Simulated Pods in a real cluster would be mistaken for capacity.
    #[error("the cluster has {0} nodes: a simulated operator runs only on an API server without any")]
    HasNodes(usize),
    /// The API server's answer.
    #[error(transparent)]
    Kube(#[from] kube::Error),
    /// No loopback range is free.
    #[error("no loopback address range: {0}")]
    Loopback(#[from] std::io::Error),
    /// There is no such Pod with a running worker.
    #[error("no Pod {0} is running here")]
    NoSuchPod(String),
    /// There is no such role.
    #[error("deployment {0} has no role {1}")]
    NoSuchRole(String, String),
}

/// Starts simulated operators.
#[derive(Debug)]
pub struct Operator;

/// A running simulated operator. Dropping it ends operator, kubelet and every engine at once; the objects stay.
pub struct OperatorHandle {
    shared: Arc<Shared>,
    requests: mpsc::Sender<Request>,
    _task: JoinSet<()>,
}

impl Operator {
    /// Starts it on an API server that has the CRD and no Nodes.
    ///
    /// # Errors
    /// [`OperatorError::HasNodes`], an API server that cannot be reached, or no free loopback range.
    pub async fn start(client: Client, config: OperatorConfig) -> Result<OperatorHandle, OperatorError> {
        let nodes = Api::<Node>::all(client.clone()).list(&ListParams::default()).await?.items.len();
        if nodes > 0 {
            return Err(OperatorError::HasNodes(nodes));
        }
        let server = Server::new(client, config.namespace.clone());
        let shared = Arc::new(Shared::new(server, config)?);
        let (requests, inbox) = mpsc::channel(REQUESTS);
        let mut task = JoinSet::new();
        task.spawn(Runner::new(Arc::clone(&shared)).run(inbox));
        Ok(OperatorHandle { shared, requests, _task: task })
    }
}

impl OperatorHandle {
    /// The Pods that run here.
    pub fn pods(&self) -> Vec<PodInfo> {
        self.shared.pods()
    }

    /// The member of a replica, if it runs.
    pub fn member(&self, deployment: &str, ordinal: u32, member: u32) -> Option<PodInfo> {
        self.pods().into_iter().find(|pod| pod.deployment == deployment && (pod.ordinal, pod.member) == (ordinal, member))
    }

    /// Requests that reached a follower since the start. Anything but 0 is a fault of the gateway.
    pub fn misdirected(&self) -> u64 {
        self.shared.misdirected()
    }

    /// Gives an order to the kubelet's worker of a Pod (`namespace`, name).
    ///
    /// # Errors
    /// [`OperatorError::NoSuchPod`].
    pub fn order(&self, namespace: &str, pod: &str, order: Order) -> Result<(), OperatorError> {
        let found = self.pods().into_iter().find(|info| info.namespace == namespace && info.name == pod);
        match found {
            Some(info) if self.shared.order(&info.uid, order) => Ok(()),
            _ => Err(OperatorError::NoSuchPod(format!("{namespace}/{pod}"))),
        }
    }

    /// SIGKILL to the main process of a Pod; its container is started again.
    ///
    /// # Errors
    /// [`OperatorError::NoSuchPod`].
    pub fn kill(&self, namespace: &str, pod: &str) -> Result<(), OperatorError> {
        self.order(namespace, pod, Order::Kill)
    }

    /// Restarts the container of a Pod as a failed liveness probe does: SIGTERM, then a new start.
    ///
    /// # Errors
    /// [`OperatorError::NoSuchPod`].
    pub fn restart(&self, namespace: &str, pod: &str) -> Result<(), OperatorError> {
        self.order(namespace, pod, Order::Restart)
    }

    /// Makes a Pod report not Ready, or lets its own state count again.
    ///
    /// # Errors
    /// [`OperatorError::NoSuchPod`].
    pub fn set_ready(&self, namespace: &str, pod: &str, ready: bool) -> Result<(), OperatorError> {
        self.order(namespace, pod, Order::SetReady(ready))
    }

    /// Admits nothing for this long (scaled as all times).
    pub async fn hold_admission(&self, time: Duration) {
        // The loop outlives the handle's methods; without it there is nothing to hold.
        let _ = self.requests.send(Request::HoldAdmission(self.shared.config.scaled(time))).await;
    }

    /// Edits an environment variable of every role, which rolls them slot by slot.
    ///
    /// # Errors
    /// The API server's answer.
    pub async fn roll(&self, namespace: &str, deployment: &str) -> Result<(), OperatorError> {
        self.edit(namespace, deployment, |roles| {
            for role in roles {
                let revision = next_revision(role);
                role["env"] = json!([{"name": "DEMO_REV", "value": revision.to_string()}]);
            }
            Ok(())
        })
        .await
    }

    /// Sets the replicas of a role.
    ///
    /// # Errors
    /// The API server's answer, or [`OperatorError::NoSuchRole`].
    pub async fn scale(&self, namespace: &str, deployment: &str, role: &str, replicas: u32) -> Result<(), OperatorError> {
        self.edit(namespace, deployment, |roles| {
            let found = roles.iter_mut().find(|candidate| candidate["name"] == role);
            let found = found.ok_or_else(|| OperatorError::NoSuchRole(deployment.to_owned(), role.to_owned()))?;
            found["replicas"] = json!(replicas);
            Ok(())
        })
        .await
    }

    async fn edit(
        &self,
        namespace: &str,
        deployment: &str,
        change: impl FnOnce(&mut Vec<Value>) -> Result<(), OperatorError>,
    ) -> Result<(), OperatorError> {
        let object = self.shared.server.deployments(namespace).get(deployment).await?;
        let mut roles = object.data["spec"]["roles"].as_array().cloned().unwrap_or_default();
        change(&mut roles)?;
        Ok(self.shared.server.patch_deployment(namespace, deployment, json!({"spec": {"roles": roles}})).await?)
    }
}

fn next_revision(role: &Value) -> u64 {
    let env = role["env"].as_array().map_or(&[][..], Vec::as_slice);
    let current =
        env.iter().find(|variable| variable["name"] == "DEMO_REV").and_then(|variable| variable["value"].as_str()?.parse::<u64>().ok());
    current.unwrap_or(1) + 1
}
