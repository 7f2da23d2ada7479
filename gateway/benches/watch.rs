//! What watching a stream for a break costs per event: the splitter alone, with the watch, and the same answer parsed in
//! full. `cargo bench -p gateway --bench watch`; figures are in docs/resume.md.

#![allow(missing_docs, reason = "criterion's macros make public items without documentation")]

use std::hint::black_box;
use std::time::Duration;

use bytes::Bytes;
use config::ResumeSettings;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use gateway::resume::{Route, Watch};
use gateway::sse::{Action, Out, Splitter};

const EVENTS: usize = 2048;

fn settings(text_bytes: usize) -> ResumeSettings {
    ResumeSettings {
        enabled: true,
        stall: Duration::from_secs(1),
        max_moves: 3,
        text_bytes,
        request_bytes: 1 << 20,
        total_bytes: 1 << 28,
        token_ids: false,
        comment: false,
    }
}

fn head(choices: &str, rest: &str) -> String {
    format!(
        "data: {{\"id\":\"chatcmpl-8a85cb2a8a8731a7\",\"object\":\"chat.completion.chunk\",\"created\":1796053959,\"model\":\"tiny\",\"choices\":[{choices}]{rest}}}\n\n"
    )
}

fn event(text: &str) -> String {
    head(&format!("{{\"index\":0,\"delta\":{{\"content\":\"{text}\"}},\"logprobs\":null,\"finish_reason\":null,\"token_ids\":null}}"), "")
}

fn unusual(text: &str, nth: usize) -> String {
    let choice =
        format!("{{\"index\":0,\"delta\":{{\"content\":\"{text}\"}},\"logprobs\":null,\"finish_reason\":null,\"token_ids\":null}}");
    head(&choice, &format!(",\"usage\":{{\"prompt_tokens\":31,\"total_tokens\":{nth},\"completion_tokens\":{nth}}}"))
}

const WORDS: [&str; 6] = [" The", " quick", "\\n", " \\\"brown\\\"", " fox", "हि"];

fn stream(per_chunk: usize, make: impl Fn(&str, usize) -> String) -> Vec<Bytes> {
    let events: Vec<String> = (0..EVENTS).map(|nth| make(WORDS[nth % WORDS.len()], nth)).collect();
    let role = head("{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null,\"finish_reason\":null}", "");
    std::iter::once(Bytes::from(role)).chain(events.chunks(per_chunk).map(|chunk| Bytes::from(chunk.concat()))).collect()
}

fn split(chunks: &[Bytes]) -> usize {
    let mut splitter = Splitter::new();
    let mut out = Out::default();
    let mut bytes = 0;
    for chunk in chunks {
        splitter.feed(chunk.clone(), &mut out, |_| Action::Forward);
        bytes += out.take().len();
    }
    bytes
}

fn watch(chunks: &[Bytes], settings: &ResumeSettings) -> usize {
    let mut watch = Watch::new(Route::Chat, settings);
    let mut out = Out::default();
    let mut bytes = 0;
    for chunk in chunks {
        black_box(watch.on_chunk(chunk.clone(), &mut out));
        bytes += out.take().len();
    }
    bytes
}

fn bench(criterion: &mut Criterion) {
    let settings = settings(1 << 20);
    for (name, chunks) in [
        ("one event a chunk", stream(1, |text, _| event(text))),
        ("32 events a chunk", stream(32, |text, _| event(text))),
        ("usage in every event", stream(1, unusual)),
    ] {
        let mut group = criterion.benchmark_group(name);
        group.throughput(Throughput::Elements(EVENTS as u64));
        group.bench_function("split", |bencher| bencher.iter(|| split(black_box(&chunks))));
        group.bench_function("split and watch", |bencher| bencher.iter(|| watch(black_box(&chunks), &settings)));
        group.finish();
    }
}

criterion_group!(benches, bench);
criterion_main!(benches);
