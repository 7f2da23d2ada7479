//! Every rule of the event-stream format that a proxy needs, at every split point.

use bytes::Bytes;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::{Action, Event, Flow, Kind, MAX_HELD, Out, Splitter};

#[derive(Debug, Clone, PartialEq, Eq)]
struct Seen {
    kind: Kind,
    data: Vec<u8>,
    name: Vec<u8>,
}

fn see(event: &Event<'_>) -> Seen {
    Seen { kind: event.kind, data: event.data.to_vec(), name: event.name.to_vec() }
}

/// Feeds the chunks, forwards everything; gives events, forwarded bytes and the held rest.
fn run(chunks: &[&[u8]]) -> (Vec<Seen>, Vec<u8>, Vec<u8>) {
    let mut splitter = Splitter::new();
    let mut out = Out::default();
    let mut seen = Vec::new();
    let mut bytes = Vec::new();
    for chunk in chunks {
        let flow = splitter.feed(Bytes::copy_from_slice(chunk), &mut out, |event| {
            seen.push(see(event));
            Action::Forward
        });
        assert_eq!(flow, Flow::More);
        bytes.extend_from_slice(&out.take());
    }
    (seen, bytes, splitter.finish().to_vec())
}

fn data(text: &str) -> Seen {
    Seen { kind: Kind::Data, data: text.as_bytes().to_vec(), name: Vec::new() }
}

fn silent() -> Seen {
    Seen { kind: Kind::Silent, data: Vec::new(), name: Vec::new() }
}

#[track_caller]
fn check(stream: &str, expect: &[Seen]) {
    let (seen, bytes, held) = run(&[stream.as_bytes()]);
    assert_eq!(seen, expect);
    assert_eq!([bytes, held].concat(), stream.as_bytes());
}

#[test]
fn rules() {
    check("data: a\n\n", &[data("a")]);
    check("\u{feff}data: a\n\n", &[data("a")]);
    check("data: a\r\n\r\n", &[data("a")]);
    check("data: a\r\r", &[data("a")]);
    check("data:a\n\n", &[data("a")]);
    check("data:  a\n\n", &[data(" a")]);
    check("data: a\ndata: b\n\n", &[data("a\nb")]);
    check("data\n\n", &[silent()]);
    check("data: a\ndata\n\n", &[data("a\n")]);
    check(": keep-alive\n\n", &[silent()]);
    check(": x\ndata: a\n\n", &[data("a")]);
    check("id: 1\nretry: 5\nunknown: x\ndata: a\n\n", &[data("a")]);
    check("\n\ndata: a\n\n", &[silent(), silent(), data("a")]);
    check("data: a\n\ndata: half", &[data("a")]);
    check("data: a\n\u{feff}data: b\n\n", &[data("a")]);
}

#[test]
fn kinds_and_names() {
    check("data: [DONE]\n\n", &[Seen { kind: Kind::Done, ..data("[DONE]") }]);
    check("event: error\ndata: {}\n\n", &[Seen { name: b"error".to_vec(), ..data("{}") }]);
}

#[test]
fn a_byte_order_mark_counts_at_the_start_only() {
    check("data: a\n\n\u{feff}data: b\n\n", &[data("a"), silent()]);
}

const STREAMS: [&str; 5] = [
    "data: {\"a\":\"हिन्दी 🚒 ש\"}\n\n: keep-alive\n\ndata: [DONE]\n\n",
    "\u{feff}: hello\r\n\r\nevent: x\r\ndata: 1\r\ndata: 🚒\r\n\r\ndata: 2\r\n\r\n",
    "data: a\r\rdata: b\r\r: c\r\rdata: d\r\n\r\n\r\n",
    "\n\n\r\n\r\rdata: x\n\r\ndata: y\r\n\ndata: z\n\n",
    "data: 1\n\ndata: 2\n\ndata: 3\n\ndata: 4\n\ndata: tail",
];

/// Events that dispatch something; how lone line ends are cut into blocks may differ.
fn dispatched(seen: Vec<Seen>) -> Vec<Seen> {
    seen.into_iter().filter(|event| event.kind != Kind::Silent).collect()
}

#[test]
fn every_split_point_gives_the_same_events() {
    for stream in STREAMS {
        let whole = run(&[stream.as_bytes()]);
        let expect = (dispatched(whole.0), [whole.1, whole.2].concat());
        for cut in 0..=stream.len() {
            let (head, tail) = stream.as_bytes().split_at(cut);
            let (seen, bytes, held) = run(&[head, tail]);
            assert_eq!((dispatched(seen), [bytes, held].concat()), expect, "{stream:?} cut at {cut}");
        }
        let bytes: Vec<&[u8]> = stream.as_bytes().chunks(1).collect();
        let (seen, bytes, held) = run(&bytes);
        assert_eq!((dispatched(seen), [bytes, held].concat()), expect, "{stream:?} byte by byte");
    }
}

#[test]
fn random_splits_give_the_same_events() {
    for seed in 0..300 {
        let mut random = StdRng::seed_from_u64(seed);
        let stream: String = (0..6).map(|_| STREAMS[random.random_range(0..4)].trim_start_matches('\u{feff}')).collect();
        let (seen, bytes, held) = run(&[stream.as_bytes()]);
        let expect = (dispatched(seen), [bytes, held].concat());
        let mut chunks = Vec::new();
        let mut rest = stream.as_bytes();
        while !rest.is_empty() {
            let (chunk, left) = rest.split_at(random.random_range(0..=rest.len().min(40)));
            chunks.push(chunk);
            rest = left;
        }
        let (seen, bytes, held) = run(&chunks);
        assert_eq!((dispatched(seen), [bytes, held].concat()), expect, "seed {seed}");
    }
}

#[test]
fn whole_events_go_out_at_once_and_tails_are_held() {
    let mut splitter = Splitter::new();
    let mut out = Out::default();
    splitter.feed(Bytes::from_static(b"data: a\n\ndata: b"), &mut out, |_| Action::Forward);
    assert_eq!(out.take(), "data: a\n\n");
    assert_eq!(splitter.held(), 7);
    splitter.feed(Bytes::from_static(b"\n\nda"), &mut out, |_| Action::Forward);
    assert_eq!(out.take(), "data: b\n\n");
    assert_eq!(splitter.finish(), "da");
}

#[test]
fn a_chunk_of_whole_events_is_one_slice_without_a_copy() {
    let mut splitter = Splitter::new();
    let mut out = Out::default();
    let chunk = Bytes::from("data: a\n\n".repeat(32));
    splitter.feed(chunk.clone(), &mut out, |_| Action::Forward);
    assert_eq!(out.events(), 32);
    let parts: Vec<Bytes> = out.drain().collect();
    assert_eq!(parts.len(), 1);
    assert_eq!(parts[0].as_ptr(), chunk.as_ptr());
}

#[test]
fn actions_are_applied_in_order() {
    let mut splitter = Splitter::new();
    let mut out = Out::default();
    let flow =
        splitter.feed(Bytes::from_static(b"data: a\n\ndata: b\n\ndata: c\n\ndata: d\n\ndata: e\n\n"), &mut out, |event| {
            match &*event.data {
                b"b" => Action::Replace(Bytes::from_static(b"data: B\n\n")),
                b"c" => Action::Swallow,
                b"d" => Action::Stop(Bytes::from_static(b"data: D\n\n")),
                _ => Action::Forward,
            }
        });
    assert_eq!(flow, Flow::Stopped);
    assert_eq!(out.take(), "data: a\n\ndata: B\n\ndata: D\n\n");
    assert_eq!(splitter.held(), 0);
}

#[test]
fn stop_works_in_a_held_event_too() {
    let mut splitter = Splitter::new();
    let mut out = Out::default();
    splitter.feed(Bytes::from_static(b"data: a"), &mut out, |_| Action::Forward);
    let flow = splitter.feed(Bytes::from_static(b"\n\ndata: b\n\n"), &mut out, |_| Action::Stop(Bytes::new()));
    assert_eq!(flow, Flow::Stopped);
    assert!(out.is_empty());
}

#[test]
fn an_event_too_long_to_hold_goes_on_in_parts() {
    let long = "x".repeat(3 * MAX_HELD);
    let stream = format!("data: {long}\n\ndata: after\n\n");
    for size in [1000, MAX_HELD - 1, MAX_HELD + 1] {
        let chunks: Vec<&[u8]> = stream.as_bytes().chunks(size).collect();
        let (seen, bytes, held) = run(&chunks);
        assert_eq!(bytes, stream.as_bytes());
        assert!(held.is_empty());
        assert!(seen.iter().any(|event| event.kind == Kind::Part));
        assert_eq!(seen.last(), Some(&data("after")));
    }
}

#[test]
fn a_long_event_in_one_chunk_is_whole() {
    let long = "x".repeat(3 * MAX_HELD);
    check(&format!("data: {long}\n\n"), &[data(&long)]);
}

#[test]
fn parts_end_at_a_blank_line_wherever_it_is_cut() {
    let mut splitter = Splitter::new();
    let mut out = Out::default();
    let mut forward = |splitter: &mut Splitter, chunk: &[u8]| {
        splitter.feed(Bytes::copy_from_slice(chunk), &mut out, |_| Action::Forward);
    };
    forward(&mut splitter, &vec![b'x'; MAX_HELD + 1]);
    assert!(!splitter.at_boundary());
    forward(&mut splitter, b"y\r");
    assert!(!splitter.at_boundary());
    forward(&mut splitter, b"\n");
    assert!(!splitter.at_boundary());
    forward(&mut splitter, b"\r\n");
    assert!(splitter.at_boundary());
}
