mod server;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use config::{
    Clocks, EngineKey, GenerationProbe, HoldSettings, PoolSettings, ProbeSettings, ResumeSettings, RetrySettings, TlsVerify, UpstreamTls,
};
use tokio::net::TcpListener;

use super::*;
use crate::dial::tests::{Pki, policy};
use server::{GENERATED, Leader, MODELS, Reply};

/// Only a hang reaches it.
const AMPLE: Duration = Duration::from_secs(20);
/// For limits that are meant to run out.
const SHORT: Duration = Duration::from_millis(50);
const FAST: Duration = Duration::from_millis(5);

fn settings() -> PoolSettings {
    let probe = ProbeSettings {
        generation: GenerationProbe::On,
        trust_managed: false,
        warming_interval: FAST,
        serving_interval: FAST,
        timeout: AMPLE,
        generation_timeout: AMPLE,
        misses: 3,
    };
    PoolSettings {
        clocks: Clocks { connect: AMPLE, first_event: AMPLE, response: AMPLE, idle: AMPLE },
        engine_key: None,
        tls: UpstreamTls { verify: TlsVerify::None, ca_file: None, server_name: None },
        probe,
        hold: HoldSettings {
            timeout: AMPLE,
            timeout_unary: AMPLE,
            timeout_nothing: AMPLE,
            heartbeat_after: AMPLE,
            heartbeat_interval: AMPLE,
            max_requests: 1,
            max_bytes: 1,
            release: 1,
        },
        retry: RetrySettings { burst: 1, ratio: 0.0, attempts: 1 },
        resume: ResumeSettings {
            enabled: false,
            stall: AMPLE,
            max_moves: 0,
            text_bytes: 0,
            request_bytes: 0,
            total_bytes: 0,
            token_ids: false,
            comment: false,
        },
    }
}

fn target(address: &Address, settings: PoolSettings) -> ProbeTarget {
    let name = address.to_string();
    ProbeTarget {
        id: GroupId(name.as_str().into()),
        key: GroupKey(name.into()),
        address: address.clone(),
        managed: false,
        router: false,
        model_hint: None,
        settings: Arc::new(settings),
    }
}

struct Bench {
    tasks: TaskSet,
    prober: Prober,
    changed: mpsc::Receiver<GroupId>,
}

impl Bench {
    fn new() -> Self {
        let (sender, changed) = mpsc::channel(64);
        let tasks = TaskSet::new();
        Self { prober: Prober::new(tasks.clone(), Arc::new(Dialer::new()), sender), tasks, changed }
    }

    async fn leader(&self) -> Leader {
        Leader::start(&self.tasks).await
    }

    /// A proven leader that answers requests well as long as the first of these lives.
    async fn busy_leader(&mut self) -> (Arc<dyn Traffic>, Leader, GroupId) {
        let busy: Arc<dyn Traffic> = Arc::new(Busy::default());
        self.prober.heed(Arc::downgrade(&busy));
        let leader = self.leader().await;
        let id = self.probe(target(&leader.address, settings()));
        self.until_proven(&id).await;
        (busy, leader, id)
    }

    /// Probes one target and returns its id.
    fn probe(&self, target: ProbeTarget) -> GroupId {
        let id = target.id.clone();
        self.prober.sync(vec![target]);
        id
    }

    /// The verdict, once it is as wanted; looks again at each change.
    async fn until(&mut self, id: &GroupId, wanted: impl Fn(&Verdict) -> bool) -> Verdict {
        loop {
            let verdict = self.prober.verdict(id);
            if wanted(&verdict) {
                return verdict;
            }
            let change = tokio::time::timeout(AMPLE, self.changed.recv()).await;
            change.unwrap_or_else(|_| panic!("no change in time; last {verdict:?}")).unwrap();
        }
    }

    async fn until_proven(&mut self, id: &GroupId) -> Verdict {
        self.until(id, |verdict| verdict.proven).await
    }

    async fn until_reason(&mut self, id: &GroupId, reason: Reason) -> Verdict {
        self.until(id, |verdict| verdict.reason == Some(reason)).await
    }
}

fn names(verdict: &Verdict) -> Vec<&str> {
    verdict.models.as_ref().map(|models| models.iter().map(|name| &**name).collect()).unwrap_or_default()
}

fn key_in(settings: &mut PoolSettings, file: PathBuf) {
    settings.engine_key = Some(EngineKey { file, forward: false });
}

#[tokio::test]
async fn proof_is_health_then_names_then_a_generation_on_one_connection() {
    let mut bench = Bench::new();
    let leader = bench.leader().await;
    let mut slow = settings();
    slow.probe.serving_interval = AMPLE;
    let id = bench.probe(target(&leader.address, slow));
    assert_eq!(bench.prober.verdict(&id).reason, Some(Reason::NotProven));
    let verdict = bench.until_proven(&id).await;
    assert_eq!((names(&verdict), verdict.proof, verdict.reason), (vec!["tiny"], 1, None));
    let seen = leader.seen();
    let paths: Vec<&str> = seen.iter().map(|seen| seen.path.as_str()).collect();
    assert_eq!(paths, ["/health", "/v1/models", "/v1/completions"]);
    let asked: serde_json::Value = serde_json::from_slice(&seen[2].body).unwrap();
    assert_eq!((&asked["model"], &asked["max_tokens"], &asked["stream"]), (&"tiny".into(), &1.into(), &false.into()));
    assert_eq!(seen[0].headers["user-agent"], "leadgate-probe");
    assert!(seen[0].headers["x-request-id"].to_str().unwrap().starts_with("leadgate-probe-"));
    assert_eq!(bench.prober.counters().get(ProbeStep::Connect, ProbeResult::Ok), 1, "one connection");
    leader.left_alone().await;
}

#[tokio::test]
async fn an_engine_that_is_not_up_yet_refuses_and_is_counted_once() {
    let mut bench = Bench::new();
    let port = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = Address { https: false, host: "127.0.0.1".into(), port: port.local_addr().unwrap().port() };
    drop(port);
    let id = bench.probe(target(&address, settings()));
    assert!(!bench.until_reason(&id, Reason::ProbeRefused).await.proven);
    assert!(bench.prober.counters().get(ProbeStep::Connect, ProbeResult::Refused) > 0);
    assert_eq!(bench.prober.counters().get(ProbeStep::Health, ProbeResult::Refused), 0, "counted once");
}

#[tokio::test]
async fn each_bad_answer_has_its_reason() {
    for (path, status, body, reason) in [
        ("/health", 503, "", Reason::HealthFailed),
        ("/health", 404, "", Reason::HealthFailed),
        ("/v1/models", 500, "", Reason::ModelsFailed),
        ("/v1/models", 200, r#"{"data":[]}"#, Reason::ModelsFailed),
        ("/v1/models", 401, r#"{"error":"Unauthorized"}"#, Reason::EngineKeyRefused),
        ("/v1/models", 403, "", Reason::EngineKeyRefused),
        ("/v1/completions", 500, "", Reason::GenerationFailed),
        ("/v1/completions", 200, r#"{"error":{"message":"EngineCore encountered an issue."}}"#, Reason::GenerationFailed),
        ("/v1/completions", 200, r#"{"choices":[{"finish_reason":"abort"}]}"#, Reason::GenerationFailed),
    ] {
        let mut bench = Bench::new();
        let leader = bench.leader().await;
        leader.answer(path, status, body);
        let id = bench.probe(target(&leader.address, settings()));
        let verdict = bench.until(&id, |verdict| verdict.reason != Some(Reason::NotProven)).await;
        assert_eq!((verdict.proven, verdict.reason, verdict.proof), (false, Some(reason), 0), "{path} {status} {body}");
        leader.answer(path, 200, if path == "/v1/models" { MODELS } else { GENERATED });
        bench.until_proven(&id).await;
    }
}

#[tokio::test]
async fn health_that_answers_while_the_engine_hangs_is_no_proof() {
    let mut bench = Bench::new();
    let leader = bench.leader().await;
    leader.on("/v1/completions", Reply::Hang);
    let mut impatient = settings();
    impatient.probe.generation_timeout = SHORT;
    let id = bench.probe(target(&leader.address, impatient));
    let verdict = bench.until_reason(&id, Reason::GenerationFailed).await;
    assert_eq!((verdict.proven, names(&verdict)), (false, vec!["tiny"]), "names are learned all the same");
    assert!(bench.prober.counters().get(ProbeStep::Generation, ProbeResult::Timeout) > 0);
}

#[tokio::test]
async fn a_probe_that_hangs_costs_nobody_else_anything() {
    let mut bench = Bench::new();
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let silent = (Address { https: false, host: "127.0.0.1".into(), port: silent.local_addr().unwrap().port() }, silent);
    let leader = bench.leader().await;
    let (hung, good) = (target(&silent.0, settings()), target(&leader.address, settings()));
    bench.prober.sync(vec![hung.clone(), good.clone()]);
    bench.until_proven(&good.id).await;
    assert_eq!(bench.prober.verdict(&hung.id).reason, Some(Reason::NotProven));
}

#[tokio::test]
async fn silence_to_health_is_a_timeout() {
    let mut bench = Bench::new();
    let leader = bench.leader().await;
    leader.on("/health", Reply::Hang);
    let mut impatient = settings();
    impatient.probe.timeout = SHORT;
    let id = bench.probe(target(&leader.address, impatient));
    assert!(!bench.until_reason(&id, Reason::ProbeTimeout).await.proven);
}

#[tokio::test]
async fn a_fault_voids_the_proof_at_once_and_only_a_generation_restores_it() {
    let mut bench = Bench::new();
    let leader = bench.leader().await;
    let id = bench.probe(target(&leader.address, settings()));
    bench.until_proven(&id).await;
    leader.answer("/v1/completions", 500, "");
    bench.prober.report_fault(&id, Fault::Hang);
    let verdict = bench.prober.verdict(&id);
    assert_eq!((verdict.proven, verdict.reason), (false, Some(Reason::FaultReported)));
    let verdict = bench.until_reason(&id, Reason::GenerationFailed).await;
    assert_eq!((verdict.proven, verdict.proof), (false, 1), "health and names are good, and that is not enough");
    leader.answer("/v1/completions", 200, GENERATED);
    assert_eq!(bench.until_proven(&id).await.proof, 2);
}

#[tokio::test]
async fn a_fault_breaks_the_probe_in_flight_off() {
    let mut bench = Bench::new();
    let leader = bench.leader().await;
    leader.on("/v1/completions", Reply::Hang);
    let id = bench.probe(target(&leader.address, settings()));
    leader.asked("/v1/completions", 1).await;
    leader.answer("/v1/completions", 200, GENERATED);
    bench.prober.report_fault(&id, Fault::Reset);
    let verdict = bench.until_proven(&id).await;
    assert_eq!((verdict.proof, leader.count("/v1/completions")), (1, 2), "proven by a probe that began after the fault");
}

#[tokio::test]
async fn a_fault_of_nobody_is_ignored() {
    let bench = Bench::new();
    let id = GroupId("nobody".into());
    bench.prober.report_fault(&id, Fault::Refused);
    assert_eq!(bench.prober.verdict(&id), Verdict { reason: Some(Reason::NotProven), ..Verdict::default() });
}

#[tokio::test]
async fn misses_in_a_row_take_a_serving_leader_out() {
    let mut bench = Bench::new();
    let leader = bench.leader().await;
    let id = bench.probe(target(&leader.address, settings()));
    bench.until_proven(&id).await;
    let before = leader.count("/health");
    leader.answer("/health", 503, "");
    let verdict = bench.until(&id, |verdict| !verdict.proven).await;
    assert_eq!(verdict.reason, Some(Reason::HealthFailed));
    assert!(leader.count("/health") - before >= 3, "not by fewer than three");
    assert_eq!(names(&verdict), ["tiny"], "last known names stay");
    leader.answer("/health", 200, "");
    assert_eq!(bench.until_proven(&id).await.proof, 2, "the way back is a full proof");
}

/// A leader that answers requests all the time, as far as the prober can see.
#[derive(Debug, Default)]
struct Busy(AtomicU64);

impl Traffic for Busy {
    fn good_answers(&self, _: &GroupId) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed)
    }
}

#[tokio::test]
async fn good_answers_stand_in_for_five_rounds_of_six() {
    let mut bench = Bench::new();
    let (_busy, leader, id) = bench.busy_leader().await;
    // The proof, and six light rounds, the first of which may come before any answer was seen.
    leader.asked("/health", 7).await;
    let skipped = bench.prober.counters().get(ProbeStep::Health, ProbeResult::Skipped);
    assert!((25..=35).contains(&skipped), "{skipped}");
    leader.answer("/v1/models", 200, r#"{"data":[{"id":"tiny"},{"id":"lora"}]}"#);
    bench.until(&id, |verdict| names(verdict) == ["tiny", "lora"]).await;
}

#[tokio::test]
async fn nothing_stands_in_behind_a_miss_a_fault_or_an_end_of_answers() {
    let mut bench = Bench::new();
    let (busy, leader, id) = bench.busy_leader().await;
    let skipped = |bench: &Bench| bench.prober.counters().get(ProbeStep::Health, ProbeResult::Skipped);
    leader.answer("/health", 503, "");
    let before = skipped(&bench);
    assert_eq!(bench.until(&id, |verdict| !verdict.proven).await.reason, Some(Reason::HealthFailed));
    assert!(skipped(&bench) - before <= 5, "only before the first miss");
    leader.answer("/health", 200, "");
    assert_eq!(bench.until_proven(&id).await.proof, 2);
    bench.prober.report_fault(&id, Fault::Hang);
    assert_eq!(bench.until_proven(&id).await.proof, 3);
    drop(busy);
    let asked = leader.count("/health");
    let before = skipped(&bench);
    leader.asked("/health", asked + 20).await;
    assert!(skipped(&bench) - before <= 1, "a round that had begun");
}

#[tokio::test]
async fn adapters_that_come_and_go_are_seen_while_serving() {
    let mut bench = Bench::new();
    let leader = bench.leader().await;
    let id = bench.probe(target(&leader.address, settings()));
    bench.until_proven(&id).await;
    leader.answer("/v1/models", 200, r#"{"data":[{"id":"tiny"},{"id":"lora"}]}"#);
    bench.until(&id, |verdict| names(verdict) == ["tiny", "lora"]).await;
    leader.answer("/v1/models", 200, MODELS);
    let verdict = bench.until(&id, |verdict| names(verdict) == ["tiny"]).await;
    assert_eq!((verdict.proven, verdict.proof), (true, 1), "light rounds are no proofs");
}

#[tokio::test]
async fn a_model_that_does_not_generate_is_proven_without() {
    for refusal in [404, 400] {
        let mut bench = Bench::new();
        let leader = bench.leader().await;
        leader.answer("/v1/completions", refusal, "");
        leader.answer("/v1/chat/completions", refusal, "");
        let id = bench.probe(target(&leader.address, settings()));
        assert_eq!(bench.until_proven(&id).await.proof, 1);
        assert_eq!(bench.prober.counters().get(ProbeStep::Generation, ProbeResult::Skipped), 1);
    }
}

#[tokio::test]
async fn an_engine_that_only_chats_is_asked_to_chat() {
    let mut bench = Bench::new();
    let leader = bench.leader().await;
    leader.answer("/v1/completions", 405, "");
    leader.answer("/v1/chat/completions", 500, "");
    let id = bench.probe(target(&leader.address, settings()));
    assert!(!bench.until_reason(&id, Reason::GenerationFailed).await.proven);
    leader.answer("/v1/chat/completions", 200, GENERATED);
    bench.until_proven(&id).await;
}

#[tokio::test]
async fn without_generation_health_and_names_are_the_proof() {
    let mut bench = Bench::new();
    let leader = bench.leader().await;
    let mut off = settings();
    off.probe.generation = GenerationProbe::Off;
    let id = bench.probe(target(&leader.address, off));
    assert_eq!(bench.until_proven(&id).await.proof, 1);
    bench.prober.report_fault(&id, Fault::BrokenStream);
    assert_eq!(bench.until_proven(&id).await.proof, 2);
    assert_eq!(leader.count("/v1/completions"), 0);
}

#[tokio::test]
async fn the_hinted_name_is_generated_with_if_the_engine_lists_it() {
    for (hint, expect) in [("second", "second"), ("unlisted", "first")] {
        let mut bench = Bench::new();
        let leader = bench.leader().await;
        leader.answer("/v1/models", 200, r#"{"data":[{"id":"first"},{"id":"second"}]}"#);
        let id = bench.probe(ProbeTarget { model_hint: Some(hint.into()), ..target(&leader.address, settings()) });
        bench.until_proven(&id).await;
        let seen = leader.seen().into_iter().find(|seen| seen.path == "/v1/completions").unwrap();
        let asked: serde_json::Value = serde_json::from_slice(&seen.body).unwrap();
        assert_eq!(asked["model"], expect);
    }
}

#[tokio::test]
async fn a_router_needs_no_health() {
    let mut bench = Bench::new();
    let leader = bench.leader().await;
    leader.answer("/health", 404, "");
    let id = bench.probe(ProbeTarget { router: true, ..target(&leader.address, settings()) });
    bench.until_proven(&id).await;
}

#[tokio::test]
async fn the_key_of_the_file_is_carried_to_guarded_paths_only() {
    let mut bench = Bench::new();
    let leader = bench.leader().await;
    leader.on("/v1/models", Reply::Guarded("Bearer k2", MODELS.to_owned()));
    leader.on("/v1/completions", Reply::Guarded("Bearer k2", GENERATED.to_owned()));
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("key");
    let mut keyed = settings();
    key_in(&mut keyed, file.clone());
    let id = bench.probe(target(&leader.address, keyed));
    bench.until_reason(&id, Reason::EngineKeyUnreadable).await;
    std::fs::write(&file, "\n").unwrap();
    assert_eq!(leader.count("/v1/models"), 0, "not asked without the key");
    std::fs::write(&file, "k1\n").unwrap();
    bench.until_reason(&id, Reason::EngineKeyRefused).await;
    std::fs::write(&file, "k2\n").unwrap();
    bench.until_proven(&id).await;
    assert!(leader.seen().iter().all(|seen| seen.path != "/health" || !seen.headers.contains_key("authorization")));
}

#[tokio::test]
async fn trust_takes_readiness_for_proof_and_still_learns_names() {
    let mut bench = Bench::new();
    let leader = bench.leader().await;
    let mut trusting = settings();
    trusting.probe.trust_managed = true;
    let id = bench.probe(ProbeTarget { managed: true, ..target(&leader.address, trusting.clone()) });
    assert!(bench.prober.verdict(&id).proven, "at once");
    bench.until(&id, |verdict| names(verdict) == ["tiny"]).await;
    assert_eq!(leader.count("/v1/completions"), 0);
    bench.prober.report_fault(&id, Fault::ServerError);
    assert!(!bench.prober.verdict(&id).proven, "trust does not outlive a fault");
    assert_eq!(bench.until_proven(&id).await.proof, 1, "after a fault by a generation");
    let take_over = ProbeTarget { id: GroupId("other".into()), ..target(&leader.address, trusting) };
    assert!(!bench.prober.verdict(&bench.probe(take_over)).proven, "only managed ones are trusted");
}

#[tokio::test]
async fn changed_settings_apply_to_a_probe_that_hangs() {
    let mut bench = Bench::new();
    let leader = bench.leader().await;
    leader.on("/v1/completions", Reply::Hang);
    let id = bench.probe(target(&leader.address, settings()));
    leader.asked("/v1/completions", 1).await;
    let mut off = settings();
    off.probe.generation = GenerationProbe::Off;
    bench.probe(target(&leader.address, off));
    bench.until_proven(&id).await;
}

#[tokio::test]
async fn what_is_no_longer_wanted_is_no_longer_asked() {
    let mut bench = Bench::new();
    let leader = bench.leader().await;
    leader.on("/v1/completions", Reply::Hang);
    let id = bench.probe(target(&leader.address, settings()));
    leader.asked("/v1/completions", 1).await;
    bench.prober.sync(Vec::new());
    leader.left_alone().await;
    assert_eq!(bench.prober.verdict(&id).models, None, "forgotten");
    leader.answer("/v1/completions", 200, GENERATED);
    bench.probe(target(&leader.address, settings()));
    assert_eq!(bench.until_proven(&id).await.proof, 1, "wanted again: proven anew");
}

#[tokio::test]
async fn a_leader_that_closes_after_each_answer_is_dialled_again() {
    let mut bench = Bench::new();
    let leader = bench.leader().await;
    for (path, body) in [("/health", ""), ("/v1/models", MODELS), ("/v1/completions", GENERATED)] {
        leader.on(path, Reply::Last(200, body.to_owned()));
    }
    let id = bench.probe(target(&leader.address, settings()));
    bench.until_proven(&id).await;
    assert!(bench.prober.counters().get(ProbeStep::Connect, ProbeResult::Ok) >= 3);
}

#[tokio::test]
async fn an_endless_model_list_is_not_read() {
    let mut bench = Bench::new();
    let leader = bench.leader().await;
    let long = format!(r#"{{"data":[{{"id":"{}"}}]}}"#, "x".repeat(1024 * 1024));
    leader.answer("/v1/models", 200, &long);
    let id = bench.probe(target(&leader.address, settings()));
    assert_eq!(bench.until_reason(&id, Reason::ModelsFailed).await.models, None);
}

#[tokio::test]
async fn https_leaders_are_probed_by_their_policy() {
    let mut bench = Bench::new();
    let pki = Pki::new();
    let leader = Leader::start_tls(&bench.tasks, pki.acceptor.clone()).await;
    let mut strict = settings();
    strict.tls = policy(TlsVerify::Full, Some(pki.ca_file()), None);
    let id = bench.probe(target(&leader.address, strict.clone()));
    bench.until_reason(&id, Reason::TlsFailed).await;
    assert!(bench.prober.counters().get(ProbeStep::Connect, ProbeResult::Tls) > 0);
    strict.tls.server_name = Some("engine.test".to_owned());
    bench.probe(target(&leader.address, strict));
    bench.until_proven(&id).await;
}
