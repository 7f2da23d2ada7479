//! The status that the kubelet writes of one Pod. Pure: facts in, JSON out.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::Ipv4Addr;

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use crate::operator::keys;

/// What the kubelet knows of a Pod at one moment.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Report {
    pub(super) uid: String,
    pub(super) image: String,
    pub(super) address: Ipv4Addr,
    pub(super) started_at: Timestamp,
    pub(super) restarts: u32,
    pub(super) container: Container,
    pub(super) ready: bool,
    /// When `ready` last changed.
    pub(super) ready_since: Timestamp,
    pub(super) last_exit: Option<i32>,
}

/// State of the one container.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Container {
    Creating,
    Running {
        since: Timestamp,
    },
    /// Ended; will be started again.
    BackOff,
    /// Ended for good.
    Ended {
        code: i32,
    },
}

impl Report {
    pub(super) fn new(uid: &str, image: &str, address: Ipv4Addr) -> Self {
        let now = Timestamp::now();
        let (uid, image) = (uid.to_owned(), image.to_owned());
        Self {
            uid,
            image,
            address,
            started_at: now,
            restarts: 0,
            container: Container::Creating,
            ready: false,
            ready_since: now,
            last_exit: None,
        }
    }

    pub(super) fn set_ready(&mut self, ready: bool) {
        if self.ready != ready {
            (self.ready, self.ready_since) = (ready, Timestamp::now());
        }
    }

    /// `status` of the Pod.
    pub(super) fn status(&self) -> Value {
        let mut status = json!({
            "phase": self.phase(),
            "hostIP": "192.0.2.10",
            "startTime": self.started_at,
            "conditions": [
                self.condition("PodScheduled", true), self.condition("Initialized", true),
                self.condition("ContainersReady", self.ready), self.condition("Ready", self.ready),
            ],
            "containerStatuses": [self.container_status()],
        });
        if self.container != Container::Creating {
            status["podIP"] = json!(self.address);
            status["podIPs"] = json!([{"ip": self.address}]);
        }
        status
    }

    fn phase(&self) -> &'static str {
        match self.container {
            Container::Creating => "Pending",
            Container::Running { .. } | Container::BackOff => "Running",
            Container::Ended { code: 0 } => "Succeeded",
            Container::Ended { .. } => "Failed",
        }
    }

    fn condition(&self, kind: &str, holds: bool) -> Value {
        let status = if holds { "True" } else { "False" };
        let since = if kind.ends_with("Ready") { self.ready_since } else { self.started_at };
        let mut condition = json!({"type": kind, "status": status, "lastTransitionTime": since});
        if !holds {
            condition["reason"] = json!("ContainersNotReady");
            condition["message"] = json!("containers with unready status: [main]");
        }
        condition
    }

    fn container_status(&self) -> Value {
        let running = matches!(self.container, Container::Running { .. });
        let mut status = json!({
            "name": keys::MAIN, "image": self.image, "imageID": "simulated", "ready": self.ready, "started": running,
            "restartCount": self.restarts, "state": self.state(),
        });
        if self.container != Container::Creating {
            status["containerID"] = json!(format!("containerd://{}", self.container_id()));
        }
        if let Some(code) = self.last_exit {
            status["lastState"] = json!({"terminated": {"exitCode": code, "reason": reason(code)}});
        }
        status
    }

    fn state(&self) -> Value {
        match self.container {
            Container::Creating => json!({"waiting": {"reason": "ContainerCreating"}}),
            Container::Running { since } => json!({"running": {"startedAt": since}}),
            Container::BackOff => json!({"waiting": {"reason": "CrashLoopBackOff"}}),
            Container::Ended { code } => json!({"terminated": {"exitCode": code, "reason": reason(code)}}),
        }
    }

    /// Another one for every start of the container.
    fn container_id(&self) -> String {
        (0..4u8)
            .map(|part| {
                let mut hasher = DefaultHasher::new();
                (part, &self.uid, self.restarts).hash(&mut hasher);
                format!("{:016x}", hasher.finish())
            })
            .collect()
    }
}

fn reason(code: i32) -> &'static str {
    if code == 0 { "Completed" } else { "Error" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_restart_moves_count_and_container_id_but_not_the_address() {
        let mut report = Report::new("uid", "image", Ipv4Addr::new(127, 100, 1, 1));
        assert!(report.status()["podIP"].is_null());
        report.container = Container::Running { since: Timestamp::UNIX_EPOCH };
        let before = report.status();
        report.restarts = 1;
        let after = report.status();
        assert_ne!(before["containerStatuses"][0]["containerID"], after["containerStatuses"][0]["containerID"]);
        assert_eq!(before["podIP"], after["podIP"]);
        assert_eq!(after["phase"], "Running");
    }
}
