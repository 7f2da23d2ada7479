//! What a request asks of the model, read from its body for its spans.
//!
//! Owns: which fields are read, and their bounds. Must not: read a prompt, nor run for a request whose spans are not sent: it is the only
//! second look at a body. A field of another type than the engines take is left out, and so is everything of a body that is no JSON
//! object, has a key twice or is larger than [`MOST`]. Next step: `record` writes it down.

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny};

/// Largest body that is read, bytes: a longer one holds a long prompt, and its parameters are not worth the pass.
const MOST: usize = 1024 * 1024;
/// Stop sequences that are kept.
const STOPS: usize = 16;
/// Bytes of one that are kept.
const STOP_BYTES: usize = 64;

/// What a request asked of the model; only what is known. Names of attributes: GenAI conventions, `gen_ai.request.*`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct GenAiRequest {
    /// `max_completion_tokens`, `max_tokens` or `max_output_tokens`.
    pub max_tokens: Option<u64>,
    /// `n`.
    pub choices: Option<u64>,
    /// `temperature`.
    pub temperature: Option<f64>,
    /// `top_p`.
    pub top_p: Option<f64>,
    /// `top_k`.
    pub top_k: Option<i64>,
    /// `seed`.
    pub seed: Option<i64>,
    /// `frequency_penalty`.
    pub frequency_penalty: Option<f64>,
    /// `presence_penalty`.
    pub presence_penalty: Option<f64>,
    /// `stop` or `stop_sequences`, cut to 16 of 64 bytes.
    pub stop: Vec<String>,
    /// `encoding_format`.
    pub encoding: Option<&'static str>,
    /// `response_format.type`: `text` or `json`.
    pub output: Option<&'static str>,
}

impl GenAiRequest {
    /// Reads a body. Empty where there is nothing to read.
    pub fn read(body: &[u8]) -> Self {
        if body.len() > MOST {
            return Self::default();
        }
        serde_json::from_slice::<Wire>(body).map(Self::from).unwrap_or_default()
    }

    /// The longest body that [`GenAiRequest::read`] looks at, bytes.
    pub const fn longest_body() -> usize {
        MOST
    }
}

/// The fields alone; the prompt is skipped, not copied.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Wire {
    #[serde(deserialize_with = "lenient")]
    max_completion_tokens: Option<u64>,
    #[serde(deserialize_with = "lenient")]
    max_tokens: Option<u64>,
    #[serde(deserialize_with = "lenient")]
    max_output_tokens: Option<u64>,
    #[serde(deserialize_with = "lenient")]
    n: Option<u64>,
    #[serde(deserialize_with = "lenient")]
    temperature: Option<f64>,
    #[serde(deserialize_with = "lenient")]
    top_p: Option<f64>,
    #[serde(deserialize_with = "lenient")]
    top_k: Option<i64>,
    #[serde(deserialize_with = "lenient")]
    seed: Option<i64>,
    #[serde(deserialize_with = "lenient")]
    frequency_penalty: Option<f64>,
    #[serde(deserialize_with = "lenient")]
    presence_penalty: Option<f64>,
    #[serde(deserialize_with = "lenient")]
    stop: Option<Stop>,
    #[serde(deserialize_with = "lenient")]
    stop_sequences: Option<Stop>,
    #[serde(deserialize_with = "lenient")]
    encoding_format: Option<Encoding>,
    #[serde(deserialize_with = "lenient")]
    response_format: Option<Format>,
}

/// A value, or whatever else stands in its place.
#[derive(Deserialize)]
#[serde(untagged)]
enum Maybe<T> {
    Is(T),
    Other(IgnoredAny),
}

fn lenient<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Option<T>, D::Error> {
    Ok(match Maybe::deserialize(from)? {
        Maybe::Is(value) => Some(value),
        Maybe::Other(IgnoredAny) => None,
    })
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Stop {
    One(String),
    Several(Vec<String>),
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Encoding {
    Float,
    Base64,
}

#[derive(Deserialize)]
struct Format {
    #[serde(rename = "type")]
    kind: FormatKind,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum FormatKind {
    Text,
    JsonObject,
    JsonSchema,
}

impl From<Wire> for GenAiRequest {
    fn from(wire: Wire) -> Self {
        Self {
            max_tokens: wire.max_completion_tokens.or(wire.max_tokens).or(wire.max_output_tokens),
            choices: wire.n,
            temperature: wire.temperature,
            top_p: wire.top_p,
            top_k: wire.top_k,
            seed: wire.seed,
            frequency_penalty: wire.frequency_penalty,
            presence_penalty: wire.presence_penalty,
            stop: wire.stop.or(wire.stop_sequences).map_or_else(Vec::new, stops),
            encoding: wire.encoding_format.map(|encoding| match encoding {
                Encoding::Float => "float",
                Encoding::Base64 => "base64",
            }),
            output: wire.response_format.map(|format| match format.kind {
                FormatKind::Text => "text",
                FormatKind::JsonObject | FormatKind::JsonSchema => "json",
            }),
        }
    }
}

fn stops(stop: Stop) -> Vec<String> {
    let mut all = match stop {
        Stop::One(one) => vec![one],
        Stop::Several(several) => several,
    };
    all.truncate(STOPS);
    for text in &mut all {
        text.truncate(text.floor_char_boundary(STOP_BYTES));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(body: &str) -> GenAiRequest {
        GenAiRequest::read(body.as_bytes())
    }

    #[test]
    fn all_parameters_are_read() {
        let body = r#"{"model":"m","messages":[{"role":"user","content":"\"seed\":1"}],"max_tokens":5,"max_completion_tokens":6,"n":2,
            "temperature":1,"top_p":0.5,"top_k":-1,"seed":-7,"frequency_penalty":0.25,"presence_penalty":-0.25,"stop":["a","b"],
            "encoding_format":"base64","response_format":{"type":"json_schema","json_schema":{}}}"#;
        let expect = GenAiRequest {
            max_tokens: Some(6),
            choices: Some(2),
            temperature: Some(1.0),
            top_p: Some(0.5),
            top_k: Some(-1),
            seed: Some(-7),
            frequency_penalty: Some(0.25),
            presence_penalty: Some(-0.25),
            stop: vec!["a".to_owned(), "b".to_owned()],
            encoding: Some("base64"),
            output: Some("json"),
        };
        assert_eq!(read(body), expect);
        assert_eq!(read(r#"{"messages":[],"stop":"end","max_output_tokens":3}"#).stop, ["end"]);
    }

    #[test]
    fn a_field_of_another_type_is_left_out_alone() {
        let got = read(r#"{"temperature":"hot","top_p":null,"seed":1.5,"max_tokens":-1,"stop":[1],"n":{"a":[2]},"top_k":7}"#);
        assert_eq!(got, GenAiRequest { top_k: Some(7), ..GenAiRequest::default() });
        assert_eq!(read(r#"{"response_format":{"type":"grammar"},"encoding_format":"x"}"#), GenAiRequest::default());
    }

    #[test]
    fn what_is_no_object_or_too_long_says_nothing() {
        for body in ["", "[]", "{\"seed\":1", "{\"seed\":1,\"seed\":2}", "7"] {
            assert_eq!(read(body), GenAiRequest::default(), "{body}");
        }
        let long = |fill: usize| format!(r#"{{"seed":1,"x":"{}"}}"#, "y".repeat(fill));
        assert_eq!(read(&long(MOST - 18)).seed, Some(1));
        assert_eq!(read(&long(MOST)), GenAiRequest::default());
    }

    #[test]
    fn stop_sequences_are_cut() {
        let long = "é".repeat(100);
        let body = serde_json::json!({ "stop": vec![long; 20] }).to_string();
        let got = read(&body).stop;
        assert_eq!(got.len(), STOPS);
        assert!(got.iter().all(|s| s == &"é".repeat(STOP_BYTES / 2)));
    }
}
