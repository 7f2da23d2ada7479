//! The body of an answer: a leader's bytes, the comments of a wait, the move to another leader, and the one way in which it ends (invariant 7).
//!
//! Owns: the states of an answer that has begun towards its client. Everything it does is done by being polled: no task, no channel.
//! Next step: hyper writes the frames; dropping this body (client gone) drops the job, its permit and its connection at once.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use discovery::Fault;
use http_body::{Body, Frame};
use tokio::time::{Instant, Sleep, sleep};

use crate::gateway::Gateway;
use crate::proxy::attempt::{self, Outcome};
use crate::proxy::carry::{self, Break, Carried};
use crate::proxy::job::{Job, SILENT};
use crate::proxy::kept::Kept;
use crate::proxy::late_error;
use crate::proxy::opened::{Answer, Hold, Stop, is_event_stream};
use crate::proxy::relay::{Relay, Seen};
use crate::proxy::whole::{self, Gathered};
use crate::reject::{Clock, Reject};
use crate::resume::{Cause, End, Route, Watch};
use crate::server::io::Written;
use crate::shutdown::Phase;
use crate::telemetry::labels::Outcome as Ended;

/// A comment event: keeps clients and middle boxes from timing out (wire rule S15).
const HEARTBEAT: &[u8] = b": waiting for a replica\n\n";
const MOVED: &[u8] = b": carried on by another replica\n\n";
/// How often the last event's flush is looked for before the cut.
const FLUSH_LOOK: Duration = Duration::from_millis(2);
/// Looks in a row at which a client took nothing before it is cut without its last event: ten seconds.
const FLUSH_LOOKS: u32 = 5000;

/// The answer was cut on purpose, after its error event: hyper ends the message unfinished (wire rules H10, T7).
#[derive(Debug, thiserror::Error)]
#[error("the answer was cut after an error event")]
pub struct CutShort;

/// What a wait brings back.
pub struct Progress {
    /// The request.
    pub job: Box<Job>,
    watch: Option<Box<Watch>>,
    /// A leader's answer, or none.
    pub result: Result<Carried, Reject>,
}

/// A wait for a leader, in which the request lives meanwhile.
pub type Opening = Pin<Box<dyn Future<Output = Progress> + Send>>;

enum State {
    Opening(Opening),
    Relaying(Box<Relay>),
    /// Ends properly at the next poll.
    Ended,
    /// The last bytes have been given to hyper; the cut follows when they are flushed.
    Cutting {
        looks: u32,
        timer: Pin<Box<Sleep>>,
        /// Written when it was last looked at.
        seen: u64,
        bytes: u64,
        flushes: u64,
    },
    Done,
}

/// See the module.
pub struct Exchange {
    job: Option<Box<Job>>,
    state: State,
    /// `None` while it is away with an opening, and for answers that are no streams of events.
    watch: Option<Box<Watch>>,
    kept: Kept,
    written: Arc<Written>,
    heartbeat: Option<Pin<Box<Sleep>>>,
    pace: Duration,
    /// The answer is a stream of events.
    events: bool,
    /// The last byte given to the client ended an event.
    at_boundary: bool,
    /// When the stream broke, until the next leader's first bytes.
    broke: Option<Instant>,
}

impl std::fmt::Debug for Exchange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Exchange").finish_non_exhaustive()
    }
}

impl Exchange {
    /// An answer whose leader is known. `events`: it is a stream of events.
    pub fn relaying(mut job: Box<Job>, relay: Relay, written: Arc<Written>, events: bool) -> Self {
        let kept = Kept::new(&job.gateway.kept);
        let watch = job.watch.take().filter(|_| events).or_else(|| events.then(|| watch_of(&job)));
        if !events || !keeps_request(&job) {
            job.forget_body();
        }
        let pace = relay.settings.hold.heartbeat_interval;
        let state = State::Relaying(Box::new(relay));
        let mut exchange =
            Self { job: Some(job), state, watch, kept, written, heartbeat: None, pace, events, at_boundary: true, broke: None };
        // It may have begun before this answer did.
        exchange.look_for_drain();
        exchange.end_if_whole();
        exchange
    }

    /// A stream whose client is told to wait, at once and then at `pace`.
    pub fn waiting(opening: Opening, kept: Kept, pace: Duration, written: Arc<Written>) -> Self {
        let heartbeat = Some(Box::pin(sleep(Duration::ZERO)));
        Self {
            job: None,
            state: State::Opening(opening),
            watch: None,
            kept,
            written,
            heartbeat,
            pace,
            events: true,
            at_boundary: true,
            broke: None,
        }
    }

    fn step(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, CutShort>>> {
        loop {
            match &mut self.state {
                State::Opening(opening) => {
                    let Poll::Ready(progress) = opening.as_mut().poll(cx) else {
                        return self.heartbeat(cx).map(|comment| Some(Ok(comment)));
                    };
                    if let Some(bytes) = self.progress(progress) {
                        return Poll::Ready(Some(Ok(bytes)));
                    }
                }
                State::Relaying(relay) => {
                    let seen = ready!(relay.poll(cx, self.watch.as_deref_mut()));
                    if let Some(bytes) = self.seen(seen) {
                        self.end_if_whole();
                        return Poll::Ready(Some(Ok(bytes)));
                    }
                }
                State::Cutting { looks, timer, seen, bytes, flushes } => {
                    let written = self.written.bytes();
                    let flushed = self.written.flushes() > *flushes && written >= *bytes;
                    // A slow client is waited for as long as it reads.
                    if std::mem::replace(seen, written) != written {
                        *looks = 0;
                    }
                    if !flushed && *looks < FLUSH_LOOKS {
                        ready!(timer.as_mut().poll(cx));
                        *looks += 1;
                        timer.as_mut().reset(Instant::now() + FLUSH_LOOK);
                        continue;
                    }
                    self.state = State::Done;
                    return Poll::Ready(Some(Err(CutShort)));
                }
                State::Ended | State::Done => {
                    self.state = State::Done;
                    return Poll::Ready(None);
                }
            }
        }
    }

    fn heartbeat(&mut self, cx: &mut Context<'_>) -> Poll<Bytes> {
        let pace = self.pace;
        let timer = self.heartbeat.get_or_insert_with(|| Box::pin(sleep(pace)));
        ready!(timer.as_mut().poll(cx));
        timer.as_mut().reset(Instant::now() + pace);
        // The new deadline has to be registered before this poll ends.
        let _ = timer.as_mut().poll(cx);
        // Inside an event that is passed on in parts a comment would be data.
        if self.at_boundary { Poll::Ready(Bytes::from_static(HEARTBEAT)) } else { Poll::Pending }
    }

    /// A leader was found for a stream whose head is long sent, or none was.
    fn progress(&mut self, progress: Progress) -> Option<Bytes> {
        self.heartbeat = None;
        let mut job = progress.job;
        self.watch = progress.watch.or_else(|| job.watch.take()).or_else(|| Some(watch_of(&job)));
        let job = self.job.insert(job);
        job.record.comforted();
        let opened = match progress.result {
            Ok(Carried::Opened(opened)) => opened,
            Ok(Carried::Finish(events)) => {
                self.ended(End::Complete);
                return Some(events);
            }
            Err(reject) => return Some(self.refuse(&reject)),
        };
        match opened.answer {
            Answer::Running { started, prefix } => {
                job.record.joined(started.head.status.as_u16());
                let relay = Relay::new((*started, prefix), opened.group, opened.settings, opened.grant, (opened.sent, true));
                let comment = self.broke.is_some() && relay.settings.resume.comment && self.at_boundary;
                self.state = State::Relaying(Box::new(relay));
                self.look_for_drain();
                comment.then(|| Bytes::from_static(MOVED))
            }
            Answer::Whole { head, body } => {
                job.record.declined(head.status.as_u16());
                let event = late_error::event(job.inbound.route, head.status, &body);
                Some(self.last_event("upstream_error", event))
            }
        }
    }

    fn seen(&mut self, seen: Seen) -> Option<Bytes> {
        match seen {
            Seen::Bytes(bytes) => {
                self.passed(&bytes);
                Some(bytes)
            }
            Seen::End(end) => {
                self.ended(end);
                None
            }
            Seen::Broken(cause, why) => self.broken(cause, why),
            Seen::Late(clock) => Some(self.refuse(&Reject::UpstreamTimeout(clock))),
            Seen::Nudged => {
                self.look_for_drain();
                let cutting = self.job.as_ref().is_some_and(|job| job.gateway.lame_duck.phase() >= Phase::Cutting);
                cutting.then(|| self.refuse(&Reject::ShuttingDown))
            }
        }
    }

    fn look_for_drain(&mut self) {
        let State::Relaying(relay) = &self.state else { return };
        if let Some(job) = self.job.as_mut().filter(|_| relay.group.signs().leaving()) {
            job.record.draining();
        }
    }

    fn passed(&mut self, bytes: &[u8]) {
        let State::Relaying(relay) = &self.state else { return };
        let Some(job) = &mut self.job else { return };
        job.record.passed(bytes);
        if let Some(at) = relay.last_event().filter(|_| self.events) {
            job.record.event(at.into_std());
        }
        let Some(watch) = &mut self.watch else { return };
        self.at_boundary = watch.at_boundary();
        if let Some(broke) = self.broke.take() {
            job.record.paused(broke.elapsed());
        }
        let request = job.body().bytes();
        let kept = watch.stream().kept_bytes() + request;
        let max = relay.settings.resume.total_bytes;
        if kept > 0 && watch.stream().lost().is_none() && !self.kept.grow(kept, max) {
            watch.stream().forget();
            job.forget_body();
            self.kept.clear();
            job.gateway.telemetry.metrics.resume_not_kept.inc();
        }
    }

    /// An answer that is no stream of events ends with its last byte: hyper does not ask for more than its `Content-Length` says.
    fn end_if_whole(&mut self) {
        if !self.events
            && let State::Relaying(relay) = &mut self.state
            && relay.is_whole()
        {
            self.ended(End::Complete);
        }
    }

    fn ended(&mut self, end: End) {
        let state = std::mem::replace(&mut self.state, State::Ended);
        let Some(job) = &mut self.job else { return };
        match end {
            End::EngineError => job.record.engine_error(),
            End::Complete | End::Broken(_) => job.record.complete(),
        }
        if let State::Relaying(relay) = state
            && job.record.outcome() == Ended::Ok
        {
            relay.group.answered_well(job.inbound.route);
        }
    }

    fn broken(&mut self, cause: Cause, why: String) -> Option<Bytes> {
        let State::Relaying(relay) = std::mem::replace(&mut self.state, State::Done) else { return None };
        let from = relay.group.clone();
        // The connection is closed now: this is what lets a stopped engine exit (engine fact 4).
        drop(relay);
        let mut job = self.job.take()?;
        job.record.broke(carry::label(cause));
        if let Some(fault) = fault_of(cause) {
            job.gateway.fault(&from, fault);
        }
        let Some(mut watch) = self.watch.take() else {
            self.job = Some(job);
            return Some(self.refuse(&Reject::UpstreamReset(why)));
        };
        self.broke.get_or_insert_with(Instant::now);
        self.state = State::Opening(Box::pin(async move {
            let gateway = job.gateway.clone();
            let broke = Break { cause, why, from };
            let result = tokio::select! {
                biased;
                result = carry::on(&mut job, &mut watch, broke) => result,
                () = gateway.lame_duck.reached(Phase::Cutting) => Err(Reject::ShuttingDown),
            };
            let result = as_stream(&gateway, result).await;
            Progress { job, watch: Some(watch), result }
        }));
        None
    }

    /// Ends the stream by an error event, then a cut. An answer that is no stream of events is only cut.
    fn refuse(&mut self, reject: &Reject) -> Bytes {
        let route = self.job.as_ref().map_or(crate::telemetry::labels::Route::ChatCompletions, |job| job.inbound.route);
        self.last_event(reject.code(), reject.event(route, self.at_boundary))
    }

    fn last_event(&mut self, code: &'static str, event: Bytes) -> Bytes {
        if let Some(job) = &mut self.job {
            if self.events { job.record.stream_error(code) } else { job.record.cut(code) }
        }
        let event = if self.events { event } else { Bytes::new() };
        self.state = State::Cutting {
            looks: 0,
            timer: Box::pin(sleep(FLUSH_LOOK)),
            seen: self.written.bytes(),
            bytes: self.written.bytes() + event.len() as u64,
            flushes: self.written.flushes(),
        };
        event
    }
}

impl Drop for Exchange {
    /// A client that left: its leader's connection is closed first, so that the record knows how long that took.
    fn drop(&mut self) {
        let seen = Instant::now();
        let running = matches!(self.state, State::Relaying(_));
        self.state = State::Done;
        if let Some(job) = self.job.as_mut().filter(|_| running) {
            job.record.closed(seen.elapsed());
        }
    }
}

impl Body for Exchange {
    type Data = Bytes;
    type Error = CutShort;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, CutShort>>> {
        self.step(cx).map(|next| next.map(|result| result.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.state, State::Ended)
    }
}

/// The future of a stream that waits for its first leader.
pub fn opening(mut job: Box<Job>) -> Opening {
    Box::pin(async move {
        let gateway = job.gateway.clone();
        let result = tokio::select! {
            biased;
            result = job.open(Hold::Wait) => result,
            () = gateway.lame_duck.reached(Phase::Cutting) => Err(Stop::Reject(Reject::ShuttingDown)),
        };
        let result = result.map(Carried::Opened).map_err(|stop| match stop {
            Stop::Reject(reject) => reject,
            Stop::MustHold => Reject::Internal,
        });
        Progress { job, watch: None, result }
    })
}

/// [`opening`] for a client that has been told 200: what is no stream of events is read whole, since it can only be told of by an event.
pub fn opening_stream(opening: Opening) -> Opening {
    Box::pin(async move {
        let mut progress = opening.await;
        progress.result = as_stream(&progress.job.gateway, progress.result).await;
        progress
    })
}

async fn as_stream(gateway: &Gateway, result: Result<Carried, Reject>) -> Result<Carried, Reject> {
    let mut opened = match result? {
        Carried::Opened(opened) => opened,
        finish @ Carried::Finish(_) => return Ok(finish),
    };
    let Answer::Running { mut started, prefix } = opened.answer else { return Ok(Carried::Opened(opened)) };
    if started.head.status.is_success() && is_event_stream(&started.head) {
        opened.answer = Answer::Running { started, prefix };
        return Ok(Carried::Opened(opened));
    }
    let clock = (opened.sent + opened.settings.clocks.response, Clock::Response);
    let gathered = {
        let whole = pin!(whole::gather(&mut started));
        tokio::select! {
            biased;
            gathered = attempt::watched(whole, &opened.group, &opened.settings, clock) => gathered,
            () = gateway.lame_duck.reached(Phase::Cutting) => return Err(Reject::ShuttingDown),
        }
    };
    let body = match gathered {
        Ok(Gathered::Whole(body) | Gathered::Long(body)) => body,
        Ok(Gathered::Cut(why)) => return Err(Reject::UpstreamReset(why)),
        Err(Outcome::TimedOut(clock)) => return Err(Reject::UpstreamTimeout(clock)),
        Err(_) => return Err(Reject::UpstreamReset(SILENT.to_owned())),
    };
    opened.answer = Answer::Whole { head: Box::new(started.head), body };
    Ok(Carried::Opened(opened))
}

/// For a stream that the request did not ask for.
fn watch_of(job: &Job) -> Box<Watch> {
    Box::new(Watch::new(Route::of(job.inbound.target.path()), &job.settings().resume))
}

/// Whether the request may be needed again once its stream runs.
fn keeps_request(job: &Job) -> bool {
    let resume = &job.settings().resume;
    resume.enabled && job.body().bytes() <= resume.request_bytes && Route::of(job.inbound.target.path()).resumable()
}

/// What a break says of the leader.
fn fault_of(cause: Cause) -> Option<Fault> {
    match cause {
        Cause::Stall => Some(Fault::Hang),
        Cause::Cut => Some(Fault::Reset),
        Cause::EngineError | Cause::Abort | Cause::NoFinish => Some(Fault::BrokenStream),
        Cause::Gone | Cause::Differed | Cause::Unreadable => None,
    }
}
