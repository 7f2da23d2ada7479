//! Every example of the operator's objects, played on the real API server: what does the real gateway conclude?
//!
//! One test for each row of the table in the examples' README. The files follow each other as states of one cluster where that table says
//! so. A leader's engine is started by the test, at the loopback address that stands for its Pod's.

use k8s_openapi::api::core::v1::Service;
use kube::Api;
use loadtest::engine::{Engine, EngineConfig, EngineHandle};
use serde_json::{Value, json};
use tests::Outcome;
use tests::cluster::Cluster;
use tests::fixture::Fixture;
use tests::gateway::{GatewayHandle, Options, Source, groups_in};

const STEADY: &[&str] = &["00-modeldeployment-steady", "01-pods-steady", "02-services-endpointslices-steady"];

/// Leaders of `demo-mh` in the examples, by replica and generation.
const R0: &str = "10.244.1.10";
const R1: &str = "10.244.2.10";

fn state(files: &[&str]) -> Outcome<Fixture> {
    let folder = tests::binaries::in_tests("../discovery/tests/fixtures/operator");
    let parts = files.iter().map(|file| {
        let path = folder.join(format!("{file}.yaml"));
        let text = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        Fixture::parse(&text)
    });
    parts.collect::<Outcome<Vec<_>>>().map(|parts| parts.into_iter().fold(Fixture::default(), Fixture::and))
}

/// A namespace that shows examples, and a gateway that watches it.
struct Played {
    cluster: Cluster,
    gateway: GatewayHandle,
}

impl Played {
    async fn start(test: &str, config: &str) -> Outcome<Self> {
        let cluster = Cluster::new(test).await?;
        let source = Source::Kubernetes { kubeconfig: cluster.server().kubeconfig(), namespaces: vec![cluster.namespace().to_owned()] };
        let gateway = GatewayHandle::start_ready(Options::new(source).config(config)).await?;
        Ok(Self { cluster, gateway })
    }

    async fn show(&mut self, files: &[&str]) -> Outcome<()> {
        self.cluster.show(&state(files)?).await
    }

    /// An engine at the address that stands for a Pod's of the example.
    async fn engine(&self, pod_address: &str, model: &str) -> Outcome<EngineHandle> {
        let address: std::net::IpAddr = self.cluster.real(pod_address).parse()?;
        Ok(Engine::start(EngineConfig { listen: (address, 8000).into(), ..EngineConfig::fast(model) }).await?)
    }

    fn key(&self, rest: &str) -> String {
        format!("{}/{rest}", self.cluster.namespace())
    }

    /// Waits until each phase holds exactly these groups (named without the namespace).
    async fn expect(&self, phases: &[(&str, &[&str])]) -> Outcome<Value> {
        let wanted: Vec<(&str, Vec<String>)> =
            phases.iter().map(|(phase, groups)| (*phase, groups.iter().map(|group| self.key(group)).collect())).collect();
        self.gateway
            .wait_snapshot(&format!("{wanted:?}"), |snapshot| {
                let wrong = wanted.iter().find(|(phase, groups)| groups_in(snapshot, phase) != *groups);
                wrong.map_or(Ok(()), |(phase, _)| Err(format!("{phase} is {:?}", groups_in(snapshot, phase))))
            })
            .await
    }

    /// Twenty requests, and the groups that answered them.
    async fn answered_by(&self, model: &str) -> Outcome<Vec<String>> {
        let mut groups = Vec::new();
        for number in 0..20 {
            let body = json!({"model": model, "max_tokens": 2, "messages": [{"role": "user", "content": format!("{number}")}]});
            let answer = self.gateway.chat(&body).await?;
            assert_eq!(answer.status, 200, "{}", answer.text());
            groups.push(answer.header("x-leadgate-group").to_owned());
        }
        groups.sort();
        groups.dedup();
        Ok(groups)
    }
}

#[tokio::test]
async fn a_rollout_file_by_file() -> Outcome<()> {
    let mut played = Played::start("ex-rollout", "").await?;
    played.show(STEADY).await?;
    let (r0, r1) = (played.engine(R0, "demo-chat").await?, played.engine(R1, "demo-chat").await?);
    let both: &[&str] = &["demo-mh/server/0", "demo-mh/server/1"];
    played.expect(&[("Serving", both)]).await?;
    assert_eq!(played.answered_by("demo-chat").await?, both.iter().map(|key| played.key(key)).collect::<Vec<_>>());
    assert_eq!(played.gateway.chat(&json!({"model": "/models", "messages": []})).await?.status, 404);

    played.show(&["10-rollout-1-cleanup-r1"]).await?;
    played.expect(&[("Serving", &both[..1]), ("Draining", &both[1..])]).await?;
    let before = r1.stats().generations;
    assert_eq!(played.answered_by("demo-chat").await?, [played.key(both[0])]);
    assert_eq!(r1.stats().generations, before);
    drop(r1);

    played.show(&["11-rollout-2-waiting-admission-r1"]).await?;
    played.expect(&[("Serving", &both[..1]), ("Forming", &both[1..])]).await?;

    played.show(&["12-rollout-3-r1-ready-but-loading"]).await?;
    played.expect(&[("Serving", &both[..1]), ("Warming", &both[1..])]).await?;

    played.show(&["13-rollout-4-cleanup-r0-zero-serving"]).await?;
    played.expect(&[("Serving", &[]), ("Draining", &both[..1]), ("Warming", &both[1..])]).await?;
    let waited = r0.stats().generations;
    let request = json!({"model": "demo-chat", "max_tokens": 2, "messages": [{"role": "user", "content": "held"}]});
    let (held, _engine) = tokio::join!(played.gateway.chat(&request), played.engine("10.244.2.20", "demo-chat"));
    assert_eq!((held?.status.as_u16(), r0.stats().generations), (200, waited));
    Ok(())
}

#[tokio::test]
async fn follower_that_is_not_ready_takes_its_leader_out_unless_the_service_is_mirrored() -> Outcome<()> {
    let both: &[&str] = &["demo-mh/server/0", "demo-mh/server/1"];
    for (test, config, serving) in [("ex-strict", "", &both[1..]), ("ex-mirror", "membership: service\n", both)] {
        let mut played = Played::start(test, config).await?;
        played.show(&["20-follower-not-ready"]).await?;
        let _engines = (played.engine(R0, "demo-chat").await?, played.engine(R1, "demo-chat").await?);
        played.expect(&[("Serving", serving)]).await?;
    }
    Ok(())
}

#[tokio::test]
async fn replica_in_retirement_drains() -> Outcome<()> {
    let mut played = Played::start("ex-retire", "").await?;
    played.show(&["30-scale-down-retirement-disqualified"]).await?;
    let _engines = (played.engine(R0, "demo-chat").await?, played.engine(R1, "demo-chat").await?);
    played.expect(&[("Serving", &["demo-mh/server/0"]), ("Draining", &["demo-mh/server/1"])]).await?;
    assert_eq!(played.answered_by("demo-chat").await?, [played.key("demo-mh/server/0")]);
    Ok(())
}

#[tokio::test]
async fn managed_pods_of_size_one_serve_under_the_models_name() -> Outcome<()> {
    let mut played = Played::start("ex-one", "").await?;
    played.show(&["50-size1-managed"]).await?;
    let _engine = played.engine("10.244.5.11", "demo-org/demo-chat").await?;
    let snapshot = played.expect(&[("Serving", &["demo-one/server/0"])]).await?;
    assert!(snapshot.to_string().contains("demo-one-server-7k2fz"), "{snapshot}");
    assert_eq!(played.answered_by("demo-org/demo-chat").await?, [played.key("demo-one/server/0")]);
    Ok(())
}

#[tokio::test]
async fn prefill_and_decode_are_reached_by_their_router_only() -> Outcome<()> {
    let mut played = Played::start("ex-router", "").await?;
    played.show(&["62-prefill-decode-router"]).await?;
    let services = Api::<Service>::namespaced(played.cluster.client().clone(), played.cluster.namespace());
    let address = services.get("demo-pd-router").await?.spec.and_then(|spec| spec.cluster_ip).unwrap_or_default();
    let model =
        played.cluster.api("ModelDeployment").get("demo-pd").await?.data["spec"]["model"]["name"].as_str().unwrap_or_default().to_owned();
    let listen = (address.parse::<std::net::IpAddr>()?, 8081).into();
    let router = Engine::start(EngineConfig { listen, ..EngineConfig::fast(&model) }).await?;
    played.expect(&[("Serving", &["demo-pd/router"])]).await?;
    assert_eq!(played.answered_by(&model).await?, [played.key("demo-pd/router")]);
    assert!(router.stats().generations >= 20);
    Ok(())
}

#[tokio::test]
async fn pods_of_an_earlier_owner_count_for_nothing() -> Outcome<()> {
    let mut played = Played::start("ex-stale", "").await?;
    played.show(&[STEADY[0], STEADY[2], "70-stale-owner-pods"]).await?;
    let snapshot = played.expect(&[("Serving", &[]), ("Draining", &[]), ("Warming", &[])]).await?;
    assert!(!snapshot.to_string().contains("demo-mh-server-r1-m0"), "{snapshot}");
    Ok(())
}
