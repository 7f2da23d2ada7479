//! Where facts come from: an API server, a folder of manifests, or the configuration itself.
//!
//! Owns: starting the configured source. Must not: judge what a source says. Next step: `mirror`.

pub(crate) mod command;
pub(crate) mod decode;
pub mod file;
mod kube;
pub(crate) mod object;
pub mod operator;
pub mod static_list;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use config::Source;
use tokio::sync::mpsc;

use crate::fact::Str;
use crate::index::{Change, Scope};
use crate::mirror::Event;
use crate::status::SourceStatus;
use crate::tasks::TaskSet;

/// Waits towards the API server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timing {
    /// Longest silence of a watch. Bookmarks come about once a minute; a watch that is silent for longer may be half dead, and is opened
    /// again from where it was, which costs one request. If that one is silent too, the server's cache may be stuck
    /// (kubernetes/kubernetes#117008), and everything is listed again.
    pub idle: Duration,
    /// Limit of one page of a list, and of the answer's head of a watch.
    pub request: Duration,
    /// First wait after a failure; doubles.
    pub backoff: Duration,
    /// Longest wait after a failure. Short, because a rollout goes on while the API server is away.
    pub backoff_max: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            idle: Duration::from_secs(90),
            request: Duration::from_secs(30),
            backoff: Duration::from_millis(200),
            backoff_max: Duration::from_secs(10),
        }
    }
}

/// Why a source cannot even be tried.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Neither in-cluster files nor a kubeconfig.
    #[error("no access to a Kubernetes API server: {0}")]
    NoCluster(String),
    /// The kubeconfig cannot be used.
    #[error("kubeconfig {path}: {problem}")]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// The folder of manifests cannot be read.
    #[error("manifests {path}: {problem}")]
    Manifests {
        /// The folder.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
}

/// What a source needs to work.
#[derive(Debug, Clone)]
pub(crate) struct Feed {
    pub(crate) events: mpsc::Sender<Event>,
    pub(crate) status: Arc<SourceStatus>,
    pub(crate) tasks: TaskSet,
}

impl Feed {
    /// Hands a change on; waits while the reducer is behind. `false`: nobody listens any more.
    pub(crate) async fn send(&self, scope: &Scope, change: Change) -> bool {
        self.events.send(Event { scope: scope.clone(), change }).await.is_ok()
    }
}

/// As in `Snapshot::source`.
pub(crate) fn name(source: &Source) -> &'static str {
    match source {
        Source::Kubernetes(_) => "kubernetes",
        Source::Manifests(_) => "manifests",
        Source::Leaders(_) => "leaders",
    }
}

/// Starts the tasks of a source. Gives the scopes that must be listed before a snapshot means anything.
pub(crate) async fn start(source: &Source, feed: Feed, timing: Timing) -> Result<Vec<Str>, StartError> {
    match source {
        Source::Kubernetes(cluster) => kube::start(cluster, feed, timing).await,
        Source::Manifests(folder) => file::start(folder, feed),
        Source::Leaders(_) => Ok(Vec::new()),
    }
}
