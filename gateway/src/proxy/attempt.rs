//! One try of a request at one leader, up to the head of its answer.
//!
//! Owns: dialling or re-using a connection, sending, and telling what is known of a try that failed. Must not: decide whether to try again (`retry`).

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;

use config::PoolSettings;
use discovery::dial::DialError;
use http::response::Parts;
use tokio::time::{Instant, sleep_until};

use crate::gateway::Gateway;
use crate::groups::permits::Permit;
use crate::groups::state::GroupState;
use crate::proxy::body::RequestBody;
use crate::reject::Clock;
use crate::telemetry::labels::Side;
use crate::upstream::body::UpstreamBody;
use crate::upstream::link::Link;

/// A request as a leader gets it.
#[derive(Debug)]
pub struct Outbound<'a> {
    /// As it goes out.
    pub head: Vec<u8>,
    /// Sent from its first byte at each try.
    pub body: &'a RequestBody,
    /// When the head of the answer must be there, and the clock that says so.
    pub deadline: (Instant, Clock),
}

/// Where attempts run.
#[derive(Debug, Clone, Copy)]
pub struct Place<'a> {
    /// Shared services.
    pub gateway: &'a Arc<Gateway>,
    /// Index of the worker thread, which has connections of its own.
    pub worker: usize,
}

/// An answer that has begun.
#[derive(Debug)]
pub struct Started {
    /// Status and fields as the leader sent them.
    pub head: Parts,
    /// What follows.
    pub body: UpstreamBody,
    /// Held as long as the answer runs.
    pub permit: Permit,
}

/// What is known of one try.
#[derive(Debug)]
pub enum Outcome {
    /// The leader answers.
    Started(Box<Started>),
    /// Not a byte reached the leader: safe to try elsewhere.
    NotSent(NotSent),
    /// The connection broke after something was sent: the leader may be executing.
    Cut(String),
    /// No answer while the group was leaving or broken, for longer than `resume.stall`.
    Silent,
    /// A clock fired.
    TimedOut(Clock),
}

/// Why nothing was sent.
#[derive(Debug)]
pub enum NotSent {
    /// No connection.
    Dial(DialError),
    /// The pooled connection was dead before a byte, and so was a fresh one.
    Closed(String),
}

/// Tries `request` at `group`. Dropping the future closes the connection and releases the permit.
pub async fn run(place: Place<'_>, group: &Arc<GroupState>, settings: &PoolSettings, request: Outbound<'_>) -> Outcome {
    let permit = Permit::take(group);
    let mut reused = group.idle.take(place.worker);
    loop {
        let pooled = reused.is_some();
        let mut link = match reused.take() {
            Some(link) => link,
            // Boxed: most requests need none, and its future is large.
            None => match Box::pin(dial(place.gateway, group, settings)).await {
                Ok(link) => link,
                Err(error) => return Outcome::NotSent(error),
            },
        };
        let answer = {
            let send = pin!(link.send(&request.head, request.body));
            match watched(send, group, settings, request.deadline).await {
                Ok(answer) => answer,
                Err(outcome) => return outcome,
            }
        };
        match answer {
            Ok(head) => return started(head, link, permit, place.worker),
            // A pooled connection that died before a byte: once more on a fresh one.
            Err(error) if error.unsent && pooled => {}
            Err(error) if error.unsent => return Outcome::NotSent(NotSent::Closed(error.error.to_string())),
            Err(error) => return Outcome::Cut(error.error.to_string()),
        }
    }
}

async fn dial(gateway: &Gateway, group: &Arc<GroupState>, settings: &PoolSettings) -> Result<Link, NotSent> {
    let published = group.published();
    let Some(leader) = &published.leader else { return Err(NotSent::Closed("the group has no leader address".to_owned())) };
    let conn = gateway.dialer.connect(&leader.address, &settings.tls, settings.clocks.connect).await.map_err(NotSent::Dial)?;
    let open = gateway.telemetry.metrics.connection(Side::Upstream);
    Ok(Link::new(conn, open))
}

/// Waits for `answer` with the clock, and with an eye on the group: silence of a group that is leaving or broken is a loss.
pub async fn watched<T>(
    mut answer: Pin<&mut impl Future<Output = T>>,
    group: &Arc<GroupState>,
    settings: &PoolSettings,
    deadline: (Instant, Clock),
) -> Result<T, Outcome> {
    loop {
        let changed = pin!(group.changed().notified());
        let lost = group.lost_after(settings.resume.stall);
        tokio::select! {
            biased;
            answer = &mut answer => return Ok(answer),
            () = changed => {}
            () = sleep_until(lost.unwrap_or(deadline.0).min(deadline.0)) => {
                return Err(if lost.is_some_and(|at| at < deadline.0) { Outcome::Silent } else { Outcome::TimedOut(deadline.1) });
            }
        }
    }
}

fn started(head: Parts, link: Link, permit: Permit, worker: usize) -> Outcome {
    let body = UpstreamBody::new(link, permit.group().clone(), worker);
    Outcome::Started(Box::new(Started { head, body, permit }))
}

/// Whether a new connection to the same incarnation fails: proof that a try that was cut or fell silent can do nothing any more.
pub async fn refuses(gateway: &Gateway, group: &Arc<GroupState>, settings: &PoolSettings) -> bool {
    let published = group.published();
    let Some(leader) = &published.leader else { return true };
    matches!(
        gateway.dialer.connect(&leader.address, &settings.tls, settings.clocks.connect).await,
        Err(DialError::Refused | DialError::Timeout(_) | DialError::Unreachable)
    )
}
