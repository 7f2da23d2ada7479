//! A cluster made of fixtures and edits: what a test feeds to `State`, and how it reads the result.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use config::{Config, Membership};
use serde_json::{Value, json};

use crate::fact::{Kind, Str};
use crate::index::Change;
use crate::probe::Verdict;
use crate::snapshot::{GroupId, GroupPhase, Pool, Reason, ReplicaGroup, Snapshot};
use crate::source::decode::{self, Decoded};
use crate::state::{Delta, State};
use crate::view::Lens;

pub(super) const NS: &str = "gpustack-elastic";
/// UIDs of the fixture's Pods, by ordinal and member.
pub(super) const R0M0: &str = "4345f09d-d770-4f25-a020-ee7dec80d668";
pub(super) const R0M1: &str = "89b5ac33-51c7-4201-a412-e3ac1b5b04b5";
pub(super) const R1M0: &str = "641d6db5-6651-496e-a906-7293fd3355f3";
pub(super) const R1M1: &str = "f0fb5560-e95f-4308-aa31-e595bb136ee6";
pub(super) const DEMO: &str = "5fd54db3-fb0e-4837-a1fd-15f71d4db2bb";
pub(super) const SERVICE: &str = "6086712b-537a-480d-a119-25a388255a6f";
/// Addresses of its leaders.
pub(super) const R0: &str = "http://10.244.1.10:8000";
pub(super) const R1: &str = "http://10.244.2.10:8000";
pub(super) const NOTHING: [&str; 0] = [];

/// Objects by UID, and everything computed from them.
pub(super) struct Cluster {
    objects: HashMap<String, Value>,
    pub(super) state: State,
    pub(super) membership: Membership,
    pub(super) now: SystemTime,
    verdicts: HashMap<GroupId, Verdict>,
    prove_all: bool,
    /// Incarnations whose verdict was asked for.
    pub(super) asked: RefCell<Vec<GroupId>>,
}

impl Cluster {
    /// The documents of these fixture files; every whole group is proven.
    pub(super) fn of(files: &[&str]) -> Self {
        let mut cluster = Self::with_config(Config::default());
        for file in files {
            cluster.load(file);
        }
        cluster.sync();
        cluster
    }

    pub(super) fn with_config(config: Config) -> Self {
        let scope: Str = "test".into();
        Self {
            objects: HashMap::new(),
            membership: config.membership,
            state: State::new(Arc::new(config), vec![scope]),
            now: SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000),
            verdicts: HashMap::new(),
            prove_all: true,
            asked: RefCell::default(),
        }
    }

    /// 00, 01 and 02: two replicas of two members, all Ready.
    pub(super) fn steady() -> Self {
        let mut cluster = Self::of(&["00-modeldeployment-steady", "01-pods-steady", "02-services-endpointslices-steady"]);
        cluster.refresh();
        cluster
    }

    /// The steady cluster after the objects of `file` replaced the ones they name, and the Pods that it does not name are gone.
    pub(super) fn steady_then(file: &str) -> Self {
        let mut cluster = Self::steady();
        cluster.step(file);
        cluster
    }

    pub(super) fn step(&mut self, file: &str) {
        let named: Vec<String> = values(file).iter().map(uid_of).collect();
        let gone = |value: &Value| value["kind"] == "Pod" && !named.contains(&uid_of(value));
        let gone: Vec<String> = self.objects.iter().filter(|(_, value)| gone(value)).map(|(uid, _)| uid.clone()).collect();
        for uid in gone {
            self.delete(&uid);
        }
        self.load(file);
        self.refresh();
    }

    pub(super) fn load(&mut self, file: &str) {
        for value in values(file) {
            if kind_of(&value).is_some() && value["apiVersion"] != "worker.gpustack.ai/v1" {
                self.put(value);
            }
        }
    }

    pub(super) fn sync(&mut self) {
        let scope: Str = "test".into();
        for kind in Kind::ALL {
            self.state.apply(&scope, Change::RelistBegin(kind));
            for value in self.objects.values().filter(|value| kind_of(value) == Some(kind)) {
                if let Decoded::Fact(fact) = decode::value(kind, value.clone()) {
                    self.state.apply(&scope, Change::RelistItem(fact));
                }
            }
            self.state.apply(&scope, Change::RelistEnd(kind));
        }
        assert!(self.state.synced());
    }

    pub(super) fn put(&mut self, value: Value) {
        let kind = kind_of(&value).expect("a watched kind");
        match decode::value(kind, value.clone()) {
            Decoded::Fact(fact) => self.state.apply(&"test".into(), Change::Upsert(fact)),
            Decoded::Foreign => {}
            Decoded::Unreadable(error) => panic!("{error}"),
        }
        self.objects.insert(uid_of(&value), value);
    }

    pub(super) fn object(&self, uid: &str) -> Value {
        self.objects.get(uid).cloned().expect("object exists")
    }

    /// Changes one object and refreshes.
    pub(super) fn edit(&mut self, uid: &str, edit: impl FnOnce(&mut Value)) -> Delta {
        let mut value = self.object(uid);
        edit(&mut value);
        self.put(value);
        self.refresh()
    }

    pub(super) fn delete(&mut self, uid: &str) {
        let value = self.objects.remove(uid).expect("object exists");
        let kind = kind_of(&value).expect("a watched kind");
        self.state.apply(&"test".into(), Change::Remove(kind, uid.into()));
    }

    /// UIDs of the Pods that exist.
    pub(super) fn pods(&self) -> Vec<String> {
        self.objects.iter().filter(|(_, value)| value["kind"] == "Pod").map(|(uid, _)| uid.clone()).collect()
    }

    /// UID of the object of this kind and name.
    pub(super) fn uid(&self, kind: &str, name: &str) -> String {
        let found = self.objects.iter().find(|(_, value)| value["kind"] == kind && value["metadata"]["name"] == name);
        found.map(|(uid, _)| uid.clone()).expect("object exists")
    }

    /// From now on only what [`Cluster::prove`] named is proven.
    pub(super) fn prove_nothing(&mut self) {
        self.prove_all = false;
    }

    pub(super) fn prove(&mut self, id: &GroupId, models: Option<&[&str]>) -> Delta {
        let models = models.map(|models| models.iter().map(|name| Str::from(*name)).collect());
        self.verdict(id, Verdict { proven: true, models, proof: 1, ..Verdict::default() })
    }

    pub(super) fn verdict(&mut self, id: &GroupId, verdict: Verdict) -> Delta {
        self.verdicts.insert(id.clone(), verdict);
        self.state.proof_changed(id);
        self.refresh()
    }

    pub(super) fn refresh(&mut self) -> Delta {
        let all = Verdict { proven: true, proof: 1, ..Verdict::default() };
        let verdicts = |id: &GroupId| {
            self.asked.borrow_mut().push(id.clone());
            let default = || if self.prove_all { all.clone() } else { Verdict::default() };
            self.verdicts.get(id).cloned().unwrap_or_else(default)
        };
        let lens = Lens { membership: self.membership, verdicts: &verdicts, now: self.now };
        self.state.refresh(&lens)
    }

    pub(super) fn snapshot(&self) -> Snapshot {
        self.state.snapshot("test")
    }

    pub(super) fn pool(&self, model: &str) -> Arc<Pool> {
        let snapshot = self.snapshot();
        snapshot.pools.get(model).unwrap_or_else(|| panic!("no pool {model} in {:?}", snapshot.pools.keys())).clone()
    }

    /// The group whose key ends so, in any pool.
    pub(super) fn group(&self, key: &str) -> Arc<ReplicaGroup> {
        let snapshot = self.snapshot();
        let mut groups = snapshot.pools.values().chain(&snapshot.unnamed).flat_map(|pool| pool.groups.clone());
        groups.find(|group| group.key.0.ends_with(key)).unwrap_or_else(|| panic!("no group {key}"))
    }

    /// Phase and reasons of a group as printed.
    pub(super) fn shows(&self, key: &str) -> String {
        let group = self.group(key);
        let reasons: Vec<&str> = group.reasons.iter().map(|reason| reason.as_str()).collect();
        format!("{} {}", group.phase.as_str(), reasons.join(",")).trim_end().to_owned()
    }

    /// Addresses of what takes new requests for a model.
    pub(super) fn routable(&self, model: &str) -> Vec<String> {
        routable(&self.pool(model))
    }
}

pub(super) fn routable(pool: &Pool) -> Vec<String> {
    let serving = pool.groups.iter().filter(|group| group.serving());
    serving.filter_map(|group| group.leader.as_ref()).map(|leader| leader.address.to_string()).collect()
}

pub(super) fn has(group: &ReplicaGroup, phase: GroupPhase, reason: Reason) -> bool {
    group.phase == phase && group.reasons.contains(&reason)
}

/// The documents of a fixture; each file is parsed once in a process.
pub(super) fn values(file: &str) -> Vec<Value> {
    static PARSED: Mutex<BTreeMap<String, Vec<Value>>> = Mutex::new(BTreeMap::new());
    let mut parsed = PARSED.lock().unwrap_or_else(PoisonError::into_inner);
    let parse = || {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/operator").join(format!("{file}.yaml"));
        let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        serde_saphyr::from_multiple(&text).expect("fixture is YAML")
    };
    parsed.entry(file.to_owned()).or_insert_with(parse).clone()
}

/// A delete whose grace of 30 s ends at `end`.
pub(super) fn deleting(object: &mut Value, end: &str) {
    object["metadata"]["deletionTimestamp"] = json!(end);
    object["metadata"]["deletionGracePeriodSeconds"] = json!(30);
}

pub(super) fn ready(object: &mut Value, ready: &str) {
    for condition in object["status"]["conditions"].as_array_mut().expect("conditions") {
        if condition["type"] == "Ready" {
            condition["status"] = json!(ready);
        }
    }
}

fn kind_of(value: &Value) -> Option<Kind> {
    match value["kind"].as_str()? {
        "ModelDeployment" => Some(Kind::Deployment),
        "Pod" => Some(Kind::Pod),
        "Service" => Some(Kind::Service),
        _ => None,
    }
}

fn uid_of(value: &Value) -> String {
    value["metadata"]["uid"].as_str().unwrap_or_default().to_owned()
}

/// Addresses of what takes new requests for the fixture's model.
pub(super) fn demo_routable(cluster: &Cluster) -> Vec<String> {
    cluster.routable("demo-chat")
}

/// Puts `status.retirement` of r1 into a state.
pub(super) fn retirement(state: &str) -> impl FnOnce(&mut Value) + '_ {
    move |object| {
        object["status"]["retirement"] =
            json!({"roleName": "server", "replicaOrdinal": 1, "targetMemberUIDs": [R1M0, R1M1], "state": state});
    }
}

/// Turns the eligibility gate on; `eligible` carry the label.
pub(super) fn gate(cluster: &mut Cluster, eligible: &[&str]) {
    for uid in eligible {
        cluster.edit(uid, |pod| pod["metadata"]["labels"]["modeldeployment.gpustack.ai/endpoint-eligible"] = json!("true"));
    }
    cluster.edit(SERVICE, |service| service["spec"]["selector"]["modeldeployment.gpustack.ai/endpoint-eligible"] = json!("true"));
}

/// A rollout that runs since then.
pub(super) fn rollout(since: &str) -> impl FnOnce(&mut Value) + '_ {
    move |object| {
        object["status"]["conditions"] =
            json!([{"type": "ReplicasUpToDate", "status": "False", "reason": "RolloutInProgress", "lastTransitionTime": since}]);
    }
}

/// Lifts the Service's restriction to member 0, and sets the load balance that the status tells.
pub(super) fn every_rank(cluster: &mut Cluster, load_balance: &str) {
    cluster.edit(SERVICE, |service| {
        service["spec"]["selector"].as_object_mut().unwrap().shift_remove("modeldeployment.gpustack.ai/member-index");
    });
    cluster.edit(DEMO, |object| object["status"]["roles"][0]["parallelism"]["loadBalance"] = json!(load_balance));
}
