//! One client's stream over all the leaders that write it.
//!
//! Owns the verdict on each event and on the end, and joins journal, splice and planner. It sees events and bodies only;
//! connections, clocks, budgets and the choice of a leader are the relay's.

use bytes::Bytes;
use config::ResumeSettings;

use super::body;
use super::carry::{Broken, Carry};
use super::cause::{self, Cause};
use super::chunk::Chunk;
use super::journal::Journal;
use super::marks::{self, Mark};
use super::plan::{Ask, Caps, Plan, Resend};
use super::refusal::Refusal;
use super::rewrite;
use super::route::Route;
use super::splice::{Splice, Spliced};
use super::tried::Failure;
use crate::sse::{Event, Kind};

/// What becomes of an event.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// It goes on as it came.
    Forward,
    /// These bytes, whole events, go on in its place.
    Replace(Bytes),
    /// Nothing goes on.
    Swallow,
    /// The stream is broken. These bytes (may be none) still go on; what comes behind the event must not.
    Broken(Bytes, Cause),
}

/// How a stream ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Complete.
    Complete,
    /// The engine's own error event was passed on: the request's fault, or a stream that is only watched.
    EngineError,
    /// Broken.
    Broken(Cause),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Open,
    Done,
    Failed,
}

/// The watch over one stream.
#[derive(Debug)]
pub struct Stream {
    route: Route,
    phase: Phase,
    hide_ids: bool,
    limit: usize,
    journal: Journal,
    splice: Option<Box<Splice>>,
    carry: Option<Box<Carry>>,
}

impl Stream {
    /// A stream that has not begun. It keeps at most `settings.text_bytes` bytes of text, nothing if resuming is off.
    pub fn new(route: Route, settings: &ResumeSettings) -> Self {
        let limit = if settings.enabled && route.resumable() { settings.text_bytes } else { 0 };
        let mut journal = Journal::new(limit, false);
        if !settings.enabled {
            journal.lose(Refusal::Disabled);
        }
        Self { route, phase: Phase::Open, hide_ids: false, limit, journal, splice: None, carry: None }
    }

    /// The body to send first, if it has to differ from the client's ([`first_body`]); the stream then expects ids.
    pub fn first_body(&mut self, body: &Bytes, settings: &ResumeSettings) -> Option<Bytes> {
        let body = first_body(self.route, body, settings)?;
        self.expect_ids();
        Some(body)
    }

    /// The engine was asked for token ids by us ([`first_body`]): they are kept, and hidden from the client. To be
    /// called before the first event.
    pub fn expect_ids(&mut self) {
        self.hide_ids = true;
        self.journal = Journal::new(self.limit, true);
    }

    /// Bytes kept for a resume now; they count towards `ResumeSettings::total_bytes`.
    pub fn kept_bytes(&self) -> usize {
        self.journal.kept()
    }

    /// Forgets the text: the stream cannot be carried on any more. For a process that keeps too much.
    pub fn forget(&mut self) {
        self.journal.lose(Refusal::Memory);
    }

    /// Why the stream cannot be carried on any more, if so.
    pub fn lost(&self) -> Option<Refusal> {
        self.journal.lost
    }

    /// Whether some event with data has been passed on. Before that another leader may simply be asked.
    pub fn sent_anything(&self) -> bool {
        self.journal.sent
    }

    /// Whether the end of the stream was passed on.
    pub fn is_done(&self) -> bool {
        self.phase != Phase::Open
    }

    /// How often the stream was moved to another leader.
    pub fn moves(&self) -> u32 {
        self.carry.as_ref().map_or(0, |carry| carry.moves)
    }

    /// Judges the next whole event.
    pub fn on_event(&mut self, event: &Event<'_>) -> Step {
        match event.kind {
            Kind::Silent => Step::Forward,
            Kind::Part => self.on_part(),
            Kind::Done | Kind::Data if self.phase != Phase::Open => Step::Forward,
            Kind::Done => self.on_done(),
            Kind::Data if !self.route.resumable() => self.on_watched(event),
            Kind::Data if self.splice.is_some() => self.on_rest(&event.data),
            Kind::Data => self.on_data(&event.data),
        }
    }

    /// Judges the end of the body. `clean`: its framing ended properly.
    pub fn on_end(&self, clean: bool) -> End {
        let broken = End::Broken(if clean { Cause::NoFinish } else { Cause::Cut });
        match self.phase {
            Phase::Done => End::Complete,
            Phase::Failed => End::EngineError,
            Phase::Open => match self.route {
                Route::Chat | Route::Completions if clean && self.journal.complete() => End::Complete,
                Route::Other if clean => End::Complete,
                Route::Chat | Route::Completions | Route::Responses | Route::Messages | Route::Other => broken,
            },
        }
    }

    /// What to do now that the stream is broken. `body` is the client's own.
    pub fn plan(&mut self, body: &Bytes, caps: Caps, settings: &ResumeSettings) -> Plan {
        if !self.journal.sent {
            return Plan::Fresh;
        }
        if !self.route.resumable() {
            return Plan::Refuse(Refusal::Route);
        }
        if !settings.enabled {
            return Plan::Refuse(Refusal::Disabled);
        }
        if let Some(lost) = self.journal.lost.filter(|_| !self.journal.complete()) {
            return Plan::Refuse(lost);
        }
        if body.len() > settings.request_bytes {
            return Plan::Refuse(Refusal::RequestTooLong);
        }
        let now =
            Broken { route: self.route, raw: body, journal: &self.journal, caps, max_moves: settings.max_moves, token_ids: self.hide_ids };
        self.carry.get_or_insert_default().plan(&now)
    }

    /// The answer to a question; `None`: the leader gave none (an error status, a timeout).
    pub fn answered(&mut self, ask: Ask, body: Option<&[u8]>) {
        self.carry.get_or_insert_default().answered(ask, body);
    }

    /// The leader refused a request with this status and body.
    pub fn refused(&mut self, resend: &Resend, status: u16, body: &[u8]) -> Next {
        self.carry.get_or_insert_default().refused(resend.attempt, status, body)
    }

    /// The leader accepted: the events that come next are the rest of this stream. `moved`: it is another leader than
    /// that of the attempt before.
    pub fn begin(&mut self, resend: Resend, moved: bool) {
        self.carry.get_or_insert_default().begin(resend.attempt, moved);
        self.splice = Some(resend.splice);
        self.journal.begin_rest(resend.way);
    }

    /// The original request was sent again since nothing had been passed on.
    pub fn begin_fresh(&mut self) {
        self.splice = None;
        if self.journal.lost.is_none() {
            self.journal = Journal::new(self.limit, self.hide_ids);
        }
    }

    // ---- the first leader's events

    fn on_data(&mut self, data: &[u8]) -> Step {
        if self.journal.record_usual(data) {
            return Step::Forward;
        }
        let Some(chunk) = Chunk::parse(data) else {
            self.journal.sent = true;
            self.journal.lose(Refusal::Unreadable);
            return Step::Forward;
        };
        if chunk.error().is_some() {
            return self.on_error(&chunk);
        }
        if chunk.aborted() {
            return self.on_abort(&chunk);
        }
        self.journal.record(&chunk);
        if self.hide_ids {
            return Step::Replace(rewrite::event(&rewrite::without_ids(&chunk)).into());
        }
        self.journal.learn(data, &chunk);
        Step::Forward
    }

    fn on_error(&mut self, chunk: &Chunk<'_>) -> Step {
        let fault = chunk.error().is_some_and(|error| cause::is_requests_fault(error, &chunk.top));
        if !fault {
            return Step::Broken(Bytes::new(), Cause::EngineError);
        }
        self.phase = Phase::Failed;
        self.journal.sent = true;
        Step::Forward
    }

    /// The text in the last event of a stopped leader is good; its end is not.
    fn on_abort(&mut self, chunk: &Chunk<'_>) -> Step {
        if !chunk.choices.iter().any(|choice| choice.adds()) {
            return Step::Broken(Bytes::new(), Cause::Abort);
        }
        let json = rewrite::without_abort(chunk);
        let step = if self.splice.is_some() { self.on_rest(&json) } else { self.on_data(&json) };
        match step {
            Step::Replace(bytes) => Step::Broken(bytes, Cause::Abort),
            Step::Forward => Step::Broken(rewrite::event(&json).into(), Cause::Abort),
            Step::Swallow => Step::Broken(Bytes::new(), Cause::Abort),
            Step::Broken(bytes, cause) => Step::Broken(bytes, cause),
        }
    }

    fn on_done(&mut self) -> Step {
        if self.route.resumable() && !self.journal.complete() {
            return Step::Broken(Bytes::new(), Cause::NoFinish);
        }
        self.phase = Phase::Done;
        Step::Forward
    }

    fn on_part(&mut self) -> Step {
        self.journal.sent = true;
        self.journal.lose(Refusal::Unreadable);
        if self.splice.is_some() { Step::Broken(Bytes::new(), Cause::Unreadable) } else { Step::Forward }
    }

    // ---- streams that are only watched

    fn on_watched(&mut self, event: &Event<'_>) -> Step {
        match marks::read(self.route, event.name, &event.data) {
            Mark::None => {}
            Mark::Last => self.phase = Phase::Done,
            Mark::Failed => self.phase = Phase::Failed,
            Mark::Error if self.journal.sent => self.phase = Phase::Failed,
            Mark::Error => return self.on_first_error(&event.data),
        }
        self.journal.sent = true;
        Step::Forward
    }

    fn on_first_error(&mut self, data: &[u8]) -> Step {
        match Chunk::parse(data) {
            Some(chunk) if chunk.error().is_some() => self.on_error(&chunk),
            Some(_) | None => {
                self.phase = Phase::Failed;
                self.journal.sent = true;
                Step::Forward
            }
        }
    }

    // ---- another leader's rest

    fn on_rest(&mut self, data: &[u8]) -> Step {
        if let Some(bytes) = self.splice.as_ref().and_then(|splice| splice.usual(data, &mut self.journal)) {
            return Step::Replace(bytes);
        }
        let Some(chunk) = Chunk::parse(data) else {
            return self.fails(Failure::Refused, Cause::Unreadable);
        };
        if let Some(error) = chunk.error() {
            let fault = cause::is_requests_fault(error, &chunk.top);
            let broken = Step::Broken(Bytes::new(), Cause::EngineError);
            return if fault { self.fails(Failure::Refused, Cause::EngineError) } else { broken };
        }
        if chunk.aborted() {
            return self.on_abort(&chunk);
        }
        let spliced = self.splice.as_mut().map(|splice| splice.event(&chunk, &self.journal));
        match spliced {
            None | Some(Err(_)) => self.fails(Failure::Differed, Cause::Differed),
            Some(Ok(Spliced::Nothing)) => Step::Swallow,
            Some(Ok(Spliced::Event(json))) => self.emit(&json, (data, &chunk)),
        }
    }

    /// Passes `json` on in place of an event of the rest.
    fn emit(&mut self, json: &[u8], (data, incoming): (&[u8], &Chunk<'_>)) -> Step {
        let Some(chunk) = Chunk::parse(json) else { return self.fails(Failure::Refused, Cause::Unreadable) };
        self.journal.record(&chunk);
        let caught_up = self.splice.as_ref().is_some_and(|splice| splice.caught_up());
        if caught_up && let Some(carry) = self.carry.as_mut() {
            carry.goes_on();
        }
        if self.hide_ids {
            return Step::Replace(rewrite::event(&rewrite::without_ids(&chunk)).into());
        }
        let event = rewrite::event(json);
        if caught_up && let Some(splice) = self.splice.as_mut() {
            splice.learn((data, incoming), (json, &chunk), &mut self.journal);
        }
        Step::Replace(event.into())
    }

    fn fails(&mut self, failure: Failure, cause: Cause) -> Step {
        self.carry.get_or_insert_default().fails(failure);
        Step::Broken(Bytes::new(), cause)
    }
}

/// The body to send first, if it has to differ from the client's: only where config asks for token ids, in streams of the
/// paths that are carried on. The body is parsed for it; `None` costs nothing where config is silent.
pub fn first_body(route: Route, body: &Bytes, settings: &ResumeSettings) -> Option<Bytes> {
    let wanted = settings.enabled && settings.token_ids && route.resumable();
    if wanted { body::with_token_ids(body).map(Bytes::from) } else { None }
}

/// What to do after a leader refused a resumed request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// The leader is at fault: the same plan goes to another one.
    OtherLeader,
    /// This way is not possible: plan again.
    PlanAgain,
}
