//! Waits until a pool has a leader for a request.
//!
//! Owns: the decision to go at once or to join the pool's queue, and the deadline of the wait. Must not: pick the leader. Rules: nobody overtakes
//! the queue; a wait ends by a grant, by its deadline (long while something is coming, short when nothing is), or by drop.

use std::sync::Arc;
use std::time::Duration;

use config::HoldSettings;
use discovery::snapshot::Outlook;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::gateway::Gateway;
use crate::groups::queue::{Bounds, Full, Grant, Priority, Waiting};
use crate::groups::table::PoolEntry;
use crate::reject::Reject;

/// Retry-After while no replacement was measured yet.
const RETRY_AFTER_GUESS: Duration = Duration::from_secs(10);

/// Resumed streams that a leader takes at once before it has delivered their first events. More than new requests behind a leader that has just come
/// up: their prompts are short work for a warm engine, and their clients are in the middle of a sentence.
const RESUME_PACE: usize = 16;

/// What waits.
#[derive(Debug, Clone)]
pub struct Need {
    /// Served name.
    pub model: Arc<str>,
    /// Order of release.
    pub priority: Priority,
    /// Streamed requests may wait longer.
    pub stream: bool,
    /// Bytes of its body.
    pub bytes: u64,
    /// When the request first had to wait: waits add up over its attempts.
    pub since: Instant,
}

/// The right to be tried at a leader of `entry`.
#[derive(Debug)]
pub struct Ticket {
    /// The pool as of now.
    pub entry: Arc<PoolEntry>,
    /// Slot in the release window, if the request waited.
    pub grant: Option<Grant>,
}

/// A ticket without waiting, if a leader is there and nobody is ahead.
pub fn at_once(gateway: &Gateway, model: &str) -> Option<Ticket> {
    let table = gateway.tables.load();
    let entry = table.pool(model)?;
    (entry.state.queue.is_empty() && entry.any_available()).then(|| Ticket { entry: entry.clone(), grant: None })
}

/// Waits for a ticket. Resumed streams always go through the queue: many of them break at once, and a leader takes them at a pace.
pub async fn wait(gateway: &Gateway, mut need: Need) -> Result<Ticket, Reject> {
    let paced = need.priority == Priority::Resume;
    loop {
        if let Some(ticket) = at_once(gateway, &need.model).filter(|_| !paced) {
            return Ok(ticket);
        }
        let Some(entry) = gateway.tables.load().pool(&need.model).cloned() else {
            return Err(nothing_left());
        };
        let grant = queue_up(gateway, &entry, &need).await?;
        let table = gateway.tables.load();
        match table.pool(&need.model) {
            Some(entry) if entry.any_available() => return Ok(Ticket { entry: entry.clone(), grant: Some(grant) }),
            // The leader left between grant and look. Stop the release, and keep the place in front.
            _ => entry.state.queue.open(0, 1),
        }
        need.priority = Priority::Resume;
    }
}

async fn queue_up(gateway: &Gateway, entry: &Arc<PoolEntry>, need: &Need) -> Result<Grant, Reject> {
    let hold = &entry.settings.hold;
    let bounds = Bounds { requests: hold.max_requests, bytes: hold.max_bytes };
    let mut outlook = entry.state.outlook();
    let mut waiting = entry.state.queue.join(need.priority, need.bytes, bounds, &gateway.held).map_err(full)?;
    // A leader that came up between the look and the join has released nobody yet.
    if let Some(entry) = gateway.tables.load().pool(&need.model) {
        let pace = if need.priority == Priority::Resume { hold.release.max(RESUME_PACE) } else { hold.release };
        entry.state.queue.open(entry.available(), pace);
    }
    until_granted(&mut waiting, &mut outlook, hold, need).await.ok_or_else(|| timed_out(gateway, need))
}

/// `None`: the deadline passed.
async fn until_granted(waiting: &mut Waiting, outlook: &mut watch::Receiver<Outlook>, hold: &HoldSettings, need: &Need) -> Option<Grant> {
    let mut seen = Instant::now();
    loop {
        let deadline = deadline(*outlook.borrow_and_update(), hold, need, seen);
        tokio::select! {
            biased;
            grant = waiting.granted() => return Some(grant),
            changed = outlook.changed() => {
                changed.ok()?;
                seen = Instant::now();
            }
            () = sleep_until(deadline) => return None,
        }
    }
}

/// `seen`: when the outlook became what it is, or the wait began.
fn deadline(outlook: Outlook, hold: &HoldSettings, need: &Need, seen: Instant) -> Instant {
    let longest = need.since + if need.stream { hold.timeout } else { hold.timeout_unary };
    match outlook {
        Outlook::Coming => longest,
        Outlook::Nothing => longest.min(seen + hold.timeout_nothing),
    }
}

fn full(bound: Full) -> Reject {
    Reject::QueueFull {
        what: match bound {
            Full::Requests => "requests waiting for this model",
            Full::Bytes => "bytes of requests waiting for this model",
            Full::Gateway => "requests waiting for any model",
        },
    }
}

fn timed_out(gateway: &Gateway, need: &Need) -> Reject {
    let table = gateway.tables.load();
    match table.pool(&need.model) {
        Some(entry) => no_serving_group(entry),
        None => nothing_left(),
    }
}

/// The refusal of a request whose pool went away while it waited.
fn nothing_left() -> Reject {
    Reject::NoServingGroup { retry_after: RETRY_AFTER_GUESS, detail: "its deployment was deleted".to_owned() }
}

/// The refusal of a pool in which nothing serves.
pub fn no_serving_group(entry: &PoolEntry) -> Reject {
    let detail = match entry.pool.outlook {
        Outlook::Coming => {
            let first = entry.pool.groups.iter().find(|group| !group.serving());
            let why = first.and_then(|group| group.reasons.first()).map_or("not trusted after a fault", |reason| reason.as_str());
            format!("a replica is coming but was not ready in time ({why})")
        }
        Outlook::Nothing => "none is coming (deployment deleted, scaled to zero or not servable)".to_owned(),
    };
    Reject::NoServingGroup { retry_after: entry.pool.last_replacement.unwrap_or(RETRY_AFTER_GUESS), detail }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deadline_follows_the_outlook() {
        let hold = crate::testing::config().defaults.hold.clone();
        let now = Instant::now();
        let need = |stream| Need { model: "m".into(), priority: Priority::Fresh, stream, bytes: 0, since: now };
        let later = now + Duration::from_secs(60);
        assert_eq!(deadline(Outlook::Coming, &hold, &need(true), later), now + hold.timeout);
        assert_eq!(deadline(Outlook::Coming, &hold, &need(false), later), now + hold.timeout_unary);
        assert_eq!(deadline(Outlook::Nothing, &hold, &need(true), later), later + hold.timeout_nothing);
        let late = now + hold.timeout_unary;
        assert_eq!(deadline(Outlook::Nothing, &hold, &need(false), late), late, "never beyond the longest wait");
    }
}
