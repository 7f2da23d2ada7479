//! An answer's body with the connection that it comes by.
//!
//! Owns: polling both in turn, and giving the connection back when the body ended well. Dropped earlier, the connection is closed, which is what
//! stops the engine's work (engine fact 3).

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use crate::groups::state::GroupState;
use crate::upstream::link::Link;

/// See the module.
#[derive(Debug)]
pub struct UpstreamBody {
    body: Incoming,
    /// `None` once given back or broken.
    link: Option<Link>,
    home: Arc<GroupState>,
    worker: usize,
}

impl UpstreamBody {
    /// The body of an answer that came by `link`.
    pub fn new(body: Incoming, link: Link, home: Arc<GroupState>, worker: usize) -> Self {
        Self { body, link: Some(link), home, worker }
    }

    /// The next frame. `None`: the framing ended properly; an error: it did not.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        // The first look says "wanted" to hyper's connection, the second sees what that brought.
        for _ in 0..2 {
            if let Some(link) = &mut self.link {
                link.drive(cx);
            }
            match Pin::new(&mut self.body).poll_frame(cx) {
                Poll::Pending => {}
                Poll::Ready(frame) => {
                    if frame.is_none() {
                        self.give_back(cx);
                    }
                    return Poll::Ready(frame);
                }
            }
        }
        Poll::Pending
    }

    /// What is known of the length.
    pub fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }

    fn give_back(&mut self, cx: &mut Context<'_>) {
        let Some(mut link) = self.link.take() else { return };
        link.drive(cx);
        if link.is_ready() && !self.home.signs().silence_is_loss() {
            self.home.idle.put(self.worker, link);
        }
    }
}
