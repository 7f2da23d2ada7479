//! An answer's body with the connection that it comes by.
//!
//! Owns: giving the connection back when the body ended well. Dropped earlier, the connection is closed, which is what stops the engine's work
//! (engine fact 3).

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;

use crate::groups::state::GroupState;
use crate::upstream::link::{Link, LinkError};

/// See the module.
#[derive(Debug)]
pub struct UpstreamBody {
    /// `None` once given back or broken.
    link: Option<Link>,
    home: Arc<GroupState>,
    worker: usize,
}

impl UpstreamBody {
    /// The body of the answer that `link` gives.
    pub fn new(link: Link, home: Arc<GroupState>, worker: usize) -> Self {
        Self { link: Some(link), home, worker }
    }

    /// The next bytes. `None`: the framing ended properly; an error: it did not.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, LinkError>>> {
        let Some(link) = &mut self.link else { return Poll::Ready(None) };
        let next = ready!(link.poll_data(cx));
        match &next {
            Some(Ok(_)) => {}
            Some(Err(_)) => self.link = None,
            None => self.give_back(),
        }
        Poll::Ready(next)
    }

    /// Whether nothing is to come because the body has ended properly: what [`UpstreamBody::poll`] would say, known at once where a length or the last
    /// chunk came with the last bytes.
    pub fn is_whole(&mut self) -> bool {
        let whole = self.link.as_ref().is_some_and(Link::is_whole);
        if whole {
            self.give_back();
        }
        whole
    }

    fn give_back(&mut self) {
        let Some(link) = self.link.take() else { return };
        if !self.home.signs().silence_is_loss() {
            self.home.idle.put(self.worker, link);
        }
    }
}
