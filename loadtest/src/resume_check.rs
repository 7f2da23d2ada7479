//! `loadtest resume-check`: can a broken answer of these engines be carried on exactly, and how?
//!
//! The same experiment against simulated and real engines. One engine writes a whole greedy answer; for many cuts of it
//! the other engine is asked for the rest, in each of the ways that a gateway may use, and kept text plus rest is
//! compared with the whole. What it prints decides whether resuming is safe with a model, a template and an engine
//! version: the letter-space row should be all exact, and so should the ids row.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use bytes::Bytes;
use http::uri::Uri;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};

use crate::client::{Client, Target};
use crate::run::resolve;
use crate::sse::{Item, SseReader};
use crate::text::Rng;

/// Checks how exactly broken answers can be carried on.
#[derive(Debug, clap::Args)]
pub struct ResumeCheckArgs {
    /// The engine that writes the whole answer.
    #[arg(long)]
    first: Uri,
    /// The engine that carries it on; the same one if there is only one.
    #[arg(long)]
    second: Option<Uri>,
    /// The model.
    #[arg(long, default_value = "tiny")]
    model: String,
    /// Prompts, besides those given with `--prompt`.
    #[arg(long, default_value_t = 6)]
    prompts: usize,
    /// Further prompts.
    #[arg(long)]
    prompt: Vec<String>,
    /// Cuts of each answer.
    #[arg(long, default_value_t = 20)]
    cuts: usize,
    /// Longest answer in tokens.
    #[arg(long, default_value_t = 120)]
    max_tokens: usize,
    /// Seed of the cuts.
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

/// A way to ask for the rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    /// `continue_final_message` behind all the text that came.
    Continue,
    /// The same, cut back to the last place between a letter and ` letter`; the first request again if there is none.
    LetterSpace,
    /// `/v1/completions` with all token ids that came.
    Ids,
    /// The same, without ids behind the last text.
    IdsWithText,
    /// The first request again.
    Replay,
}

impl Way {
    const ALL: [Self; 5] = [Self::Continue, Self::LetterSpace, Self::Ids, Self::IdsWithText, Self::Replay];

    /// The row's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Continue => "continue behind all text",
            Self::LetterSpace => "continue at a letter-space cut",
            Self::Ids => "token ids, all",
            Self::IdsWithText => "token ids up to the last text",
            Self::Replay => "replay",
        }
    }
}

/// How many rests were right.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Same text.
    pub exact: usize,
    /// Right, but ends early: the limit was counted in events.
    pub short: usize,
    /// Another text.
    pub wrong: usize,
}

/// One answer: text and ids event by event.
#[derive(Debug, Clone, Default)]
struct Whole {
    prompt_ids: Vec<u32>,
    events: Vec<(String, Vec<u32>)>,
}

impl Whole {
    fn text(&self, events: usize) -> String {
        self.events.iter().take(events).map(|(text, _)| text.as_str()).collect()
    }

    /// Ids of the first `events` events; with `with_text` only up to the last one that had text.
    fn ids(&self, events: usize, with_text: bool) -> Vec<u32> {
        let kept = &self.events[..events.min(self.events.len())];
        let end = if with_text { kept.iter().rposition(|(text, _)| !text.is_empty()).map_or(0, |at| at + 1) } else { kept.len() };
        kept[..end].iter().flat_map(|(_, ids)| ids.iter().copied()).collect()
    }
}

/// Runs the command; true if letter-space cuts and replays were all exact.
///
/// # Errors
///
/// If an engine cannot be asked.
pub async fn command(args: ResumeCheckArgs) -> io::Result<bool> {
    let first = Client::new(Target::at(resolve(&args.first)?));
    let second = Client::new(Target::at(resolve(args.second.as_ref().unwrap_or(&args.first))?));
    let tallies = check(&args, &first, &second).await?;
    println!("{:<34}{:>8}{:>10}{:>8}", "way", "exact", "too short", "wrong");
    for (way, tally) in &tallies {
        println!("{:<34}{:>8}{:>10}{:>8}", way.name(), tally.exact, tally.short, tally.wrong);
    }
    let safe = |way| tallies.get(&way).is_none_or(|tally: &Tally| tally.wrong == 0 && tally.short == 0);
    Ok(safe(Way::LetterSpace) && safe(Way::Replay))
}

/// The experiment.
///
/// # Errors
///
/// If an engine cannot be asked.
pub async fn check(args: &ResumeCheckArgs, first: &Client, second: &Client) -> io::Result<BTreeMap<Way, Tally>> {
    let mut tallies = BTreeMap::new();
    let mut rng = Rng::new(args.seed);
    for prompt in prompts(args) {
        let request = json!({
            "model": args.model, "messages": [{"role": "user", "content": prompt}], "temperature": 0, "max_tokens": args.max_tokens,
            "stream": true, "return_token_ids": true
        });
        let whole = ask(first, "/v1/chat/completions", &request).await?;
        for _ in 0..args.cuts.min(whole.events.len()) {
            let cut = rng.below(whole.events.len());
            for way in Way::ALL {
                let tally: &mut Tally = tallies.entry(way).or_default();
                let due = whole.text(usize::MAX);
                match carry_on(second, &request, &whole, (cut, way)).await? {
                    Some(text) if text == due => tally.exact += 1,
                    Some(text) if due.starts_with(&text) => tally.short += 1,
                    Some(_) | None => tally.wrong += 1,
                }
            }
        }
    }
    Ok(tallies)
}

fn prompts(args: &ResumeCheckArgs) -> Vec<String> {
    let topics = ["the sea", "a function that sorts numbers", "greetings in six languages", "the weather, with emoji", "a recipe", "東京"];
    let made = (0..args.prompts).map(|nth| format!("Write about {}, number {nth}.", topics[nth % topics.len()]));
    args.prompt.iter().cloned().chain(made).collect()
}

/// Kept text and rest; `None` if the engine refused.
async fn carry_on(client: &Client, request: &Value, whole: &Whole, (cut, way): (usize, Way)) -> io::Result<Option<String>> {
    let sent = whole.text(cut);
    let left = |kept: usize| json!(request["max_tokens"].as_u64().unwrap_or(0).saturating_sub(kept as u64).max(1));
    let (path, body, kept) = match way {
        Way::Replay => ("/v1/chat/completions", request.clone(), String::new()),
        Way::Continue | Way::LetterSpace => {
            let kept = if way == Way::Continue { sent } else { sent[..letter_space(&sent).unwrap_or(0)].to_owned() };
            if kept.is_empty() {
                ("/v1/chat/completions", request.clone(), kept)
            } else {
                // A gateway that counts events as tokens, or here the true number for a cut between two of them.
                let tokens = if way == Way::Continue { cut } else { tokens_of(whole, kept.len()) };
                ("/v1/chat/completions", continued(request, &kept, left(tokens)), kept)
            }
        }
        Way::Ids | Way::IdsWithText => {
            let ids = whole.ids(cut, way == Way::IdsWithText);
            let limit = left(ids.len());
            let prompt: Vec<u32> = whole.prompt_ids.iter().chain(&ids).copied().collect();
            let body = json!({"model": request["model"], "prompt": prompt, "temperature": 0, "max_tokens": limit, "stream": true});
            ("/v1/completions", body, sent)
        }
    };
    match ask(client, path, &body).await {
        Ok(rest) => Ok(Some(format!("{kept}{}", rest.text(usize::MAX)))),
        Err(error) if error.kind() == io::ErrorKind::InvalidData => Ok(None),
        Err(error) => Err(error),
    }
}

fn continued(request: &Value, prefix: &str, limit: Value) -> Value {
    let mut body = request.clone();
    if let Some(messages) = body["messages"].as_array_mut() {
        messages.push(json!({"role": "assistant", "content": prefix}));
    }
    body["continue_final_message"] = true.into();
    body["add_generation_prompt"] = false.into();
    body["max_tokens"] = limit;
    body
}

/// Tokens of the first `bytes` bytes of the text.
fn tokens_of(whole: &Whole, bytes: usize) -> usize {
    let (mut seen, mut tokens) = (0, 0);
    for (text, ids) in &whole.events {
        if seen >= bytes {
            break;
        }
        seen += text.len();
        tokens += ids.len();
    }
    tokens
}

/// The last place between a letter and ` letter`.
fn letter_space(text: &str) -> Option<usize> {
    let mut places = text.match_indices(' ').filter(|(at, _)| {
        let before = text[..*at].chars().next_back().is_some_and(char::is_alphabetic);
        before && text[at + 1..].chars().next().is_some_and(char::is_alphabetic)
    });
    places.next_back().map(|(at, _)| at)
}

/// Streams one request; refusals are `InvalidData`.
async fn ask(client: &Client, path: &str, body: &Value) -> io::Result<Whole> {
    let asked = client.post(path, "resume-check", Bytes::from(body.to_string()));
    let (response, _lease) = tokio::time::timeout(Duration::from_secs(600), asked).await?.map_err(io::Error::other)?;
    let status = response.status();
    let bytes = response.into_body().collect().await.map_err(io::Error::other)?.to_bytes();
    if !status.is_success() {
        return Err(io::Error::new(io::ErrorKind::InvalidData, String::from_utf8_lossy(&bytes).into_owned()));
    }
    let mut items = Vec::new();
    SseReader::new().push(&bytes, &mut items).map_err(io::Error::other)?;
    let mut whole = Whole::default();
    for item in items {
        if let Item::Event { data, .. } = item {
            take(&mut whole, &serde_json::from_str(&data).unwrap_or_default());
        }
    }
    Ok(whole)
}

fn take(whole: &mut Whole, event: &Value) {
    let ids =
        |value: &Value| value.as_array().into_iter().flatten().filter_map(Value::as_u64).filter_map(|id| u32::try_from(id).ok()).collect();
    if event["prompt_token_ids"].is_array() {
        whole.prompt_ids = ids(&event["prompt_token_ids"]);
    }
    let choice = &event["choices"][0];
    if choice.is_null() || choice["delta"].get("role").is_some() {
        return;
    }
    let text = choice["delta"]["content"].as_str().or(choice["text"].as_str()).unwrap_or("");
    whole.events.push((text.to_owned(), ids(&choice["token_ids"])));
}
