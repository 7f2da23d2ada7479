//! One leader's answer on its way to the client: bytes, clocks, and the watch for its end.
//!
//! Owns: the upstream body, the idle clock and the group's signs. Says what it sees as a `Seen`; must not decide what
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
use crate::groups::state::GroupState;
use crate::proxy::attempt::Started;
use crate::proxy::job::SILENT;
use crate::reject::Clock;
use crate::resume::{Cause, End, Watch, Watched};
use crate::sse::Out;
use crate::upstream::body::UpstreamBody;

/// How long a leader may take to end the framing of a stream whose last event it has sent. Engines send both at once.
const FRAMING: Duration = Duration::from_secs(1);

/// What a relay sees next.
#[derive(Debug)]
pub enum Seen {
    /// Bytes for the client.
    Bytes(Bytes),
    /// The answer is complete, or ended by the engine's own error event.
    End(End),
    /// It is not, and will not be by this leader.
    Broken(Cause, String),
    /// A clock fired while the group is healthy.
    Late(Clock),
    /// Somebody should look at the gateway's own phase.
    Nudged,
}

/// See the module.
pub struct Relay {
    /// Who answers.
    pub group: Arc<GroupState>,
    /// How the pool is configured.
    pub settings: Arc<PoolSettings>,
    body: UpstreamBody,
    /// Read already, comes first. Only of answers that are no stream of events.
    prefix: Bytes,
    _permit: Permit,
    grant: Option<Grant>,
    out: Out,
    /// Comes behind the bytes that were still good.
    next: Option<Seen>,
    timer: Pin<Box<Sleep>>,
    signs: Pin<Box<OwnedNotified>>,
    /// When the request was sent, then the last event with data.
    last: Instant,
    /// When the group's signs last changed.
    signed: Option<Instant>,
    begun: bool,
    /// When the stream's last event came: it is complete whatever becomes of its framing.
    done: Option<Instant>,
    whole_deadline: Option<Instant>,
}

impl Relay {
    /// Takes over an answer. `deadline`: of a non-streamed answer as a whole.
    pub fn new(
        (started, prefix): (Started, Bytes),
        group: Arc<GroupState>,
        settings: Arc<PoolSettings>,
        grant: Option<Grant>,
        (sent, events): (Instant, bool),
    ) -> Self {
        let deadline = sent + if events { settings.clocks.first_event } else { settings.clocks.response };
        let signs = Box::pin(group.changed().clone().notified_owned());
        Self {
            body: started.body,
            prefix,
            _permit: started.permit,
            grant,
            out: Out::default(),
            next: None,
            timer: Box::pin(sleep_until(deadline)),
            signs,
            last: sent,
            signed: group.signs().silence_is_loss().then(Instant::now),
            begun: false,
            done: None,
            whole_deadline: (!events).then_some(deadline),
            group,
            settings,
        }
    }

    /// When the last event with data came; `None` before the first.
    pub fn last_event(&self) -> Option<Instant> {
        self.begun.then_some(self.last)
    }

    /// Whether all of an answer has been given out that is no stream of events. Whoever writes an answer of known length asks for nothing behind its
    /// last byte.
    pub fn is_whole(&mut self) -> bool {
        self.prefix.is_empty() && self.next.is_none() && self.body.is_whole()
    }

    /// What comes next. `watch` judges the events; without one the answer is no stream of events and passes as it comes.
    pub fn poll(&mut self, cx: &mut Context<'_>, mut watch: Option<&mut Watch>) -> Poll<Seen> {
        if let Some(next) = self.next.take() {
            return Poll::Ready(next);
        }
        if !self.prefix.is_empty() {
            self.begin();
            return Poll::Ready(Seen::Bytes(std::mem::take(&mut self.prefix)));
        }
        loop {
            match self.body.poll(cx) {
                Poll::Pending => return self.poll_watch(cx, watch),
                Poll::Ready(None) => return Poll::Ready(self.end(watch, None)),
                Poll::Ready(Some(Err(error))) => return Poll::Ready(self.end(watch, Some(error.to_string()))),
                Poll::Ready(Some(Ok(data))) => {
                    if let Some(seen) = self.take(data, watch.as_deref_mut()) {
                        return Poll::Ready(seen);
                    }
                }
            }
        }
    }

    fn take(&mut self, data: Bytes, watch: Option<&mut Watch>) -> Option<Seen> {
        let Some(watch) = watch else {
            self.begin();
            return Some(Seen::Bytes(data));
        };
        // Events that are swallowed on a replay prove life too.
        let swallowing = (watch.stream().moves() > 0).then(|| data.clone());
        let watched = watch.on_chunk(data, &mut self.out);
        if self.out.take_events() > 0 || swallowing.is_some_and(|data| memchr::memmem::find(&data, b"data:").is_some()) {
            self.event_passed();
        }
        if self.done.is_none() && watch.stream().is_done() {
            self.done = Some(Instant::now());
            self.reset_timer();
        }
        let bytes = self.out.take();
        match watched {
            Watched::More => (!bytes.is_empty()).then_some(Seen::Bytes(bytes)),
            Watched::Broken(cause) => Some(self.after(bytes, Seen::Broken(cause, cause.word().to_owned()))),
        }
    }

    fn end(&mut self, watch: Option<&mut Watch>, error: Option<String>) -> Seen {
        let Some(watch) = watch else {
            return error.map_or(Seen::End(End::Complete), |why| Seen::Broken(Cause::Cut, why));
        };
        let end = watch.on_end(error.is_none(), &mut self.out);
        let bytes = self.out.take();
        match end {
            End::Broken(cause) => self.after(bytes, Seen::Broken(cause, error.unwrap_or_else(|| cause.word().to_owned()))),
            End::Complete | End::EngineError => self.after(bytes, Seen::End(end)),
        }
    }

    fn after(&mut self, bytes: Bytes, then: Seen) -> Seen {
        if bytes.is_empty() {
            return then;
        }
        self.next = Some(then);
        Seen::Bytes(bytes)
    }

    /// The leader has begun to answer.
    fn begin(&mut self) {
        self.begun = true;
        if let Some(mut grant) = self.grant.take() {
            grant.started();
        }
    }

    fn event_passed(&mut self) {
        let sent = std::mem::replace(&mut self.last, Instant::now());
        if !self.begun {
            self.begin();
            self.group.first_token(self.last.saturating_duration_since(sent));
            // From now on the idle clock counts, which may be shorter.
            self.reset_timer();
        }
    }

    /// The earliest moment at which silence ends this stream, and how.
    fn deadline(&self) -> (Instant, Option<Clock>) {
        if let Some(done) = self.done {
            return (done + FRAMING, None);
        }
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
        let group = &self.group;
        if !self.begun || self.whole_deadline.is_some() {
            // Prefill is silent by nature: only from when the group cannot be working any more.
            return group.lost_after(stall);
        }
        let signed = self.signed.filter(|_| group.signs().silence_is_loss())?;
        Some(self.last.max(signed) + stall)
    }

    fn reset_timer(&mut self) {
        let (at, _) = self.deadline();
        self.timer.as_mut().reset(at);
    }

    fn poll_watch(&mut self, cx: &mut Context<'_>, watch: Option<&mut Watch>) -> Poll<Seen> {
        let mut nudged = false;
        while self.signs.as_mut().poll(cx).is_ready() {
            self.signs.set(self.group.changed().clone().notified_owned());
            self.signed = self.group.signs().silence_is_loss().then(|| self.signed.unwrap_or_else(Instant::now));
            self.reset_timer();
            nudged = true;
        }
        // A stream whose last event has gone out needs nothing more from its group, nor from the gateway.
        if nudged && self.done.is_none() {
            return Poll::Ready(Seen::Nudged);
        }
        loop {
            ready!(self.timer.as_mut().poll(cx));
            let (at, clock) = self.deadline();
            if at <= Instant::now() && self.done.is_some() {
                return Poll::Ready(self.end(watch, Some("the end of its framing did not come".to_owned())));
            }
            if at <= Instant::now() {
                return Poll::Ready(clock.map_or_else(|| Seen::Broken(Cause::Stall, SILENT.to_owned()), Seen::Late));
            }
            // Events came since the timer was set; it is moved only here, not for each event.
            self.timer.as_mut().reset(at);
        }
    }
}
