//! All that stands on the stage: an API server behind a line that can be cut, the simulated operator with its engines, one deployment,
//! gateways, and the plain forwarder beside them.

use std::collections::BTreeSet;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Namespace, Pod, Service};
use k8s_openapi::api::node::v1::RuntimeClass;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DynamicObject, ListParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::JoinSet;

use super::gateways::{self, GatewayPlan, Gateways, wait_until};
use super::relay::{Relay, Targets};
use super::scenario::{Mode, Scenario};
use super::{Failure, ask};
use crate::engine::{EngineConfig, Pace};
use crate::operator::{self, Operator, OperatorConfig, OperatorHandle};
use crate::standin::StandIn;

/// The served name of the demo's model.
pub(super) const MODEL: &str = "demo-chat";
/// The demo's deployment.
pub(super) const DEPLOYMENT: &str = "demo";
/// Longest wait for anything that takes no engine start.
const PATIENCE: Duration = Duration::from_secs(60);

/// Which API server carries the stage.
#[derive(Debug, Clone)]
pub enum ApiSource {
    /// The embedded stand-in: needs nothing.
    StandIn,
    /// A real one, without Nodes, by its kubeconfig file. CRD and namespace are created if they are missing.
    Kubeconfig(PathBuf),
}

/// How a stage is set up.
#[derive(Debug, Clone)]
pub struct StageConfig {
    /// Which API server.
    pub api: ApiSource,
    /// The gateway's binary; by default the one beside this program, built anew under cargo.
    pub gateway: Option<PathBuf>,
    /// Further flags of the gateway; none means its defaults.
    pub gateway_args: Vec<String>,
}

/// A stage that stands.
pub struct Stage {
    pub(super) operator: OperatorHandle,
    pub(super) gateways: Gateways,
    pub(super) client: Client,
    pub(super) namespace: String,
    plain: Relay,
    line: Line,
    _endpoints: JoinSet<()>,
    _standin: Option<StandIn>,
    dir: TempDir,
}

/// The way to the API server that operator and gateways share.
struct Line {
    relay: Relay,
    server: Targets,
}

impl Stage {
    /// Builds it for a scenario and waits until the gateway serves the model.
    ///
    /// # Errors
    /// Whatever part cannot be started, with its reason.
    pub async fn set_up(scenario: &Scenario, config: &StageConfig) -> Result<Self, Failure> {
        let dir = TempDir::with_prefix("leadgate-demo-")?;
        let standin = match &config.api {
            ApiSource::StandIn => Some(StandIn::start().await?),
            ApiSource::Kubeconfig(_) => None,
        };
        let original = match (&config.api, &standin) {
            (ApiSource::Kubeconfig(path), _) => path.clone(),
            (ApiSource::StandIn, standin) => standin.as_ref().map(StandIn::kubeconfig).unwrap_or_default(),
        };
        let kubeconfig = dir.path().join("kubeconfig");
        let line = draw_line(&original, &kubeconfig).await?;
        let client = client(&kubeconfig).await?;
        let namespace = unused_namespace();
        if standin.is_none() {
            prepare(&client, &namespace).await?;
        }
        let operator = Operator::start(client.clone(), operator_config(scenario, &namespace)).await?;
        let plain = Relay::start(vec![], false).await?;
        deploy(&client, &namespace, scenario).await?;
        let binary = gateways::find_binary(config.gateway.clone()).await?;
        let (args, folder) = (config.gateway_args.clone(), dir.path().to_owned());
        let plan = GatewayPlan { binary, kubeconfig, namespace: namespace.clone(), args, dir: folder };
        let gateways = Gateways::start(plan, scenario.gateways()).await?;
        let mut stage = Self { operator, gateways, client, namespace, plain, line, _endpoints: JoinSet::new(), _standin: standin, dir };
        stage.wait_settled(scenario.patience()).await?;
        stage.wait_serving(scenario.replicas, scenario.patience()).await?;
        stage.follow_endpoints();
        Ok(stage)
    }

    /// Where clients of the gateway go.
    pub(super) fn front(&self) -> Result<SocketAddr, Failure> {
        self.gateways.address().ok_or_else(|| "no gateway runs".into())
    }

    /// Where clients of the plain forwarder go.
    pub(super) fn plain(&self) -> SocketAddr {
        self.plain.address()
    }

    /// Logs and address files.
    pub(super) fn folder(&self) -> &Path {
        self.dir.path()
    }

    /// Leaves logs and address files where they are; their folder.
    pub(super) fn keep_folder(&mut self) -> &Path {
        self.dir.disable_cleanup(true);
        self.dir.path()
    }

    /// Cuts or mends the line to the API server. A cut ends every connection and refuses new ones by closing them.
    pub(super) fn cut_line(&self, cut: bool) {
        self.line.relay.point_at(if cut { vec![] } else { self.line.server.clone() });
    }

    /// UIDs of the Pods that run.
    pub(super) fn uids(&self) -> BTreeSet<String> {
        self.operator.pods().into_iter().map(|pod| pod.uid).collect()
    }

    /// Waits until none of these Pods is left and the deployment has settled.
    pub(super) async fn wait_replaced(&self, old: &BTreeSet<String>, patience: Duration) -> Result<(), Failure> {
        // The status may still be that of before the edit, so the Pods are asked first.
        wait_until(patience, "old Pods stay", || async { self.uids().is_disjoint(old) }).await?;
        self.wait_settled(patience).await
    }

    /// Waits until status says that every replica is of the current render and Ready, and no slot is open.
    pub(super) async fn wait_settled(&self, patience: Duration) -> Result<(), Failure> {
        let deployments = deployments(&self.client, &self.namespace);
        wait_until(patience, "the deployment does not settle", || async {
            let Ok(object) = deployments.get(DEPLOYMENT).await else { return false };
            let conditions = object.data["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let settled = conditions.iter().any(|one| one["type"] == "ReplicasUpToDate" && one["reason"] == "UpToDate");
            settled && object.data["status"]["phase"] == "Ready" && !has_slot(&object)
        })
        .await
    }

    /// Waits until a replacement slot is open.
    pub(super) async fn wait_slot(&self, patience: Duration) -> Result<(), Failure> {
        let deployments = deployments(&self.client, &self.namespace);
        wait_until(patience, "no slot is opened", || async {
            let Ok(object) = deployments.get(DEPLOYMENT).await else { return false };
            has_slot(&object)
        })
        .await
    }

    /// Waits until a gateway has proven every replica.
    pub(super) async fn wait_serving(&self, replicas: u32, patience: Duration) -> Result<(), Failure> {
        let admin = self.gateways.admin().ok_or("no gateway runs")?;
        wait_until(patience, "the gateway does not serve every replica", || async {
            let Ok((200, text)) = ask::get(admin, "/debug/snapshot").await else { return false };
            let snapshot: Value = serde_json::from_str(&text).unwrap_or_default();
            let pools = snapshot["pools"].as_array().cloned().unwrap_or_default();
            let groups = pools.iter().filter_map(|pool| pool["groups"].as_array()).flatten();
            groups.filter(|group| group["phase"] == "Serving").count() >= replicas as usize
        })
        .await
    }

    /// Keeps the plain forwarder at the endpoints that the role Service has: selected, Ready, not terminating.
    fn follow_endpoints(&mut self) {
        let (client, namespace, pointed) = (self.client.clone(), self.namespace.clone(), self.plain.pointer());
        self._endpoints.spawn(async move {
            loop {
                // Like any proxy it keeps what it has while the API server is away.
                if let Ok(targets) = endpoints(&client, &namespace).await {
                    pointed.point_at(targets);
                }
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        });
    }
}

fn has_slot(object: &DynamicObject) -> bool {
    object.metadata.annotations.as_ref().is_some_and(|all| all.contains_key("modeldeployment.gpustack.ai/replacement-slots"))
}

async fn endpoints(client: &Client, namespace: &str) -> Result<Targets, Failure> {
    let service = Api::<Service>::namespaced(client.clone(), namespace).get(&format!("{DEPLOYMENT}-server")).await?;
    let spec = service.spec.unwrap_or_default();
    let terms: Vec<String> = spec.selector.unwrap_or_default().iter().map(|(key, value)| format!("{key}={value}")).collect();
    let pods = Api::<Pod>::namespaced(client.clone(), namespace).list(&ListParams::default().labels(&terms.join(","))).await?;
    let targets = pods.items.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()).filter_map(|pod| {
        let status = pod.status.as_ref()?;
        let ready = status.conditions.as_ref()?.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True");
        ready.then(|| Some(SocketAddr::new(status.pod_ip.as_ref()?.parse().ok()?, 8000)))?
    });
    Ok(targets.collect())
}

/// Puts a forwarder in front of the API server of `original` and writes a kubeconfig that goes through it.
async fn draw_line(original: &Path, through: &Path) -> Result<Line, Failure> {
    let mut kubeconfig = Kubeconfig::read_from(original)?;
    let cluster = kubeconfig.clusters.iter_mut().find_map(|cluster| cluster.cluster.as_mut()).ok_or("the kubeconfig names no cluster")?;
    let url: http::Uri = cluster.server.clone().ok_or("the kubeconfig names no server")?.parse()?;
    let scheme = url.scheme_str().unwrap_or("https").to_owned();
    let host = url.host().ok_or("the server has no host")?.trim_matches(['[', ']']).to_owned();
    let port = url.port_u16().unwrap_or(if scheme == "https" { 443 } else { 80 });
    let server: Targets = (host.as_str(), port).to_socket_addrs()?.take(1).collect();
    let relay = Relay::start(server.clone(), true).await?;
    cluster.server = Some(format!("{scheme}://{}", relay.address()));
    if scheme == "https" && cluster.tls_server_name.is_none() {
        cluster.tls_server_name = Some(host);
    }
    std::fs::write(through, serde_json::to_vec(&kubeconfig)?)?;
    Ok(Line { relay, server })
}

async fn client(kubeconfig: &Path) -> Result<Client, Failure> {
    let config = Config::from_custom_kubeconfig(Kubeconfig::read_from(kubeconfig)?, &KubeConfigOptions::default()).await?;
    Ok(Client::try_from(config)?)
}

/// A name for each stage of each process.
fn unused_namespace() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    format!("leadgate-demo-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

/// What a bare API server lacks.
async fn prepare(client: &Client, namespace: &str) -> Result<(), Failure> {
    let crd: Value = serde_saphyr::from_str(operator::CRD)?;
    create(Api::<CustomResourceDefinition>::all(client.clone()), crd).await?;
    create(Api::<RuntimeClass>::all(client.clone()), json!({"metadata": {"name": "nvidia"}, "handler": "nvidia"})).await?;
    create(Api::<Namespace>::all(client.clone()), json!({"metadata": {"name": namespace}})).await?;
    let deployments = deployments(client, namespace);
    wait_until(PATIENCE, "the CRD is not served", || async { deployments.list(&ListParams::default()).await.is_ok() }).await
}

async fn create<K>(api: Api<K>, object: Value) -> Result<(), Failure>
where
    K: kube::Resource + Clone + serde::de::DeserializeOwned + serde::Serialize + std::fmt::Debug,
{
    match api.create(&PostParams::default(), &serde_json::from_value(object)?).await {
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        result => Ok(result.map(drop)?),
    }
}

fn operator_config(scenario: &Scenario, namespace: &str) -> OperatorConfig {
    let pace = Pace { startup: scenario.scaled(scenario.startup_seconds), token: scenario.token(), ..Pace::default() };
    let mut engine = EngineConfig { pace, seed: scenario.seed, ..EngineConfig::default() };
    engine.persona = scenario.persona();
    OperatorConfig { namespace: Some(namespace.to_owned()), time_scale: scenario.time_scale, engine, ..OperatorConfig::default() }
}

async fn deploy(client: &Client, namespace: &str, scenario: &Scenario) -> Result<(), Failure> {
    let mut role = json!({"name": "server", "kind": "Server", "replicas": scenario.replicas, "size": scenario.size});
    let model = match scenario.mode {
        Mode::Managed => MODEL,
        Mode::TakeOver => {
            let script = format!("exec /opt/demo/start-engine --served-model-name {MODEL} --port 8000");
            role["command"] = json!(["/bin/sh", "-c", script]);
            "/models"
        }
    };
    let object = json!({
        "apiVersion": "worker.gpustack.ai/v1alpha1", "kind": "ModelDeployment",
        "metadata": {"name": DEPLOYMENT, "namespace": namespace},
        "spec": {"model": {"name": model}, "engine": {"name": "vLLM"}, "roles": [role]},
    });
    create_dynamic(deployments(client, namespace), object).await
}

async fn create_dynamic(api: Api<DynamicObject>, object: Value) -> Result<(), Failure> {
    api.create(&PostParams::default(), &serde_json::from_value(object)?).await?;
    Ok(())
}

fn deployments(client: &Client, namespace: &str) -> Api<DynamicObject> {
    Api::namespaced_with(client.clone(), namespace, &operator::resource())
}
