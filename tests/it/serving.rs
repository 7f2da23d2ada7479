//! The main job, from the outside: clients reach a serving leader of a real API server's deployment and nobody else.

use kube::api::PostParams;
use loadtest::engine::{Pace, Persona, expected_text};
use serde_json::{Value, json};
use std::time::Duration;
use tests::cluster::Cluster;
use tests::deployments::{self, Deployed, MODEL};
use tests::gateway::{GatewayHandle, Options, Source};
use tests::http::{self, Events};
use tests::poll::{PATIENCE, eventually};
use tests::{Outcome, python, service_account};

/// Two replicas of two members each, and a gateway that has proven both, with a ServiceAccount's rights and no others.
struct Served {
    deployed: Deployed,
    gateway: GatewayHandle,
    cluster: Cluster,
}

impl Served {
    async fn up(test: &str, pace: Pace) -> Outcome<Self> {
        let cluster = Cluster::new(test).await?;
        let mut config = deployments::config(&cluster);
        config.engine.pace = pace;
        let deployed = Deployed::up(&cluster, deployments::take_over("demo", 2, 2), config).await?;
        let gateway = GatewayHandle::start_ready(Options::new(source(&cluster).await?)).await?;
        gateway.wait_groups("Serving", &[deployed.group_key(0), deployed.group_key(1)]).await?;
        Ok(Self { deployed, gateway, cluster })
    }

    /// The end of a test: no follower was ever asked anything.
    fn check_followers(&self) {
        assert_eq!(self.deployed.operator.misdirected(), 0, "a follower got requests");
    }
}

async fn source(cluster: &Cluster) -> Outcome<Source> {
    let (client, namespace) = (cluster.client(), cluster.namespace());
    service_account::create_service_account(client, namespace, "gateway").await?;
    service_account::grant(client, namespace, "gateway", service_account::GATEWAY_RULES).await?;
    let kubeconfig = service_account::kubeconfig(cluster.server(), client, namespace, "gateway").await?;
    Ok(Source::Kubernetes { kubeconfig, namespaces: vec![namespace.to_owned()] })
}

fn ask(prompt: &str, tokens: u64) -> Value {
    json!({"model": MODEL, "temperature": 0, "max_tokens": tokens, "ignore_eos": true, "messages": [{"role": "user", "content": prompt}]})
}

fn streamed(prompt: &str, tokens: u64) -> Value {
    let mut body = ask(prompt, tokens);
    body["stream"] = json!(true);
    body
}

#[tokio::test]
async fn curl_gets_whole_and_streamed_answers() -> Outcome<()> {
    let served = Served::up("serve-curl", Pace::none()).await?;
    let curl = |body: Value| {
        let url = served.gateway.url("/v1/chat/completions");
        let mut command = tokio::process::Command::new("curl");
        command.args(["-sS", "-N", "-i", &url, "-H", "content-type: application/json", "-d", &body.to_string()]);
        async move { Ok::<_, std::io::Error>(String::from_utf8_lossy(&command.output().await?.stdout).into_owned()) }
    };
    let body = ask("whole", 50);
    let whole = curl(body.clone()).await?;
    assert!(whole.starts_with("HTTP/1.1 200"), "{whole}");
    let answer: Value = serde_json::from_str(whole.rsplit("\r\n\r\n").next().unwrap_or_default())?;
    assert_eq!(answer["choices"][0]["message"]["content"], expected_text(&body, &Persona::named(MODEL)));
    let stream = curl(streamed("streamed", 50)).await?;
    assert!(stream.contains("content-type: text/event-stream"), "{stream}");
    assert!(stream.contains("x-leadgate-group: "), "{stream}");
    assert!(stream.trim_end().ends_with("data: [DONE]"), "{stream}");
    served.check_followers();
    Ok(())
}

#[tokio::test]
async fn openai_client_gets_whole_streamed_and_cancelled_answers() -> Outcome<()> {
    let served = Served::up("serve-python", Pace::steady(Duration::from_millis(1), Duration::from_millis(1))).await?;
    let printed = python::run("chat.py", &served.gateway.url("/v1"), &[MODEL, "python", "60"]).await?;
    let seen: Value = serde_json::from_str(printed.lines().last().unwrap_or_default()).map_err(|error| format!("{error}: {printed}"))?;
    let expected = expected_text(&ask("python", 60), &Persona::named(MODEL));
    assert_eq!(seen["models"], json!([MODEL]));
    assert_eq!((&seen["whole"], &seen["streamed"]), (&json!(expected), &json!(expected)));
    assert_eq!((&seen["whole_finish"], &seen["ids"], &seen["usage"]), (&json!("length"), &json!(1), &json!(60)));
    idle(&served).await?;
    served.check_followers();
    Ok(())
}

#[tokio::test]
async fn client_that_goes_away_frees_its_leader() -> Outcome<()> {
    let served = Served::up("serve-cancel", Pace::steady(Duration::from_millis(1), Duration::from_millis(5))).await?;
    let url = served.gateway.url("/v1/chat/completions");
    let mut events = Events::start(&url, &streamed("endless", 100_000)).await?;
    events.next_data().await?;
    eventually(PATIENCE, "busy engine", || async { if running(&served).await? == 1.0 { Ok(()) } else { Err("idle".to_owned()) } }).await?;
    drop(events);
    idle(&served).await
}

/// Requests that the engines of both leaders run, by their own gauges.
async fn running(served: &Served) -> Result<f64, String> {
    let mut sum = 0.0;
    for ordinal in 0..2 {
        let leader = served.deployed.member(ordinal, 0).map_err(|error| error.to_string())?;
        let url = format!("http://{}:{}/metrics", leader.address, leader.port);
        let text = http::get(&url).await.map_err(|error| error.to_string())?.text();
        let gauge = text.lines().find(|line| line.starts_with("vllm:num_requests_running")).ok_or("no gauge")?;
        sum += gauge.rsplit(' ').next().and_then(|value| value.parse::<f64>().ok()).ok_or("no value")?;
    }
    Ok(sum)
}

async fn idle(served: &Served) -> Outcome<()> {
    eventually(PATIENCE, "idle engines", || async {
        match running(served).await? {
            0.0 => Ok(()),
            busy => Err(format!("{busy} requests run")),
        }
    })
    .await
}

#[tokio::test]
async fn restarted_container_takes_the_proof_away_until_it_serves_again() -> Outcome<()> {
    let served = Served::up("serve-restart", Pace { startup: Duration::from_secs(2), ..Pace::none() }).await?;
    let leader = served.deployed.member(0, 0)?;
    served.deployed.operator.restart(served.cluster.namespace(), &leader.name)?;
    served.gateway.wait_groups("Serving", &[served.deployed.group_key(1)]).await?;
    let answer = served.gateway.chat(&ask("meanwhile", 5)).await?;
    assert_eq!((answer.status.as_u16(), answer.header("x-leadgate-group")), (200, served.deployed.group_key(1).as_str()));
    served.gateway.wait_groups("Serving", &[served.deployed.group_key(0), served.deployed.group_key(1)]).await?;
    assert_eq!(served.deployed.member(0, 0)?.uid, leader.uid);
    served.check_followers();
    Ok(())
}

#[tokio::test]
async fn pod_of_another_owner_gets_nothing() -> Outcome<()> {
    let served = Served::up("serve-owner", Pace::none()).await?;
    let pods = tests::cluster::pods(served.cluster.client(), served.cluster.namespace()).await?;
    let mut stranger = pods["demo-server-r0-m0"].clone();
    let status = stranger.status.take();
    stranger.metadata = kube::api::ObjectMeta {
        name: Some("stranger".into()),
        labels: stranger.metadata.labels,
        annotations: stranger.metadata.annotations,
        owner_references: stranger.metadata.owner_references.map(|mut owners| {
            owners.iter_mut().for_each(|owner| owner.uid = "00000000-0000-0000-0000-000000000000".into());
            owners
        }),
        ..Default::default()
    };
    if let Some(spec) = stranger.spec.as_mut() {
        spec.hostname = Some("stranger".into());
    }
    let api = kube::Api::<k8s_openapi::api::core::v1::Pod>::namespaced(served.cluster.client().clone(), served.cluster.namespace());
    let mut created = api.create(&PostParams::default(), &stranger).await?;
    let engine = loadtest::engine::Engine::start(loadtest::engine::EngineConfig::fast(MODEL)).await?;
    created.status = status.map(|mut status| {
        status.pod_ip = Some(engine.addr().ip().to_string());
        status.pod_ips = None;
        status
    });
    api.replace_status("stranger", &PostParams::default(), &created).await?;
    // The gateway has seen it as soon as it has seen a change made later.
    served.deployed.operator.set_ready(served.cluster.namespace(), "demo-server-r1-m1", false)?;
    let snapshot = served.gateway.wait_groups("Serving", &[served.deployed.group_key(0)]).await?;
    assert!(!snapshot.to_string().contains("stranger"), "{snapshot}");
    for number in 0..20 {
        let answer = served.gateway.chat(&ask(&format!("request {number}"), 3)).await?;
        assert_eq!(answer.header("x-leadgate-group"), served.deployed.group_key(0), "{}", answer.text());
    }
    assert_eq!(engine.stats().requests, 0);
    served.check_followers();
    Ok(())
}

#[tokio::test]
async fn every_rank_of_an_external_dp_replica_serves() -> Outcome<()> {
    let cluster = Cluster::new("serve-ranks").await?;
    let mut object = deployments::managed("demo", 1, 2);
    object["spec"]["roles"][0]["extraArgs"] = json!(["--data-parallel-rank", "$(GPUSTACK_MEMBER_INDEX)"]);
    object["spec"]["engine"]["version"] = json!("0.29.0");
    let config = loadtest::operator::OperatorConfig { eligibility: true, ..deployments::config(&cluster) };
    let deployed = Deployed::up(&cluster, object, config).await?;
    let gateway = GatewayHandle::start_ready(Options::new(source(&cluster).await?)).await?;
    eventually(PATIENCE, "requests at both ranks", || async {
        let answer = gateway.chat(&ask("rank", 3)).await.map_err(|error| error.to_string())?;
        let mut seen = Vec::new();
        for member in 0..2 {
            let rank = deployed.member(0, member).map_err(|error| error.to_string())?;
            let metrics =
                http::get(&format!("http://{}:{}/metrics", rank.address, rank.port)).await.map_err(|error| error.to_string())?.text();
            let tokens = metrics.lines().find(|line| line.starts_with("vllm:generation_tokens_total")).unwrap_or_default().to_owned();
            // More than the probe's one token.
            seen.push(tokens.rsplit(' ').next().and_then(|value| value.parse::<f64>().ok()).unwrap_or_default() >= 3.0);
        }
        if seen == [true, true] { Ok(()) } else { Err(format!("{} {seen:?} {}", answer.status, answer.text())) }
    })
    .await
}
