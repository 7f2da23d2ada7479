//! The handles that a request's path holds: its own span and one for each attempt.
//!
//! Owns: when spans begin and end. Must not: be able to leak: a handle that is dropped without an end ends as cancelled, whatever way the
//! request went. When tracing is off or a request is not recorded the handles are empty or hold ids only. A request that has ended well and
//! is not sampled leaves nothing: its records become no spans. Next step: `translate` for those that are sent.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use http::HeaderMap;
use opentelemetry::trace::SpanId;
use opentelemetry_sdk::trace::{IdGenerator, SpanData};
use smallvec::SmallVec;

use super::record::{Done, Head, Mark, Try};
use super::told::{AttemptBegin, AttemptEvent, AttemptRef, QueueWait, RequestBegin, RequestEnd, Usage};
use super::translate::{self, Place, failed};
use super::{Identity, Shared, context as headers};
use crate::telemetry::labels::AttemptOutcome;

/// Spans of one request at most: bounded by the attempts of a request anyway; this holds whatever they are set to.
const SPANS: usize = 64;

/// The SERVER span of one request. Clones are the same span.
#[derive(Debug, Clone, Default)]
pub struct RequestSpan(Option<Arc<Request>>);

#[derive(Debug)]
struct Request {
    shared: Arc<Shared>,
    place: Place,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    kept: Kept,
    /// Most requests have one wait and one try.
    done: SmallVec<[Done; 2]>,
    notable: bool,
}

/// What there is of the SERVER span.
#[derive(Debug)]
enum Kept {
    /// Not recorded, or nobody wants to see how it ended.
    Nothing,
    /// The request runs.
    Running(Head),
    /// It has ended and will be sent.
    Ended(Box<SpanData>),
}

impl RequestSpan {
    pub(super) fn begin(shared: Arc<Shared>, identity: Identity, begin: &RequestBegin<'_>) -> Self {
        let recorded = identity.sampled || shared.keep_notable;
        let kept = if recorded { Kept::Running(Head::new(begin)) } else { Kept::Nothing };
        let place = Place {
            trace: identity.trace_id,
            span: shared.ids.new_span_id(),
            parent: identity.parent.map(|parent| parent.span_id),
            sampled: identity.sampled,
            route: begin.route,
        };
        Self(Some(Arc::new(Request { shared, place, state: Mutex::new(State { kept, done: SmallVec::new(), notable: false }) })))
    }

    /// 32 hexadecimal digits; `None` when tracing is off.
    pub fn trace_id(&self) -> Option<String> {
        self.0.as_ref().map(|r| r.place.trace.to_string())
    }

    /// These spans will be sent however the request ends: only then is more read for them than what is at hand.
    pub fn is_sampled(&self) -> bool {
        self.0.as_ref().is_some_and(|r| r.place.sampled)
    }

    /// The request waited for a leader.
    pub fn queue_wait(&self, wait: QueueWait) {
        if let Some(request) = &self.0 {
            request.state().push(Done::Wait(wait));
        }
    }

    /// The CLIENT span of a try at one leader. `begin` is asked only where the span is kept: it reads memory that nothing else of the request does.
    pub fn attempt<'a>(&self, begin: impl FnOnce() -> AttemptBegin<'a>) -> AttemptSpan {
        let Some(request) = &self.0 else { return AttemptSpan::default() };
        let span = request.shared.ids.new_span_id();
        let recorded = request.state().is_recorded();
        let kept = recorded.then(|| Box::new(Try::new(span, begin(), request.place.sampled, SystemTime::now())));
        AttemptSpan(Some(Attempt { request: request.clone(), span, kept }))
    }

    /// The request has ended, and so have its tries.
    pub fn finish(self, end: &RequestEnd<'_>) {
        let Some(request) = self.0 else { return };
        let mut state = request.state();
        let sent = request.place.sampled || state.notable || end.resumes > 0 || failed(end);
        state.kept = match std::mem::replace(&mut state.kept, Kept::Nothing) {
            Kept::Running(head) if sent => Kept::Ended(Box::new(translate::server(&request.place, &head, end, SystemTime::now()))),
            Kept::Running(_) | Kept::Nothing => Kept::Nothing,
            ended @ Kept::Ended(_) => ended,
        };
    }
}

impl State {
    fn is_recorded(&self) -> bool {
        !matches!(self.kept, Kept::Nothing)
    }

    fn push(&mut self, done: Done) {
        if self.is_recorded() && self.done.len() < SPANS {
            self.done.push(done);
        }
    }
}

impl Request {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn translate(&self, done: &Done) -> SpanData {
        match done {
            Done::Wait(wait) => translate::wait(&self.place, self.shared.ids.new_span_id(), wait),
            Done::Try(kept) => translate::attempt(&self.place, kept),
        }
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        let server = match std::mem::replace(&mut state.kept, Kept::Nothing) {
            Kept::Ended(span) => *span,
            Kept::Running(head) if self.place.sampled || state.notable => {
                translate::server(&self.place, &head, &RequestEnd::default(), SystemTime::now())
            }
            Kept::Running(_) | Kept::Nothing => return,
        };
        let done = std::mem::take(&mut state.done);
        let spans = done.iter().map(|done| self.translate(done)).chain([server]).collect();
        self.shared.queue.send(spans);
    }
}

/// The CLIENT span of one try. Dropped without an end it ends as cancelled.
#[derive(Debug, Default)]
pub struct AttemptSpan(Option<Attempt>);

#[derive(Debug)]
struct Attempt {
    request: Arc<Request>,
    span: SpanId,
    /// `None`: not recorded.
    kept: Option<Box<Try>>,
}

impl AttemptSpan {
    /// The trace context for the leader, with this span as the parent. It stands in the place of the `client`'s; empty: that one passes.
    pub fn context(&self, client: &HeaderMap) -> HeaderMap {
        let mut made = HeaderMap::new();
        if let Some(Attempt { request, span, .. }) = self.0.as_ref().filter(|a| a.request.shared.propagate) {
            headers::inject(&mut made, request.place.trace, *span, request.place.sampled);
            if request.place.parent.is_some() {
                headers::keep_state(client, &mut made);
            }
        }
        made
    }

    /// For a later attempt's link.
    pub fn reference(&self) -> Option<AttemptRef> {
        self.0.as_ref().map(|a| AttemptRef::new(a.request.place.trace, a.span, a.request.place.sampled))
    }

    /// Something happened. `detail`: a word of a closed set, or empty.
    pub fn event(&mut self, event: AttemptEvent, detail: &'static str) {
        let Some(attempt) = &mut self.0 else { return };
        if matches!(event, AttemptEvent::Broken | AttemptEvent::Resumed) {
            attempt.request.state().notable = true;
        }
        if let Some(kept) = &mut attempt.kept {
            kept.mark(Mark { event, at: SystemTime::now(), detail });
        }
    }

    /// The leader's status.
    pub fn status(&mut self, status: u16) {
        self.keep(|kept| kept.status = Some(status));
    }

    /// Bytes of the answer passed; what it says of itself is read from them if these spans are sent.
    pub fn passed(&mut self, bytes: &[u8]) {
        if let Some(answer) = self.0.as_mut().and_then(|a| a.kept.as_mut()?.answer.as_mut()) {
            answer.feed(bytes);
        }
    }

    /// Tokens of this attempt.
    pub fn usage(&mut self, usage: Usage) {
        self.keep(|kept| kept.usage = usage);
    }

    /// The try has ended. `reason`: a word of a closed set, or empty.
    pub fn end(mut self, outcome: AttemptOutcome, reason: &'static str) {
        self.close(outcome, reason);
    }

    fn keep(&mut self, change: impl FnOnce(&mut Try)) {
        if let Some(kept) = self.0.as_mut().and_then(|a| a.kept.as_mut()) {
            change(kept);
        }
    }

    fn close(&mut self, outcome: AttemptOutcome, reason: &'static str) {
        let Some(Attempt { request, kept: Some(mut kept), .. }) = self.0.take() else { return };
        kept.ended = SystemTime::now();
        kept.outcome = outcome;
        kept.reason = reason;
        request.state().push(Done::Try(kept));
    }
}

impl Drop for AttemptSpan {
    fn drop(&mut self) {
        self.close(AttemptOutcome::Cancelled, "");
    }
}
