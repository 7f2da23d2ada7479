//! What the simulated operator reads of a ModelDeployment. Pure.

use std::collections::BTreeMap;

use kube::api::DynamicObject;
use serde::Deserialize;
use serde_json::Value;

/// Engine versions whose roles the operator qualifies member by member.
const VERIFIED: &[(&str, &[&str])] = &[("vLLM", &["0.25.1", "0.29.0"]), ("SGLang", &["0.5.18", "0.5.21"])];

/// Kubernetes' own grace, which a take-over role gets when it sets none, and the operator's default for managed roles.
const DEFAULT_GRACE_SECONDS: u32 = 30;

/// One ModelDeployment at one moment.
#[derive(Debug, Clone)]
pub(super) struct Deployment {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) generation: i64,
    pub(super) deleting: bool,
    pub(super) annotations: BTreeMap<String, String>,
    pub(super) finalizers: Vec<String>,
    pub(super) spec: Spec,
    pub(super) status: Value,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct Spec {
    pub(super) model: Model,
    pub(super) engine: Engine,
    pub(super) roles: Vec<Role>,
    #[serde(default)]
    pub(super) router: Option<Value>,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct Model {
    pub(super) name: String,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct Engine {
    pub(super) name: String,
    #[serde(default)]
    pub(super) version: String,
    #[serde(default)]
    pub(super) image: Option<String>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Role {
    pub(super) name: String,
    #[serde(default = "server")]
    pub(super) kind: String,
    #[serde(default = "one")]
    pub(super) replicas: u32,
    #[serde(default = "one")]
    pub(super) size: u32,
    #[serde(default)]
    pub(super) ports: Vec<Port>,
    #[serde(default)]
    pub(super) command: Vec<String>,
    #[serde(default)]
    pub(super) extra_args: Vec<String>,
    #[serde(default)]
    pub(super) env: Vec<Value>,
    #[serde(default)]
    pub(super) termination_grace_period_seconds: Option<u32>,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct Port {
    pub(super) port: u16,
    #[serde(default = "tcp")]
    pub(super) protocol: String,
}

fn server() -> String {
    "Server".to_owned()
}

fn one() -> u32 {
    1
}

fn tcp() -> String {
    "TCP".to_owned()
}

impl Deployment {
    /// Reads an object; the reason if its spec cannot be read.
    pub(super) fn read(object: &DynamicObject) -> Result<Self, String> {
        let metadata = &object.metadata;
        Ok(Self {
            namespace: metadata.namespace.clone().unwrap_or_default(),
            name: metadata.name.clone().unwrap_or_default(),
            uid: metadata.uid.clone().unwrap_or_default(),
            generation: metadata.generation.unwrap_or_default(),
            deleting: metadata.deletion_timestamp.is_some(),
            annotations: metadata.annotations.clone().unwrap_or_default(),
            finalizers: metadata.finalizers.clone().unwrap_or_default(),
            spec: serde_json::from_value(object.data["spec"].clone()).map_err(|error| error.to_string())?,
            status: object.data["status"].clone(),
        })
    }

    /// The role of this name, if the spec still has it.
    pub(super) fn role(&self, name: &str) -> Option<&Role> {
        self.spec.roles.iter().find(|role| role.name == name)
    }

    /// The static half of the eligibility gate.
    pub(super) fn can_be_gated(&self, role: &Role) -> bool {
        let engine = &self.spec.engine;
        let verified = VERIFIED.iter().any(|(name, versions)| *name == engine.name && versions.contains(&engine.version.as_str()));
        verified && role.managed() && !matches!(role.kind.as_str(), "Prefill" | "Decode")
    }
}

impl Role {
    /// Whether the operator builds the command line (and with it probes and the drain hook).
    pub(super) fn managed(&self) -> bool {
        self.command.is_empty()
    }

    /// Whether every member answers requests (External DP), not only the leader.
    pub(super) fn every_rank_serves(&self) -> bool {
        self.size > 1 && self.extra_args.iter().any(|argument| argument.starts_with("--data-parallel-rank"))
    }

    /// Name and number of the declared serving port.
    pub(super) fn port(&self) -> (String, u16) {
        match self.ports.first() {
            None => ("http".to_owned(), 8000),
            Some(port) => (format!("{}-{}", port.protocol.to_lowercase(), port.port), port.port),
        }
    }

    /// The port that the engine really listens on: its own `--port`, seen only as a word of its own, else the declared one.
    pub(super) fn target_port(&self) -> u16 {
        let own = flag(&self.extra_args, "--port").or_else(|| flag(&self.command, "--port"));
        own.and_then(|port| port.parse().ok()).unwrap_or(self.port().1)
    }

    /// `terminationGracePeriodSeconds` of its Pods.
    pub(super) fn grace_seconds(&self) -> u32 {
        self.termination_grace_period_seconds.unwrap_or(DEFAULT_GRACE_SECONDS)
    }
}

/// What the engine itself makes of its command line: shell strings are split, as a shell would.
pub(super) fn words(command: &[String]) -> Vec<String> {
    command.iter().flat_map(|word| word.split_whitespace()).map(|word| word.trim_matches(['"', '\'']).to_owned()).collect()
}

/// The value of `--name VALUE` or `--name=VALUE`.
pub(super) fn flag<'a>(words: &'a [String], name: &str) -> Option<&'a str> {
    words.iter().enumerate().find_map(|(at, word)| match word.strip_prefix(name)? {
        "" => words.get(at + 1).map(String::as_str),
        rest => rest.strip_prefix('='),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn role(fields: Value) -> Role {
        let mut role = json!({"name": "server"});
        role.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        serde_json::from_value(role).unwrap()
    }

    #[test]
    fn ports_are_read_as_the_operator_and_the_engine_read_them() {
        let check = |fields: Value, name: &str, declared: u16, target: u16| {
            let role = role(fields);
            assert_eq!((role.port(), role.target_port()), ((name.to_owned(), declared), target));
        };
        check(json!({}), "http", 8000, 8000);
        check(json!({"ports": [{"port": 9000}]}), "tcp-9000", 9000, 9000);
        check(json!({"extraArgs": ["--port", "9100"]}), "http", 8000, 9100);
        check(json!({"command": ["vllm", "--port=9200"]}), "http", 8000, 9200);
        check(json!({"command": ["sh", "-c", "exec vllm --port 9300"]}), "http", 8000, 8000);
    }

    #[test]
    fn served_name_hides_in_a_shell_string() {
        let words = words(&["sh".to_owned(), "-c".to_owned(), "exec x --served-model-name \"demo-chat\" --port 9000".to_owned()]);
        assert_eq!((flag(&words, "--served-model-name"), flag(&words, "--port")), (Some("demo-chat"), Some("9000")));
    }
}
