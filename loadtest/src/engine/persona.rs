//! What a simulated model is like: its names, what it writes, its template and parsers.
//!
//! Two engines with equal personas give the same text for the same request; clients compute what to expect from the
//! persona alone. Nothing here is about time, load or faults.

use serde::{Deserialize, Serialize};

use crate::text::{Kind, hash};

/// A served name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ModelName {
    /// The name in the `model` field.
    pub id: String,
    /// The base model, for a LoRA adapter.
    pub parent: Option<String>,
}

/// What the chat template does to messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Template {
    /// Leaves contents as they are.
    #[default]
    Plain,
    /// `content | trim`: also strips the end of a prompt that is to be continued.
    Trim,
    /// Drops everything up to `</think>` from an assistant's content.
    StripThink,
}

/// What a sampled request without a seed gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unseeded {
    /// The greedy text, so that clients can check it.
    #[default]
    Same,
    /// Another text at every request, as real engines.
    Random,
}

/// Everything that decides on the text of an answer, apart from the request.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct Persona {
    /// The served names; the first is the model itself and must exist.
    pub models: Vec<ModelName>,
    /// What sentences look like when the prompt does not say.
    pub kind: Kind,
    /// The chat template.
    pub template: Template,
    /// Longest prompt and answer together, in tokens.
    pub max_model_len: usize,
    /// The model writes a thought in `<think>` marks before the answer.
    pub thinking: bool,
    /// `--reasoning-parser`: thoughts become `reasoning` deltas.
    pub reasoning_parser: bool,
    /// `--tool-call-parser` with `--enable-auto-tool-choice`: tool calls become `tool_calls` deltas.
    pub tool_parser: bool,
    /// Sampling without a seed.
    pub unseeded: Unseeded,
    /// Weights: engines with other weights write other texts.
    pub weights: u64,
}

impl Default for Persona {
    fn default() -> Self {
        Self {
            models: vec![ModelName { id: "tiny".to_owned(), parent: None }],
            kind: Kind::default(),
            template: Template::default(),
            max_model_len: 131_072,
            thinking: false,
            reasoning_parser: false,
            tool_parser: false,
            unseeded: Unseeded::default(),
            weights: 0,
        }
    }
}

impl Persona {
    /// The default persona under another name.
    pub fn named(model: &str) -> Self {
        Self { models: vec![ModelName { id: model.to_owned(), parent: None }], ..Self::default() }
    }

    /// The name that a request without a model means.
    pub fn base(&self) -> &str {
        self.models.first().map_or("", |model| model.id.as_str())
    }

    /// True for a served name.
    pub fn serves(&self, name: &str) -> bool {
        self.models.iter().any(|model| model.id == name)
    }

    /// `system_fingerprint`: hashes the configuration, so that engines with other flags show another one.
    pub fn fingerprint(&self) -> String {
        let flags = serde_json::to_vec(self).unwrap_or_default();
        format!("vllm-{VERSION}-{:08x}", hash(&flags) >> 32)
    }
}

/// The engine version that is simulated.
pub const VERSION: &str = "0.32.0";
