//! The simulated kubelet: one worker for each bound Pod, whatever its node.
//!
//! Owns: the register of Pods and the workers' tasks. Must not: know deployments, slots or Workloads; like a real kubelet it sees Pods
//! only. Next: `worker` lives the life of one Pod; `process` is what runs in it; `report` is its status.

mod probe;
mod process;
mod report;
mod worker;

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use k8s_openapi::api::core::v1::Pod;
use serde::Serialize;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::apply::Server;
use super::config::OperatorConfig;
use super::loopback::Loopback;
use super::{keys, view};

pub(super) use probe::idle;
pub use worker::Order;

/// Orders that may wait at one worker; it takes them at once, so a full queue is a bug of the sender.
const ORDERS: usize = 64;

/// What is known of a Pod that has a worker.
#[derive(Debug, Clone, Serialize)]
pub struct PodInfo {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// UID.
    pub uid: String,
    /// The deployment's name.
    pub deployment: String,
    /// The role's name.
    pub role: String,
    /// The replica.
    pub ordinal: u32,
    /// The seat in it; 0 is the leader.
    pub member: u32,
    /// Group name, the same for all members.
    #[serde(skip)]
    pub(super) group: String,
    /// Its address.
    pub address: Ipv4Addr,
    /// The port of its engine.
    pub port: u16,
    /// How often its container was started again.
    pub restarts: u32,
    /// A process runs in it.
    pub running: bool,
    /// It has been told to go.
    pub terminating: bool,
    /// Requests that reached this follower though only leaders may get any; 0 on leaders.
    pub misdirected: u64,
}

/// What all workers share.
pub(super) struct Shared {
    pub(super) server: Server,
    pub(super) config: OperatorConfig,
    pub(super) loopback: Loopback,
    register: Mutex<Register>,
}

#[derive(Default)]
struct Register {
    pods: BTreeMap<String, Entry>,
    /// Pods whose worker has ended; a list that was read before must not start another.
    ended: BTreeSet<String>,
    /// Misdirected requests of Pods that are gone.
    misdirected: u64,
}

struct Entry {
    info: PodInfo,
    orders: mpsc::Sender<Order>,
}

impl Shared {
    pub(super) fn new(server: Server, config: OperatorConfig) -> std::io::Result<Self> {
        Ok(Self { server, config, loopback: Loopback::claim()?, register: Mutex::default() })
    }

    /// All Pods that have a worker, in the order of their names.
    pub(super) fn pods(&self) -> Vec<PodInfo> {
        let mut pods: Vec<_> = self.register().pods.values().map(|entry| entry.info.clone()).collect();
        pods.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
        pods
    }

    /// Requests that reached a follower since the start, of Pods that are gone too.
    pub(super) fn misdirected(&self) -> u64 {
        let register = self.register();
        register.misdirected + register.pods.values().map(|entry| entry.info.misdirected).sum::<u64>()
    }

    /// Passes an order to the worker of a Pod; false if there is none.
    pub(super) fn order(&self, uid: &str, order: Order) -> bool {
        self.register().pods.get(uid).is_some_and(|entry| entry.orders.try_send(order).is_ok())
    }

    /// A member's process is gone: its leader learns it.
    pub(super) fn member_lost(&self, lost: &PodInfo) {
        let register = self.register();
        let leader =
            register.pods.values().find(|entry| entry.info.member == 0 && entry.info.uid != lost.uid && entry.info.group == lost.group);
        if let Some(leader) = leader {
            // A leader that ended meanwhile has nobody to tell.
            let _ = leader.orders.try_send(Order::MemberLost);
        }
    }

    fn update(&self, uid: &str, change: impl FnOnce(&mut PodInfo)) {
        if let Some(entry) = self.register().pods.get_mut(uid) {
            change(&mut entry.info);
        }
    }

    fn add(&self, info: PodInfo, orders: mpsc::Sender<Order>) {
        self.register().pods.insert(info.uid.clone(), Entry { info, orders });
    }

    fn remove(&self, uid: &str) {
        let mut register = self.register();
        if let Some(entry) = register.pods.remove(uid) {
            register.misdirected += entry.info.misdirected;
            register.ended.insert(uid.to_owned());
        }
    }

    /// Ended Pods that are off the API server need not be remembered.
    fn forget_ended(&self, standing: &BTreeMap<&str, &Pod>) {
        self.register().ended.retain(|uid| standing.contains_key(uid.as_str()));
    }

    fn knows(&self, uid: &str) -> bool {
        let register = self.register();
        register.pods.contains_key(uid) || register.ended.contains(uid)
    }

    fn register(&self) -> MutexGuard<'_, Register> {
        // A panic elsewhere leaves the register as whole as it was.
        self.register.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Starts and ends workers as Pods come and go.
pub(super) struct Kubelet {
    shared: Arc<Shared>,
    tasks: JoinSet<()>,
}

impl Kubelet {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, tasks: JoinSet::new() }
    }

    /// Compares the Pods of the API server with the workers: a bound Pod gets one, a deletion is passed on, a Pod that vanished loses its.
    pub(super) fn sync(&mut self, pods: &[Pod]) {
        while self.tasks.try_join_next().is_some() {}
        let standing: BTreeMap<&str, &Pod> = pods.iter().map(|pod| (view::uid(pod), pod)).collect();
        self.shared.forget_ended(&standing);
        for (uid, pod) in &standing {
            let bound = pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
            if bound && !view::is_ended(pod) && !self.shared.knows(uid) {
                self.start(pod);
            }
            if let Some(grace) = pod.metadata.deletion_grace_period_seconds.filter(|_| view::is_deleting(pod)) {
                self.shared.order(uid, Order::Delete { grace_seconds: u32::try_from(grace).unwrap_or(0) });
            }
        }
        for info in self.shared.pods() {
            if !standing.contains_key(info.uid.as_str()) {
                self.shared.order(&info.uid, Order::Gone);
            }
        }
    }

    fn start(&mut self, pod: &Pod) {
        let (orders, inbox) = mpsc::channel(ORDERS);
        let launch = process::Launch::of(pod, &self.shared.config);
        let info = describe(pod, self.shared.loopback.next(), launch.port);
        self.shared.add(info.clone(), orders);
        let shared = Arc::clone(&self.shared);
        let worker = worker::Worker::new(Arc::clone(&shared), pod.clone(), info.clone(), launch);
        self.tasks.spawn(async move {
            worker.run(inbox).await;
            shared.remove(&info.uid);
        });
    }
}

fn describe(pod: &Pod, address: Ipv4Addr, port: u16) -> PodInfo {
    let label = |key: &str| view::label(pod, key).unwrap_or_default().to_owned();
    PodInfo {
        namespace: pod.metadata.namespace.clone().unwrap_or_default(),
        name: view::name(pod).to_owned(),
        uid: view::uid(pod).to_owned(),
        deployment: label(keys::INSTANCE),
        role: label(keys::COMPONENT),
        ordinal: super::render::number(pod, keys::ORDINAL).unwrap_or_default(),
        member: view::member(pod),
        group: label(keys::GROUP_NAME),
        address,
        port,
        restarts: 0,
        running: false,
        terminating: false,
        misdirected: 0,
    }
}
