//! `/debug/events`: the status as server-sent events.
//!
//! Owns: pace and number of readers. Must not: gather: a reader that is slow gets fewer events, made when it takes them.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures_util::stream;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::Admin;
use super::routes::Body;
use super::state::status;

/// `Content-Type`.
pub(super) const TYPE: &str = "text/event-stream";

/// Readers at once: fewer than the port's connections, so that probes and scrapes still get in.
const READERS: usize = 16;
/// Between two events.
const PACE: Duration = Duration::from_secs(1);
/// Between two events larger than `LARGE`: thousands of groups must not cost a core.
const SLOW_PACE: Duration = Duration::from_secs(5);
/// Bytes.
const LARGE: usize = 256 * 1024;

/// Places of readers of one server.
pub(super) fn places() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(READERS))
}

struct Feed {
    admin: Admin,
    _place: OwnedSemaphorePermit,
    seen: u64,
    wait: Option<Duration>,
}

/// A body that tells the status again and again until its reader leaves; `None` when there are too many readers.
pub(super) fn stream(admin: &Admin, places: &Arc<Semaphore>) -> Option<Body> {
    let place = places.clone().try_acquire_owned().ok()?;
    let feed = Feed { admin: admin.clone(), _place: place, seen: 0, wait: None };
    let events = stream::unfold(feed, |mut feed| async move {
        if let Some(wait) = feed.wait {
            tokio::time::sleep(wait).await;
        }
        let event = feed.next();
        Some((Ok::<_, Infallible>(Frame::data(event)), feed))
    });
    Some(StreamBody::new(events).boxed_unsync())
}

impl Feed {
    fn next(&mut self) -> Bytes {
        let status = status(&self.admin, SystemTime::now(), self.seen);
        self.seen = status.recent.last().map_or(self.seen, |e| e.seq);
        // Serialising plain structs of strings and numbers does not fail; an empty object would do no harm.
        let json = serde_json::to_string(&status).unwrap_or_else(|_| "{}".to_owned());
        self.wait = Some(if json.len() > LARGE { SLOW_PACE } else { PACE });
        Bytes::from(format!("data: {json}\n\n"))
    }
}
