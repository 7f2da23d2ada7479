//! One request from its reading to an answer that has begun: admission, attempts, and the bounded way back from a failed one.
//!
//! Owns: the request and what its attempts have shown. Gives an `Opened`: an answer for the client. Next step: `exchange` passes it on.

use std::pin::pin;
use std::sync::Arc;

use bytes::Bytes;
use config::{Config, PoolSettings, ResumeSettings};
use discovery::Fault;
use http::StatusCode;
use http::uri::PathAndQuery;
use smallvec::SmallVec;
use tokio::time::{Instant, timeout_at};

use crate::gateway::{Entered, Gateway};
use crate::groups::permits::Permit;
use crate::groups::queue::{Bounds, Grant, Priority};
use crate::groups::state::GroupState;
use crate::groups::table::PoolEntry;
use crate::proxy::admit::{self, Need, Ticket};
use crate::proxy::attempt::{self, NotSent, Outbound, Outcome, Place, Started};
use crate::proxy::body::RequestBody;
use crate::proxy::gone;
use crate::proxy::headers::{self, Upward};
use crate::proxy::ingress::{BodyCharge, Inbound};
use crate::proxy::opened::{Answer, Hold, Opened, Stop, is_event_stream};
use crate::proxy::pick::{self, Tried};
use crate::proxy::record::Record;
use crate::proxy::retry::{self, Evidence, Failure, Tries, Verdict};
use crate::proxy::route::{self, NoTarget, Target};
use crate::proxy::whole::{self, Gathered, Says};
use crate::reject::{Clock, Reject};
use crate::resume::{self, Watch};
use crate::telemetry::labels::Route;
use crate::upstream::h1::RequestHead;

/// What a stalled try is told of.
pub(super) const SILENT: &str = "silent while its group was leaving or broken";

/// A request and its tries.
#[derive(Debug)]
pub struct Job {
    /// Shared services.
    pub gateway: Arc<Gateway>,
    /// The worker that it runs on.
    pub worker: usize,
    /// As read.
    pub inbound: Inbound,
    /// The configuration when it came.
    pub config: Arc<Config>,
    /// Tries so far.
    pub tries: Tries,
    /// Its marks.
    pub record: Box<Record>,
    target: Option<Target>,
    /// The client's body with the served name in it; set with the target.
    body: RequestBody,
    /// What the first leader gets instead, where the pool asks engines for token ids.
    first_body: Option<RequestBody>,
    /// The judge of a stream's events, made here because it decides on `first_body`; taken by the exchange.
    pub(super) watch: Option<Box<Watch>>,
    tried: SmallVec<[Tried; 2]>,
    held_since: Option<Instant>,
    priority: Priority,
    /// `None` once the request is over.
    entered: Option<Entered>,
}

impl Job {
    /// A request that has just been read.
    pub fn new(
        (gateway, worker): (Arc<Gateway>, usize),
        config: Arc<Config>,
        inbound: Inbound,
        record: Box<Record>,
        entered: Entered,
    ) -> Box<Self> {
        Box::new(Self {
            gateway,
            worker,
            inbound,
            config,
            tries: Tries::default(),
            record,
            target: None,
            body: RequestBody::default(),
            first_body: None,
            watch: None,
            tried: SmallVec::new(),
            held_since: None,
            priority: Priority::Fresh,
            entered: Some(entered),
        })
    }

    /// The served name, once known.
    pub fn model(&self) -> Option<&Arc<str>> {
        self.target.as_ref().map(|target| &target.model)
    }

    /// The client asked for a stream.
    pub fn streamed(&self) -> bool {
        self.inbound.scanned.stream
    }

    /// Settings that hold before the pool is known.
    pub fn settings(&self) -> Arc<PoolSettings> {
        self.target.as_ref().map_or_else(|| self.config.defaults.clone(), |target| target.entry.settings.clone())
    }

    /// Goes through admission and attempts until a leader answers.
    pub async fn open(&mut self, hold: Hold) -> Result<Opened, Stop> {
        let mut last: Option<Result<Opened, Reject>> = None;
        loop {
            let ticket = self.ticket(hold).await?;
            let group = pick::pick(&ticket.entry, &self.tried, &mut self.gateway.dice.draw()).cloned();
            let Some(group) = group else {
                return last.unwrap_or_else(|| Err(admit::no_serving_group(&ticket.entry))).map_err(Stop::Reject);
            };
            let settings = ticket.entry.settings.clone();
            if self.tries.attempts == 0 {
                ticket.entry.state.budget.earn(&settings.retry);
            }
            self.tries.attempts += 1;
            self.record.tried(&group);
            let failed = match self.attempt(&group, settings, ticket.grant).await {
                Ok(opened) => return Ok(opened),
                Err(failed) => failed,
            };
            self.record.failed(failed.failure, failed.status());
            // Boxed, like all that is rare: what a future may need, each request has to hold.
            let again = Box::pin(self.may_try_again(&ticket.entry.clone(), &group, failed.failure)).await;
            tracing::info!(group = %group.key, failure = failed.failure.as_str(), again, "attempt failed");
            if !again {
                return failed.instead.map_err(Stop::Reject);
            }
            self.tried.push(Tried::now(&group));
            last = Some(failed.instead);
        }
    }

    /// Tries again after an answer that had begun broke before the client saw an event; `instead`: what the client gets if that is not allowed.
    pub async fn again(&mut self, group: Arc<GroupState>, failure: Failure, instead: Reject) -> Result<Opened, Stop> {
        let Some(entry) = self.target.as_ref().map(|target| target.entry.clone()) else { return Err(Stop::Reject(instead)) };
        if !self.may_try_again(&entry, &group, failure).await {
            return Err(Stop::Reject(instead));
        }
        self.tried.push(Tried::now(&group));
        self.open(Hold::Wait).await
    }

    async fn ticket(&mut self, hold: Hold) -> Result<Ticket, Stop> {
        let model = self.resolve(hold).await?;
        // A resumed or retried request that already waited is not sent to the back.
        if let Some(ticket) = admit::at_once(&self.gateway, &model) {
            return Ok(ticket);
        }
        if hold == Hold::Refuse {
            return Err(Stop::MustHold);
        }
        self.record.held(self.target.as_ref().is_some_and(|target| target.entry.state.queue.is_empty()));
        let since = *self.held_since.get_or_insert_with(Instant::now);
        let need = Need { model, priority: self.priority, stream: self.streamed(), bytes: self.body.bytes() as u64, since };
        Box::pin(admit::wait(&self.gateway, need)).await.map_err(Stop::Reject)
    }

    /// The served name of this request; waits while it may be one that nobody has learned yet.
    async fn resolve(&mut self, hold: Hold) -> Result<Arc<str>, Stop> {
        if let Some(target) = &self.target {
            return Ok(target.model.clone());
        }
        let found = route::resolve(&self.gateway.tables.load(), &self.config, &self.inbound.scanned);
        let target = match found {
            Ok(target) => target,
            Err(NoTarget::Reject(reject)) => return Err(Stop::Reject(reject)),
            Err(NoTarget::Pending) if hold == Hold::Refuse => return Err(Stop::MustHold),
            Err(NoTarget::Pending) => Box::pin(self.wait_for_name()).await.map_err(Stop::Reject)?,
        };
        self.body = route::body_for(&target, &self.inbound.scanned, self.inbound.body.clone());
        self.prepare_watch(&target.entry.settings.resume);
        let model = target.model.clone();
        self.record.pool(&model, &target.entry.state.metrics);
        self.record.asked(&self.inbound.body);
        self.target = Some(target);
        Ok(model)
    }

    fn prepare_watch(&mut self, resume: &ResumeSettings) {
        if !self.streamed() {
            return;
        }
        let mut watch = Box::new(Watch::new(resume::Route::of(self.inbound.target.path()), resume));
        // Off by default: then not even the body is looked at.
        if resume.enabled && resume.token_ids {
            self.first_body = watch.stream().first_body(&self.body.to_bytes(), resume).map(RequestBody::from_bytes);
        }
        self.watch = Some(watch);
    }

    async fn wait_for_name(&mut self) -> Result<Target, Reject> {
        self.record.held(false);
        let since = *self.held_since.get_or_insert_with(Instant::now);
        let hold = &self.config.defaults.hold;
        let deadline = since + if self.streamed() { hold.timeout } else { hold.timeout_unary };
        let bounds = Bounds { requests: hold.max_requests, bytes: hold.max_bytes };
        let bytes = self.inbound.body.bytes() as u64;
        // Only for its bounds: nobody is granted here, each waiter looks for itself.
        let _waiting = self
            .gateway
            .unnamed
            .join(Priority::Fresh, bytes, bounds, &self.gateway.held)
            .map_err(|_| Reject::QueueFull { what: "requests waiting for an unknown model" })?;
        let mut changed = self.gateway.tables.subscribe();
        loop {
            match route::resolve(&self.gateway.tables.load(), &self.config, &self.inbound.scanned) {
                Ok(target) => return Ok(target),
                Err(NoTarget::Reject(reject)) => return Err(reject),
                Err(NoTarget::Pending) => {}
            }
            if timeout_at(deadline, changed.changed()).await.is_err() {
                let detail = "the names that some deployment serves are not known yet".to_owned();
                return Err(Reject::NoServingGroup { retry_after: std::time::Duration::from_secs(10), detail });
            }
        }
    }

    async fn attempt(&mut self, group: &Arc<GroupState>, settings: Arc<PoolSettings>, grant: Option<Grant>) -> Result<Opened, Failed> {
        let sent = Instant::now();
        let clock = if self.streamed() {
            (sent + settings.clocks.first_event, Clock::FirstEvent)
        } else {
            (sent + settings.clocks.response, Clock::Response)
        };
        let outcome = self.send(group, &settings, (&self.inbound.target, self.first_body.as_ref().unwrap_or(&self.body)), clock).await;
        let Outcome::Started(started) = outcome else { return Err(self.failed(group, outcome)) };
        let answer = Answer::Running { started, prefix: Bytes::new() };
        self.read_on(Opened { group: group.clone(), settings, grant, sent, answer }, clock).await
    }

    /// One try with this path and body.
    pub(super) async fn send(
        &self,
        group: &Arc<GroupState>,
        settings: &PoolSettings,
        (target, body): (&PathAndQuery, &RequestBody),
        deadline: (Instant, Clock),
    ) -> Outcome {
        let request = Outbound { head: self.head(settings, target, body), body, deadline };
        let run = pin!(attempt::run(Place { gateway: &self.gateway, worker: self.worker }, group, settings, request));
        gone::noted(&self.record.gone, run).await
    }

    fn failed(&self, group: &Arc<GroupState>, outcome: Outcome) -> Failed {
        match outcome {
            Outcome::NotSent(why) => self.not_sent(group, &why),
            Outcome::Cut(why) => self.lost(group, Fault::Reset, Reject::UpstreamReset(why)),
            Outcome::Silent => self.lost(group, Fault::Hang, Reject::UpstreamReset(SILENT.to_owned())),
            Outcome::TimedOut(clock) => Failed::new(Failure::Clock, Reject::UpstreamTimeout(clock)),
            Outcome::Started(_) => Failed::new(Failure::Clock, Reject::Internal),
        }
    }

    /// Reports what a failed try says of the leader, and never takes it again for this request.
    pub(super) fn give_up_on(&mut self, group: &Arc<GroupState>, outcome: Outcome) -> Reject {
        let failed = self.failed(group, outcome);
        self.record.failed(failed.failure, failed.status());
        self.tried.push(Tried::now(group));
        failed.instead.err().unwrap_or(Reject::Internal)
    }

    /// Never takes this leader again for this request, unless it is proven anew.
    pub(super) fn exclude(&mut self, group: &Arc<GroupState>) {
        self.tried.push(Tried::now(group));
    }

    /// A leader that carries a broken stream on; waits for its turn among others that broke.
    pub(super) async fn next_leader(&mut self) -> Result<(Arc<GroupState>, Arc<PoolSettings>, Option<Grant>), Reject> {
        let Some(model) = self.model().cloned() else { return Err(Reject::Internal) };
        if admit::at_once(&self.gateway, &model).is_none() {
            self.record.held(false);
        }
        let since = Instant::now();
        let mut changed = self.gateway.tables.subscribe();
        let (group, ticket) = loop {
            let need = Need { model: model.clone(), priority: Priority::Resume, stream: true, bytes: 0, since };
            let ticket = admit::wait(&self.gateway, need).await?;
            if let Some(group) = pick::pick(&ticket.entry, &self.tried, &mut self.gateway.dice.draw()) {
                break (group.clone(), ticket);
            }
            // Those that serve have failed this stream. It waits for another one, as it would if none served.
            let deadline = since + ticket.entry.settings.hold.timeout;
            let refusal = admit::no_serving_group(&ticket.entry);
            drop(ticket);
            if !matches!(timeout_at(deadline, changed.changed()).await, Ok(Ok(()))) {
                return Err(refusal);
            }
        };
        self.tries.attempts += 1;
        self.record.tried(&group);
        Ok((group, ticket.entry.settings.clone(), ticket.grant))
    }

    /// A stream broke at `group`: is another move allowed? Leaders tried at earlier breaks count no longer.
    pub(super) fn may_move(&mut self, group: &Arc<GroupState>, planned: bool) -> bool {
        self.tried.clear();
        self.tried.push(Tried::now(group));
        self.tries.may_move(!planned, u32::MAX)
    }

    /// The body as a leader gets it.
    pub(super) fn body(&self) -> &RequestBody {
        &self.body
    }

    /// The answer is whole: gives back what others wait for, and counts the request. What is left is nobody's business but the log's.
    pub fn settle(&mut self) {
        self.entered = None;
        self.inbound.charge = BodyCharge::new(&self.gateway.bodies);
        self.record.count();
    }

    /// Lets go of what only a second try would need.
    pub(super) fn forget_body(&mut self) {
        self.body = RequestBody::default();
        self.first_body = None;
        self.inbound.body = RequestBody::default();
        self.inbound.charge = BodyCharge::new(&self.gateway.bodies);
    }

    fn head(&self, settings: &PoolSettings, target: &PathAndQuery, body: &RequestBody) -> Vec<u8> {
        let key = settings.engine_key.as_ref().filter(|key| key.forward).and_then(|key| self.gateway.keys.bearer(&key.file));
        let trace = self.record.context(&self.inbound.headers);
        let add = Upward {
            host: &self.inbound.host,
            request_id: &self.inbound.request_id,
            via: self.gateway.identity.via(self.inbound.version),
            authorization: key.as_ref(),
            trace: &trace,
            stream: self.streamed(),
        };
        let mut head = RequestHead::new(&self.inbound.method, target);
        headers::upward(&self.inbound.headers, &add, |name, value| head.field(name, value));
        head.finish(body.bytes())
    }

    fn not_sent(&self, group: &Arc<GroupState>, why: &NotSent) -> Failed {
        let words = match why {
            NotSent::Dial(error) => error.to_string(),
            NotSent::Closed(error) => error.clone(),
        };
        self.gateway.fault(group, Fault::Refused);
        Failed::new(Failure::NotSent, Reject::UpstreamConnect(words))
    }

    fn lost(&self, group: &Arc<GroupState>, fault: Fault, reject: Reject) -> Failed {
        self.gateway.fault(group, fault);
        Failed::new(Failure::Unknown, reject)
    }

    /// Reads what has to be known before the client gets the head.
    async fn read_on(&mut self, opened: Opened, clock: (Instant, Clock)) -> Result<Opened, Failed> {
        let Answer::Running { started, .. } = &opened.answer else { return Ok(opened) };
        let status = started.head.status;
        if status == StatusCode::OK && (is_event_stream(&started.head) || !route::generates(self.inbound.route)) {
            return Ok(opened);
        }
        if status.is_success() || status.is_server_error() { self.gather(opened, clock).await } else { Ok(opened) }
    }

    async fn gather(&mut self, mut opened: Opened, clock: (Instant, Clock)) -> Result<Opened, Failed> {
        let Answer::Running { mut started, .. } = opened.answer else { return Ok(opened) };
        let group = opened.group.clone();
        let watched = {
            let whole = pin!(whole::gather(&mut started));
            let watched = pin!(attempt::watched(whole, &group, &opened.settings, clock));
            gone::noted(&self.record.gone, watched).await
        };
        let body = match watched {
            Ok(Gathered::Whole(body)) => body,
            Ok(Gathered::Long(prefix)) => {
                if started.head.status.is_server_error() {
                    note(&self.gateway, (&started.permit, self.inbound.route), started.head.status, Says::Answer);
                }
                opened.answer = Answer::Running { started, prefix };
                return Ok(opened);
            }
            Ok(Gathered::Cut(why)) => return Err(self.lost(&group, Fault::Reset, Reject::UpstreamReset(why))),
            Err(Outcome::TimedOut(clock)) => return Err(Failed::new(Failure::Clock, Reject::UpstreamTimeout(clock))),
            Err(_) => return Err(self.lost(&group, Fault::Hang, Reject::UpstreamReset(SILENT.to_owned()))),
        };
        let says = whole::judge(started.head.status, &body);
        let Started { head, permit, .. } = *started;
        note(&self.gateway, (&permit, self.inbound.route), head.status, says);
        opened.answer = Answer::Whole { head: Box::new(head), body };
        match says {
            Says::Answer => Ok(opened),
            Says::Busy | Says::Leaving => Err(Failed { failure: Failure::Refused, instead: Ok(opened.without_grant()) }),
            Says::Ended => Err(Failed { failure: Failure::Ended, instead: ended(opened.without_grant()) }),
        }
    }

    /// Whether another try would find a leader now, or would wait for one.
    fn has_elsewhere(&self, entry: &PoolEntry, group: &Arc<GroupState>) -> bool {
        let table = self.gateway.tables.load();
        let entry = table.pool(&entry.pool.model).map_or(entry, |entry| entry);
        let tried: SmallVec<[Tried; 3]> = self.tried.iter().cloned().chain([Tried::now(group)]).collect();
        !entry.any_available() || pick::pick(entry, &tried, &mut self.gateway.dice.draw()).is_some()
    }

    async fn may_try_again(&mut self, entry: &PoolEntry, group: &Arc<GroupState>, failure: Failure) -> bool {
        let mut evidence = Evidence { signs: group.signs(), refuses: None };
        let mut verdict = retry::judge(failure, evidence);
        if verdict == Verdict::Verify {
            evidence.refuses = Some(attempt::refuses(&self.gateway, group, &entry.settings).await);
            // Discovery may have learned more meanwhile.
            evidence.signs = group.signs();
            verdict = retry::judge(failure, evidence);
        }
        let Verdict::Again { unplanned } = verdict else { return false };
        // What is counted and paid for is a second try, not the wish for one.
        if !self.has_elsewhere(entry, group) {
            return false;
        }
        let allowed = self.tries.may_move(unplanned, entry.settings.retry.attempts) && entry.state.budget.spend();
        if allowed {
            self.record.retried(retry::cause(failure, evidence));
        }
        allowed
    }
}

/// A failed try, and what the client gets if there is no other.
#[derive(Debug)]
struct Failed {
    failure: Failure,
    instead: Result<Opened, Reject>,
}

impl Failed {
    fn new(failure: Failure, reject: Reject) -> Self {
        Self { failure, instead: Err(reject) }
    }

    /// Of the leader's answer, where it gave one that may still be the client's.
    fn status(&self) -> Option<u16> {
        match &self.instead {
            Ok(Opened { answer: Answer::Whole { head, .. }, .. }) => Some(head.status.as_u16()),
            Ok(_) | Err(_) => None,
        }
    }
}

/// Half a text under status 200 must not pass for an answer; an engine's own error may.
fn ended(opened: Opened) -> Result<Opened, Reject> {
    if let Answer::Whole { head, .. } = &opened.answer
        && head.status == StatusCode::OK
    {
        return Err(Reject::UpstreamReset("the engine aborted the request".into()));
    }
    Ok(opened)
}

/// What an answer's status says of the leader's health. 4xx and 503 are no fault.
fn note(gateway: &Gateway, (permit, route): (&Permit, Route), status: StatusCode, says: Says) {
    let group = permit.group();
    match says {
        Says::Leaving | Says::Ended => gateway.fault(group, Fault::ServerError),
        Says::Busy => {}
        Says::Answer if status.is_server_error() => {
            if group.health.server_error(group.proof()) {
                gateway.report(&group.id, Fault::ServerError);
            }
        }
        Says::Answer => group.answered_well(route),
    }
}
