//! A stream's bytes and its verdicts in one: what the relay holds for each open stream.
//!
//! Owns the splitter beside the stream, so that a break inside an event never reaches the client and a new leader's bytes
//! begin with no old tail.

use bytes::Bytes;
use config::ResumeSettings;

use super::cause::Cause;
use super::plan::Resend;
use super::route::Route;
use super::stream::{End, Step, Stream};
use crate::sse::{Action, Flow, Out, Splitter};

/// Whether more of a leader's bytes are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Watched {
    /// Yes.
    More,
    /// The stream is broken; the leader's connection is to be closed and `Stream::plan` to be asked.
    Broken(Cause),
}

/// The watch over one stream's bytes.
#[derive(Debug)]
pub struct Watch {
    splitter: Splitter,
    stream: Stream,
}

impl Watch {
    /// For a stream that has not begun.
    pub fn new(route: Route, settings: &ResumeSettings) -> Self {
        Self { splitter: Splitter::new(), stream: Stream::new(route, settings) }
    }

    /// The stream itself: plans, counts, what was sent.
    pub fn stream(&mut self) -> &mut Stream {
        &mut self.stream
    }

    /// Takes the leader's next bytes; what goes on to the client is put into `out`.
    pub fn on_chunk(&mut self, chunk: Bytes, out: &mut Out) -> Watched {
        let stream = &mut self.stream;
        let mut cause = Cause::Unreadable;
        let flow = self.splitter.feed(chunk, out, |event| match stream.on_event(event) {
            Step::Forward => Action::Forward,
            Step::Replace(bytes) => Action::Replace(bytes),
            Step::Swallow => Action::Swallow,
            Step::Broken(bytes, broken) => {
                cause = broken;
                Action::Stop(bytes)
            }
        });
        match flow {
            Flow::More => Watched::More,
            Flow::Stopped => Watched::Broken(cause),
        }
    }

    /// Takes the end of the leader's body. `clean`: its framing ended properly. The tail of an event that never became
    /// whole goes on only if the stream is complete.
    pub fn on_end(&mut self, clean: bool, out: &mut Out) -> End {
        let end = self.stream.on_end(clean);
        let tail = self.splitter.finish();
        match end {
            End::Complete | End::EngineError => out.put(tail),
            End::Broken(_) => {}
        }
        end
    }

    /// Whether what was passed on ends with a whole event. If not, an event of our own needs a blank line first.
    pub fn at_boundary(&self) -> bool {
        self.splitter.at_boundary()
    }

    /// A leader accepted the plan: its bytes come next. See `Stream::begin`.
    pub fn begin(&mut self, resend: Resend, moved: bool) {
        self.splitter = Splitter::new();
        self.stream.begin(resend, moved);
    }

    /// The original request was sent again, since nothing had been passed on: its bytes come next.
    pub fn begin_fresh(&mut self) {
        self.splitter = Splitter::new();
        self.stream.begin_fresh();
    }
}
