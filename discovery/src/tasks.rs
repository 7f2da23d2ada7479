//! The one owner of discovery's tasks: nothing here is spawned outside a `TaskSet`.
//!
//! Owns: every spawned task, its end, and the log line of a task that panicked. Must not: restart tasks or know what they do.
//! Users: `mirror` (the reducer), `source` (watches) and `probe` (one task for each incarnation).

use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::task::{AbortHandle, JoinError, JoinSet};

/// Tasks that end together. Clones share one set; tasks may hold clones (the set is ended by [`TaskSet::close`], not by the last drop).
#[derive(Debug, Clone, Default)]
pub struct TaskSet {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug, Default)]
struct Inner {
    tasks: JoinSet<&'static str>,
    closed: bool,
}

impl TaskSet {
    /// An empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Starts a task. `name` stands in the log line if it panics. After [`TaskSet::close`] the task is aborted before its first poll.
    /// Must be called inside a Tokio runtime. The handle aborts this task alone; dropping it does nothing.
    pub fn spawn<F>(&self, name: &'static str, future: F) -> AbortHandle
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let mut inner = self.lock();
        while let Some(ended) = inner.tasks.try_join_next() {
            report(ended);
        }
        let handle = inner.tasks.spawn(async move {
            future.await;
            name
        });
        if inner.closed {
            handle.abort();
        }
        handle
    }

    /// Tasks that have not been seen to end.
    pub fn len(&self) -> usize {
        self.lock().tasks.len()
    }

    /// No task is running.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Aborts every task and refuses new ones. Does not wait.
    pub fn close(&self) {
        let mut inner = self.lock();
        inner.closed = true;
        inner.tasks.abort_all();
    }

    /// [`TaskSet::close`], then waits until every task is gone.
    pub async fn shutdown(&self) {
        self.close();
        let mut tasks = std::mem::take(&mut self.lock().tasks);
        while let Some(ended) = tasks.join_next().await {
            report(ended);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn report(ended: Result<&'static str, JoinError>) {
    if let Err(error) = ended
        && error.is_panic()
    {
        tracing::error!(%error, "a discovery task panicked");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Flag(Option<tokio::sync::oneshot::Sender<()>>);

    impl Drop for Flag {
        fn drop(&mut self) {
            if let Some(sender) = self.0.take() {
                sender.send(()).ok();
            }
        }
    }

    #[tokio::test]
    async fn shutdown_drops_what_runs_and_refuses_what_comes_later() {
        let set = TaskSet::new();
        let (sender, dropped) = tokio::sync::oneshot::channel();
        let flag = Flag(Some(sender));
        set.spawn("endless", async move {
            let _flag = flag;
            std::future::pending::<()>().await;
        });
        set.shutdown().await;
        dropped.await.expect("the task's state was dropped");
        let late = set.spawn("late", std::future::pending());
        set.shutdown().await;
        assert!(late.is_finished());
        assert!(set.is_empty());
    }

    #[tokio::test]
    async fn a_task_that_ended_is_reaped_by_the_next_spawn() {
        let set = TaskSet::new();
        let first = set.spawn("short", async {});
        while !first.is_finished() {
            tokio::task::yield_now().await;
        }
        set.spawn("next", std::future::pending());
        assert_eq!(set.len(), 1);
    }
}
