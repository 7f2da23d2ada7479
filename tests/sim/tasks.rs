//! Every task of a run. Dropping it ends them all.

use std::future::Future;
use std::sync::{Mutex, PoisonError};

use tokio::task::{AbortHandle, JoinSet};

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Tasks(Mutex<JoinSet<()>>);

impl Tasks {
    /// Starts a task.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).spawn(task)
    }

    /// Ends all of them.
    pub(crate) fn abort(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).abort_all();
    }
}
