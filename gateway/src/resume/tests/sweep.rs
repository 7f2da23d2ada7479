//! Every way, every cut: what was sent and the rest must be the whole answer.

use std::cell::RefCell;

use bytes::Bytes;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};

use super::engine::{Engine, Template};
use super::support::{Got, read, settings};
use crate::resume::{Caps, Cause, End, Next, Plan, Refusal, Route, Watch, Watched, Way};
use crate::sse::Out;

pub(super) struct Run {
    pub(super) got: Got,
    pub(super) ways: Vec<Way>,
    pub(super) end: Result<(), Refusal>,
}

/// A client, two engines and what happens between them.
pub(super) struct Case<'a> {
    pub(super) path: &'a str,
    pub(super) body: Bytes,
    pub(super) engines: [&'a Engine; 2],
    pub(super) token_ids: bool,
    pub(super) caps: Caps,
    /// The first engine's answer, once asked for.
    answer: RefCell<Option<String>>,
}

impl<'a> Case<'a> {
    pub(super) fn new(path: &'a str, body: &Value, engines: [&'a Engine; 2]) -> Self {
        Self { path, body: body.to_string().into(), engines, token_ids: false, caps: Caps::default(), answer: RefCell::default() }
    }

    /// The first engine answers; `cut` takes the stream's number and its bytes and says where it breaks off, if it does.
    /// The second engine carries on.
    pub(super) fn run(&self, mut cut: impl FnMut(usize, &[u8]) -> Option<usize>) -> Run {
        let settings = settings(self.token_ids);
        let mut watch = Watch::new(Route::of(self.path), &settings);
        let first = watch.stream().first_body(&self.body, &settings).unwrap_or_else(|| self.body.clone());
        let answer = || self.engines[0].answer(self.path, &first).unwrap().concat();
        let mut bytes = self.answer.borrow_mut().get_or_insert_with(answer).clone();
        let (mut sent, mut ways, mut out) = (Vec::new(), Vec::new(), Out::default());
        for stream in 0.. {
            let at = cut(stream, bytes.as_bytes());
            let mut broken = feed(&mut watch, &bytes.as_bytes()[..at.unwrap_or(bytes.len())], &mut out);
            if broken.is_none() {
                broken = match watch.on_end(at.is_none(), &mut out) {
                    End::Broken(cause) => Some(cause),
                    End::Complete | End::EngineError => None,
                };
            }
            sent.extend_from_slice(&out.take());
            let Some(cause) = broken else { return Run { got: read(&sent), ways, end: Ok(()) } };
            match self.carry_on(&mut watch, cause != Cause::Differed) {
                Ok((way, rest)) => {
                    ways.push(way);
                    bytes = rest;
                }
                Err(Plan::Finish(events)) => {
                    sent.extend_from_slice(&events);
                    return Run { got: read(&sent), ways, end: Ok(()) };
                }
                Err(Plan::Refuse(refusal)) => return Run { got: read(&sent), ways, end: Err(refusal) },
                Err(Plan::Fresh) => {
                    watch.begin_fresh();
                    bytes = self.engines[1].answer(self.path, &first).unwrap().concat();
                }
                Err(Plan::Send(_) | Plan::Ask(_)) => unreachable!(),
            }
        }
        unreachable!()
    }

    fn carry_on(&self, watch: &mut Watch, moved: bool) -> Result<(Way, String), Plan> {
        loop {
            match watch.stream().plan(&self.body, self.caps, &settings(self.token_ids)) {
                Plan::Ask(ask) => {
                    let answer = self.engines[1].count(&ask.body);
                    watch.stream().answered(ask, Some(answer.as_bytes()));
                }
                Plan::Send(resend) => match self.engines[1].answer(resend.path.unwrap_or(self.path), &resend.body) {
                    Ok(events) => {
                        let way = resend.way;
                        watch.begin(resend, moved);
                        return Ok((way, events.concat()));
                    }
                    Err((status, error)) => {
                        assert_eq!(watch.stream().refused(&resend, status, error.as_bytes()), Next::PlanAgain);
                    }
                },
                plan @ (Plan::Fresh | Plan::Finish(_) | Plan::Refuse(_)) => return Err(plan),
            }
        }
    }

    /// The unbroken stream.
    pub(super) fn whole(&self) -> Got {
        let run = self.run(|_, _| None);
        assert_eq!((run.end, run.got.done), (Ok(()), 1));
        run.got
    }
}

fn feed(watch: &mut Watch, bytes: &[u8], out: &mut Out) -> Option<Cause> {
    for chunk in bytes.chunks(997) {
        if let Watched::Broken(cause) = watch.on_chunk(Bytes::copy_from_slice(chunk), out) {
            return Some(cause);
        }
    }
    None
}

/// The place behind the first `events` events.
fn behind(events: usize, bytes: &[u8]) -> Option<usize> {
    let text = std::str::from_utf8(bytes).unwrap();
    text.match_indices("\n\n").nth(events - 1).map(|(at, _)| at + 2).filter(|at| *at < bytes.len())
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
        sweep_text(path, fields, &Engine::new(text, template), token_ids, expect);
    }
}

fn request(path: &str, fields: &Value) -> Value {
    if path == "/v1/chat/completions" {
        return chat(fields.clone());
    }
    let mut body = json!({"model":"tiny","prompt":"PROMPT","stream":true,"max_tokens":1000});
    body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    body
}

#[track_caller]
fn sweep_text(path: &str, fields: &Value, engine: &Engine, token_ids: bool, expect: &dyn Fn(&Run, usize)) {
    let other = second(engine);
    let mut case = Case::new(path, &request(path, fields), [engine, &other]);
    case.token_ids = token_ids;
    let whole = case.whole();
    let text = String::from_utf8_lossy(&engine.tokens.concat()).into_owned();
    for cut in 1.. {
        let mut last = false;
        let broken = case.run(|stream, bytes| {
            let at = behind(cut, bytes).filter(|_| stream == 0);
            last |= stream == 0 && at.is_none();
            at
        });
        if last {
            break;
        }
        let what = format!("{fields} {:?} cut {cut} of {text:?}, {:?}", engine.template, broken.ways);
        assert_eq!(broken.end, Ok(()), "{what}");
        assert_eq!(broken.got, whole, "{what}");
        expect(&broken, cut);
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

const THOUGHT: &str = "<think>\nThe user wants 18 plus 45.  Let me add them.\n\nThat is 63. 🤔\n</think>\n\nThe sum of both is **63**. 🚒";

#[test]
fn reasoning_is_carried_on_at_every_cut() {
    for template in [Template::Plain, Template::Trim, Template::Strip] {
        let engine = Engine { reasoning: true, ..Engine::new(THOUGHT, template) };
        for fields in [json!({"temperature":0}), json!({}), with_usage(json!({"max_tokens":60}))] {
            sweep_text("/v1/chat/completions", &fields, &engine, false, &|_, _| {});
        }
    }
}

#[test]
fn stop_strings_are_found_at_every_cut() {
    let engine = Engine::new("Sure! Here it is: a b c\n  return x\nand more of it", Template::Trim);
    for fields in [json!({"stop":["return"]}), with_usage(json!({"temperature":0,"stop":["return"]}))] {
        sweep_text("/v1/chat/completions", &fields, &engine, false, &|_, _| {});
    }
}

#[test]
fn a_leader_that_cannot_count_is_no_reason_to_guess() {
    let engine = Engine::new(TEXTS[0], Template::Plain);
    let other = second(&engine);
    let body = chat(with_usage(json!({"max_tokens":12})));
    let mut case = Case::new("/v1/chat/completions", &body, [&engine, &other]);
    case.caps.tokenize = false;
    let whole = case.whole();
    for cut in 1..12 {
        let run = case.run(|stream, bytes| behind(cut, bytes).filter(|_| stream == 0));
        assert_eq!((run.end, run.ways), (Ok(()), vec![Way::Replay]));
        assert_eq!(run.got, whole);
    }
}

#[test]
fn other_numbers_are_noticed_and_nothing_is_repeated() {
    for fields in [json!({"temperature":0}), json!({"temperature":0,"presence_penalty":1})] {
        let engine = Engine::new(TEXTS[0], Template::Plain);
        for drift in 0..engine.tokens.len() {
            let other = Engine { drift: Some(drift), ..second(&engine) };
            let body = chat(fields.clone());
            let case = Case::new("/v1/chat/completions", &body, [&engine, &other]);
            for cut in [3, 8, 15, 22] {
                let kept = read(engine.answer(case.path, &case.body).unwrap()[..cut].concat().as_bytes()).content;
                let run = case.run(|stream, bytes| behind(cut, bytes).filter(|_| stream == 0));
                assert!(run.got.content.starts_with(&kept), "{:?}", run.got);
                match run.end {
                    Ok(()) => assert_eq!(run.got.content.len() - kept.len(), rest_len(&engine, &other, kept.len()), "{drift} {cut}"),
                    Err(refusal) => {
                        assert_eq!((refusal, &run.got.content), (Refusal::ReplayDiffered, &kept), "{fields} {drift} {cut}");
                    }
                }
            }
        }
    }
}

/// Bytes that `other` writes behind the first `at` bytes of the text.
fn rest_len(engine: &Engine, other: &Engine, at: usize) -> usize {
    let mut end = 0;
    let drift = other.drift.unwrap();
    let rest = engine.tokens.iter().enumerate().map(|(place, token)| {
        end += token.len();
        if end <= at {
            0
        } else if place >= drift {
            1
        } else {
            token.len()
        }
    });
    rest.sum()
}

#[test]
fn aborts_keep_their_text() {
    let engine = Engine::new(TEXTS[1], Template::Trim);
    let other = second(&engine);
    let body = chat(json!({"temperature":0}));
    let case = Case::new("/v1/chat/completions", &body, [&engine, &other]);
    let whole = case.whole();
    let events = engine.answer(case.path, &case.body).unwrap();
    for cut in 1..events.len() - 2 {
        let mut stopped = events[..=cut].to_vec();
        stopped[cut] = stopped[cut].replace("\"finish_reason\":null", "\"finish_reason\":\"abort\"");
        stopped.push("data: [DONE]\n\n".into());
        let mut watch = Watch::new(Route::Chat, &settings(false));
        let mut out = Out::default();
        assert_eq!(feed(&mut watch, stopped.concat().as_bytes(), &mut out), Some(Cause::Abort));
        let mut sent = out.take().to_vec();
        let (_, rest) = case.carry_on(&mut watch, true).unwrap();
        assert_eq!(feed(&mut watch, rest.as_bytes(), &mut out), None);
        sent.extend_from_slice(&out.take());
        assert_eq!(read(&sent), whole, "cut {cut}");
    }
}

#[test]
fn streams_that_break_again_and_again_stay_whole() {
    for seed in 0..150 {
        let mut random = StdRng::seed_from_u64(seed);
        let template = [Template::Plain, Template::Trim][random.random_range(0..2)];
        let reasoning = random.random_bool(0.3);
        let text = if reasoning { THOUGHT } else { TEXTS[random.random_range(0..TEXTS.len())] };
        let engine = Engine { reasoning, ..Engine::new(text, template) };
        let other = second(&engine);
        let fields = [
            json!({"temperature":0}),
            json!({}),
            json!({"seed":7,"max_tokens":30}),
            json!({"max_tokens":20}),
            json!({"response_format":{"type":"json_object"}}),
            json!({"temperature":0,"max_completion_tokens":25}),
        ][random.random_range(0..6)]
        .clone();
        let path = if random.random_bool(0.2) && !reasoning { "/v1/completions" } else { "/v1/chat/completions" };
        let mut case = Case::new(path, &request(path, &with_usage(fields.clone())), [&engine, &other]);
        case.token_ids = random.random_bool(0.3);
        let whole = case.whole();
        let breaks = random.random_range(1..=3);
        let run = case.run(|stream, bytes| (stream < breaks).then(|| random.random_range(0..=bytes.len())));
        let what = format!("seed {seed}: {path} {fields} {template:?} ids {} {:?}", case.token_ids, run.ways);
        assert_eq!(run.end, Ok(()), "{what}");
        // A stream whose first events were lost with its leader begins anew at another, under its names.
        let got = Got { ids: whole.ids.clone(), ..run.got };
        assert_eq!(got, whole, "{what}");
    }
}

#[test]
fn a_request_is_moved_no_more_than_allowed() {
    let engine = Engine::new(TEXTS[0], Template::Plain);
    let other = second(&engine);
    let body = chat(json!({"temperature":0}));
    let case = Case::new("/v1/chat/completions", &body, [&engine, &other]);
    let run = case.run(|_, bytes| behind(3, bytes));
    assert_eq!((run.end, run.ways.len()), (Err(Refusal::Moves), 3));
}

#[test]
fn no_bytes_of_an_engine_make_it_panic() {
    let stream = super::support::transcript("chat-stream-logprobs").concat() + &super::support::transcript("tool-stream").concat();
    for seed in 0..200 {
        let mut random = StdRng::seed_from_u64(seed);
        let mut bytes = stream.clone().into_bytes();
        for _ in 0..random.random_range(1..30) {
            let at = random.random_range(0..bytes.len());
            bytes[at] = *b"\"\\{}[],:0naxt\n \xff".get(random.random_range(0..16)).unwrap();
        }
        let body = Bytes::from(chat(json!({"temperature":0})).to_string());
        let mut watch = Watch::new(Route::Chat, &settings(false));
        let mut out = Out::default();
        let cut = random.random_range(0..bytes.len());
        feed(&mut watch, &bytes[..cut], &mut out);
        if let Plan::Send(resend) = watch.stream().plan(&body, Caps { tokenize: false, max_model_len: None }, &settings(false)) {
            watch.begin(resend, true);
            feed(&mut watch, &bytes, &mut out);
        }
    }
}

#[test]
fn an_open_stream_is_small() {
    assert!(size_of::<Watch>() <= 800, "{}", size_of::<Watch>());
}
