//! A watch: the changes after a version, in order, as a body that ends by timeout, by expiry or on command.
//!
//! Owns: which event a change is for a selector, bookmarks, the count of what clients do. Must not: write. A watch reads the log at its
//! own pace, so it holds no queue; one that falls out of the log's ring gets 410 like at a real server.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hyper::body::Frame;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::faults::{Cut, Rules};
use super::log::Change;
use super::object::meta;
use super::query::{Query, Selector};
use super::refusal::Refusal;
use super::route::{Kind, Route};
use super::server::Shared;

/// Of a watch without `timeoutSeconds`.
const DEFAULT_TIMEOUT: u64 = 1800;
const BOOKMARK_PACE: Duration = Duration::from_secs(60);

/// What clients have done with a kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Lists answered (pages count).
    pub lists: u64,
    /// Watches opened so far.
    pub opened: u64,
    /// Watches open now.
    pub open: usize,
    /// Bookmarks sent.
    pub bookmarks: u64,
}

/// What clients do, for tests that wait for a state.
#[derive(Debug)]
pub struct Activity {
    counts: watch::Sender<[Counts; Kind::ALL.len()]>,
}

impl Default for Activity {
    fn default() -> Self {
        Self { counts: watch::Sender::new([Counts::default(); Kind::ALL.len()]) }
    }
}

impl Activity {
    /// The counts of a kind.
    pub fn of(&self, kind: Kind) -> Counts {
        self.counts.borrow()[kind as usize]
    }

    /// Waits, without limit, until a kind's counts are as wanted.
    pub async fn until(&self, kind: Kind, wanted: impl Fn(&Counts) -> bool) {
        // The sender lives as long as this borrow.
        self.counts.subscribe().wait_for(|counts| wanted(&counts[kind as usize])).await.ok();
    }

    pub(super) fn listed(&self, kind: Kind) {
        self.change(kind, |counts| counts.lists += 1);
    }

    fn change(&self, kind: Kind, change: impl FnOnce(&mut Counts)) {
        self.counts.send_modify(|counts| change(&mut counts[kind as usize]));
    }
}

/// One open watch.
pub(super) struct Watch {
    shared: Arc<Shared>,
    route: Route,
    selector: Selector,
    /// Changes up to this version are out.
    after: u64,
    ready: VecDeque<Bytes>,
    done: bool,
    end: Instant,
    /// `None`: the client did not ask for bookmarks.
    bookmark: Option<Instant>,
    pace: Duration,
    cuts: u64,
    silences: u64,
    rules: watch::Receiver<Rules>,
    revisions: watch::Receiver<u64>,
}

impl Watch {
    /// Opens one. Without a version (or from `0`) it begins with an `ADDED` event for each object there is.
    pub(super) fn open(shared: Arc<Shared>, route: Route, query: &Query) -> Result<Self, Refusal> {
        let selector = query.selector()?;
        let seconds = query.number("timeoutSeconds")?.unwrap_or(DEFAULT_TIMEOUT);
        let (rules, revisions) = (shared.faults.subscribe(), shared.store.revisions());
        let Rules { cuts, silences, bookmarks, .. } = *rules.borrow();
        let pace = bookmarks.unwrap_or(BOOKMARK_PACE);
        let now = Instant::now();
        let bookmark = query.flag("allowWatchBookmarks").then(|| now + pace);
        shared.activity.change(route.kind, |counts| {
            counts.open += 1;
            counts.opened += 1;
        });
        let end = now + Duration::from_secs(seconds);
        let (ready, after) = (VecDeque::new(), 0);
        let mut watch = Self { shared, route, selector, after, ready, done: false, end, bookmark, pace, cuts, silences, rules, revisions };
        watch.begin(query.number("resourceVersion")?.unwrap_or(0))?;
        Ok(watch)
    }

    fn begin(&mut self, version: u64) -> Result<(), Refusal> {
        if version == 0 {
            let (objects, revision) = self.shared.store.list(self.route.kind, self.route.namespace.as_deref(), &self.selector);
            self.ready.extend(objects.iter().map(|(_, object)| event("ADDED", object)));
            self.after = revision;
            return Ok(());
        }
        self.after = version;
        if self.rules.borrow().expiry_by_status {
            self.shared.store.changes_after(version)?;
        }
        Ok(())
    }

    /// The next piece of the body; `None` is its clean end.
    pub(super) async fn next(&mut self) -> Option<io::Result<Frame<Bytes>>> {
        while !self.done {
            let rules = self.rules.borrow_and_update().clone();
            if rules.cuts != self.cuts {
                self.done = true;
                return match rules.cut {
                    Cut::Reset => Some(Err(io::ErrorKind::ConnectionReset.into())),
                    Cut::Clean => None,
                    Cut::Expired => Some(Ok(Frame::data(event("ERROR", &Refusal::expired().status())))),
                };
            }
            let quiet = rules.quiet || rules.silences != self.silences;
            if !quiet && let Some(bytes) = self.ready_now() {
                return Some(Ok(Frame::data(bytes)));
            }
            self.wait(quiet).await;
        }
        None
    }

    /// What can be sent without waiting.
    fn ready_now(&mut self) -> Option<Bytes> {
        if self.ready.is_empty() {
            self.gather();
        }
        if let Some(bytes) = self.ready.pop_front() {
            return Some(bytes);
        }
        let now = Instant::now();
        self.done = now >= self.end;
        match self.bookmark {
            Some(due) if now >= due || self.done => {
                self.bookmark = Some(now + self.pace);
                self.shared.activity.change(self.route.kind, |counts| counts.bookmarks += 1);
                Some(self.bookmark_event())
            }
            _ => None,
        }
    }

    fn gather(&mut self) {
        self.revisions.borrow_and_update();
        match self.shared.store.changes_after(self.after) {
            Ok(changes) => {
                for change in changes {
                    self.after = change.revision;
                    self.ready.extend(self.event_of(&change));
                }
            }
            Err(expired) => {
                self.ready.push_back(event("ERROR", &expired.status()));
                self.done = true;
            }
        }
    }

    async fn wait(&mut self, quiet: bool) {
        if self.done {
            return;
        }
        let due = self.bookmark.map_or(self.end, |bookmark| bookmark.min(self.end));
        // An error of `changed` means that the stand-in ends, and with it this watch's connection.
        tokio::select! {
            _ = self.rules.changed() => {}
            _ = self.revisions.changed(), if !quiet => {}
            () = sleep_until(due), if !quiet => {}
        }
    }

    /// A change of labels can bring an object into a selector's view or out of it.
    fn event_of(&self, change: &Change) -> Option<Bytes> {
        let here =
            change.key.kind == self.route.kind && self.route.namespace.as_ref().is_none_or(|namespace| *namespace == change.key.namespace);
        if !here {
            return None;
        }
        let before = change.before.as_ref().filter(|object| self.selector.matches(object));
        let after = !change.removed && self.selector.matches(&change.after);
        match (before, after) {
            (None, true) => Some(event("ADDED", &change.after)),
            (Some(_), true) => Some(event("MODIFIED", &change.after)),
            (Some(_), false) if change.removed => Some(event("DELETED", &change.after)),
            (Some(before), false) => {
                let mut left = (**before).clone();
                left["metadata"]["resourceVersion"] = meta(&change.after, "resourceVersion").into();
                Some(event("DELETED", &left))
            }
            (None, false) => None,
        }
    }

    fn bookmark_event(&self) -> Bytes {
        let kind = self.route.kind;
        let version = self.after.max(1).to_string();
        let object = json!({
            "kind": kind.name(), "apiVersion": kind.api_version(), "metadata": {"resourceVersion": version, "creationTimestamp": null},
        });
        event("BOOKMARK", &object)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.shared.activity.change(self.route.kind, |counts| counts.open -= 1);
    }
}

fn event(kind: &str, object: &Value) -> Bytes {
    let mut line = json!({"type": kind, "object": object}).to_string();
    line.push('\n');
    line.into()
}
