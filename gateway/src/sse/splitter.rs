//! Cuts chunks into whole events and gathers what goes on.
//!
//! Owns the incomplete tail of a stream. The normal case, a chunk of whole events, copies nothing and allocates nothing.
//! An incomplete tail is held until its event is whole, so that a break inside an event never reaches the client; a
//! tail of more than [`MAX_HELD`] bytes is passed on in parts ([`Kind::Part`](super::Kind::Part)).

use bytes::{Bytes, BytesMut};

use super::event::{Event, Kind};
use super::out::{Out, Run};
use super::scan::{End, Scan};

/// Bytes of an incomplete event that are held, at most (S13 of the wire rules).
pub const MAX_HELD: usize = 64 * 1024;

/// What happens to an event.
#[derive(Debug)]
pub enum Action {
    /// It goes on as it came.
    Forward,
    /// These bytes go on in its place.
    Replace(Bytes),
    /// Nothing goes on.
    Swallow,
    /// These bytes (may be none) go on in its place, and everything behind it is thrown away.
    Stop(Bytes),
}

/// Whether the stream goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    /// More chunks are welcome.
    More,
    /// [`Action::Stop`] was asked for; what is left of the chunk is gone.
    Stopped,
}

/// The state of one stream between two chunks.
#[derive(Debug)]
pub struct Splitter {
    held: BytesMut,
    scan: Scan,
    /// No event has ended yet: a byte order mark may stand here.
    first: bool,
    /// The last event ended with a CR; an LF that comes next is still its end.
    open_cr: bool,
    /// Inside an event that is passed on in parts.
    in_parts: bool,
}

impl Default for Splitter {
    fn default() -> Self {
        Self { held: BytesMut::new(), scan: Scan::START, first: true, open_cr: false, in_parts: false }
    }
}

impl Splitter {
    /// A splitter at the start of a stream.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether all bytes passed on end with whole events. If not, events of our own need a blank line first (S16).
    pub fn at_boundary(&self) -> bool {
        !self.in_parts
    }

    /// Bytes of an incomplete event that are held now.
    pub fn held(&self) -> usize {
        self.held.len()
    }

    /// The held bytes of an event that never became whole. For a stream that ended in a break they must be dropped;
    /// for one that ended well they go on as they are. The splitter is then at a start of stream again.
    pub fn finish(&mut self) -> Bytes {
        std::mem::take(self).held.freeze()
    }

    /// Takes the next bytes and asks `each` about every event that is now whole; what goes on is put into `out`.
    pub fn feed(&mut self, chunk: Bytes, out: &mut Out, mut each: impl FnMut(&Event<'_>) -> Action) -> Flow {
        if self.held.is_empty() && !self.in_parts {
            return self.feed_whole(&chunk, out, &mut each);
        }
        match self.complete_held(&chunk, out, &mut each) {
            Held::Open(flow) => flow,
            Held::Done { used, flow: Flow::More } => self.feed_whole(&chunk.slice(used..), out, &mut each),
            Held::Done { flow: Flow::Stopped, .. } => self.stop(),
        }
    }

    /// Cuts a chunk that begins at an event's start.
    fn feed_whole(&mut self, chunk: &Bytes, out: &mut Out, each: &mut impl FnMut(&Event<'_>) -> Action) -> Flow {
        let mut run = Run::default();
        let mut at = 0;
        while at < chunk.len() {
            let Some(end) = self.next_end(&chunk[at..]) else { break };
            let span = at..at + end.len;
            let event = Event::parse(&chunk[span.clone()], self.first);
            self.first = false;
            at = span.end;
            let action = each(&event);
            if matches!(action, Action::Forward) {
                out.count(event.kind);
                run.extend(span);
                continue;
            }
            run.flush(chunk, out);
            if apply(action, event.kind, Bytes::new, out) == Flow::Stopped {
                return self.stop();
            }
        }
        run.flush(chunk, out);
        self.held.extend_from_slice(&chunk[at..]);
        self.pass_parts(out, each)
    }

    /// Joins a held tail with as much of the chunk as completes it.
    fn complete_held(&mut self, chunk: &Bytes, out: &mut Out, each: &mut impl FnMut(&Event<'_>) -> Action) -> Held {
        let before = self.held.len();
        self.held.extend_from_slice(chunk);
        let Some(end) = self.scan.find(&self.held, self.first) else {
            return Held::Open(self.pass_parts(out, each));
        };
        self.end_event(end);
        let whole = self.held.split_to(end.len).freeze();
        self.held.clear();
        let event = if self.in_parts { Event::part(&whole) } else { Event::parse(&whole, self.first) };
        self.first = false;
        self.in_parts = false;
        let flow = apply(each(&event), event.kind, || whole.clone(), out);
        Held::Done { used: end.len.saturating_sub(before).min(chunk.len()), flow }
    }

    fn next_end(&mut self, rest: &[u8]) -> Option<End> {
        if std::mem::take(&mut self.open_cr) && rest.first() == Some(&b'\n') {
            return Some(End { len: 1, open_cr: false });
        }
        let end = self.scan.find(rest, self.first)?;
        self.end_event(end);
        Some(end)
    }

    fn end_event(&mut self, end: End) {
        self.scan = Scan::START;
        self.open_cr = end.open_cr;
    }

    /// Passes a tail on that is too long to be held.
    fn pass_parts(&mut self, out: &mut Out, each: &mut impl FnMut(&Event<'_>) -> Action) -> Flow {
        if self.held.is_empty() || (self.held.len() <= MAX_HELD && !self.in_parts) {
            return Flow::More;
        }
        let part = self.held.split().freeze();
        self.scan.rebase();
        self.in_parts = true;
        self.first = false;
        match apply(each(&Event::part(&part)), Kind::Part, || part.clone(), out) {
            Flow::More => Flow::More,
            Flow::Stopped => self.stop(),
        }
    }

    fn stop(&mut self) -> Flow {
        self.held.clear();
        self.scan = Scan::START;
        Flow::Stopped
    }
}

/// What became of a held tail.
enum Held {
    /// It is still incomplete.
    Open(Flow),
    /// Its event is whole; `used` bytes of the chunk belonged to it.
    Done { used: usize, flow: Flow },
}

fn apply(action: Action, kind: Kind, whole: impl FnOnce() -> Bytes, out: &mut Out) -> Flow {
    match action {
        Action::Forward => {
            out.count(kind);
            out.put(whole());
        }
        Action::Replace(bytes) => {
            out.count(kind);
            out.put(bytes);
        }
        Action::Swallow => {}
        Action::Stop(bytes) => {
            out.put(bytes);
            return Flow::Stopped;
        }
    }
    Flow::More
}
