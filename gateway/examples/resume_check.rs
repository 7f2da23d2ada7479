//! Breaks streams of a running engine at many places and carries them on at another one: are they exact?
//!
//! `cargo run --release -p gateway --example resume_check -- HOST:PORT HOST:PORT MODEL [ids] [cuts=N]`
//!
//! Both engines must serve MODEL with the same flags (vLLM, or `loadtest engine`). Each case is asked for once; then, for
//! every event behind which the stream may break, what was passed on and the rest are put together as the gateway does it
//! and compared with the unbroken answer. Of a sampled answer only the part that was sent can be compared. `ids`: as with
//! `resume.token_ids`. `cuts`: of each case at most, spread evenly (40). Exits 1 if any text was wrong or any exact case was refused.

use std::collections::BTreeMap;
use std::error::Error;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::ExitCode;
use std::time::Duration;

use bytes::Bytes;
use config::ResumeSettings;
use gateway::resume::{Ask, Caps, End, Plan, Route, Watch, Watched};
use gateway::sse::Out;
use serde_json::{Value, json};

type Fallible<T> = Result<T, Box<dyn Error>>;

/// Cuts of one case at most, unless another number is asked for.
const CUTS: usize = 40;

const PROMPTS: [&str; 4] = [
    "Tell a short story about a lighthouse. #kind=prose",
    "用中文寫一段關於火車的文字。 #kind=cjk",
    "Write a Python function with nested loops. #kind=code",
    "Say something in six languages, with emoji. #kind=mixed",
];

/// Fields of a request, and whether the same request gives the same answer.
fn cases() -> Vec<(Value, bool)> {
    vec![
        (json!({"temperature": 0}), true),
        (json!({"temperature": 0, "stream_options": {"include_usage": true}}), true),
        (json!({"temperature": 0, "stop": ["the"]}), true),
        (json!({"temperature": 0, "logprobs": true, "top_logprobs": 1}), true),
        (json!({"temperature": 0, "presence_penalty": 0.5}), true),
        (json!({"temperature": 0, "response_format": {"type": "json_object"}}), true),
        (json!({"temperature": 0, "stream_interval": 4}), true),
        (json!({"temperature": 0.8, "seed": 5}), true),
        (json!({"temperature": 0.8, "seed": 5, "n": 2}), true),
        (json!({}), false),
        (json!({"stream_options": {"include_usage": true}}), false),
    ]
}

/// What the client has got.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct Answer {
    /// By choice: content, reasoning, tool calls, finish reasons.
    choices: BTreeMap<u64, [String; 4]>,
    usage: Option<String>,
    logprobs: usize,
    roles: usize,
    done: usize,
}

impl Answer {
    fn read(stream: &[u8]) -> Fallible<Self> {
        let mut answer = Self::default();
        for data in std::str::from_utf8(stream)?.split("\n\n").filter_map(|event| event.strip_prefix("data: ")) {
            if data == "[DONE]" {
                answer.done += 1;
            } else {
                answer.add(&serde_json::from_str(data)?);
            }
        }
        Ok(answer)
    }

    fn add(&mut self, event: &Value) {
        let usage = &event["usage"];
        if usage.is_object() {
            self.usage = Some(format!("{} {}", usage["prompt_tokens"], usage["completion_tokens"]));
        }
        for choice in event["choices"].as_array().into_iter().flatten() {
            let texts = self.choices.entry(choice["index"].as_u64().unwrap_or(0)).or_default();
            let delta = &choice["delta"];
            texts[0] += delta["content"].as_str().unwrap_or_default();
            texts[1] += delta["reasoning"].as_str().unwrap_or_default();
            for call in delta["tool_calls"].as_array().into_iter().flatten() {
                texts[2] += call["function"]["name"].as_str().unwrap_or_default();
                texts[2] += call["function"]["arguments"].as_str().unwrap_or_default();
            }
            texts[3] += choice["finish_reason"].as_str().unwrap_or_default();
            self.roles += usize::from(delta["role"].is_string());
            self.logprobs += choice["logprobs"]["content"].as_array().map_or(0, Vec::len);
        }
    }

    /// Whether `self` goes on where `sent` ended, to an end.
    fn goes_on(&self, sent: &Self) -> bool {
        let ended = self.choices.values().all(|texts| !texts[3].is_empty());
        let grown = |index: &u64, texts: &[String; 4]| {
            self.choices.get(index).is_some_and(|now| now[0].starts_with(&texts[0]) && now[1].starts_with(&texts[1]))
        };
        ended && self.done == 1 && sent.choices.iter().all(|(index, texts)| grown(index, texts))
    }
}

/// Posts JSON; gives the status and the whole body.
fn post(address: &str, path: &str, body: &[u8]) -> Fallible<(u16, Vec<u8>)> {
    let mut socket = TcpStream::connect(address)?;
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    socket.write_all(head.as_bytes())?;
    socket.write_all(body)?;
    let mut reader = BufReader::new(socket);
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let status = line.split(' ').nth(1).ok_or("no status")?.parse()?;
    let mut chunked = false;
    while line != "\r\n" {
        line.clear();
        reader.read_line(&mut line)?;
        chunked |= line.to_ascii_lowercase().starts_with("transfer-encoding: chunked");
    }
    let mut answer = Vec::new();
    if chunked {
        while let size @ 1.. = chunk_size(&mut reader)? {
            reader.by_ref().take(size).read_to_end(&mut answer)?;
            reader.read_line(&mut line)?;
        }
    } else {
        reader.read_to_end(&mut answer)?;
    }
    Ok((status, answer))
}

fn chunk_size(reader: &mut impl BufRead) -> Fallible<u64> {
    let mut line = String::new();
    reader.read_line(&mut line)?;
    Ok(u64::from_str_radix(line.trim(), 16)?)
}

const PATH: &str = "/v1/chat/completions";

struct Check {
    engines: [String; 2],
    settings: ResumeSettings,
    /// At least 1.
    cuts: usize,
}

/// How many cuts went how.
type Results = BTreeMap<String, usize>;

/// How a broken stream went on.
struct Carried {
    sent: Vec<u8>,
    ways: Vec<&'static str>,
    refused: Option<&'static str>,
}

impl Check {
    /// The request's stream from the first engine, as it comes to the gateway.
    fn stream(&self, body: &Bytes) -> Fallible<String> {
        let mut watch = Watch::new(Route::Chat, &self.settings);
        let first = watch.stream().first_body(body, &self.settings).unwrap_or_else(|| body.clone());
        let (status, answer) = post(&self.engines[0], PATH, &first)?;
        let text = String::from_utf8(answer)?;
        if status == 200 { Ok(text) } else { Err(format!("{status}: {text}").into()) }
    }

    /// Breaks the stream behind `kept` and carries it on at the second engine.
    fn carry_on(&self, body: &Bytes, kept: &str) -> Fallible<Carried> {
        let mut watch = Watch::new(Route::Chat, &self.settings);
        watch.stream().first_body(body, &self.settings);
        let mut out = Out::default();
        watch.on_chunk(Bytes::copy_from_slice(kept.as_bytes()), &mut out);
        let mut carried = Carried { sent: out.take().to_vec(), ways: Vec::new(), refused: None };
        loop {
            match watch.stream().plan(body, Caps::default(), &self.settings) {
                Plan::Ask(ask) => {
                    let (status, answer) = post(&self.engines[1], Ask::PATH, &ask.body)?;
                    watch.stream().answered(ask, (status == 200).then_some(&answer[..]));
                }
                Plan::Send(resend) => {
                    carried.ways.push(resend.way.word());
                    let (status, answer) = post(&self.engines[1], resend.path.unwrap_or(PATH), &resend.body)?;
                    if status != 200 {
                        watch.stream().refused(&resend, status, &answer);
                        continue;
                    }
                    watch.begin(resend, true);
                    let watched = watch.on_chunk(answer.into(), &mut out);
                    carried.sent.extend_from_slice(&out.take());
                    if watched == Watched::More && watch.on_end(true, &mut out) == End::Complete {
                        return Ok(carried);
                    }
                }
                Plan::Finish(events) => {
                    carried.sent.extend_from_slice(&events);
                    return Ok(carried);
                }
                Plan::Refuse(refusal) => {
                    carried.refused = Some(refusal.word());
                    return Ok(carried);
                }
                Plan::Fresh => return Err("nothing was sent".into()),
            }
        }
    }

    /// One case; gives whether all of it is right, and adds to the sum of all.
    fn case(&self, body: &Bytes, exact: bool, sum: &mut Results) -> Fallible<bool> {
        let stream = self.stream(body)?;
        let (_, unbroken) = post(&self.engines[0], PATH, body)?;
        let whole = Answer::read(&unbroken)?;
        let ends: Vec<usize> = stream.match_indices("\n\n").map(|(at, _)| at + 2).filter(|at| *at < stream.len()).collect();
        let mut results = Results::new();
        let mut right = true;
        for cut in ends.iter().step_by(ends.len().div_ceil(self.cuts).max(1)) {
            let kept = &stream[..*cut];
            let carried = self.carry_on(body, kept)?;
            let got = Answer::read(&carried.sent)?;
            let same = if exact { got == whole } else { got.goes_on(&Answer::read(kept.as_bytes())?) };
            let verdict = match carried.refused {
                Some(reason) => format!("refused {reason}"),
                None if same => "exact".to_owned(),
                None => {
                    println!("    WRONG behind byte {cut}: {got:?}\n    instead of {whole:?}");
                    "WRONG".to_owned()
                }
            };
            right &= verdict == "exact" || (carried.refused.is_some() && !exact);
            let ways = if carried.ways.is_empty() { "the gateway".to_owned() } else { carried.ways.join(", ") };
            *results.entry(format!("{verdict} by {ways}")).or_default() += 1;
        }
        print(&results);
        for (result, count) in results {
            *sum.entry(result).or_default() += count;
        }
        Ok(right)
    }
}

fn settings(token_ids: bool) -> ResumeSettings {
    ResumeSettings {
        enabled: true,
        stall: Duration::from_secs(1),
        max_moves: 3,
        text_bytes: 64 * 1024,
        request_bytes: 1024 * 1024,
        total_bytes: 256 * 1024 * 1024,
        token_ids,
        comment: false,
    }
}

fn print(results: &Results) {
    results.iter().for_each(|(result, count)| println!("    {count:4} {result}"));
}

/// The check and the model; `None` for arguments that are none.
fn read(arguments: &[String]) -> Option<(Check, &str)> {
    let [first, second, model, flags @ ..] = arguments else { return None };
    let (mut ids, mut cuts) = (false, CUTS);
    for flag in flags {
        match flag.strip_prefix("cuts=") {
            Some(number) => cuts = number.parse().ok().filter(|n| *n > 0)?,
            None if flag == "ids" => ids = true,
            None => return None,
        }
    }
    Some((Check { engines: [first.clone(), second.clone()], settings: settings(ids), cuts }, model))
}

fn run(arguments: &[String]) -> Fallible<bool> {
    let (check, model) = read(arguments).ok_or("usage: resume_check HOST:PORT HOST:PORT MODEL [ids] [cuts=N]")?;
    let mut right = true;
    let mut sum = Results::new();
    for prompt in PROMPTS {
        for (fields, exact) in cases() {
            let mut body = json!({"model": model, "stream": true, "max_tokens": 80, "messages": [{"role": "user", "content": prompt}]});
            if let (Some(body), Some(fields)) = (body.as_object_mut(), fields.as_object()) {
                body.extend(fields.clone());
            }
            println!("{prompt} {fields}");
            right &= check.case(&body.to_string().into(), exact, &mut sum)?;
        }
    }
    println!("all cases");
    print(&sum);
    Ok(right)
}

fn main() -> ExitCode {
    match run(&std::env::args().skip(1).collect::<Vec<_>>()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}
