//! Server-sent events as bytes: cuts an engine's answer into whole events without copying it.
//!
//! Owns the line and event rules of the WHATWG event-stream format as far as a proxy needs them: where an event ends,
//! what its data is, whether it is only a comment. It knows nothing of JSON, of models or of what an event means.
//! It must never hold back a whole event and never hold more than [`MAX_HELD`] bytes of an incomplete one.
//!
//! Next step of the path: `resume`, which looks at each event and says whether it goes on to the client.

mod event;
mod out;
mod scan;
mod splitter;

#[cfg(test)]
mod tests;

pub use event::{Event, Kind};
pub use out::Out;
pub use splitter::{Action, Flow, MAX_HELD, Splitter};
