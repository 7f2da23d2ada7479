//! Discovery over the stand-in API server, with one managed deployment of replicas of one Pod each.
//!
//! The role is managed and trusted, so that a Ready Pod serves without an engine: these tests are about watches, not about proof.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use config::{Config, KubernetesSource, PoolSettings, Source};
use discovery::fact::Kind as Watched;
use discovery::snapshot::Snapshot;
use discovery::status::{StatusReport, WatchReport};
use discovery::{Discovery, Timing};
use loadtest::standin::{Deletion, Key, Kind, StandIn};
use serde_json::{Value, json};
use tests::Outcome;
use tests::poll::{PATIENCE, eventually};
use tokio::sync::watch;

pub(crate) const NAMESPACE: &str = "a";
/// The kinds that are watched.
pub(crate) const KINDS: [Kind; 3] = [Kind::ModelDeployment, Kind::Pod, Kind::Service];

pub(crate) struct Bench {
    pub(crate) server: StandIn,
    pub(crate) discovery: Discovery,
    /// UID of the deployment.
    owner: String,
    _config: watch::Sender<Arc<Config>>,
}

/// Waits that only a hang reaches, and quick repeats.
pub(crate) fn timing() -> Timing {
    Timing {
        idle: Duration::from_secs(60),
        request: Duration::from_secs(60),
        backoff: Duration::from_millis(5),
        backoff_max: Duration::from_millis(50),
    }
}

impl Bench {
    /// Two replicas, `r0` and `r1`, that serve, with all watches open.
    pub(crate) async fn serving() -> Outcome<Self> {
        Self::serving_with(timing()).await
    }

    pub(crate) async fn serving_with(timing: Timing) -> Outcome<Self> {
        let bench = Self::start(StandIn::start().await?, timing).await?;
        bench.until_serving(&["r0", "r1"]).await?;
        bench.until_watching().await?;
        Ok(bench)
    }

    /// Discovery is started; nothing is awaited.
    pub(crate) async fn start(server: StandIn, timing: Timing) -> Outcome<Self> {
        server.faults().bookmarks_every(Duration::from_millis(20));
        let owner = deployment(&server)?;
        let service = json!({
            "metadata": {"name": "md-server", "labels": labels("md"), "ownerReferences": [reference(&owner)]},
            "spec": {"selector": labels("md"), "ports": [{"name": "http", "port": 8000, "targetPort": 8000}]},
        });
        server.store().create(Kind::Service, NAMESPACE, service)?;
        let (sender, receiver) = watch::channel(Arc::new(config(&server)));
        let discovery = discovery::start_with(receiver, timing).await?;
        let bench = Self { server, discovery, owner, _config: sender };
        bench.replica(0, "127.1.0.1")?;
        bench.replica(1, "127.1.0.2")?;
        Ok(bench)
    }

    /// Creates the Pod `rN` of the deployment, Ready at `address`.
    pub(crate) fn replica(&self, ordinal: u32, address: &str) -> Outcome<()> {
        pod(&self.server, &format!("r{ordinal}"), ordinal, &self.owner, address)
    }

    /// Removes a Pod for good.
    pub(crate) fn remove(&self, name: &str) -> Outcome<()> {
        self.server.store().delete(&pod_key(name), &Deletion { grace: Some(0), ..Deletion::default() })?;
        Ok(())
    }

    /// Writes the Ready condition of a Pod.
    pub(crate) fn ready(&self, name: &str, ready: bool) -> Outcome<()> {
        let status = if ready { "True" } else { "False" };
        self.server.store().patch_status(&pod_key(name), json!({"status": {"conditions": [{"type": "Ready", "status": status}]}}))?;
        Ok(())
    }

    /// The deployment is deleted and made anew under its name; Ready Pods of the same labels are there, with the old owner's UID.
    pub(crate) fn recreate_deployment(&mut self) -> Outcome<()> {
        let pods: Vec<Value> =
            ["r0", "r1"].iter().map(|name| Ok((*self.server.store().get(&pod_key(name))?).clone())).collect::<Outcome<_>>()?;
        self.server.store().delete(&Key::new(Kind::ModelDeployment, NAMESPACE, "md"), &Deletion::default())?;
        for name in ["r0", "r1"] {
            self.remove(name).ok();
        }
        self.owner = deployment(&self.server)?;
        for pod in pods {
            let made = self.server.store().create(Kind::Pod, NAMESPACE, pod.clone())?;
            let key = pod_key(made["metadata"]["name"].as_str().unwrap_or_default());
            self.server.store().patch_status(&key, json!({"status": pod["status"]}))?;
        }
        Ok(())
    }

    /// Waits until exactly these Pods lead serving groups.
    pub(crate) async fn until_serving(&self, names: &[&str]) -> Outcome<Arc<Snapshot>> {
        self.until(&format!("{names:?} to serve"), |snapshot| serving(snapshot).keys().eq(names)).await
    }

    /// Waits for a snapshot.
    pub(crate) async fn until(&self, what: &str, wanted: impl Fn(&Snapshot) -> bool) -> Outcome<Arc<Snapshot>> {
        let reader = &self.discovery.snapshots;
        let mut generations = reader.subscribe();
        let seen = tokio::time::timeout(PATIENCE, async {
            while !wanted(&reader.load()) {
                generations.changed().await?;
            }
            Outcome::Ok(reader.load())
        });
        seen.await.map_err(|_| format!("{what}: not in time; last {:?}", serving(&reader.load())))?
    }

    /// Waits for a state of one list-watch.
    pub(crate) async fn until_watch(&self, kind: Watched, what: &str, wanted: impl Fn(&WatchReport) -> bool) -> Outcome<StatusReport> {
        eventually(PATIENCE, what, || async {
            let report = self.status();
            match report.watches.get(&(NAMESPACE.into(), kind)) {
                Some(watch) if wanted(watch) => Ok(report),
                other => Err(format!("{other:?}")),
            }
        })
        .await
    }

    pub(crate) fn status(&self) -> StatusReport {
        self.discovery.status.report()
    }

    /// When the API server was last heard of; the age of the view counts from here.
    pub(crate) fn last_sign(&self) -> Option<SystemTime> {
        self.status().last_sign()
    }

    /// Waits until every kind was heard of after `then`.
    pub(crate) async fn until_heard_after(&self, then: Option<SystemTime>) -> Outcome<()> {
        eventually(PATIENCE, "news of every kind", || async {
            if self.last_sign() > then { Ok(()) } else { Err(format!("{:?}", self.last_sign())) }
        })
        .await
    }

    /// Waits until every kind is watched by exactly one watch.
    pub(crate) async fn until_watching(&self) -> Outcome<()> {
        for kind in KINDS {
            self.until_activity(kind, "a watch", |counts| counts.open == 1).await?;
        }
        Ok(())
    }

    /// Waits until what clients did with `kind` is as wanted.
    pub(crate) async fn until_activity(&self, kind: Kind, what: &str, wanted: impl Fn(&Counts) -> bool) -> Outcome<()> {
        let activity = self.server.activity();
        let state = tokio::time::timeout(PATIENCE, activity.until(kind, wanted)).await;
        state.map_err(|_| format!("{what} of {kind:?}: not in time; last {:?}", activity.of(kind)).into())
    }

    /// Ends every watch by `cut` and lets none be opened until the faults are healed.
    pub(crate) async fn blind(&self, cut: Cut) -> Outcome<()> {
        self.server.faults().refuse(Verb::Watch, None, 500);
        self.server.faults().cut_watches(cut);
        for kind in KINDS {
            self.until_activity(kind, "no watch", |counts| counts.open == 0).await?;
        }
        Ok(())
    }

    pub(crate) fn lists(&self, kind: Kind) -> u64 {
        self.server.activity().of(kind).lists
    }
}

pub(crate) use loadtest::standin::{Counts, Cut, Verb};

/// Leader Pods of serving groups, and their addresses.
pub(crate) fn serving(snapshot: &Snapshot) -> BTreeMap<String, String> {
    let groups = snapshot.pools.values().flat_map(|pool| &pool.groups).filter(|group| group.serving());
    groups.filter_map(|group| group.leader.as_ref()).map(|leader| (leader.pod.to_string(), leader.address.to_string())).collect()
}

pub(crate) fn pod_key(name: &str) -> Key {
    Key::new(Kind::Pod, NAMESPACE, name)
}

/// A Ready Pod with the deployment's labels, whoever owns it.
pub(crate) fn pod(server: &StandIn, name: &str, ordinal: u32, owner: &str, address: &str) -> Outcome<()> {
    let mut labels = labels("md");
    labels["modeldeployment.gpustack.ai/pod-ordinal"] = ordinal.to_string().into();
    labels["modeldeployment.gpustack.ai/member-index"] = "0".into();
    let body = json!({
        "metadata": {
            "name": name, "labels": labels, "ownerReferences": [reference(owner)],
            "annotations": {"kueue.x-k8s.io/pod-group-total-count": "1", "prometheus.io/port": "8000"},
        },
        "spec": {
            "nodeName": "node",
            "containers": [{"name": "main", "command": ["vllm", "serve", "m"], "ports": [{"name": "http", "containerPort": 8000}]}],
        },
    });
    server.store().create(Kind::Pod, NAMESPACE, body)?;
    let status = json!({"status": {
        "phase": "Running", "podIP": address, "podIPs": [{"ip": address}], "conditions": [{"type": "Ready", "status": "True"}],
        "containerStatuses": [{"name": "main", "ready": true, "restartCount": 0, "containerID": format!("containerd://{name}-{address}")}],
    }});
    server.store().patch_status(&pod_key(name), status)?;
    Ok(())
}

fn deployment(server: &StandIn) -> Outcome<String> {
    let body = json!({
        "metadata": {"name": "md"},
        "spec": {"model": {"name": "m"}, "engine": {"name": "vLLM"}, "roles": [{"name": "server", "kind": "Server", "replicas": 2, "size": 1}]},
    });
    let made = server.store().create(Kind::ModelDeployment, NAMESPACE, body)?;
    Ok(made["metadata"]["uid"].as_str().unwrap_or_default().to_owned())
}

fn config(server: &StandIn) -> Config {
    let mut pool: PoolSettings = (*Config::default().defaults).clone();
    pool.probe.trust_managed = true;
    let cluster = KubernetesSource { kubeconfig: Some(server.kubeconfig()), namespaces: vec![NAMESPACE.to_owned()], all_namespaces: false };
    Config { source: Source::Kubernetes(cluster), defaults: Arc::new(pool), ..Config::default() }
}

fn labels(deployment: &str) -> Value {
    json!({
        "app.kubernetes.io/name": "model-deployment",
        "app.kubernetes.io/instance": deployment,
        "app.kubernetes.io/component": "server",
        "modeldeployment.gpustack.ai/role-kind": "server",
    })
}

fn reference(uid: &str) -> Value {
    json!({"apiVersion": "worker.gpustack.ai/v1alpha1", "kind": "ModelDeployment", "name": "md", "uid": uid, "controller": true})
}
