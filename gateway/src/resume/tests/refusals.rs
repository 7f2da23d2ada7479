//! Streams that are not carried on: what no way carries, paths that are only watched, bounds.

use super::client::Client;
use super::support::{settings, transcript};
use crate::resume::{Caps, Cause, End, Plan, Refusal, Route, Watch, Watched, Way};

#[test]
fn what_no_way_carries_is_refused() {
    let begun = &transcript("chat-stream")[..4];
    for (body, refusal) in [
        (r#"{"messages":[{"role":"user","content":"x"}],"echo":true}"#, Refusal::Echo),
        (r#"{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"x"}}]}]}"#, Refusal::Multimodal),
        (r#"{"prompt":"x"}"#, Refusal::Request),
        ("not JSON", Refusal::Request),
        (r#"{"messages":[{"role":"user","content":"x"}],"max_tokens":9,"temperature":0,"seed":3}"#, Refusal::ReplayDiffered),
    ] {
        let mut client = Client::new(Route::Chat, body);
        client.feed(begun);
        if refusal == Refusal::ReplayDiffered {
            // No leader can count, so the greedy text is replayed, and differs.
            let resend = client.send();
            assert_eq!(resend.way, Way::Replay);
            client.watch.begin(resend, true);
            assert_eq!(client.feed(&transcript("reasoning-stream")), Watched::Broken(Cause::Differed));
        }
        assert_eq!(client.refusal(), refusal, "{body}");
    }
}

#[test]
fn other_paths_are_watched_and_refused() {
    for (route, last) in [(Route::Responses, "response.completed"), (Route::Messages, "message_stop")] {
        let begun = "event: x\ndata: {\"type\":\"x\"}\n\n".to_owned();
        let mut client = Client::new(route, "{}");
        assert_eq!(client.feed([&begun]), Watched::More);
        assert_eq!(client.end(true), End::Broken(Cause::NoFinish));
        assert_eq!(client.refusal(), Refusal::Route);
        assert_eq!(client.feed([&format!("event: {last}\ndata: {{\"type\":\"{last}\"}}\n\n")]), Watched::More);
        assert_eq!(client.end(false), End::Complete);
    }
    // Such an event is the whole stream where the request failed at once: it goes on, and nobody else is asked.
    let mut client = Client::new(Route::Responses, "{}");
    let failed =
        "event: response.failed\ndata: {\"type\":\"response.failed\",\"response\":{\"error\":{\"code\":\"server_error\"}}}\n\n".to_owned();
    assert_eq!(client.feed([&failed]), Watched::More);
    assert_eq!(client.end(false), End::EngineError);
    assert_eq!(client.sent, failed.as_bytes());
    let mut client = Client::new(Route::Other, "{}");
    client.feed([&"data: x\n\n".to_owned()]);
    assert_eq!(client.end(true), End::Complete);
    assert_eq!(client.end(false), End::Broken(Cause::Cut));
}

#[test]
fn bounds_are_kept() {
    let events = transcript("chat-stream");
    let mut small = settings(false);
    small.text_bytes = 3;
    let mut client = Client::new(Route::Chat, r#"{"messages":[]}"#);
    client.watch = Watch::new(Route::Chat, &small);
    client.feed(&events[..20]);
    assert_eq!((client.watch.stream().kept_bytes(), client.refusal()), (0, Refusal::TextTooLong));

    let mut client = Client::new(Route::Chat, r#"{"messages":[]}"#);
    client.feed(&events[..20]);
    assert!(client.watch.stream().kept_bytes() > 0);
    small.request_bytes = 3;
    let plan = client.watch.stream().plan(&client.body.clone(), Caps::default(), &small);
    assert!(matches!(plan, Plan::Refuse(Refusal::RequestTooLong)));
    client.watch.stream().forget();
    assert_eq!((client.watch.stream().kept_bytes(), client.refusal()), (0, Refusal::Memory));
    // It is still known when the stream is complete.
    client.feed(&events[20..]);
    assert_eq!(client.end(true), End::Complete);

    let mut off = settings(false);
    off.enabled = false;
    let mut client = Client::new(Route::Chat, r#"{"messages":[]}"#);
    client.watch = Watch::new(Route::Chat, &off);
    client.feed(&events[..20]);
    let plan = client.watch.stream().plan(&client.body.clone(), Caps::default(), &off);
    assert!(matches!(plan, Plan::Refuse(Refusal::Disabled)));
}
