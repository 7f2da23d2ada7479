//! A folder of manifests as a source: the same objects as on the API server, as YAML or JSON files.
//!
//! Owns: reading the folder again when it changes, and the last good content of each file. Must not: interpret objects (`operator` does).
//! Every reading is one relist, so that readers see a whole folder or the one before. UIDs and owner references are taken as they are
//! written. ConfigMap mounts work: their files are links that change all at once. Next step: `mirror`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use notify::Watcher;
use tokio::sync::mpsc;

use super::decode::{self, Decoded};
use super::operator;
use super::{Feed, StartError};
use crate::fact::{Fact, Kind, Str};
use crate::index::Change;

/// A file beyond this is refused; it is no manifest.
const MAX_FILE: u64 = 64 * 1024 * 1024;
/// Files read at most.
const MAX_FILES: usize = 10_000;
/// Editors write a file in several steps, and a link swap is several events.
const DEBOUNCE: Duration = Duration::from_millis(50);
/// The folder is read this often even without news: network file systems send none.
const POLL: Duration = Duration::from_secs(5);

/// Starts watching. Gives the one scope.
pub(crate) fn start(path: &Path, feed: Feed) -> Result<Vec<Str>, StartError> {
    let problem = |problem: String| StartError::Manifests { path: path.to_owned(), problem };
    std::fs::read_dir(path).map_err(|error| problem(error.to_string()))?;
    let (news, seen) = mpsc::channel(1);
    let wake = move |_event: notify::Result<notify::Event>| {
        // Full means that a reading is due already.
        news.try_send(()).ok();
    };
    let mut watcher = notify::recommended_watcher(wake).map_err(|error| problem(error.to_string()))?;
    watcher.watch(path, notify::RecursiveMode::NonRecursive).map_err(|error| problem(error.to_string()))?;
    let scope: Str = path.to_string_lossy().into();
    feed.tasks.spawn("manifests", run(Folder::new(path), scope.clone(), feed.clone(), (watcher, seen)));
    Ok(vec![scope])
}

async fn run(mut folder: Folder, scope: Str, feed: Feed, news: (notify::RecommendedWatcher, mpsc::Receiver<()>)) {
    let (_watcher, mut seen) = news;
    loop {
        let read = tokio::task::spawn_blocking(move || {
            let reading = folder.read();
            (folder, reading)
        });
        let Ok((back, reading)) = read.await else { return };
        folder = back;
        if !report(&reading, &folder, &scope, &feed).await {
            return;
        }
        tokio::select! {
            _ = seen.recv() => {
                tokio::time::sleep(DEBOUNCE).await;
                while seen.try_recv().is_ok() {}
            }
            () = tokio::time::sleep(POLL) => {}
        }
    }
}

/// Hands a reading on. `false`: nobody listens any more.
async fn report(reading: &Result<bool, std::io::Error>, folder: &Folder, scope: &Str, feed: &Feed) -> bool {
    feed.status.bad_files(folder.bad_files());
    for kind in Kind::ALL {
        feed.status.watch(scope, kind, |watch| match reading {
            Ok(_) => {
                watch.listed = true;
                watch.lists_done += 1;
                watch.last_sign = Some(SystemTime::now());
                watch.last_error = None;
            }
            Err(error) => {
                watch.lists_failed += 1;
                watch.last_error = Some(format!("{}: {error}", folder.path.display()));
            }
        });
    }
    match reading {
        Ok(true) => send(folder.facts(), scope, feed).await,
        Ok(false) => !feed.events.is_closed(),
        Err(error) => {
            tracing::warn!(folder = %folder.path.display(), %error, "manifests cannot be read, the last ones are kept");
            !feed.events.is_closed()
        }
    }
}

async fn send(facts: Vec<Fact>, scope: &Str, feed: &Feed) -> bool {
    let begin = Kind::ALL.map(Change::RelistBegin);
    let end = Kind::ALL.map(Change::RelistEnd);
    let changes = begin.into_iter().chain(facts.into_iter().map(Change::RelistItem)).chain(end);
    for change in changes {
        if !feed.send(scope, change).await {
            return false;
        }
    }
    true
}

/// A folder and what it held.
#[derive(Debug)]
struct Folder {
    path: PathBuf,
    files: BTreeMap<PathBuf, File>,
    first: bool,
}

#[derive(Debug, Default)]
struct File {
    text: Option<String>,
    good: Vec<Document>,
    problem: Option<String>,
}

/// One object of a file.
#[derive(Debug, Clone)]
pub(crate) struct Document {
    /// Of the watched API version; the aggregated one yields to it.
    watched: bool,
    fact: Fact,
}

impl Folder {
    fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), files: BTreeMap::new(), first: true }
    }

    /// Reads the folder again. Whether anything changed (the first reading always does).
    fn read(&mut self) -> Result<bool, std::io::Error> {
        let mut found: Vec<PathBuf> = Vec::new();
        for entry in std::fs::read_dir(&self.path)? {
            let path = entry?.path();
            if is_manifest(&path) && found.len() < MAX_FILES {
                found.push(path);
            }
        }
        let mut changed = std::mem::take(&mut self.first);
        let before = self.files.len();
        self.files.retain(|path, _| found.contains(path));
        changed |= self.files.len() != before;
        for path in found {
            let file = self.files.entry(path.clone()).or_default();
            changed |= file.read(&path);
        }
        Ok(changed)
    }

    fn bad_files(&self) -> BTreeMap<PathBuf, String> {
        self.files.iter().filter_map(|(path, file)| Some((path.clone(), file.problem.clone()?))).collect()
    }

    /// Every object once: the watched API version wins over the aggregated one, a later file over an earlier one.
    fn facts(&self) -> Vec<Fact> {
        let mut by_uid: BTreeMap<(Kind, Str), Document> = BTreeMap::new();
        for document in self.files.values().flat_map(|file| &file.good) {
            let key = (document.fact.kind(), document.fact.uid().clone());
            if document.watched || !by_uid.get(&key).is_some_and(|known| known.watched) {
                by_uid.insert(key, document.clone());
            }
        }
        by_uid.into_values().map(|document| document.fact).collect()
    }
}

impl File {
    /// Reads the file again; a bad one keeps what it had. Whether its objects may have changed.
    fn read(&mut self, path: &Path) -> bool {
        let text = match text(path) {
            Ok(text) => text,
            Err(problem) => {
                self.complain(path, problem);
                return false;
            }
        };
        if self.text.as_ref() == Some(&text) {
            return false;
        }
        let parsed = documents(&text);
        self.text = Some(text);
        match parsed {
            Ok(good) => {
                self.good = good;
                self.problem = None;
                true
            }
            Err(problem) => {
                self.complain(path, problem);
                false
            }
        }
    }

    fn complain(&mut self, path: &Path, problem: String) {
        if self.problem.as_ref() != Some(&problem) {
            tracing::warn!(file = %path.display(), problem, "manifest cannot be used, its last good content is kept");
        }
        self.problem = Some(problem);
    }
}

fn is_manifest(path: &Path) -> bool {
    let hidden = path.file_name().is_none_or(|name| name.to_string_lossy().starts_with('.'));
    let extension = path.extension().and_then(|extension| extension.to_str());
    !hidden && matches!(extension, Some("yaml" | "yml" | "json")) && !path.is_dir()
}

fn text(path: &Path) -> Result<String, String> {
    let meta = std::fs::metadata(path).map_err(|error| error.to_string())?;
    if meta.len() > MAX_FILE {
        return Err(format!("larger than {MAX_FILE} bytes"));
    }
    std::fs::read_to_string(path).map_err(|error| error.to_string())
}

/// The objects of a manifest file; kinds that are not watched are skipped.
///
/// # Errors
/// What is wrong, with the number of the document. One bad document spoils its file: half a change is worse than none.
pub(crate) fn documents(text: &str) -> Result<Vec<Document>, String> {
    let values: Vec<serde_json::Value> = serde_saphyr::from_multiple(text).map_err(|error| error.to_string())?;
    let mut documents = Vec::new();
    for (at, value) in values.into_iter().enumerate() {
        let place = |problem: String| format!("document {}: {problem}", at + 1);
        let word = |key: &str| value.get(key).and_then(serde_json::Value::as_str).unwrap_or_default().to_owned();
        let (version, kind) = (word("apiVersion"), word("kind"));
        let Some(kind) = watched_kind(&version, &kind) else { continue };
        let uid = value.pointer("/metadata/uid").and_then(serde_json::Value::as_str).unwrap_or_default();
        if uid.is_empty() {
            return Err(place("metadata.uid is missing; owner references and incarnations go by it".to_owned()));
        }
        match decode::value(kind, value) {
            Decoded::Fact(fact) => {
                let watched = kind != Kind::Deployment || version.ends_with(operator::WATCHED_VERSION);
                documents.push(Document { watched, fact });
            }
            Decoded::Foreign => {}
            Decoded::Unreadable(error) => return Err(place(error.to_string())),
        }
    }
    Ok(documents)
}

/// ModelDeployments are accepted in both served versions (contract 8.1): the JSON is the same.
fn watched_kind(version: &str, kind: &str) -> Option<Kind> {
    match (version, kind) {
        ("worker.gpustack.ai/v1alpha1" | "worker.gpustack.ai/v1", "ModelDeployment") => Some(Kind::Deployment),
        ("v1", "Pod") => Some(Kind::Pod),
        ("v1", "Service") => Some(Kind::Service),
        _ => None,
    }
}

#[cfg(test)]
#[path = "file_tests.rs"]
mod tests;
