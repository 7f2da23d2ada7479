//! When a future was dropped unfinished: the moment at which a client is known to be gone while a leader has not answered yet.
//!
//! Owns: that moment. Must not: keep anything alive: it is noted before the future, and the connection in it, is dropped, so that the
//! time from one to the other can be measured. Next step: `record`.

use std::future::Future;
use std::pin::Pin;
use std::sync::OnceLock;
use std::time::Instant;

struct Note<'a> {
    at: &'a OnceLock<Instant>,
    over: bool,
}

impl Drop for Note<'_> {
    fn drop(&mut self) {
        if !self.over {
            self.at.get_or_init(Instant::now);
        }
    }
}

/// Runs `work`. Dropped before its end, it sets `at`; the work itself is dropped later, since it is only borrowed.
pub async fn noted<F: Future>(at: &OnceLock<Instant>, work: Pin<&mut F>) -> F::Output {
    let mut note = Note { at, over: false };
    let done = work.await;
    note.over = true;
    done
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::Arc;
    use std::task::{Context, Waker};

    use super::*;

    /// Looks at its own drop whether the moment had been noted.
    struct Last(Arc<OnceLock<Instant>>, Arc<OnceLock<bool>>);

    impl Drop for Last {
        fn drop(&mut self) {
            self.1.set(self.0.get().is_some()).unwrap();
        }
    }

    #[test]
    fn the_moment_comes_before_the_drop() {
        let (at, noted_first) = (Arc::new(OnceLock::new()), Arc::new(OnceLock::new()));
        let last = Last(at.clone(), noted_first.clone());
        let at_once = at.clone();
        let mut running = Box::pin(async move {
            let work = pin!(async move {
                let _last = last;
                std::future::pending::<()>().await;
            });
            noted(&at_once, work).await;
        });
        assert!(running.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        assert!(at.get().is_none());
        drop(running);
        assert_eq!(noted_first.get(), Some(&true));
    }

    #[test]
    fn an_end_is_no_drop() {
        let at = OnceLock::new();
        let mut running = Box::pin(async { noted(&at, pin!(std::future::ready(7))).await });
        assert_eq!(running.as_mut().poll(&mut Context::from_waker(Waker::noop())), std::task::Poll::Ready(7));
        drop(running);
        assert!(at.get().is_none());
    }
}
