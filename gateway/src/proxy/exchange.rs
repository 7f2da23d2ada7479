//! The body of an answer: a leader's bytes, the comments of a wait, the move to another leader, and the one way in which it ends (invariant 7).
//!
//! Owns: the states of an answer that has begun towards its client. Everything it does is done by being polled: no task, no channel.
//! Next step: hyper writes the frames; dropping this body (client gone) drops the job, its permit and its connection at once.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame};
use tokio::time::{Instant, Sleep, sleep, sleep_until};

use crate::proxy::job::{Answer, Hold, Job, Opened, Stop, is_event_stream};
use crate::proxy::relay::{Broken, Relay, Seen};
use crate::proxy::retry::Failure;
use crate::proxy::whole::{self, Gathered};
use crate::reject::Reject;
use crate::server::io::Written;
use crate::shutdown::Phase;
use crate::sse::Action;

/// A comment event: keeps clients and middle boxes from timing out (wire rule S15).
const HEARTBEAT: &[u8] = b": waiting for a replica\n\n";
/// How often the last event's flush is looked for, and for how long, before the cut.
const FLUSH_LOOK: Duration = Duration::from_millis(2);
const FLUSH_LOOKS: u32 = 500;

/// The answer was cut on purpose, after its error event: hyper ends the message unfinished (wire rules H10, T7).
#[derive(Debug, thiserror::Error)]
#[error("the answer was cut after an error event")]
pub struct CutShort;

type Opening = Pin<Box<dyn Future<Output = (Box<Job>, Result<Opened, Stop>)> + Send + Sync>>;

enum State {
    /// Waiting for a leader; the job is in the future.
    Opening(Opening),
    Relaying(Box<Relay>),
    /// The last bytes have been given to hyper; the cut follows when they are flushed.
    Cutting { looks: u32, timer: Pin<Box<Sleep>>, bytes: u64, flushes: u64 },
    /// Ends properly at the next poll.
    Ended,
    Done,
}

/// See the module.
pub struct Exchange {
    job: Option<Box<Job>>,
    state: State,
    written: Arc<Written>,
    heartbeat: Option<Pin<Box<Sleep>>>,
    pace: Duration,
    /// The last byte given to the client ended an event.
    at_boundary: bool,
}

impl std::fmt::Debug for Exchange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Exchange").finish_non_exhaustive()
    }
}

impl Exchange {
    /// An answer whose leader is known.
    pub fn relaying(job: Box<Job>, relay: Relay, written: Arc<Written>) -> Self {
        let pace = relay.settings.hold.heartbeat_interval;
        Self { job: Some(job), state: State::Relaying(Box::new(relay)), written, heartbeat: None, pace, at_boundary: true }
    }

    /// A stream whose client is told to wait, at once and then at `pace`.
    pub fn waiting(opening: Opening, pace: Duration, written: Arc<Written>) -> Self {
        let heartbeat = Some(Box::pin(sleep_until(Instant::now())));
        Self { job: None, state: State::Opening(opening), written, heartbeat, pace, at_boundary: true }
    }

    fn step(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, CutShort>>> {
        loop {
            match &mut self.state {
                State::Opening(opening) => {
                    if let Poll::Ready((job, result)) = opening.as_mut().poll(cx) {
                        self.job = Some(job);
                        if let Some(last) = self.opened(result) {
                            return Poll::Ready(Some(Ok(last)));
                        }
                        continue;
                    }
                    return self.heartbeat(cx).map(|comment| Some(Ok(comment)));
                }
                State::Relaying(relay) => {
                    let seen = ready!(relay.poll(cx, &mut |_| Action::Forward));
                    if let Some(bytes) = self.seen(seen) {
                        return Poll::Ready(Some(Ok(bytes)));
                    }
                }
                State::Cutting { looks, timer, bytes, flushes } => {
                    let flushed = self.written.flushes() > *flushes && self.written.bytes() >= *bytes;
                    if !flushed && *looks < FLUSH_LOOKS {
                        ready!(timer.as_mut().poll(cx));
                        *looks += 1;
                        timer.as_mut().reset(Instant::now() + FLUSH_LOOK);
                        continue;
                    }
                    self.state = State::Done;
                    return Poll::Ready(Some(Err(CutShort)));
                }
                State::Ended => {
                    self.complete();
                    self.state = State::Done;
                    return Poll::Ready(None);
                }
                State::Done => return Poll::Ready(None),
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
        Poll::Ready(Bytes::from_static(HEARTBEAT))
    }

    /// A leader was found for a stream whose head is long sent, or none was.
    fn opened(&mut self, result: Result<Opened, Stop>) -> Option<Bytes> {
        self.heartbeat = None;
        match result {
            Ok(Opened { candidate, settings, grant, sent, answer: Answer::Running { started, prefix } }) => {
                self.state = State::Relaying(Box::new(Relay::new((*started, prefix), candidate, settings, grant, (sent, true))));
                None
            }
            Ok(Opened { answer: Answer::Whole { head, body }, .. }) => Some(self.last_event("upstream_error", upstream_error_event(head.status, &body))),
            Err(Stop::Reject(reject)) => Some(self.refuse(&reject)),
            Err(Stop::MustHold) => Some(self.refuse(&Reject::Internal)),
        }
    }

    fn seen(&mut self, seen: Seen) -> Option<Bytes> {
        match seen {
            Seen::Bytes(bytes) => {
                self.passed(bytes.len());
                Some(bytes)
            }
            Seen::End => self.end(),
            Seen::Broken(broken) => self.broken(broken),
            Seen::Late(clock) => Some(self.refuse(&Reject::UpstreamTimeout(clock))),
            Seen::Nudged => {
                let cutting = self.job.as_ref().is_some_and(|job| job.gateway.lame_duck.phase() >= Phase::Cutting);
                cutting.then(|| self.refuse(&Reject::ShuttingDown))
            }
        }
    }

    fn passed(&mut self, bytes: usize) {
        let State::Relaying(relay) = &self.state else { return };
        self.at_boundary = relay.at_boundary();
        if let Some(job) = &mut self.job {
            job.record.response_bytes += bytes as u64;
            if relay.begun() {
                job.record.first_event();
            }
        }
    }

    fn end(&mut self) -> Option<Bytes> {
        let State::Relaying(relay) = &mut self.state else { return None };
        let rest = relay.rest();
        self.state = State::Ended;
        (!rest.is_empty()).then_some(rest)
    }

    fn complete(&mut self) {
        if let Some(job) = &mut self.job {
            job.record.complete();
        }
    }

    fn broken(&mut self, broken: Broken) -> Option<Bytes> {
        let State::Relaying(relay) = std::mem::replace(&mut self.state, State::Done) else { return None };
        let (candidate, begun, streams) = (relay.candidate.clone(), relay.begun(), relay.at_boundary());
        self.at_boundary = streams;
        let (fault, why) = match broken {
            Broken::Lost(why) => (discovery::Fault::Reset, why),
            Broken::Stalled => (discovery::Fault::Hang, "silent while its group was leaving or broken".to_owned()),
        };
        drop(relay);
        let mut job = self.job.take()?;
        job.gateway.fault(&candidate.state, fault);
        if begun || !job.streamed() {
            self.job = Some(job);
            return Some(self.refuse(&Reject::UpstreamReset(why)));
        }
        self.state = State::Opening(Box::pin(async move {
            let result = job.again(candidate, Failure::Unknown, Reject::UpstreamReset(why)).await;
            let result = as_stream(result).await;
            (job, result)
        }));
        None
    }

    /// Ends the stream by an error event, then a cut. An answer that is no stream of events is only cut.
    fn refuse(&mut self, reject: &Reject) -> Bytes {
        self.last_event(reject.code(), reject.event(self.at_boundary))
    }

    fn last_event(&mut self, code: &'static str, event: Bytes) -> Bytes {
        let streamed = self.job.as_ref().is_none_or(|job| job.streamed());
        if let Some(job) = &mut self.job {
            if streamed { job.record.stream_error(code) } else { job.record.cut(code) }
        }
        let event = if streamed { event } else { Bytes::new() };
        self.state = State::Cutting {
            looks: 0,
            timer: Box::pin(sleep(FLUSH_LOOK)),
            bytes: self.written.bytes() + event.len() as u64,
            flushes: self.written.flushes(),
        };
        event
    }
}

impl Body for Exchange {
    type Data = Bytes;
    type Error = CutShort;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, CutShort>>> {
        self.step(cx).map(|next| next.map(|result| result.map(Frame::data)))
    }
}

/// The future of a stream that waits for its first leader.
pub fn opening(mut job: Box<Job>) -> Opening {
    Box::pin(async move {
        let cut = job.gateway.clone();
        let result = tokio::select! {
            biased;
            result = job.open(Hold::Wait) => result,
            () = cut.lame_duck.reached(Phase::Cutting) => Err(Stop::Reject(Reject::ShuttingDown)),
        };
        let result = as_stream(result).await;
        (job, result)
    })
}

/// What is no stream of events is read whole: its client can only be told by an event now.
async fn as_stream(result: Result<Opened, Stop>) -> Result<Opened, Stop> {
    let mut opened = result?;
    let Answer::Running { mut started, prefix } = opened.answer else { return Ok(opened) };
    if started.head.status.is_success() && is_event_stream(&started.head) {
        opened.answer = Answer::Running { started, prefix };
        return Ok(opened);
    }
    let body = match whole::gather(&mut started).await {
        Gathered::Whole(body) | Gathered::Long(body) => body,
        Gathered::Cut(why) => return Err(Stop::Reject(Reject::UpstreamReset(why))),
    };
    opened.answer = Answer::Whole { head: Box::new(started.head), body };
    Ok(opened)
}

/// A leader's error answer as an event: its own error object where it has one.
fn upstream_error_event(status: http::StatusCode, body: &[u8]) -> Bytes {
    match serde_json::from_slice::<serde_json::Value>(body) {
        Ok(answer) if answer.get("error").is_some_and(|e| !e.is_null()) => format!("data: {answer}\n\n").into(),
        _ => Reject::UpstreamReset(format!("it answered {status} where a stream was expected")).event(true),
    }
}
