//! A streamed answer: events at a pace, and every way in which a stream ends.
//!
//! The order on the wire is that of engine facts, section 2: head at once, then (in one write) the role events and the
//! first token, one event for each token, finish, usage, mark, last chunk.

use std::time::Duration;

use tokio::time::Instant;

use super::ask::Endpoint;
use super::choice::{Choice, Chunk};
use super::config::{Ending, Pace};
use super::decode::Finish;
use super::errors::ApiError;
use super::events::{DONE, DONE_MARK, Events, Usage, chunked};
use super::exchange::{Exchange, Stop};
use super::fault::{Fault, Strike};
use super::job::Job;
use super::parser::Piece;
use super::shared::{Shared, jittered};
use super::stats::Outcome;
use crate::text::Rng;

/// What came of a stream.
#[derive(Debug)]
pub(crate) struct Streamed {
    pub(crate) outcome: Outcome,
    pub(crate) events: u64,
    /// The connection can take another request.
    pub(crate) reusable: bool,
    pub(crate) reset: bool,
}

pub(crate) struct Stream<'s> {
    shared: &'s Shared,
    job: &'s Job,
    events: Events,
    choices: Vec<Choice>,
    out: Vec<u8>,
    /// An event that is made but not written: a fault that strikes here must not lose its text.
    pending: Option<Chunk>,
    count: u64,
    rng: Rng,
}

impl<'s> Stream<'s> {
    pub(crate) fn new(shared: &'s Shared, job: &'s Job, id: &str, created: u64) -> Self {
        let events = Events::new(job, id, created, &shared.fingerprint);
        Self {
            shared,
            job,
            events,
            choices: job.choices(),
            out: Vec::with_capacity(1024),
            pending: None,
            count: 0,
            rng: Rng::new(shared.nonce()),
        }
    }

    /// Writes everything behind the head.
    pub(crate) async fn run(mut self, x: &mut Exchange<'_>) -> Streamed {
        let ended = self.generate(x).await;
        let tokens = self.choices.iter().map(Choice::made).sum();
        self.shared.stats.made(tokens);
        let (outcome, reusable) = match ended {
            Ok(()) => (Outcome::Complete, true),
            Err(Stop::Gone) => (Outcome::Cancelled, false),
            Err(Stop::Reset | Stop::Fin) => (Outcome::Broken, false),
            Err(Stop::Ending(ending)) => (Outcome::Broken, self.end(x, ending).await),
        };
        Streamed { outcome, events: self.count, reusable, reset: ended == Err(Stop::Reset) }
    }

    async fn generate(&mut self, x: &mut Exchange<'_>) -> Result<(), Stop> {
        let pace = &self.shared.config.pace;
        let delay = if let Some(Fault::Delay { ms }) = x.fault { Duration::from_millis(ms) } else { Duration::ZERO };
        let mut due = Instant::now() + delay + self.wait(pace, pace.first_token);
        x.pause(due).await?;
        self.open(x).await?;
        loop {
            for _ in 0..pace.batch.max(1) {
                self.round(x).await?;
            }
            if self.choices.iter().all(Choice::is_over) {
                return self.close(x).await;
            }
            x.send(&self.out).await?;
            self.out.clear();
            due += self.wait(pace, pace.token);
            x.pause(due).await?;
        }
    }

    fn wait(&mut self, pace: &Pace, time: Duration) -> Duration {
        jittered(time, pace.jitter, &mut self.rng)
    }

    /// The events before the first token; they go out together with it.
    async fn open(&mut self, x: &mut Exchange<'_>) -> Result<(), Stop> {
        if self.job.ask.endpoint == Endpoint::Completion {
            return Ok(());
        }
        let usage = self.usage();
        for index in 0..self.choices.len() {
            self.before_event(x).await?;
            self.events.role(&mut self.out, index, usage);
        }
        if self.job.ask.echo && !self.job.split.prefix.is_empty() {
            let prefix = String::from_utf8_lossy(&self.job.split.prefix).into_owned();
            self.before_event(x).await?;
            self.events.echo(&mut self.out, 0, &prefix, usage);
        }
        Ok(())
    }

    /// One event of every choice that is not over. A choice's token may have none.
    async fn round(&mut self, x: &mut Exchange<'_>) -> Result<(), Stop> {
        for at in 0..self.choices.len() {
            while self.pending.is_none() && !self.choices[at].is_over() {
                self.pending = self.choices[at].advance();
            }
            if self.pending.is_none() {
                continue;
            }
            self.before_event(x).await?;
            let Some(chunk) = self.pending.take() else { continue };
            let usage = self.usage();
            let last = !self.job.ask.include_usage && self.choices.iter().all(Choice::is_over);
            if let Some(finish) = chunk.finish {
                self.shared.stats.finished(finish.as_str());
            }
            self.events.chunk(&mut self.out, &chunk, usage, last);
        }
        Ok(())
    }

    async fn close(&mut self, x: &mut Exchange<'_>) -> Result<(), Stop> {
        if self.job.ask.include_usage {
            let usage = self.usage();
            self.events.usage(&mut self.out, usage);
        }
        match x.fault {
            Some(Fault::NoDone) => self.out.extend_from_slice(b"0\r\n\r\n"),
            Some(Fault::NoLastChunk | Fault::LengthLong { .. }) => {
                self.out.extend_from_slice(DONE_MARK);
                x.send(&self.out).await?;
                return Err(Stop::Fin);
            }
            _ => self.out.extend_from_slice(DONE),
        }
        x.send(&self.out).await
    }

    /// Counts an event and lets the fault that waits for it happen.
    async fn before_event(&mut self, x: &mut Exchange<'_>) -> Result<(), Stop> {
        let strike = x.fault.as_ref().and_then(Fault::strike).filter(|(events, _)| *events == self.count);
        if let Some((_, strike)) = strike {
            self.strike(x, strike).await?;
        }
        self.count += 1;
        Ok(())
    }

    async fn strike(&mut self, x: &mut Exchange<'_>, strike: Strike) -> Result<(), Stop> {
        let stop = match strike {
            Strike::Malformed => {
                chunked(&mut self.out, b"data: {\"id\":\"chatcmpl-broken\",\"choices\":[{\"index\":0,\"del\n\n");
                return Ok(());
            }
            Strike::Reset => Stop::Reset,
            Strike::Ending(ending) => Stop::Ending(ending),
            Strike::Fin | Strike::End | Strike::Done | Strike::BadChunk => Stop::Fin,
        };
        self.out.extend_from_slice(match strike {
            Strike::End => b"0\r\n\r\n",
            Strike::Done => DONE,
            Strike::BadChunk => b"zz\r\ndata: {}\n\n\r\n",
            Strike::Reset | Strike::Fin | Strike::Ending(_) | Strike::Malformed => b"",
        });
        x.send(&self.out).await?;
        self.out.clear();
        Err(stop)
    }

    /// What a dying engine does to this stream; true if the connection could go on.
    async fn end(&mut self, x: &mut Exchange<'_>, ending: Ending) -> bool {
        self.out.clear();
        match ending {
            Ending::Silence => {
                x.be_silent().await;
                return false;
            }
            Ending::Error => chunked(&mut self.out, ApiError::core_dead().event().as_bytes()),
            Ending::Abort => self.abort(),
        }
        self.out.extend_from_slice(DONE);
        // Behind its fault nothing else goes wrong with this answer.
        x.fault = None;
        x.send(&self.out).await.is_ok()
    }

    fn abort(&mut self) {
        let usage = self.usage();
        if self.count == 0 && self.job.ask.endpoint == Endpoint::Chat {
            for index in 0..self.choices.len() {
                self.events.role(&mut self.out, index, usage);
            }
        }
        let pending = self.pending.take();
        let is_open = |at: &usize| !self.choices[*at].is_over() || pending.as_ref().is_some_and(|chunk| chunk.index == *at);
        let open: Vec<usize> = (0..self.choices.len()).filter(is_open).collect();
        for (nth, at) in open.iter().enumerate() {
            let none = Chunk { index: *at, piece: Some(Piece::Content(String::new())), ids: Vec::new(), finish: None, stop: None };
            let made = pending.clone().filter(|chunk| chunk.index == *at);
            let mut chunk = made.or_else(|| self.choices[*at].advance()).unwrap_or(none);
            chunk.finish = Some(Finish::Abort);
            self.count += 1;
            self.shared.stats.finished("abort");
            self.events.chunk(&mut self.out, &chunk, usage, nth + 1 == open.len());
        }
    }

    fn usage(&self) -> Usage {
        Usage {
            prompt: self.job.prompt_tokens,
            completion: self.choices.iter().map(Choice::made).sum(),
            reasoning: self.choices.iter().filter_map(Choice::reasoning_tokens).reduce(|sum, tokens| sum + tokens),
        }
    }
}
