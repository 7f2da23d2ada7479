//! What a trace tells of a stream whose group drains (issue: traces): the event `drain_started`, once and in its place, as the real
//! collector understands it. The group drains by its objects: the leader's Pod is being deleted.

use std::net::IpAddr;
use std::time::{SystemTime, UNIX_EPOCH};

use http::HeaderValue;
use loadtest::engine::{Ending, EngineHandle, Persona, expected_text};
use serde_json::{Value, json};
use tests::Outcome;
use tests::http::{Events, json_request};

use crate::support::collector::{Collector, event_time, events, text, time};
use crate::support::deployment::{DELETING, Deployment, MODEL, group, places, simulated};
use crate::support::engine::ScriptedEngine;
use crate::support::own_address;
use crate::support::script::{EVENTS, FINISH, Gate, LAST, Step, chunk, event, gate};
use crate::support::wire::{STREAM, Wire, post};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
const PROBES: &str = "probe: {warming_interval: 50ms, serving_interval: 1h}\n";

async fn traced(leaders: (std::net::SocketAddr, IpAddr), stall: &str, collector: &Collector) -> Outcome<Deployment> {
    let url = collector.url();
    let env = [("OTEL_EXPORTER_OTLP_ENDPOINT", url.as_str()), ("OTEL_BSP_SCHEDULE_DELAY", "1")];
    Deployment::up(leaders, &format!("resume: {{stall: {stall}}}\n{PROBES}"), &env).await
}

/// The leader falls silent, its Pod is deleted, and the other one carries the stream on: one trace tells all of it.
#[tokio::test]
async fn a_stream_that_leaves_a_draining_group_is_told_whole() -> Outcome<()> {
    let (collector, engines) = (Collector::start().await?, simulated().await?);
    let mut deployment = traced(places(&engines), "300ms", &collector).await?;
    deployment.wait("Serving", &[0, 1]).await?;
    let body = json!({"model": MODEL, "stream": true, "temperature": 0, "max_tokens": 100, "ignore_eos": true,
        "messages": [{"role": "user", "content": "traced"}]});
    let mut request = json_request(&deployment.gateway.url("/v1/chat/completions"), &body)?;
    request.headers_mut().insert("traceparent", HeaderValue::from_static(PARENT));
    let mut stream = Events::of(request).await?;
    let mut said = String::new();
    for _ in 0..10 {
        let event = stream.next_data().await?.ok_or("it ended")?;
        said.push_str(event["choices"][0]["delta"]["content"].as_str().unwrap_or_default());
    }
    let left = engines.iter().position(|engine| engine.stats().running > 0).ok_or("no leader is busy")?;
    engines[left].end_running_with(Ending::Silence);
    let deleted = u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos())?;
    deployment.show((left, 0), DELETING)?;
    said.push_str(&stream.finish().await?.0);
    assert_eq!(said, expected_text(&body, &Persona::named(MODEL)));

    let spans = collector.trace(TRACE, 5).await?;
    check_story(
        &spans,
        &[
            ("POST /v1/chat/completions", ""),
            ("queue", ""),
            ("chat demo-chat", "first_byte first_token drain_started broken"),
            ("queue", ""),
            ("chat demo-chat", "first_byte resumed first_token"),
        ],
    );
    let [server, _, first, _, second] = spans.as_slice() else { return Err("five spans".into()) };
    check_drain(first, deleted);
    assert!(event_time(first, "drain_started") <= event_time(first, "broken"), "{first}");
    for (client, replica, verdict) in [(first, left, "broken"), (second, 1 - left, "complete")] {
        assert_eq!(client["parentSpanId"], server["spanId"]);
        assert_eq!((text(client, "leadgate.group"), text(client, "leadgate.verdict")), (group(replica).as_str(), verdict));
        check_asked(&engines[replica], client);
    }
    assert_eq!((&second["links"][0]["traceId"], &second["links"][0]["spanId"]), (&json!(TRACE), &first["spanId"]));
    Ok(())
}

/// The names of the spans and of their events.
fn check_story(spans: &[Value], expect: &[(&str, &str)]) {
    let story: Vec<_> = spans.iter().map(|span| (span["name"].as_str().unwrap_or_default(), events(span))).collect();
    let expect: Vec<_> = expect.iter().map(|(name, events)| (*name, (*events).to_owned())).collect();
    assert_eq!(story, expect);
}

/// The event's time: after the Pod was deleted, in nanoseconds since 1970, and before the span's end.
fn check_drain(client: &Value, deleted: u64) {
    let drain = event_time(client, "drain_started");
    assert!(drain >= Some(deleted) && drain <= Some(time(&client["endTimeUnixNano"])), "{deleted}: {client}");
}

/// The engine was asked in the client's trace, and the parent is the span of this try, also where carrying on took more than one request.
fn check_asked(engine: &EngineHandle, client: &Value) {
    let requests = engine.requests();
    let fields = requests.iter().flat_map(|request| &request.headers);
    let mut parents: Vec<&str> = fields.filter(|(name, _)| name == "traceparent").map(|(_, value)| value.as_str()).collect();
    let expect = format!("00-{TRACE}-{}-01", client["spanId"].as_str().unwrap_or_default());
    parents.dedup();
    assert_eq!(parents, [expect]);
}

/// An answer in three steps, each behind the gate: head and first event, second event, end.
fn gated(gate: &Gate) -> Outcome<ScriptedEngine> {
    let passes = gate.clone();
    let steps = move || {
        let first = [EVENTS.as_bytes(), &chunk(event("first"))].concat();
        let last = [chunk(FINISH), LAST.into()].concat();
        [first, chunk(event("second")), last].into_iter().flat_map(|bytes| [Step::Wait(passes.clone()), Step::Send(bytes)]).collect()
    };
    ScriptedEngine::start(move |_| steps())
}

/// A stream that ends at its own leader although the group began to drain when the client had seen so many of its events.
async fn stays(seen: usize, expect: &str) -> Outcome<()> {
    let open = gate();
    let (collector, engine) = (Collector::start().await?, gated(&open)?);
    // The other replica has no engine: only this one serves.
    let mut deployment = traced((engine.address(), own_address().ip()), "1h", &collector).await?;
    deployment.wait("Serving", &[0]).await?;
    let mut wire = Wire::open(&deployment.gateway).await?;
    wire.send(post(&format!("traceparent: {PARENT}\r\n"), STREAM)).await?;
    engine.wait_received(1).await?;
    for (step, shows) in ["first", "second", "[DONE]"].into_iter().enumerate() {
        if step == seen {
            deployment.show((0, 0), DELETING)?;
            // The running request knows as soon as this shows it.
            deployment.wait("Draining", &[0]).await?;
        }
        open.add_permits(1);
        if step == 0 {
            wire.head().await?;
        }
        wire.until(shows).await?;
    }
    let spans = collector.trace(TRACE, 3).await?;
    check_story(&spans, &[("POST /v1/chat/completions", ""), ("queue", ""), ("chat m", expect)]);
    assert_eq!(text(&spans[2], "leadgate.verdict"), "complete");
    Ok(())
}

#[tokio::test]
async fn a_stream_that_outlives_the_drain_tells_when_it_began() -> Outcome<()> {
    stays(1, "first_byte first_token drain_started").await
}

/// While the engine still read the prompt: the answer's head comes from a group that is leaving.
#[tokio::test]
async fn a_drain_before_the_first_byte_is_told_too() -> Outcome<()> {
    stays(0, "first_byte drain_started first_token").await
}
