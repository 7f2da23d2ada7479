//! What an engine has seen: counters, and the last requests one by one.
//!
//! Tests ask here whether a request reached two leaders, whether a cancelled one was noticed, and what a gateway sent.
//! Bounded: the log keeps the newest requests only.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;

use super::guarded::Guarded;
use super::http::request::Request;

/// How a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Answered to the end.
    Complete,
    /// Answered with a status of 400 or more.
    Refused,
    /// The client was gone first.
    Cancelled,
    /// The engine broke it off, on command or by dying.
    Broken,
}

/// One request as it was seen.
#[derive(Debug, Clone, Serialize)]
pub struct Seen {
    /// Counts all requests of this engine from 0.
    pub number: u64,
    /// `X-Request-Id`.
    pub id: Option<String>,
    /// The path.
    pub path: String,
    /// The headers in the order of the wire, names in lower case.
    pub headers: Vec<(String, String)>,
    /// Bytes of the body.
    pub body_bytes: usize,
    /// The body, its first 16 KiB.
    pub body: String,
    /// Microseconds since 1970 when it was read.
    pub at_us: u64,
    /// Microseconds since 1970 when it ended.
    pub end_us: Option<u64>,
    /// How it ended.
    pub outcome: Option<Outcome>,
    /// Events written, role events among them.
    pub events: u64,
}

/// Bytes of a body that the log keeps.
const MAX_BODY_KEPT: usize = 16 * 1024;

/// All counters at one moment.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Counts {
    /// Requests of any path.
    pub requests: u64,
    /// Requests for text that were taken.
    pub generations: u64,
    /// Open connections.
    pub connections: usize,
    /// Requests that generate now.
    pub running: usize,
    /// Requests that wait for a place.
    pub waiting: usize,
    /// Clients that went away first.
    pub cancelled: u64,
    /// Requests that the engine broke off.
    pub broken: u64,
    /// Tokens made.
    pub tokens: u64,
    /// Tokens of prompts.
    pub prompt_tokens: u64,
    /// Requests to a follower: each is a fault of whoever sent it.
    pub follower_requests: u64,
    /// Finished requests by reason.
    pub finished: BTreeMap<&'static str, u64>,
    /// Faults that took a request, by kind.
    pub faults: BTreeMap<&'static str, u64>,
}

#[derive(Debug, Default)]
pub(crate) struct Stats {
    requests: AtomicU64,
    generations: AtomicU64,
    connections: AtomicUsize,
    running: AtomicUsize,
    waiting: AtomicUsize,
    cancelled: AtomicU64,
    broken: AtomicU64,
    tokens: AtomicU64,
    prompt_tokens: AtomicU64,
    follower_requests: AtomicU64,
    finished: Guarded<BTreeMap<&'static str, u64>>,
    faults: Guarded<BTreeMap<&'static str, u64>>,
    log: Guarded<VecDeque<Seen>>,
    log_size: usize,
}

impl Stats {
    pub(crate) fn new(log_size: usize) -> Self {
        Self { log_size, ..Self::default() }
    }

    pub(crate) fn counts(&self) -> Counts {
        Counts {
            requests: self.requests.load(Relaxed),
            generations: self.generations.load(Relaxed),
            connections: self.connections.load(Relaxed),
            running: self.running.load(Relaxed),
            waiting: self.waiting.load(Relaxed),
            cancelled: self.cancelled.load(Relaxed),
            broken: self.broken.load(Relaxed),
            tokens: self.tokens.load(Relaxed),
            prompt_tokens: self.prompt_tokens.load(Relaxed),
            follower_requests: self.follower_requests.load(Relaxed),
            finished: self.finished.with(|counts| counts.clone()),
            faults: self.faults.with(|counts| counts.clone()),
        }
    }

    /// The newest requests, oldest first.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.log.with(|log| log.iter().cloned().collect())
    }

    /// Notes a request; its number is needed to close it.
    pub(crate) fn arrived(&self, request: &Request) -> u64 {
        let number = self.requests.fetch_add(1, Relaxed);
        if self.log_size == 0 {
            return number;
        }
        let kept = &request.body[..request.body.len().min(MAX_BODY_KEPT)];
        let seen = Seen {
            number,
            id: request.header("x-request-id").map(str::to_owned),
            path: request.path.clone(),
            headers: request.headers.clone(),
            body_bytes: request.body.len(),
            body: String::from_utf8_lossy(kept).into_owned(),
            at_us: now_us(),
            end_us: None,
            outcome: None,
            events: 0,
        };
        self.log.with(|log| {
            if log.len() == self.log_size {
                log.pop_front();
            }
            log.push_back(seen);
        });
        number
    }

    pub(crate) fn ended(&self, number: u64, outcome: Outcome, events: u64) {
        match outcome {
            Outcome::Cancelled => _ = self.cancelled.fetch_add(1, Relaxed),
            Outcome::Broken => _ = self.broken.fetch_add(1, Relaxed),
            Outcome::Complete | Outcome::Refused => {}
        }
        if self.log_size == 0 {
            return;
        }
        let end = now_us();
        self.log.with(|log| {
            // Numbers grow along the log, up to two arrivals that raced for the lock.
            if let Some(seen) = log.iter_mut().rev().find(|seen| seen.number == number) {
                (seen.outcome, seen.end_us, seen.events) = (Some(outcome), Some(end), events);
            }
        });
    }

    pub(crate) fn generation(&self, prompt_tokens: usize) {
        self.generations.fetch_add(1, Relaxed);
        self.prompt_tokens.fetch_add(prompt_tokens as u64, Relaxed);
    }

    pub(crate) fn made(&self, tokens: usize) {
        self.tokens.fetch_add(tokens as u64, Relaxed);
    }

    pub(crate) fn finished(&self, reason: &'static str) {
        self.finished.with(|counts| *counts.entry(reason).or_default() += 1);
    }

    pub(crate) fn fault(&self, kind: &'static str) {
        self.faults.with(|counts| *counts.entry(kind).or_default() += 1);
    }

    pub(crate) fn follower(&self) {
        self.follower_requests.fetch_add(1, Relaxed);
    }

    pub(crate) fn connection(&self) -> Held<'_> {
        Held::new(&self.connections)
    }

    pub(crate) fn run(&self) -> Held<'_> {
        Held::new(&self.running)
    }

    pub(crate) fn wait(&self) -> Held<'_> {
        Held::new(&self.waiting)
    }
}

/// One more in a gauge, for as long as it lives.
#[derive(Debug)]
pub(crate) struct Held<'a>(&'a AtomicUsize);

impl<'a> Held<'a> {
    fn new(gauge: &'a AtomicUsize) -> Self {
        gauge.fetch_add(1, Relaxed);
        Self(gauge)
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

fn now_us() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| u64::try_from(since.as_micros()).unwrap_or(u64::MAX))
}
