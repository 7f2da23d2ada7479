//! What goes on to the client of one chunk: slices of it, and bytes put in their place.
//!
//! Owns the joining of neighbouring events into one slice, so that 32 events of one read stay one write (S13).

use std::ops::Range;

use bytes::Bytes;
use smallvec::SmallVec;

use super::event::Kind;

/// Bytes to pass on, in order. Reused from chunk to chunk.
#[derive(Debug, Default)]
pub struct Out {
    parts: SmallVec<[Bytes; 2]>,
    events: u32,
}

impl Out {
    /// Appends bytes of our own.
    pub fn put(&mut self, bytes: Bytes) {
        if !bytes.is_empty() {
            self.parts.push(bytes);
        }
    }

    /// Events with data passed on since the last [`Out::take_events`].
    pub fn events(&self) -> u32 {
        self.events
    }

    /// The count of [`Out::events`], which begins anew.
    pub fn take_events(&mut self) -> u32 {
        std::mem::take(&mut self.events)
    }

    /// The parts in order; `self` is empty afterwards.
    pub fn drain(&mut self) -> impl Iterator<Item = Bytes> + '_ {
        self.parts.drain(..)
    }

    /// All parts as one; a copy is made only if there is more than one.
    pub fn take(&mut self) -> Bytes {
        match self.parts.len() {
            0 => Bytes::new(),
            1 => self.parts.pop().unwrap_or_default(),
            _ => self.parts.drain(..).collect::<Vec<_>>().concat().into(),
        }
    }

    /// Whether nothing is to be passed on.
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    pub(super) fn count(&mut self, kind: Kind) {
        self.events = self.events.saturating_add(u32::from(kind == Kind::Data));
    }
}

/// A run of neighbouring events of one chunk that all go on as they are.
#[derive(Debug, Default)]
pub(super) struct Run(Range<usize>);

impl Run {
    /// Adds the event at `span`, which follows the bytes seen last.
    pub(super) fn extend(&mut self, span: Range<usize>) {
        if self.0.is_empty() {
            self.0 = span;
        } else {
            self.0.end = span.end;
        }
    }

    /// Ends the run: its bytes go out as one slice.
    pub(super) fn flush(&mut self, chunk: &Bytes, out: &mut Out) {
        if !self.0.is_empty() {
            out.put(chunk.slice(std::mem::take(&mut self.0)));
        }
    }
}
