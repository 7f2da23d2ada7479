//! Carrying a broken stream on at another leader so that its client notices nothing but a pause.
//!
//! Pure: no IO, no clock, no task. The relay feeds the bytes of a leader into a [`Watch`], passes on what comes out, and
//! asks it for a [`Plan`] when the stream is broken. The parts, in the order of an event's way:
//!
//! - `watch`: bytes → events (`sse`) → verdicts;
//! - `stream`: the verdict on each event and on the end;
//! - `journal`, `sent`, `shape`: what the client has got, kept cheaply;
//! - `planner`, `ways`, `facts`, `text`, `tokens`, `body`: how to go on, exactly or not at all;
//! - `splice`, `expect`, `trim`, `usage`: another leader's events made events of the one stream;
//! - `finish`: the end where nothing is left to generate.
//!
//! What must not happen here: text guessed, lost or repeated; tokens counted from events; a `[DONE]` made up for a text
//! that is not whole. Which requests are carried on and how is docs/resume.md.
//!
//! Next step of the path: the relay sends the plan's request to a leader and feeds its answer back.

mod body;
mod carry;
mod cause;
mod chunk;
mod expect;
mod facts;
mod finish;
mod full;
mod journal;
mod json;
mod marks;
mod plan;
mod planner;
mod refusal;
mod rewrite;
mod route;
mod sent;
mod shape;
mod splice;
mod stream;
mod text;
mod tokens;
mod tried;
mod trim;
mod usage;
mod watch;
mod ways;

#[cfg(test)]
mod tests;

pub use cause::Cause;
pub use full::is_broken_answer;
pub use plan::{Ask, Caps, Plan, Resend, Way};
pub use refusal::Refusal;
pub use route::Route;
pub use stream::{End, Next, Step, Stream, first_body};
pub use watch::{Watch, Watched};
