//! The manifests of `deploy/`, applied to the real API server: accepted strictly, consistent with each other, and with rights that are
//! enough for the gateway and no more.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use config::{Config, ServeArgs};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::authorization::v1::{ResourceRule, SelfSubjectRulesReview};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use k8s_openapi::api::rbac::v1::Role;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;
use tempfile::TempDir;
use tests::Outcome;
use tests::apiserver::ApiServer;
use tests::cluster::Cluster;
use tests::gateway::{GatewayHandle, Options, Source};
use tests::http;
use tests::poll::{PATIENCE, eventually};
use tests::service_account;

const NAME: &str = "leadgate";

/// What is allowed, as `group/resource verb`.
const RIGHTS: [&str; 9] = [
    "/pods get",
    "/pods list",
    "/pods watch",
    "/services get",
    "/services list",
    "/services watch",
    "worker.gpustack.ai/modeldeployments get",
    "worker.gpustack.ai/modeldeployments list",
    "worker.gpustack.ai/modeldeployments watch",
];

#[tokio::test]
async fn base_gives_the_gateway_what_it_needs_and_no_more() -> Outcome<()> {
    let cluster = Cluster::new("deploy").await?;
    let (client, namespace) = (cluster.client(), cluster.namespace());
    apply(cluster.server(), "base", Some(namespace))?;
    let kubeconfig = service_account::kubeconfig(cluster.server(), client, namespace, NAME).await?;
    assert_eq!(rights(cluster.server(), &kubeconfig, namespace).await?, RIGHTS.map(str::to_owned).into());
    let settings = Api::<ConfigMap>::namespaced(client.clone(), namespace).get(NAME).await?;
    let text = settings.data.unwrap_or_default().remove("config.yaml").ok_or("no config.yaml")?;
    let source = Source::Kubernetes { kubeconfig, namespaces: vec![namespace.to_owned()] };
    let gateway = GatewayHandle::start_ready(Options::new(source).config(text.clone()).arg("--shutdown-settle=0s")).await?;
    let deployment = Api::<Deployment>::namespaced(client.clone(), namespace).get(NAME).await?;
    fits(&deployment, &text)?;
    for path in probe_paths(&deployment) {
        assert_eq!(http::get(&gateway.admin_url(&path)).await?.status, 200, "{path}");
    }
    gateway.signal("TERM")?;
    assert_eq!(gateway.wait(PATIENCE).await?, 0);
    Ok(())
}

/// Each resource of the Role is needed: without it the gateway is not ready and says which one it lacks.
#[tokio::test]
async fn no_rule_of_the_role_can_be_left_out() -> Outcome<()> {
    let cluster = Cluster::new("deploy-less").await?;
    let (client, namespace) = (cluster.client(), cluster.namespace());
    apply(cluster.server(), "base", Some(namespace))?;
    let kubeconfig = service_account::kubeconfig(cluster.server(), client, namespace, NAME).await?;
    let roles = Api::<Role>::namespaced(client.clone(), namespace);
    for lacking in ["pods", "services", "modeldeployments"] {
        let rules: Vec<_> = service_account::GATEWAY_RULES
            .iter()
            .flat_map(|(group, resources, verbs)| resources.iter().map(move |resource| (group, resource, verbs)))
            .filter(|(_, resource, _)| **resource != lacking)
            .map(|(group, resource, verbs)| json!({"apiGroups": [group], "resources": [resource], "verbs": verbs}))
            .collect();
        roles.patch(NAME, &PatchParams::default(), &Patch::Merge(json!({"rules": rules}))).await?;
        let left = || async {
            let rights = rights(cluster.server(), &kubeconfig, namespace).await.map_err(|error| error.to_string())?;
            if rights.len() == 6 && rights.iter().all(|right| !right.contains(lacking)) { Ok(()) } else { Err(format!("{rights:?}")) }
        };
        eventually(PATIENCE, "the changed role is in force", left).await?;
        let source = Source::Kubernetes { kubeconfig: kubeconfig.clone(), namespaces: vec![namespace.to_owned()] };
        let gateway = GatewayHandle::start(Options::new(source)).await?;
        let named = || async {
            let log = gateway.log();
            let named = log.lines().any(|line| line.contains(lacking) && line.contains("list"));
            if named { Ok(()) } else { Err(log) }
        };
        eventually(PATIENCE, "the log names the missing right", named).await?;
        assert_eq!(http::get(&gateway.admin_url("/readyz")).await?.status, 503, "without {lacking}");
    }
    Ok(())
}

#[tokio::test]
async fn all_namespaces_runs_with_a_cluster_role() -> Outcome<()> {
    let cluster = Cluster::new("deploy-all").await?;
    let client = cluster.client();
    let home = serde_json::from_value(json!({"metadata": {"name": NAME}}))?;
    Api::<Namespace>::all(client.clone()).create(&PostParams::default(), &home).await?;
    apply(cluster.server(), "all-namespaces", None)?;
    assert!(Api::<Role>::namespaced(client.clone(), NAME).get_opt(NAME).await?.is_none(), "the ClusterRole takes the Role's place");
    let kubeconfig = service_account::kubeconfig(cluster.server(), client, NAME, NAME).await?;
    assert_eq!(rights(cluster.server(), &kubeconfig, cluster.namespace()).await?, RIGHTS.map(str::to_owned).into());
    let deployment = Api::<Deployment>::namespaced(client.clone(), NAME).get(NAME).await?;
    assert!(arguments(&deployment).contains(&"--all-namespaces".to_owned()));
    GatewayHandle::start_ready(Options::new(Source::Kubernetes { kubeconfig, namespaces: vec![] })).await?;
    Ok(())
}

/// `kubectl apply` of a copy of `deploy/<folder>`, in another namespace where one is given. Unknown and repeated fields are errors.
fn apply(server: &ApiServer, folder: &str, namespace: Option<&str>) -> Outcome<()> {
    let copy = TempDir::with_prefix("leadgate-deploy-")?;
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy");
    run(Command::new("cp").arg("--recursive").arg(&source).arg(copy.path()))?;
    let mut target: PathBuf = copy.path().join("deploy").join(folder);
    if let Some(namespace) = namespace {
        let overlay = copy.path().join("deploy/overlay");
        std::fs::create_dir(&overlay)?;
        std::fs::write(overlay.join("kustomization.yaml"), format!("namespace: {namespace}\nresources: [../{folder}]\n"))?;
        target = overlay;
    }
    let mut kubectl = Command::new(server.kubectl());
    kubectl.arg("--kubeconfig").arg(server.kubeconfig()).args(["apply", "--validate=strict", "--kustomize"]).arg(target);
    run(&mut kubectl)
}

fn run(command: &mut Command) -> Outcome<()> {
    let output = command.output()?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{command:?}: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr)).into())
}

/// What these credentials may do in a namespace, beyond what every authenticated user may.
async fn rights(server: &ApiServer, kubeconfig: &Path, namespace: &str) -> Outcome<BTreeSet<String>> {
    let client = server.client_with(kubeconfig).await?;
    let review: SelfSubjectRulesReview = serde_json::from_value(json!({"metadata": {}, "spec": {"namespace": namespace}}))?;
    let answer = Api::<SelfSubjectRulesReview>::all(client).create(&PostParams::default(), &review).await?;
    let rules = answer.status.ok_or("a review without a status")?.resource_rules;
    Ok(rules.iter().flat_map(spelt_out).filter(|right| !right.contains("k8s.io/")).collect())
}

fn spelt_out(rule: &ResourceRule) -> Vec<String> {
    let mut rights = Vec::new();
    for group in rule.api_groups.iter().flatten() {
        for resource in rule.resources.iter().flatten() {
            rights.extend(rule.verbs.iter().map(|verb| format!("{group}/{resource} {verb}")));
        }
    }
    rights
}

fn arguments(deployment: &Deployment) -> Vec<String> {
    let spec = deployment.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
    spec.and_then(|spec| spec.containers.first()).and_then(|container| container.args.clone()).unwrap_or_default()
}

/// The paths of the probes.
fn probe_paths(deployment: &Deployment) -> Vec<String> {
    let spec = deployment.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
    let container = spec.and_then(|spec| spec.containers.first());
    let probes = container.map(|container| [&container.liveness_probe, &container.readiness_probe]);
    let paths = probes.into_iter().flatten().flatten().filter_map(|probe| probe.http_get.as_ref()?.path.clone()).collect::<Vec<_>>();
    assert_eq!(paths.len(), 2, "a liveness and a readiness probe");
    paths
}

/// The Pod is given more time than the gateway's own end takes, and the gateway's flags load.
fn fits(deployment: &Deployment, settings: &str) -> Outcome<()> {
    let args = ServeArgs::try_parse(arguments(deployment).iter().skip(1))?;
    let config = Config::load(&args, |_| None, |_| Ok(settings.to_owned()))?;
    let spec = deployment.spec.as_ref().and_then(|spec| spec.template.spec.as_ref()).ok_or("no Pod template")?;
    let grace = u64::try_from(spec.termination_grace_period_seconds.unwrap_or(30))?;
    let needed = (config.shutdown.settle + config.shutdown.grace).as_secs();
    assert!(grace > needed, "{grace} s for an end of {needed} s");
    Ok(())
}
