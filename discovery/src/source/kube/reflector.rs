//! One list-watch that never gives up: list, then watch from where the list ended, list again when the past is lost.
//!
//! Owns: the order of requests, the waits after failures, and what the status says of it. Must not: interpret objects. A list that fails
//! half-way is never ended, so the reducer keeps what it knew. Next step: `mirror`.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::{Duration, SystemTime};

use ::kube::Client;
use tokio::time::Instant;

use super::api::{self, Failure, Resource, WatchLine};
use super::backoff::Backoff;
use crate::fact::{Kind, Str};
use crate::index::Change;
use crate::source::decode::{self, Decoded, Envelope};
use crate::source::{Feed, Timing};

/// The reducer is gone: discovery ends.
struct Closed;

/// Why a watch is over.
enum End {
    /// Open it again from where it was.
    Reopen,
    /// The version is lost.
    Relist,
}

/// A server that accepts watches and ends them at once must not be asked in a tight loop; one that ends a quiet watch after its time is
/// doing what it was asked for.
fn fruitless(events: u64, lived: Duration) -> bool {
    events == 0 && lived < Duration::from_secs(1)
}

/// The list-watch of one resource.
pub(super) struct Reflector {
    pub(super) client: Client,
    pub(super) resource: Resource,
    pub(super) scope: Str,
    pub(super) feed: Feed,
    pub(super) timing: Timing,
    pub(super) backoff: Backoff,
}

impl Reflector {
    pub(super) fn new(client: Client, resource: Resource, scope: Str, feed: Feed, timing: Timing) -> Self {
        let backoff = Backoff::new(timing.backoff, timing.backoff_max);
        Self { client, resource, scope, feed, timing, backoff }
    }

    /// Runs until the reducer is gone or the task is ended.
    pub(super) async fn run(mut self) {
        while let Ok(version) = self.list().await {
            if self.watch(version).await.is_err() {
                return;
            }
        }
    }

    /// Lists until it works. Gives the version from which to watch.
    async fn list(&mut self) -> Result<String, Closed> {
        loop {
            match self.list_once().await? {
                Ok(version) => {
                    self.backoff.succeeded();
                    self.report(|watch| {
                        watch.listed = true;
                        watch.lists_done += 1;
                    });
                    return Ok(version);
                }
                Err(failure) => {
                    self.report(|watch| watch.lists_failed += 1);
                    self.failed("list", &failure).await;
                }
            }
        }
    }

    async fn list_once(&mut self) -> Result<Result<String, Failure>, Closed> {
        let kind = self.resource.kind;
        self.send(Change::RelistBegin(kind)).await?;
        let mut token = None;
        loop {
            let page = match api::page(&self.client, &self.resource, token, self.timing.request).await {
                Ok(page) => page,
                Err(failure) => return Ok(Err(failure)),
            };
            self.alive();
            for item in &page.items {
                match decode::text(kind, item.get()) {
                    Decoded::Fact(fact) => self.send(Change::RelistItem(fact)).await?,
                    Decoded::Foreign => {}
                    Decoded::Unreadable(error) => self.keep_old(item.get(), &error).await?,
                }
            }
            if page.next.is_none() {
                self.send(Change::RelistEnd(kind)).await?;
                return Ok(Ok(page.version));
            }
            token = page.next;
        }
    }

    /// Watches until only a new list helps.
    async fn watch(&mut self, mut version: String) -> Result<(), Closed> {
        let (mut first, mut quiet_at) = (true, None);
        loop {
            if !std::mem::take(&mut first) {
                self.report(|watch| watch.watch_restarts += 1);
            }
            match self.watch_once(&mut version).await? {
                Ok(End::Reopen) => {}
                Ok(End::Relist) => return Ok(()),
                Err(Failure::Expired) => {
                    tracing::info!(resource = %self.resource.full_name(), scope = %self.scope, "the watch's version is too old, listing again");
                    return Ok(());
                }
                Err(failure @ Failure::Silent(_)) => {
                    self.failed("watch", &failure).await;
                    // Quiet twice at one version: the server's cache behind the watch may be stuck, and a list is asked of etcd.
                    if quiet_at.as_ref() == Some(&version) {
                        return Ok(());
                    }
                    quiet_at = Some(version.clone());
                }
                Err(failure) => {
                    self.failed("watch", &failure).await;
                    // A request that the server finds wrong is not mended by repeating it.
                    if let Failure::Status { code: 400..=499, .. } = failure
                        && !matches!(failure, Failure::Status { code: 401 | 429, .. })
                    {
                        return Ok(());
                    }
                }
            }
        }
    }

    async fn watch_once(&mut self, version: &mut String) -> Result<Result<End, Failure>, Closed> {
        let limits = (self.timing.request, self.timing.idle);
        let mut watch = match api::watch(&self.client, &self.resource, version, limits).await {
            Ok(watch) => watch,
            Err(failure) => return Ok(Err(failure)),
        };
        let opened = Instant::now();
        self.alive();
        let mut events = 0_u64;
        loop {
            match watch.next().await {
                Ok(Some(line)) => {
                    events += 1;
                    self.alive();
                    self.backoff.succeeded();
                    if let Err(failure) = self.event(line, version).await? {
                        if failure != Failure::Expired {
                            self.failed("watch", &failure).await;
                        }
                        return Ok(Ok(End::Relist));
                    }
                }
                Ok(None) if fruitless(events, opened.elapsed()) => {
                    return Ok(Err(Failure::Transport("the watch was ended at once".into())));
                }
                Ok(None) => return Ok(Ok(End::Reopen)),
                Err(failure) => return Ok(Err(failure)),
            }
        }
    }

    async fn event(&mut self, line: WatchLine, version: &mut String) -> Result<Result<(), Failure>, Closed> {
        let json = line.object.get();
        if line.event == "ERROR" {
            return Ok(Err(api::failure(json.as_bytes(), 500)));
        }
        let Ok(Envelope { metadata }) = serde_json::from_str(json) else {
            return Ok(Err(Failure::Transport("an event without metadata".into())));
        };
        let kind = self.resource.kind;
        match line.event.as_str() {
            "ADDED" | "MODIFIED" => match decode::text(kind, json) {
                Decoded::Fact(fact) => self.send(Change::Upsert(fact)).await?,
                Decoded::Foreign => self.send(Change::Remove(kind, metadata.uid())).await?,
                Decoded::Unreadable(error) => self.unreadable(&metadata.name, &error),
            },
            "DELETED" => self.send(Change::Remove(kind, metadata.uid())).await?,
            // Bookmarks and event types of the future carry nothing but a version.
            _ => {}
        }
        if !metadata.resource_version.is_empty() {
            *version = metadata.resource_version;
        }
        Ok(Ok(()))
    }

    /// A relist drops what it does not name; an object that cannot be read is named, so that what was known of it goes on.
    async fn keep_old(&mut self, json: &str, error: &serde_json::Error) -> Result<(), Closed> {
        let metadata = serde_json::from_str::<Envelope>(json).unwrap_or_default().metadata;
        self.unreadable(&metadata.name, error);
        self.send(Change::RelistKeep(self.resource.kind, metadata.uid())).await
    }

    fn unreadable(&self, name: &str, error: &serde_json::Error) {
        tracing::warn!(resource = self.resource.kind.resource(), scope = %self.scope, name, %error, "object cannot be read, its last good state is kept");
        self.report(|watch| watch.unreadable += 1);
    }

    /// Says what failed (once for each new text) and waits.
    async fn failed(&mut self, verb: &'static str, failure: &Failure) {
        let text = self.explain(failure);
        let mut new = false;
        self.report(|watch| {
            new = watch.last_error.as_ref() != Some(&text);
            watch.last_error = Some(text.clone());
            watch.denied = match failure {
                Failure::Denied(denied) => Some(denied.clone()),
                Failure::Expired | Failure::Status { .. } | Failure::Transport(_) | Failure::Silent(_) => None,
            };
        });
        let resource = self.resource.full_name();
        match (new, failure) {
            (true, Failure::Denied(_)) => tracing::error!(verb, %resource, scope = %self.scope, "{text}"),
            (true, _) => tracing::warn!(verb, %resource, scope = %self.scope, "{text}"),
            (false, _) => tracing::debug!(verb, %resource, scope = %self.scope, "{text}"),
        }
        tokio::time::sleep(self.backoff.failed(RandomState::new().build_hasher().finish())).await;
    }

    fn explain(&self, failure: &Failure) -> String {
        if matches!(failure, Failure::Status { code: 404, .. }) && self.resource.kind == Kind::Deployment {
            return format!("the API server does not know {}: is the operator's CRD installed?", self.resource.full_name());
        }
        failure.to_string()
    }

    fn alive(&self) {
        self.report(|watch| {
            watch.last_sign = Some(SystemTime::now());
            watch.last_error = None;
            watch.denied = None;
        });
    }

    fn report(&self, update: impl FnOnce(&mut crate::status::WatchReport)) {
        self.feed.status.watch(&self.scope, self.resource.kind, update);
    }

    async fn send(&self, change: Change) -> Result<(), Closed> {
        if self.feed.send(&self.scope, change).await { Ok(()) } else { Err(Closed) }
    }
}
