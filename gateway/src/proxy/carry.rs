//! Carries a broken stream on: asks the plan (`resume`), finds a leader for it, and brings the leader's answer back to the exchange.
//!
//! Owns: the loop between plan, question and attempt, and its bounds. Must not: read events (`resume` does) or decide what is exact.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::uri::PathAndQuery;
use tokio::time::{Instant, sleep, timeout};

use crate::groups::queue::Grant;
use crate::groups::state::GroupState;
use crate::proxy::attempt::{Outcome, Started};
use crate::proxy::body::RequestBody;
use crate::proxy::job::Job;
use crate::proxy::opened::{Answer, Opened, Stop, is_event_stream};
use crate::proxy::retry::Failure;
use crate::proxy::whole::{self, Gathered};
use crate::reject::{Clock, Reject};
use crate::resume::{Ask, Caps, Cause, Next, Plan, Refusal, Resend, Watch, Way};
use crate::telemetry::labels::{ResumeCause, ResumeResult, ResumeWay};

/// Questions and requests of one break: each way is tried at most a few times, each at a few leaders.
const MAX_STEPS: u32 = 24;
/// Limit of a question to a leader.
const ASK_TIMEOUT: Duration = Duration::from_secs(10);

/// Pause after a leader that is too busy.
const BUSY_PAUSE: Duration = Duration::from_millis(500);

/// A stream that broke.
#[derive(Debug)]
pub struct Break {
    /// Why.
    pub cause: Cause,
    /// In words.
    pub why: String,
    /// Where it ran.
    pub from: Arc<GroupState>,
}

/// How it goes on.
#[derive(Debug)]
pub enum Carried {
    /// Another leader's answer, which the watch expects.
    Opened(Opened),
    /// Nothing was left to generate: these events end the stream.
    Finish(Bytes),
}

/// A leader that was chosen for the steps of one break.
type Chosen = (Arc<GroupState>, Arc<config::PoolSettings>, Option<Grant>);

/// Carries the stream on, or says why not.
pub async fn on(job: &mut Job, watch: &mut Watch, broke: Break) -> Result<Carried, Reject> {
    if !watch.stream().sent_anything() {
        return fresh(job, watch, broke).await;
    }
    let allowed = match broke.cause {
        // The way did not work; the leader did. Another way, at the same leader too, is no further move.
        Cause::Differed | Cause::Unreadable => true,
        Cause::Cut | Cause::Stall | Cause::Gone | Cause::EngineError | Cause::Abort | Cause::NoFinish => {
            job.may_move(&broke.from, broke.from.signs().leaving())
        }
    };
    let cause = label(broke.cause);
    let mut way = None;
    let result = if allowed { steps(job, watch, &broke, &mut way).await } else { finish_or_refuse(job, watch, &broke) };
    let outcome = result.as_ref().map_or_else(failed, |_| ResumeResult::Resumed);
    job.record.resumed(cause, way.map_or(ResumeWay::None, way_label), outcome);
    result
}

/// Nothing was sent on yet: the original request, to another leader, under the rule of retries.
async fn fresh(job: &mut Job, watch: &mut Watch, broke: Break) -> Result<Carried, Reject> {
    let failure = match broke.cause {
        Cause::EngineError | Cause::Abort | Cause::NoFinish => Failure::Ended,
        Cause::Cut | Cause::Stall | Cause::Gone | Cause::Differed | Cause::Unreadable => Failure::Unknown,
    };
    let opened = job.again(broke.from, failure, Reject::UpstreamReset(broke.why)).await.map_err(|stop| match stop {
        Stop::Reject(reject) => reject,
        Stop::MustHold => Reject::Internal,
    })?;
    watch.begin_fresh();
    Ok(Carried::Opened(opened))
}

/// No move is left; a text that is whole already needs none.
fn finish_or_refuse(job: &Job, watch: &mut Watch, broke: &Break) -> Result<Carried, Reject> {
    let plan = watch.stream().plan(&job.body().to_bytes(), Caps { tokenize: false, ..Caps::default() }, &job.settings().resume);
    if let Plan::Finish(events) = plan {
        return Ok(Carried::Finish(events));
    }
    Err(refused(Refusal::Moves, broke))
}

async fn steps(job: &mut Job, watch: &mut Watch, broke: &Break, way: &mut Option<Way>) -> Result<Carried, Reject> {
    let settings = job.settings().resume.clone();
    let body = job.body().to_bytes();
    let mut chosen: Option<Chosen> = None;
    for _ in 0..MAX_STEPS {
        match watch.stream().plan(&body, Caps::default(), &settings) {
            // Only before anything was sent, which `on` has looked at.
            Plan::Fresh => return Err(Reject::Internal),
            Plan::Finish(events) => return Ok(Carried::Finish(events)),
            Plan::Refuse(refusal) => return Err(refused(refusal, broke)),
            Plan::Ask(question) => {
                let leader = leader(job, &mut chosen).await?;
                let answer = ask(job, &leader, &question).await;
                watch.stream().answered(question, answer.as_deref());
                chosen = Some(leader);
            }
            Plan::Send(resend) => {
                *way = Some(resend.way);
                let leader = leader(job, &mut chosen).await?;
                match send(job, watch, leader, resend, broke).await? {
                    Sent::Opened(opened) => return Ok(Carried::Opened(opened)),
                    Sent::Again(same) => chosen = same,
                }
            }
        }
    }
    Err(refused(Refusal::LeaderRefused, broke))
}

async fn leader(job: &mut Job, chosen: &mut Option<Chosen>) -> Result<Chosen, Reject> {
    match chosen.take() {
        Some(leader) => Ok(leader),
        None => job.next_leader().await,
    }
}

/// `None`: the leader cannot say.
async fn ask(job: &Job, (group, settings, _): &Chosen, question: &Ask) -> Option<Bytes> {
    let body = RequestBody::from_bytes(question.body.clone());
    let deadline = (Instant::now() + ASK_TIMEOUT, Clock::Response);
    let Outcome::Started(mut started) = job.send(group, settings, (&PathAndQuery::from_static(Ask::PATH), &body), deadline).await else {
        return None;
    };
    short_answer(&mut started).await.filter(|_| started.head.status.is_success())
}

enum Sent {
    Opened(Opened),
    /// Plan again, at the same leader if it is still one.
    Again(Option<Chosen>),
}

async fn send(job: &mut Job, watch: &mut Watch, leader: Chosen, resend: Resend, broke: &Break) -> Result<Sent, Reject> {
    let (group, settings, grant) = leader;
    let path = resend.path.map_or_else(|| job.inbound.target.clone(), PathAndQuery::from_static);
    let body = RequestBody::from_bytes(resend.body.clone());
    let sent = Instant::now();
    let deadline = (sent + settings.clocks.first_event, Clock::FirstEvent);
    let outcome = job.send(&group, &settings, (&path, &body), deadline).await;
    let Outcome::Started(mut started) = outcome else {
        let timed_out = matches!(outcome, Outcome::TimedOut(_));
        let reject = job.give_up_on(&group, outcome);
        // What broke here has reached nobody; but a healthy leader that is only late is not asked twice.
        return if timed_out { Err(reject) } else { Ok(Sent::Again(None)) };
    };
    if started.head.status.is_success() && is_event_stream(&started.head) {
        let moved = !Arc::ptr_eq(&group, &broke.from);
        watch.begin(resend, moved);
        return Ok(Sent::Opened(Opened { group, settings, grant, sent, answer: Answer::Running { started, prefix: Bytes::new() } }));
    }
    let status = started.head.status.as_u16();
    let Some(answer) = short_answer(&mut started).await else {
        job.give_up_on(&group, Outcome::Cut("its answer broke off".to_owned()));
        return Ok(Sent::Again(None));
    };
    match watch.stream().refused(&resend, status, &answer) {
        Next::PlanAgain => Ok(Sent::Again(Some((group, settings, grant)))),
        Next::OtherLeader if status == 503 => {
            // Full, not broken. The others may be full too: wait, and ask whoever is lightest then.
            drop(grant);
            sleep(BUSY_PAUSE).await;
            Ok(Sent::Again(None))
        }
        Next::OtherLeader => {
            job.exclude(&group);
            Ok(Sent::Again(None))
        }
    }
}

/// An answer that is no stream, within a bound of time.
async fn short_answer(started: &mut Started) -> Option<Bytes> {
    match timeout(ASK_TIMEOUT, whole::gather(started)).await {
        Ok(Gathered::Whole(answer) | Gathered::Long(answer)) => Some(answer),
        Ok(Gathered::Cut(_)) | Err(_) => None,
    }
}

fn refused(refusal: Refusal, broke: &Break) -> Reject {
    Reject::NotResumable { reason: refusal.word(), detail: format!("{} (the break: {})", refusal.message(), broke.why) }
}

/// What the metrics call a stream that was not carried on.
fn failed(reject: &Reject) -> ResumeResult {
    if let Reject::NotResumable { reason, .. } = reject {
        let bound = Refusal::BOUNDS.iter().any(|bound| bound.word() == *reason);
        return if bound { ResumeResult::OverBound } else { ResumeResult::Refused };
    }
    if matches!(reject, Reject::NoServingGroup { .. }) { ResumeResult::NoLeader } else { ResumeResult::Failed }
}

/// The word of metrics and traces.
pub fn label(cause: Cause) -> ResumeCause {
    match cause {
        Cause::Cut => ResumeCause::Truncated,
        Cause::Gone => ResumeCause::ConnectionLost,
        Cause::Stall => ResumeCause::Stalled,
        Cause::EngineError => ResumeCause::ErrorEvent,
        Cause::Abort => ResumeCause::Aborted,
        Cause::NoFinish => ResumeCause::NoFinish,
        Cause::Differed => ResumeCause::Differed,
        Cause::Unreadable => ResumeCause::Unreadable,
    }
}

fn way_label(way: Way) -> ResumeWay {
    match way {
        Way::Continue => ResumeWay::Continue,
        Way::Replay => ResumeWay::Replay,
        Way::TokenIds => ResumeWay::TokenIds,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_is_told_from_a_kind_of_request() {
        let refused = |refusal: Refusal| failed(&Reject::NotResumable { reason: refusal.word(), detail: String::new() });
        assert_eq!(refused(Refusal::Moves), ResumeResult::OverBound);
        assert_eq!(refused(Refusal::Memory), ResumeResult::OverBound);
        assert_eq!(refused(Refusal::Multimodal), ResumeResult::Refused);
        assert_eq!(failed(&Reject::Internal), ResumeResult::Failed);
    }
}
