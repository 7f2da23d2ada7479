//! Loads the configuration again when its file changes.
//!
//! Owns: noticing a change (a write, an editor's rename, the symlink swap by which ConfigMaps change), waiting until it is complete,
//! and telling the caller what came of it. A bad file changes nothing. Must not: apply a configuration; the caller does.
//! Next step of the path: the gateway's composition root hands the new configuration to its parts.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;
use std::{fs, io, thread};

use notify::event::{AccessKind, AccessMode, EventKind};
use notify::{RecommendedWatcher, RecursiveMode, Watcher};

use crate::args::ServeArgs;
use crate::live;
use crate::model::Config;
use crate::problem::Problems;

/// Quiet time after the last event before the file is read: editors and copies write in several steps.
const SETTLE: Duration = Duration::from_millis(100);

/// Events that one change may bring before the file is read all the same.
const MAX_EVENTS: usize = 64;

/// The file is looked at this often without any event: network file systems send none, and an inotify queue may overflow.
const RECHECK: Duration = Duration::from_secs(30);

/// Symbolic links that are followed from the given path to the file.
const MAX_LINKS: usize = 8;

/// A new configuration that was accepted.
#[derive(Debug, Clone, PartialEq)]
pub struct Reloaded {
    /// What holds from now on: the new settings, except those in `kept`.
    pub config: Arc<Config>,
    /// Settings that the file wants changed and that need a restart: YAML paths, and `source` for the choice of leaders.
    pub kept: Vec<&'static str>,
}

enum Signal {
    Touched,
    Stop,
}

/// Watches until it is dropped; dropping waits for a callback that is running.
#[derive(Debug)]
pub struct Watch {
    signals: SyncSender<Signal>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Watch {
    fn drop(&mut self) {
        // An error means that the thread has ended already.
        drop(self.signals.send(Signal::Stop));
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

/// Watches the configuration file; `None` where `args` and `env` name none.
///
/// `on` is called on a thread of its own, once for each change of the outcome: with the new configuration, or with the problems for
/// which the old one stays. A file that was repaired to what is in force calls it too. Flags and environment keep their precedence.
///
/// # Errors
/// The thread cannot be started. Where the system gives no file events, the file is looked at every 30 s instead.
pub fn watch(
    args: ServeArgs,
    env: impl Fn(&str) -> Option<String> + Send + 'static,
    current: Arc<Config>,
    on: impl FnMut(Result<Reloaded, Problems>) + Send + 'static,
) -> io::Result<Option<Watch>> {
    let Some(path) = args.config_file(&env) else { return Ok(None) };
    let (signals, events) = sync_channel(MAX_EVENTS);
    let folders = Folders::new(path, signals.clone());
    let load = move || Config::load(&args, &env, |path| fs::read_to_string(path));
    let outcome = Outcome { current, kept: Vec::new(), problems: None };
    let thread = thread::Builder::new().name("config-reload".to_owned()).spawn(move || run(&events, folders, load, outcome, on))?;
    Ok(Some(Watch { signals, thread: Some(thread) }))
}

fn run(
    events: &Receiver<Signal>,
    mut folders: Folders,
    load: impl Fn() -> Result<Config, Problems>,
    mut outcome: Outcome,
    mut on: impl FnMut(Result<Reloaded, Problems>),
) {
    loop {
        // Watched before it is read, so that a change between the two is seen.
        folders.follow();
        if let Some(news) = outcome.next(load()) {
            on(news);
        }
        if !wait(events) {
            return;
        }
    }
}

/// Waits until a change is complete or the recheck is due; `false`: stop.
fn wait(events: &Receiver<Signal>) -> bool {
    let mut patience = RECHECK;
    for _ in 0..MAX_EVENTS {
        match events.recv_timeout(patience) {
            Ok(Signal::Touched) => patience = SETTLE,
            Ok(Signal::Stop) | Err(RecvTimeoutError::Disconnected) => return false,
            Err(RecvTimeoutError::Timeout) => return true,
        }
    }
    true
}

/// What the caller knows already.
struct Outcome {
    current: Arc<Config>,
    kept: Vec<&'static str>,
    problems: Option<Problems>,
}

impl Outcome {
    /// What to tell the caller about a load; `None`: nothing new.
    fn next(&mut self, loaded: Result<Config, Problems>) -> Option<Result<Reloaded, Problems>> {
        match loaded {
            Ok(new) => {
                let (merged, kept) = live::merge(&self.current, new);
                let same = merged == *self.current && kept == self.kept && self.problems.is_none();
                self.problems = None;
                if same {
                    return None;
                }
                self.current = Arc::new(merged);
                self.kept.clone_from(&kept);
                Some(Ok(Reloaded { config: Arc::clone(&self.current), kept }))
            }
            Err(problems) if self.problems.as_ref() == Some(&problems) => None,
            Err(problems) => {
                self.problems = Some(problems.clone());
                Some(Err(problems))
            }
        }
    }
}

/// The watched folders: those of the file and of every link on the way to it. Folders, because a rename replaces the file itself.
struct Folders {
    path: PathBuf,
    watcher: Option<RecommendedWatcher>,
    watched: BTreeSet<PathBuf>,
}

impl Folders {
    fn new(path: PathBuf, signals: SyncSender<Signal>) -> Self {
        let handler = move |event: notify::Result<notify::Event>| {
            if event.as_ref().map_or(true, |event| is_change(event.kind)) {
                // A full queue holds enough events for a look at the file.
                drop(signals.try_send(Signal::Touched));
            }
        };
        let watcher = notify::recommended_watcher(handler);
        if let Err(error) = &watcher {
            tracing::warn!(%error, "no file events: the configuration file is looked at every {} s", RECHECK.as_secs());
        }
        Self { path, watcher: watcher.ok(), watched: BTreeSet::new() }
    }

    /// Watches where the file is now.
    fn follow(&mut self) {
        let Some(watcher) = &mut self.watcher else { return };
        let wanted = folders_of(&self.path);
        for gone in self.watched.difference(&wanted) {
            // The folder may be gone, and its watch with it.
            drop(watcher.unwatch(gone));
        }
        self.watched.retain(|folder| wanted.contains(folder));
        for folder in wanted {
            if self.watched.contains(&folder) {
                continue;
            }
            match watcher.watch(&folder, RecursiveMode::NonRecursive) {
                Ok(()) => {
                    self.watched.insert(folder);
                }
                Err(error) => tracing::debug!(%error, folder = %folder.display(), "no file events from this folder"),
            }
        }
    }
}

/// Reading the file is an event too; only writes, renames and removals count.
fn is_change(kind: EventKind) -> bool {
    match kind {
        EventKind::Access(access) => access == AccessKind::Close(AccessMode::Write),
        EventKind::Any | EventKind::Create(_) | EventKind::Modify(_) | EventKind::Remove(_) | EventKind::Other => true,
    }
}

/// The folders of `path` and of each link that it leads over, as real paths, so that a swapped link gives another one.
fn folders_of(path: &Path) -> BTreeSet<PathBuf> {
    let mut folders = BTreeSet::new();
    let mut at = path.to_owned();
    for _ in 0..=MAX_LINKS {
        let parent = at.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new(".")).to_owned();
        // A file below a swapped link (`..data/config.yaml`): the link's own folder counts too.
        if let Some(above) = parent.parent().filter(|_| parent.is_symlink()) {
            folders.extend(real(above));
        }
        folders.extend(real(&parent));
        match fs::read_link(&at) {
            Ok(target) => at = parent.join(target),
            Err(_) => break,
        }
    }
    folders
}

fn real(folder: &Path) -> Option<PathBuf> {
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    fs::canonicalize(folder).ok()
}
