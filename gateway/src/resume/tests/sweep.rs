//! Every way, every cut: what was sent and the rest must be the whole answer.

use bytes::Bytes;
use config::ResumeSettings;
use serde_json::{Value, json};
use std::time::Duration;

use super::engine::{Engine, Template};
use crate::resume::{Caps, Cause, End, Next, Plan, Refusal, Route, Watch, Watched, Way};
use crate::sse::Out;

fn settings(token_ids: bool) -> ResumeSettings {
    ResumeSettings {
        enabled: true,
        stall: Duration::from_secs(1),
        max_moves: 3,
        text_bytes: 65536,
        request_bytes: 1 << 20,
        total_bytes: 1 << 28,
        token_ids,
        comment: false,
    }
}

/// What the client has got at the end.
#[derive(Debug, Default, PartialEq, Eq)]
struct Got {
    content: String,
    reasoning: String,
    finish: Option<String>,
    usage: Option<Value>,
    ids: Vec<String>,
    roles: usize,
    done: usize,
}

fn read(bytes: &[u8]) -> Got {
    let mut got = Got::default();
    for event in std::str::from_utf8(bytes).unwrap().split("\n\n").filter(|event| !event.is_empty()) {
        let data = event.strip_prefix("data: ").unwrap();
        if data == "[DONE]" {
            got.done += 1;
            continue;
        }
        assert_eq!(got.done, 0, "nothing behind [DONE]");
        let event: Value = serde_json::from_str(data).unwrap();
        let name = format!("{} {} {} {}", event["id"], event["created"], event["model"], event["object"]);
        if !got.ids.contains(&name) {
            got.ids.push(name);
        }
        assert!(event["prompt_token_ids"].is_null());
        if event["usage"].is_object() {
            got.usage = Some(event["usage"].clone());
        }
        for choice in event["choices"].as_array().unwrap() {
            assert!(choice["token_ids"].is_null());
            let delta = if choice["delta"].is_object() { &choice["delta"] } else { choice };
            got.roles += usize::from(delta["role"].is_string());
            got.content.push_str(delta["content"].as_str().or(delta["text"].as_str()).unwrap_or_default());
            got.reasoning.push_str(delta["reasoning"].as_str().unwrap_or_default());
            if let Some(finish) = choice["finish_reason"].as_str() {
                assert_eq!(got.finish, None, "one finish");
                got.finish = Some(finish.into());
            }
        }
    }
    got
}

struct Run {
    got: Got,
    ways: Vec<Way>,
    end: Result<(), Refusal>,
}

/// Sends `body` to the first engine, cuts its stream after each number of events in `cuts` (the last stream runs on), and
/// carries on at the second engine.
fn run(path: &str, body: &Value, engines: [&Engine; 2], cuts: &[usize], token_ids: bool) -> Run {
    let settings = settings(token_ids);
    let body = Bytes::from(body.to_string());
    let mut watch = Watch::new(Route::of(path), &settings);
    let first = watch.stream().first_body(&body, &settings).unwrap_or_else(|| body.clone());
    let mut events = engines[0].answer(path, &first).unwrap();
    let (mut sent, mut ways, mut cuts) = (Vec::new(), Vec::new(), cuts.iter());
    let mut out = Out::default();
    loop {
        let cut = cuts.next().copied().unwrap_or(usize::MAX);
        let mut broken = None;
        for event in events.iter().take(cut) {
            if let Watched::Broken(cause) = watch.on_chunk(Bytes::from(event.clone()), &mut out) {
                broken = Some(cause);
                break;
            }
        }
        sent.extend_from_slice(&out.take());
        if broken.is_none() && cut >= events.len() {
            assert_eq!(watch.on_end(true, &mut out), End::Complete);
            return Run { got: read(&sent), ways, end: Ok(()) };
        }
        match carry_on(path, &body, engines[1], &mut watch, broken != Some(Cause::Differed)) {
            Ok((way, rest)) => {
                ways.push(way);
                events = rest;
            }
            Err(Plan::Finish(bytes)) => {
                sent.extend_from_slice(&bytes);
                return Run { got: read(&sent), ways, end: Ok(()) };
            }
            Err(Plan::Refuse(refusal)) => return Run { got: read(&sent), ways, end: Err(refusal) },
            Err(Plan::Fresh) => {
                watch.begin_fresh();
                events = engines[1].answer(path, &first).unwrap();
            }
            Err(Plan::Send(_) | Plan::Ask(_)) => unreachable!(),
        }
    }
}

fn carry_on(path: &str, body: &Bytes, engine: &Engine, watch: &mut Watch, moved: bool) -> Result<(Way, Vec<String>), Plan> {
    loop {
        match watch.stream().plan(body, Caps::default(), &settings(false)) {
            Plan::Ask(ask) => {
                let answer = engine.count(&ask.body);
                watch.stream().answered(ask, Some(answer.as_bytes()));
            }
            Plan::Send(resend) => match engine.answer(resend.path.unwrap_or(path), &resend.body) {
                Ok(events) => {
                    let way = resend.way;
                    watch.begin(resend, moved);
                    return Ok((way, events));
                }
                Err((status, error)) => {
                    assert_eq!(watch.stream().refused(&resend, status, error.as_bytes()), Next::PlanAgain);
                }
            },
            plan @ (Plan::Fresh | Plan::Finish(_) | Plan::Refuse(_)) => return Err(plan),
        }
    }
}

const TEXTS: [&str; 5] = [
    "The quick brown fox\njumps over the lazy dog.\n\n  if x == 3:\n      rice ready",
    "1. हिन्दी में एक 🚒 वाक्य, und dann auf Deutsch.\n2. שלום to all of you",
    "中文沒有空格的文字,一直寫下去。再寫一行",
    "{\"a\": 1, \"b\": [1, 2, 3]}\n",
    "short",
];

fn chat(fields: Value) -> Value {
    let mut body = json!({"model":"tiny","messages":[{"role":"user","content":"Go."}],"stream":true});
    body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    body
}

fn second(engine: &Engine) -> Engine {
    Engine { id: "second one".into(), ..engine.clone() }
}

/// Sweeps every cut of every text; the result must be what an unbroken stream gives.
#[track_caller]
fn sweep(path: &str, fields: &Value, template: Template, token_ids: bool, expect: &dyn Fn(&Run, usize)) {
    for text in TEXTS {
        let engine = Engine::new(text, template);
        let other = second(&engine);
        let body = if path == "/v1/completions" {
            let mut body = json!({"model":"tiny","prompt":"PROMPT","stream":true,"max_tokens":1000});
            body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
            body
        } else {
            chat(fields.clone())
        };
        let whole = run(path, &body, [&engine, &other], &[], token_ids);
        assert_eq!(whole.got.done, 1);
        let events = engine.answer(path, body.to_string().as_bytes()).unwrap().len();
        for cut in 1..events {
            let broken = run(path, &body, [&engine, &other], &[cut], token_ids);
            assert_eq!(broken.end, Ok(()), "{fields} {template:?} cut {cut} of {text:?}");
            assert_eq!(broken.got, whole.got, "{fields} {template:?} cut {cut} of {text:?}, {:?}", broken.ways);
            expect(&broken, cut);
        }
    }
}

const USAGE: &str = r#"{"stream_options":{"include_usage":true}}"#;

fn with_usage(fields: Value) -> Value {
    let mut usage: Value = serde_json::from_str(USAGE).unwrap();
    usage.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    usage
}

#[test]
fn greedy_text_is_continued_at_every_cut() {
    for template in [Template::Plain, Template::Trim] {
        for fields in [json!({"temperature":0}), with_usage(json!({"temperature":0})), with_usage(json!({"temperature":0,"max_tokens":12}))]
        {
            sweep("/v1/chat/completions", &fields, template, false, &|_, _| {});
        }
    }
}

#[test]
fn sampled_text_is_continued_at_every_cut() {
    for template in [Template::Plain, Template::Trim] {
        for fields in [json!({}), with_usage(json!({"temperature":0.7})), with_usage(json!({"max_completion_tokens":12}))] {
            sweep("/v1/chat/completions", &fields, template, false, &|_, _| {});
        }
    }
}

#[test]
fn what_must_be_the_same_is_replayed_at_every_cut() {
    for fields in [
        json!({"seed":1}),
        with_usage(json!({"response_format":{"type":"json_object"}})),
        with_usage(json!({"presence_penalty":1,"max_tokens":9})),
    ] {
        sweep("/v1/chat/completions", &fields, Template::Trim, false, &|run, _| {
            assert!(run.ways.iter().all(|way| *way == Way::Replay));
        });
    }
}

#[test]
fn token_ids_are_exact_at_every_cut() {
    for fields in [with_usage(json!({"temperature":0})), with_usage(json!({"max_tokens":12}))] {
        sweep("/v1/chat/completions", &fields, Template::Trim, true, &|run, cut| {
            assert!(cut < 5 || run.ways.iter().all(|way| *way != Way::Continue));
        });
    }
}

#[test]
fn completions_are_continued_at_every_cut() {
    for fields in [json!({"temperature":0}), with_usage(json!({})), with_usage(json!({"max_tokens":12}))] {
        for token_ids in [false, true] {
            sweep("/v1/completions", &fields, Template::Plain, token_ids, &|_, _| {});
        }
    }
}
