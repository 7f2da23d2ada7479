//! A request body turned into typed fields, with the engine's own complaints.
//!
//! Reads only fields that change what is generated or how it is written; any other field is ignored, as engines do.
//! Decides nothing: `job` checks the values against the persona.

use serde_json::{Map, Value};

use super::errors::ApiError;

/// Which of the two generating endpoints was called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Endpoint {
    /// `/v1/chat/completions`
    Chat,
    /// `/v1/completions`
    Completion,
}

/// One message of a chat, its content already joined from parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// `role`
    pub role: String,
    /// `content`; null and absent are empty.
    pub content: String,
}

/// What is to be carried on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Prompt {
    /// A chat.
    Messages(Vec<Message>),
    /// Text as it is.
    Text(String),
    /// Token ids.
    Ids(Vec<u32>),
}

/// Which tools may be called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tools {
    /// Name of the tool that a call names.
    pub name: String,
    /// `tool_choice`: `auto`, `required`, or a named one (then required).
    pub required: bool,
}

/// The fields of a request.
#[derive(Debug, Clone)]
pub struct Ask {
    /// The endpoint.
    pub endpoint: Endpoint,
    /// `model`
    pub model: Option<String>,
    /// The prompt.
    pub prompt: Prompt,
    /// `stream`
    pub stream: bool,
    /// `stream_options.include_usage`
    pub include_usage: bool,
    /// `stream_options.continuous_usage_stats`
    pub continuous_usage: bool,
    /// `stream_interval`: tokens for each event, at least 1.
    pub interval: usize,
    /// `n`
    pub n: usize,
    /// `temperature`; absent means 1.0.
    pub temperature: f64,
    /// `top_p` as bits, for the key of a sampled text.
    pub top_p: u64,
    /// `seed`
    pub seed: Option<i64>,
    /// `presence_penalty`, `frequency_penalty`, `repetition_penalty` as given.
    pub penalties: [f64; 3],
    /// `max_completion_tokens`, else `max_tokens`.
    pub max_tokens: Option<i64>,
    /// `min_tokens`
    pub min_tokens: usize,
    /// `stop`
    pub stop: Vec<String>,
    /// `ignore_eos`
    pub ignore_eos: bool,
    /// `return_token_ids`
    pub return_token_ids: bool,
    /// `return_prompt_text`
    pub return_prompt_text: bool,
    /// `logprobs`
    pub logprobs: bool,
    /// `echo`
    pub echo: bool,
    /// `continue_final_message`
    pub continue_final: bool,
    /// `add_generation_prompt`, if given.
    pub generation_prompt: Option<bool>,
    /// `response_format` with a grammar.
    pub grammar: bool,
    /// `tools`, unless `tool_choice` is `none`.
    pub tools: Option<Tools>,
    /// `request_id`
    pub request_id: Option<String>,
}

impl Ask {
    /// Reads a body.
    ///
    /// # Errors
    ///
    /// The engine's 400 for no JSON, no object, missing fields and wrong types.
    pub fn read(endpoint: Endpoint, body: &[u8]) -> Result<Self, ApiError> {
        let value: Value = serde_json::from_slice(body).map_err(|_| ApiError::no_json(body.len()))?;
        Self::from_value(endpoint, &value)
    }

    /// The same for a body that is parsed already.
    ///
    /// # Errors
    ///
    /// As [`Ask::read`].
    pub fn from_value(endpoint: Endpoint, value: &Value) -> Result<Self, ApiError> {
        let Value::Object(fields) = value else {
            let text = "Input should be a valid dictionary or object to extract fields from";
            return Err(ApiError::invalid("model_attributes_type", "body", text, &kind_of(value)));
        };
        let prompt = read_prompt(endpoint, fields)?;
        let options = fields.get("stream_options").and_then(Value::as_object);
        let option = |name: &str| options.and_then(|o| o.get(name)).and_then(Value::as_bool).unwrap_or(false);
        let stream = boolean(fields, "stream")?.unwrap_or(false);
        if options.is_some() && !stream {
            let text = "Stream options can only be defined when `stream=True`. (parameter=stream_options)";
            return Err(ApiError::bad(text, Some("stream_options")));
        }
        let max_tokens = match integer(fields, "max_completion_tokens")? {
            Some(tokens) => Some(tokens),
            None => integer(fields, "max_tokens")?,
        };
        Ok(Self {
            endpoint,
            model: string(fields, "model"),
            prompt,
            stream,
            include_usage: option("include_usage"),
            continuous_usage: option("continuous_usage_stats"),
            interval: count(fields, "stream_interval")?.unwrap_or(1).max(1),
            n: count(fields, "n")?.unwrap_or(1).max(1),
            temperature: number(fields, "temperature")?.unwrap_or(1.0),
            top_p: number(fields, "top_p")?.unwrap_or(1.0).to_bits(),
            seed: integer(fields, "seed")?,
            penalties: [
                number(fields, "presence_penalty")?.unwrap_or(0.0),
                number(fields, "frequency_penalty")?.unwrap_or(0.0),
                number(fields, "repetition_penalty")?.unwrap_or(1.0),
            ],
            max_tokens,
            min_tokens: count(fields, "min_tokens")?.unwrap_or(0),
            stop: stops(fields),
            ignore_eos: boolean(fields, "ignore_eos")?.unwrap_or(false),
            return_token_ids: boolean(fields, "return_token_ids")?.unwrap_or(false),
            return_prompt_text: boolean(fields, "return_prompt_text")?.unwrap_or(false),
            logprobs: endpoint == Endpoint::Chat && boolean(fields, "logprobs")?.unwrap_or(false),
            echo: boolean(fields, "echo")?.unwrap_or(false),
            continue_final: boolean(fields, "continue_final_message")?.unwrap_or(false),
            generation_prompt: boolean(fields, "add_generation_prompt")?,
            grammar: grammar(fields),
            tools: tools(fields),
            request_id: string(fields, "request_id"),
        })
    }

    /// True if the text is drawn and not the most probable one.
    pub fn sampled(&self) -> bool {
        self.temperature > 0.0
    }
}

fn read_prompt(endpoint: Endpoint, fields: &Map<String, Value>) -> Result<Prompt, ApiError> {
    let name = if endpoint == Endpoint::Chat { "messages" } else { "prompt" };
    let given = fields.get(name).filter(|value| !value.is_null());
    let Some(given) = given else {
        let input = format!("'<dict of {} items>'", fields.len());
        return Err(ApiError::invalid("missing", &format!("body.{name}"), "Field required", &input));
    };
    match (endpoint, given) {
        (Endpoint::Chat, Value::Array(list)) => Ok(Prompt::Messages(list.iter().map(message).collect())),
        (Endpoint::Completion, Value::String(text)) => Ok(Prompt::Text(text.clone())),
        (Endpoint::Completion, Value::Array(list)) => match list.as_slice() {
            [Value::String(text)] => Ok(Prompt::Text(text.clone())),
            [Value::Array(ids)] => ids_of(ids),
            ids => ids_of(ids),
        },
        (_, other) => Err(ApiError::invalid("list_type", &format!("body.{name}"), "Input should be a valid list", &kind_of(other))),
    }
}

fn ids_of(list: &[Value]) -> Result<Prompt, ApiError> {
    let ids = list.iter().map(|id| id.as_u64().and_then(|id| u32::try_from(id).ok())).collect::<Option<Vec<_>>>();
    let wrong = || ApiError::invalid("int_type", "body.prompt", "Input should be a valid integer", "'<list>'");
    ids.filter(|ids| !ids.is_empty()).map(Prompt::Ids).ok_or_else(wrong)
}

fn message(value: &Value) -> Message {
    let role = value.get("role").and_then(Value::as_str).unwrap_or("user").to_owned();
    let content = match value.get("content") {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(parts)) => parts.iter().map(|part| part.get("text").and_then(Value::as_str).unwrap_or("<|image|>")).collect(),
        _ => String::new(),
    };
    Message { role, content }
}

fn grammar(fields: &Map<String, Value>) -> bool {
    let kind = fields.get("response_format").and_then(|format| format.get("type")).and_then(Value::as_str);
    matches!(kind, Some("json_object" | "json_schema" | "structural_tag"))
}

fn tools(fields: &Map<String, Value>) -> Option<Tools> {
    let offered = fields.get("tools")?.as_array()?;
    let name_in = |value: &Value| value.get("function")?.get("name")?.as_str().map(str::to_owned);
    let first = offered.first().and_then(name_in)?;
    match fields.get("tool_choice") {
        Some(Value::String(choice)) if choice == "none" => None,
        Some(Value::String(choice)) => Some(Tools { name: first, required: choice == "required" }),
        Some(named @ Value::Object(_)) => Some(Tools { name: name_in(named).unwrap_or(first), required: true }),
        _ => Some(Tools { name: first, required: false }),
    }
}

fn stops(fields: &Map<String, Value>) -> Vec<String> {
    match fields.get("stop") {
        Some(Value::String(one)) if !one.is_empty() => vec![one.clone()],
        Some(Value::Array(list)) => list.iter().filter_map(Value::as_str).filter(|s| !s.is_empty()).map(str::to_owned).collect(),
        _ => Vec::new(),
    }
}

fn string(fields: &Map<String, Value>, name: &str) -> Option<String> {
    fields.get(name).and_then(Value::as_str).map(str::to_owned)
}

fn boolean(fields: &Map<String, Value>, name: &str) -> Result<Option<bool>, ApiError> {
    typed(fields, name, Value::as_bool, ("bool_parsing", "Input should be a valid boolean, unable to interpret input"))
}

fn number(fields: &Map<String, Value>, name: &str) -> Result<Option<f64>, ApiError> {
    typed(fields, name, Value::as_f64, ("float_parsing", "Input should be a valid number, unable to parse string as a number"))
}

fn integer(fields: &Map<String, Value>, name: &str) -> Result<Option<i64>, ApiError> {
    typed(fields, name, Value::as_i64, ("int_parsing", "Input should be a valid integer, unable to parse string as an integer"))
}

fn count(fields: &Map<String, Value>, name: &str) -> Result<Option<usize>, ApiError> {
    Ok(integer(fields, name)?.map(|value| usize::try_from(value).unwrap_or(0)))
}

fn typed<T>(
    fields: &Map<String, Value>,
    name: &str,
    read: impl Fn(&Value) -> Option<T>,
    complaint: (&str, &str),
) -> Result<Option<T>, ApiError> {
    match fields.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => match read(value) {
            Some(read) => Ok(Some(read)),
            None => Err(ApiError::invalid(complaint.0, &format!("body.{name}"), complaint.1, &kind_of(value))),
        },
    }
}

fn kind_of(value: &Value) -> String {
    match value {
        Value::Array(list) => format!("'<list of {} items>'", list.len()),
        Value::Object(fields) => format!("'<dict of {} items>'", fields.len()),
        Value::String(text) => format!("'{text}'"),
        Value::Null | Value::Bool(_) | Value::Number(_) => value.to_string(),
    }
}
