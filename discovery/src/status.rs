//! How the source is doing: for `/readyz`, metrics and `/debug/snapshot`.
//!
//! Owns: counters, times and last errors of every list-watch. Must not: steer anything; nothing in discovery reads it back. Readers: the
//! admin port.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use crate::fact::{Kind, Str};
use crate::snapshot::Generation;

/// The verb that the API server refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denied {
    /// `list` or `watch`.
    pub verb: &'static str,
    /// `pods`, `services` or `modeldeployments.worker.gpustack.ai`.
    pub resource: String,
    /// The namespace; `None` for all of them.
    pub namespace: Option<String>,
}

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not allowed to {} {}", self.verb, self.resource)?;
        match &self.namespace {
            Some(namespace) => write!(f, " in namespace {namespace}: a Role with this verb and resource is missing"),
            None => f.write_str(" in all namespaces: a ClusterRole with this verb and resource is missing"),
        }
    }
}

/// One list-watch: one kind in one namespace (or all).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WatchReport {
    /// A list was completed at least once.
    pub listed: bool,
    /// Last byte of the API server about this kind; bookmarks count. For files: the last good reading.
    pub last_sign: Option<SystemTime>,
    /// Lists completed.
    pub lists_done: u64,
    /// Lists that failed.
    pub lists_failed: u64,
    /// Watches that were opened again after the first, for whatever reason.
    pub watch_restarts: u64,
    /// Objects that could not be read and were skipped.
    pub unreadable: u64,
    /// Last failure; `None` once things go well again.
    pub last_error: Option<String>,
    /// Set while the API server refuses.
    pub denied: Option<Denied>,
}

/// Everything at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StatusReport {
    /// `kubernetes`, `manifests` or `leaders`.
    pub source: &'static str,
    /// The first list of every kind is done: what readiness asks for.
    pub synced: bool,
    /// By namespace (`*`: all) or folder, and kind. Empty for fixed leaders.
    pub watches: BTreeMap<(Str, Kind), WatchReport>,
    /// Manifest files that cannot be used as they are, and why; their last good content goes on.
    pub bad_files: BTreeMap<PathBuf, String>,
    /// Generation of the last snapshot.
    pub generation: Generation,
    /// When it was published.
    pub published: Option<SystemTime>,
    /// Objects known: deployments, Pods, Services.
    pub objects: [usize; 3],
}

impl StatusReport {
    /// The oldest of the last signs of life: the age of the whole view. `None` before every kind was heard of.
    pub fn last_sign(&self) -> Option<SystemTime> {
        self.watches.values().map(|watch| watch.last_sign).min().flatten()
    }

    /// A failure that goes on, if there is one: refusals first.
    pub fn problem(&self) -> Option<String> {
        let denied = self.watches.values().find_map(|watch| watch.denied.as_ref().map(ToString::to_string));
        let failed = || self.watches.values().find_map(|watch| watch.last_error.clone());
        let file = || self.bad_files.iter().next().map(|(path, why)| format!("{}: {why}", path.display()));
        denied.or_else(failed).or_else(file)
    }
}

/// The live status; sources and the reducer write it, the admin port reads it.
#[derive(Debug)]
pub struct SourceStatus {
    inner: Mutex<StatusReport>,
}

impl SourceStatus {
    /// A status that has seen nothing.
    pub fn new(source: &'static str) -> Self {
        Self { inner: Mutex::new(StatusReport { source, ..StatusReport::default() }) }
    }

    /// A copy of everything.
    pub fn report(&self) -> StatusReport {
        self.lock().clone()
    }

    /// The first list of every kind is done.
    pub fn synced(&self) -> bool {
        self.lock().synced
    }

    pub(crate) fn watch(&self, scope: &Str, kind: Kind, update: impl FnOnce(&mut WatchReport)) {
        update(self.lock().watches.entry((scope.clone(), kind)).or_default());
    }

    pub(crate) fn bad_files(&self, files: BTreeMap<PathBuf, String>) {
        self.lock().bad_files = files;
    }

    pub(crate) fn set_synced(&self) {
        self.lock().synced = true;
    }

    pub(crate) fn published(&self, generation: Generation, now: SystemTime, objects: [usize; 3]) {
        let mut inner = self.lock();
        inner.generation = generation;
        inner.published = Some(now);
        inner.objects = objects;
    }

    fn lock(&self) -> MutexGuard<'_, StatusReport> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
