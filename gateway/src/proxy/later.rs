//! What is left to do for a request whose answer is whole, put off until the answer has gone out.
//!
//! Owns: the list of such requests of one thread. Why: a small answer waits in the server's buffer until its request's future has ended, so each
//! microsecond of the access line and of freeing memory would be one of the client's. Must not: keep anything beyond the poll in which it was put
//! off, nor take what others wait for (permits, counters, places): that is given back before.
//! Next step: `record` writes the access line.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// What is done by its drop.
type Rest = Box<dyn Send>;

thread_local! {
    /// Inside the poll of a connection: somebody will look.
    static POLLING: Cell<bool> = const { Cell::new(false) };
    static LATER: RefCell<Vec<Rest>> = const { RefCell::new(Vec::new()) };
}

/// Drops `rest` behind the poll of the connection that its request came by ([`Polled`]), or at once where there is none.
pub fn put_off(rest: Rest) {
    if POLLING.get() {
        LATER.with_borrow_mut(|later| later.push(rest));
    }
}

/// Does what was put off, also when the poll panics.
struct Polling;

impl Polling {
    fn begin() -> Self {
        POLLING.set(true);
        Self
    }
}

impl Drop for Polling {
    fn drop(&mut self) {
        POLLING.set(false);
        let mut later = LATER.take();
        later.clear();
        // Its memory serves again.
        LATER.set(later);
    }
}

/// A connection whose requests are polled with it (HTTP/1.1): behind each poll, when what could be written is written, what was put off is done.
#[derive(Debug)]
pub struct Polled<F>(pub F);

impl<F: Future + Unpin> Future for Polled<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let _polling = Polling::begin();
        Pin::new(&mut self.0).poll(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    /// Counts its drop, and puts off another one if it has one.
    struct Counted(Arc<AtomicU32>, Option<Rest>);

    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
            self.1.take().into_iter().for_each(put_off);
        }
    }

    fn poll(work: impl FnMut(&mut Context<'_>) -> Poll<()> + Unpin) {
        let mut cx = Context::from_waker(std::task::Waker::noop());
        let _ = Pin::new(&mut Polled(poll_fn(work))).poll(&mut cx);
    }

    #[test]
    fn is_done_behind_the_poll_and_at_once_outside() {
        let done = Arc::new(AtomicU32::new(0));
        let rest = |next| Box::new(Counted(done.clone(), next));
        let next = rest(None);
        poll(|_| {
            put_off(rest(None));
            assert_eq!(done.load(Ordering::Relaxed), 0);
            Poll::Pending
        });
        assert_eq!(done.load(Ordering::Relaxed), 1);
        put_off(rest(Some(next)));
        assert_eq!(done.load(Ordering::Relaxed), 3);
        let mut two = Some(rest(Some(rest(None))));
        poll(|_| {
            two.take().into_iter().for_each(|two| put_off(two));
            Poll::Ready(())
        });
        assert_eq!(done.load(Ordering::Relaxed), 5, "what a drop puts off is done too");
    }

    #[test]
    fn a_panic_leaves_nothing_behind() {
        let done = Arc::new(AtomicU32::new(0));
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            poll(|_| {
                put_off(Box::new(Counted(done.clone(), None)));
                std::panic::resume_unwind(Box::new("gone"))
            })
        }));
        assert!(caught.is_err() && done.load(Ordering::Relaxed) == 1);
        put_off(Box::new(Counted(done.clone(), None)));
        assert_eq!(done.load(Ordering::Relaxed), 2);
    }
}
