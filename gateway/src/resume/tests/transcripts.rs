//! Recorded answers of a real engine: what the facts say of each, checked.

use serde_json::{Value, json};

use super::client::Client;
use super::support::{read, transcript, transcript_body, transcript_request};
use crate::resume::{Cause, End, Next, Plan, Refusal, Resend, Route, Watched, Way, is_broken_answer};
use crate::sse::Out;

fn last_message(resend: &Resend) -> String {
    let body: Value = serde_json::from_slice(&resend.body).unwrap();
    assert_eq!((&body["continue_final_message"], &body["add_generation_prompt"]), (&json!(true), &json!(false)));
    let last = body["messages"].as_array().unwrap().last().unwrap();
    assert_eq!(last["role"], "assistant");
    last["content"].as_str().unwrap().to_owned()
}

fn without(body: &str, keys: &[&str]) -> String {
    let mut body: Value = serde_json::from_str(body).unwrap();
    keys.iter().for_each(|key| drop(body.as_object_mut().unwrap().remove(*key)));
    body.to_string()
}

const WHOLE: [(&str, Route); 13] = [
    ("chat-stream", Route::Chat),
    ("chat-stream-usage", Route::Chat),
    ("chat-stream-n2", Route::Chat),
    ("chat-stream-stop", Route::Chat),
    ("chat-stream-stop-string", Route::Chat),
    ("chat-stream-logprobs", Route::Chat),
    ("chat-stream-token-ids", Route::Chat),
    ("chat-stream-interval", Route::Chat),
    ("chat-stream-continuous-usage", Route::Chat),
    ("keep-alive-comments", Route::Chat),
    ("reasoning-stream", Route::Chat),
    ("tool-stream", Route::Chat),
    ("completion-stream", Route::Completions),
];

#[test]
fn whole_streams_pass_byte_for_byte() {
    for (name, route) in WHOLE {
        let events = transcript(name);
        let mut client = Client::new(route, "{}");
        assert_eq!(client.feed(&events), Watched::More, "{name}");
        assert_eq!(client.end(true), End::Complete, "{name}");
        assert_eq!(String::from_utf8(client.sent).unwrap(), events.concat(), "{name}");
    }
}

#[test]
fn nothing_but_the_end_decides_however_the_bytes_are_cut() {
    for (name, route) in WHOLE {
        let stream = transcript(name).concat();
        for size in [1, 7, 100, 1000, 100_000] {
            let mut client = Client::new(route, "{}");
            let chunks: Vec<Vec<u8>> = stream.as_bytes().chunks(size).map(<[u8]>::to_vec).collect();
            let mut out = Out::default();
            for chunk in chunks {
                assert_eq!(client.watch.on_chunk(chunk.into(), &mut out), Watched::More, "{name}");
                client.sent.extend_from_slice(&out.take());
            }
            assert_eq!(client.end(true), End::Complete, "{name}");
            assert_eq!(client.sent, stream.as_bytes(), "{name}");
        }
    }
}

// ---- section 4: the ways to die

#[test]
fn the_text_of_an_abort_is_passed_on_but_not_its_end() {
    for name in ["death-sigterm-abort-stream", "death-sigterm-abort-2-stream"] {
        let mut client = Client::new(Route::Chat, r#"{"messages":[]}"#);
        assert_eq!(client.feed(&transcript(name)), Watched::Broken(Cause::Abort));
        let got = read(&client.sent);
        assert_eq!((got.finish, got.done), (None, 0), "{name}");
        let last: Value = serde_json::from_str(transcript(name).iter().rev().nth(1).unwrap().trim_start_matches("data: ")).unwrap();
        assert!(got.content.ends_with(last["choices"][0]["delta"]["content"].as_str().unwrap()));
    }
}

#[test]
fn an_error_event_is_a_break_and_is_not_passed_on() {
    let mut client = Client::new(Route::Chat, r#"{"messages":[]}"#);
    assert_eq!(client.feed(&transcript("death-core-kill-stream")), Watched::Broken(Cause::EngineError));
    assert!(!String::from_utf8(client.sent).unwrap().contains("error"));
}

#[test]
fn an_error_event_as_the_first_event_means_another_leader() {
    let events = transcript("death-core-kill-stream");
    let error = events.iter().find(|event| event.contains("\"error\"")).unwrap();
    let mut client = Client::new(Route::Chat, r#"{"messages":[]}"#);
    assert_eq!(client.feed([&": keep-alive\n\n".to_owned(), error]), Watched::Broken(Cause::EngineError));
    assert!(matches!(client.plan(), Plan::Fresh));
    client.watch.begin_fresh();
    assert_eq!(client.feed(&transcript("chat-stream")), Watched::More);
    assert_eq!(client.end(true), End::Complete);
}

#[test]
fn cuts_and_silence_leave_whole_events() {
    for name in ["death-sigkill-stream", "death-sigterm-silent-stream", "death-drain-short-stream"] {
        let mut client = Client::new(Route::Chat, r#"{"messages":[{"role":"user","content":"x"}]}"#);
        assert_eq!(client.feed(&transcript(name)), Watched::More, "{name}");
        assert_eq!(client.end(false), End::Broken(Cause::Cut));
        assert_eq!(client.end(true), End::Broken(Cause::NoFinish));
        assert!(matches!(client.plan(), Plan::Send(_)), "{name}");
    }
}

#[test]
fn a_half_answer_under_200_is_broken() {
    assert!(is_broken_answer(transcript_body("death-sigterm-abort-full").as_bytes()));
    assert!(is_broken_answer(transcript_body("death-core-kill-full").as_bytes()));
    assert!(!is_broken_answer(transcript_body("tokenize-continue").as_bytes()));
}

#[test]
fn done_without_a_finish_reason_proves_nothing() {
    let mut client = Client::new(Route::Chat, r#"{"messages":[]}"#);
    let events = transcript("chat-stream");
    client.feed(&events[..5]);
    assert_eq!(client.feed([&"data: [DONE]\n\n".to_owned()]), Watched::Broken(Cause::NoFinish));
    assert!(!client.sent.ends_with(b"[DONE]\n\n"));
}

#[test]
fn one_finished_choice_of_two_is_not_the_end() {
    let events = transcript("chat-stream-n2");
    let finished = events.iter().position(|event| event.contains("\"length\"")).unwrap();
    let mut client = Client::new(Route::Chat, r#"{"messages":[],"n":2}"#);
    client.feed(&events[..=finished]);
    assert_eq!(client.end(true), End::Broken(Cause::NoFinish));
}

#[test]
fn the_requests_own_fault_is_passed_on() {
    let error = "data: {\"error\":{\"message\":\"too long\",\"type\":\"BadRequestError\",\"param\":null,\"code\":400}}\n\n";
    let mut client = Client::new(Route::Chat, r#"{"messages":[]}"#);
    assert_eq!(client.feed([&error.to_owned(), &"data: [DONE]\n\n".to_owned()]), Watched::More);
    assert_eq!(client.end(true), End::EngineError);
    assert_eq!(client.sent, [error.as_bytes(), b"data: [DONE]\n\n"].concat());
}

// ---- section 5: the ways to go on

#[test]
fn reasoning_goes_on_as_text() {
    let whole = read(transcript("reasoning-stream").concat().as_bytes());
    for (name, resumed) in [("inside", "reasoning-resume-inside"), ("after", "reasoning-resume-after")] {
        let request: Value = serde_json::from_str(&transcript_request(resumed)).unwrap();
        let prefix = request["messages"][1]["content"].as_str().unwrap();
        let events = transcript("reasoning-stream");
        let body = without(&transcript_request("reasoning-stream"), &["temperature", "max_tokens", "stream_options"]);
        let cut = (1..events.len()).find(|cut| {
            let got = read(events[..*cut].concat().as_bytes());
            let mark = if got.content.is_empty() { "" } else { "</think>" };
            format!("<think>{}{mark}{}", got.reasoning, got.content) == prefix
        });
        let mut client = Client::new(Route::Chat, body);
        client.feed(&events[..cut.unwrap()]);
        let resend = client.send();
        assert_eq!(last_message(&resend), prefix, "{name}");
        client.watch.begin(resend, true);
        assert_eq!(client.feed(&transcript(resumed)), Watched::More, "{name}");
        assert_eq!(client.end(true), End::Complete);
        let got = read(&client.sent);
        assert_eq!((&got.reasoning, &got.content, &got.finish), (&whole.reasoning, &whole.content, &whole.finish), "{name}");
        assert_eq!((got.roles, got.done, got.ids.len()), (1, 1, 1));
    }
}

#[test]
fn an_answer_filed_under_reasoning_differs() {
    let mut client = Client::new(Route::Chat, without(&transcript_request("chat-stream"), &["temperature", "max_tokens"]));
    client.feed(&transcript("chat-stream")[..3]);
    let resend = client.send();
    assert_eq!(resend.way, Way::Continue);
    client.watch.begin(resend, true);
    assert_eq!(client.feed(&transcript("reasoning-resume-after-plain")), Watched::Broken(Cause::Differed));
}

#[test]
fn a_template_that_strips_the_reasoning_is_noticed() {
    let events = transcript("reasoning-stream");
    let begun = events.iter().position(|event| event.contains("\"content\":\"The\"")).unwrap();
    let body = without(&transcript_request("reasoning-stream"), &["temperature", "max_tokens", "stream_options"]);
    let mut client = Client::new(Route::Chat, body);
    client.feed(&events[..=begun]);
    let resend = client.send();
    let error = transcript_body("resume-think-stripped-after");
    assert_eq!(client.watch.stream().refused(&resend, 400, error.as_bytes()), Next::PlanAgain);
    let replay = client.send();
    assert_eq!(replay.way, Way::Replay);
    client.watch.begin(replay, true);
    assert_eq!(client.feed(&transcript("chat-stream")), Watched::Broken(Cause::Differed));
    assert_eq!(client.refusal(), Refusal::ReasoningStripped);
}

#[test]
fn half_a_tool_call_is_replayed_and_keeps_its_first_id() {
    let (events, again) = (transcript("tool-stream"), transcript("tool-required-stream"));
    let first_id = "chatcmpl-tool-9f5cd6ae87e9bac7";
    for cut in 1..events.len() - 1 {
        let mut client = Client::new(Route::Chat, transcript_request("tool-stream"));
        client.feed(&events[..cut]);
        let resend = client.send();
        assert_eq!(resend.way, Way::Replay, "cut {cut}");
        assert_eq!(&resend.body[..], transcript_request("tool-stream").as_bytes());
        client.watch.begin(resend, true);
        let watched = client.feed(&again);
        let sent = String::from_utf8(client.sent.clone()).unwrap();
        if watched == Watched::More {
            assert_eq!(calls(&sent).1, calls(&events.concat()).1, "cut {cut}");
            assert_eq!(client.end(true), End::Complete);
            assert_eq!(calls(&sent).0, if cut > 1 { vec![first_id] } else { vec!["chatcmpl-tool-92a24822465a23c9"] });
        } else {
            assert_eq!(watched, Watched::Broken(Cause::Differed));
            assert_eq!(client.refusal(), Refusal::ReplayDiffered);
        }
    }
}

/// Ids and joined arguments of the first call.
fn calls(stream: &str) -> (Vec<String>, String) {
    let (mut ids, mut arguments) = (Vec::new(), String::new());
    for data in stream.split("\n\n").filter_map(|event| event.strip_prefix("data: {")) {
        let event: Value = serde_json::from_str(&format!("{{{data}")).unwrap();
        for call in event["choices"][0]["delta"]["tool_calls"].as_array().into_iter().flatten() {
            ids.extend(call["id"].as_str().map(str::to_owned));
            arguments.push_str(call["function"]["name"].as_str().unwrap_or_default());
            arguments.push_str(call["function"]["arguments"].as_str().unwrap_or_default());
        }
    }
    (ids, arguments)
}

#[test]
fn a_tool_call_that_comes_back_as_text_differs() {
    let events = transcript("tool-stream");
    let mut client = Client::new(Route::Chat, transcript_request("tool-stream"));
    client.feed(&events[..6]);
    let resend = client.send();
    client.watch.begin(resend, true);
    assert_eq!(client.feed(&transcript("tool-resume-inside")), Watched::Broken(Cause::Differed));
}

#[test]
fn several_choices_are_replayed_each_by_itself() {
    let events = transcript("chat-stream-n2");
    let again: Vec<String> = events.iter().map(|event| event.replace("92c4e6c88da268d5", "second")).collect();
    for cut in 1..events.len() - 1 {
        let mut client = Client::new(Route::Chat, transcript_request("chat-stream-n2"));
        client.feed(&events[..cut]);
        if client.end(true) == End::Complete {
            continue;
        }
        let resend = client.send();
        assert_eq!(resend.way, Way::Replay);
        client.watch.begin(resend, true);
        assert_eq!(client.feed(&again), Watched::More, "cut {cut}");
        assert_eq!(client.end(true), End::Complete);
        let sent = String::from_utf8(client.sent).unwrap();
        assert!(!sent.contains("second"));
        for index in 0..2 {
            assert_eq!(choice(&sent, index), choice(&events.concat(), index), "cut {cut}");
        }
    }
}

/// Text, roles and finishes of one choice.
fn choice(stream: &str, index: u64) -> (String, usize, Vec<String>) {
    let (mut text, mut roles, mut finishes) = (String::new(), 0, Vec::new());
    for data in stream.split("\n\n").filter_map(|event| event.strip_prefix("data: {")) {
        let event: Value = serde_json::from_str(&format!("{{{data}")).unwrap();
        for choice in event["choices"].as_array().unwrap().iter().filter(|choice| choice["index"] == index) {
            roles += usize::from(choice["delta"]["role"].is_string());
            text.push_str(choice["delta"]["content"].as_str().unwrap());
            finishes.extend(choice["finish_reason"].as_str().map(str::to_owned));
        }
    }
    (text, roles, finishes)
}

#[test]
fn every_logprob_entry_comes_once() {
    let events = transcript("chat-stream-logprobs");
    let entries = |stream: &str| stream.matches("\"top_logprobs\":").count();
    let whole = events.concat();
    for cut in 1..events.len() - 1 {
        let mut client = Client::new(Route::Chat, r#"{"messages":[],"logprobs":true,"top_logprobs":2,"seed":1}"#);
        client.feed(&events[..cut]);
        if client.end(true) == End::Complete {
            continue;
        }
        let resend = client.send();
        client.watch.begin(resend, true);
        assert_eq!(client.feed(&events), Watched::More, "cut {cut}");
        let sent = String::from_utf8(client.sent).unwrap();
        assert_eq!(entries(&sent), entries(&whole), "cut {cut}");
        assert_eq!(read(sent.as_bytes()).content, read(whole.as_bytes()).content);
    }
}

#[test]
fn token_ids_end_at_the_last_event_with_text_and_stay_hidden() {
    let events = transcript("chat-stream-token-ids");
    let all: Vec<Value> = events.iter().filter_map(|event| serde_json::from_str(event.strip_prefix("data: ")?).ok()).collect();
    let prompt = all[0]["prompt_token_ids"].as_array().unwrap().clone();
    let body = without(&transcript_request("chat-stream-token-ids"), &["return_token_ids"]);
    let (mut generated, mut held) = (Vec::new(), Vec::new());
    for cut in 1..events.len() - 2 {
        let choice = &all[cut - 1]["choices"][0];
        held.extend(choice["token_ids"].as_array().cloned().unwrap_or_default());
        if !choice["delta"]["content"].as_str().unwrap().is_empty() {
            generated.append(&mut held);
        }
        let mut client = Client::with_token_ids(body.clone());
        client.feed(&events[..cut]);
        read(&client.sent);
        if generated.is_empty() {
            continue;
        }
        let resend = client.send();
        let sent: Value = serde_json::from_slice(&resend.body).unwrap();
        assert_eq!((resend.way, resend.path), (Way::TokenIds, Some("/v1/completions")));
        assert_eq!(sent["prompt"].as_array().unwrap(), &[prompt.clone(), generated.clone()].concat(), "cut {cut}");
        assert_eq!(sent["max_tokens"], 40 - generated.len());
        assert!(sent["messages"].is_null());
    }
}

#[test]
fn ids_of_events_with_several_tokens_may_end_inside_a_character() {
    let event = |delta: Value, ids: Value| {
        let choice = json!({"index":0,"delta":delta,"logprobs":null,"finish_reason":null,"token_ids":ids});
        format!(
            "data: {}\n\n",
            json!({"id":"x","object":"chat.completion.chunk","created":1,"model":"m","choices":[choice],"prompt_token_ids":null})
        )
    };
    let role =
        event(json!({"role":"assistant","content":""}), Value::Null).replace("\"prompt_token_ids\":null", "\"prompt_token_ids\":[1,2]");
    let events = [role, event(json!({"content":"a"}), json!([10])), event(json!({"content":"b"}), json!([11, 12]))];
    let mut client = Client::with_token_ids(r#"{"messages":[],"stream":true,"temperature":0,"max_tokens":9}"#);
    client.feed(&events);
    let resend = client.send();
    let body: Value = serde_json::from_slice(&resend.body).unwrap();
    assert_eq!((&body["prompt"], &body["max_tokens"]), (&json!([1, 2, 10]), &json!(8)));
    client.watch.begin(resend, true);
    let rest = |text: &str| {
        let choice = json!({"index":0,"text":text,"logprobs":null,"finish_reason":null,"token_ids":[13]});
        format!("data: {}\n\n", json!({"id":"y","object":"text_completion","choices":[choice]}))
    };
    assert_eq!(client.feed(&[rest("b"), rest("ह")]), Watched::More);
    assert_eq!(read(&client.sent).content, "abह");
}

#[test]
fn completion_events_become_chat_events() {
    let mut client = Client::with_token_ids(r#"{"model":"tiny","messages":[{"role":"user","content":"x"}],"stream":true,"max_tokens":40}"#);
    client.feed(&transcript("chat-stream-token-ids")[..4]);
    let before = read(&client.sent).content;
    let resend = client.send();
    client.watch.begin(resend, true);
    assert_eq!(client.feed(&transcript("completion-stream-ids")), Watched::More);
    let got = read(&client.sent);
    assert_eq!(got.content, before + "igs\": [");
    assert_eq!((got.ids.len(), got.roles, got.done, got.finish.as_deref()), (1, 1, 1, Some("length")));
}

#[test]
fn usage_that_cannot_be_counted_is_told_by_a_replay() {
    let events = transcript("tool-stream");
    let again: Vec<String> = events.iter().map(|event| event.replace("b342483f481492ae", "second")).collect();
    let usage = r#"data: {"id":"chatcmpl-second","created":1,"model":"tiny","choices":[],"usage":{"prompt_tokens":3,"total_tokens":8,"completion_tokens":5}}"#;
    for temperature in [0, 1] {
        let body = json!({"messages":[],"tools":[{}],"temperature":temperature,"stream_options":{"include_usage":true}}).to_string();
        let mut client = Client::new(Route::Chat, body);
        client.feed(&events[..events.len() - 1]);
        let before = client.sent.clone();
        if temperature == 1 {
            assert!(matches!(client.plan(), Plan::Finish(done) if done == "data: [DONE]\n\n"));
            continue;
        }
        let resend = client.send();
        assert_eq!(resend.way, Way::Replay);
        client.watch.begin(resend, true);
        let rest = [&again[..again.len() - 1], &[format!("{usage}\n\n"), "data: [DONE]\n\n".to_owned()]].concat();
        assert_eq!(client.feed(&rest), Watched::More);
        assert_eq!(client.end(true), End::Complete);
        let new = String::from_utf8(client.sent[before.len()..].to_vec()).unwrap();
        assert_eq!(new.matches("data: ").count(), 2, "{new}");
        assert!(new.contains("\"completion_tokens\":5") && !new.contains("second"), "{new}");
    }
}
