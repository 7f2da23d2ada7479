//! One leader's answer on its way to the client: bytes, clocks, and the watch for its end.
//!
//! Owns: the upstream body, the cutting into events, the idle clock and the group's signs. Says what it sees as a `Seen`; must not decide what
//! follows (`exchange` does). Polled by the client's side: a slow client slows only its own stream, and dropping it closes the connection.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use config::PoolSettings;
use tokio::sync::futures::OwnedNotified;
use tokio::time::{Instant, Sleep, sleep_until};

use crate::groups::permits::Permit;
use crate::groups::queue::Grant;
use crate::groups::table::Candidate;
use crate::proxy::attempt::Started;
use crate::reject::Clock;
use crate::sse::{Action, Event, Flow, Kind, Out, Splitter};
use crate::upstream::body::UpstreamBody;

/// Why a stream is broken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Broken {
    /// The connection was lost or the framing did not end.
    Lost(String),
    /// Silence while the group is leaving or broken, for longer than `resume.stall`.
    Stalled,
}

/// What a relay sees next.
#[derive(Debug)]
pub enum Seen {
    /// Bytes for the client.
    Bytes(Bytes),
    /// The framing ended properly.
    End,
    /// It did not, or the group took the stream with it.
    Broken(Broken),
    /// A clock fired while the group is healthy.
    Late(Clock),
    /// Somebody should look at the gateway's own phase.
    Nudged,
}

/// See the module.
pub struct Relay {
    /// Who answers.
    pub candidate: Candidate,
    /// How the pool is configured.
    pub settings: Arc<PoolSettings>,
    body: UpstreamBody,
    /// Read already, comes first. Only of answers that are no stream of events.
    prefix: Bytes,
    _permit: Permit,
    grant: Option<Grant>,
    /// `None`: not a stream of events; bytes pass as they come.
    events: Option<Splitter>,
    out: Out,
    timer: Pin<Box<Sleep>>,
    signs: Pin<Box<OwnedNotified>>,
    /// When the request was sent, then the last event with data.
    last: Instant,
    /// When the group's signs last changed.
    signed: Option<Instant>,
    begun: bool,
    whole_deadline: Option<Instant>,
}

impl Relay {
    /// Takes over an answer. `deadline`: of a non-streamed answer as a whole.
    pub fn new(
        (started, prefix): (Started, Bytes),
        candidate: Candidate,
        settings: Arc<PoolSettings>,
        grant: Option<Grant>,
        (sent, events): (Instant, bool),
    ) -> Self {
        let deadline = sent + if events { settings.clocks.first_event } else { settings.clocks.response };
        let signs = Box::pin(candidate.state.changed().clone().notified_owned());
        Self {
            body: started.body,
            prefix,
            _permit: started.permit,
            grant,
            events: events.then(Splitter::new),
            out: Out::default(),
            timer: Box::pin(sleep_until(deadline)),
            signs,
            last: sent,
            signed: candidate.state.signs().silence_is_loss().then(Instant::now),
            begun: false,
            whole_deadline: (!events).then_some(deadline),
            candidate,
            settings,
        }
    }

    /// An event with data has passed.
    pub fn begun(&self) -> bool {
        self.begun
    }

    /// Whether what went on so far ends with whole events.
    pub fn at_boundary(&self) -> bool {
        self.events.as_ref().is_none_or(Splitter::at_boundary)
    }

    /// Held bytes of an event that never became whole, at a proper end.
    pub fn rest(&mut self) -> Bytes {
        self.events.as_mut().map(Splitter::finish).unwrap_or_default()
    }

    /// What comes next. `each` is asked about every whole event.
    pub fn poll(&mut self, cx: &mut Context<'_>, each: &mut dyn FnMut(&Event<'_>) -> Action) -> Poll<Seen> {
        if !self.prefix.is_empty() {
            self.begun = true;
            return Poll::Ready(Seen::Bytes(std::mem::take(&mut self.prefix)));
        }
        loop {
            match self.body.poll(cx) {
                Poll::Pending => return self.poll_watch(cx),
                Poll::Ready(None) => return Poll::Ready(Seen::End),
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Seen::Broken(Broken::Lost(error.to_string()))),
                Poll::Ready(Some(Ok(frame))) => {
                    // Trailers of an answer are dropped (RFC 9110 6.5.1).
                    let Ok(data) = frame.into_data() else { continue };
                    if let Some(bytes) = self.take(data, each) {
                        return Poll::Ready(Seen::Bytes(bytes));
                    }
                }
            }
        }
    }

    fn take(&mut self, data: Bytes, each: &mut dyn FnMut(&Event<'_>) -> Action) -> Option<Bytes> {
        let Some(splitter) = &mut self.events else {
            self.begun = true;
            return Some(data);
        };
        let mut with_data = false;
        let flow = splitter.feed(data, &mut self.out, |event| {
            with_data |= !matches!(event.kind, Kind::Silent);
            each(event)
        });
        if with_data {
            self.event_passed();
        }
        let bytes = self.out.take();
        (flow == Flow::Stopped || !bytes.is_empty()).then_some(bytes)
    }

    fn event_passed(&mut self) {
        self.last = Instant::now();
        if !self.begun {
            self.begun = true;
            if let Some(mut grant) = self.grant.take() {
                grant.started();
            }
            // From now on the idle clock counts, which may be shorter.
            self.reset_timer();
        }
    }

    /// The earliest moment at which silence ends this stream, and how.
    fn deadline(&self) -> (Instant, Option<Clock>) {
        let clock = match (self.whole_deadline, self.begun) {
            (Some(at), _) => (at, Clock::Response),
            (None, true) => (self.last + self.settings.clocks.idle, Clock::Idle),
            (None, false) => (self.last + self.settings.clocks.first_event, Clock::FirstEvent),
        };
        match self.lost_at() {
            Some(at) if at < clock.0 => (at, None),
            _ => (clock.0, Some(clock.1)),
        }
    }

    fn lost_at(&self) -> Option<Instant> {
        let stall: Duration = self.settings.resume.stall;
        let state = &self.candidate.state;
        if !self.begun || self.whole_deadline.is_some() {
            // Prefill is silent by nature: only from when the group cannot be working any more.
            return state.lost_after(stall);
        }
        let signed = self.signed.filter(|_| state.signs().silence_is_loss())?;
        Some(self.last.max(signed) + stall)
    }

    fn reset_timer(&mut self) {
        let (at, _) = self.deadline();
        self.timer.as_mut().reset(at);
    }

    fn poll_watch(&mut self, cx: &mut Context<'_>) -> Poll<Seen> {
        let mut nudged = false;
        while self.signs.as_mut().poll(cx).is_ready() {
            self.signs.set(self.candidate.state.changed().clone().notified_owned());
            self.signed = self.candidate.state.signs().silence_is_loss().then(|| self.signed.unwrap_or_else(Instant::now));
            self.reset_timer();
            nudged = true;
        }
        if nudged {
            return Poll::Ready(Seen::Nudged);
        }
        loop {
            ready!(self.timer.as_mut().poll(cx));
            let (at, clock) = self.deadline();
            if at <= Instant::now() {
                return Poll::Ready(clock.map_or(Seen::Broken(Broken::Stalled), Seen::Late));
            }
            // Events came since the timer was set; it is moved only here, not for each event.
            self.timer.as_mut().reset(at);
        }
    }
}
