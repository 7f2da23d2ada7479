//! What is only needed once a stream has broken: what was tried, what was asked, how often it moved.
//!
//! Made at the first break, so that a stream that runs well pays one pointer for it.

use bytes::Bytes;
use memchr::memmem;

use super::facts::Facts;
use super::journal::Journal;
use super::json::Object;
use super::plan::{Ask, Attempt, Caps, Plan};
use super::planner::Planner;
use super::refusal::Refusal;
use super::route::Route;
use super::stream::Next;
use super::tokens::{Answers, Tokens};
use super::tried::{Failure, Tried};

/// A broken stream, as its plan needs it.
pub(super) struct Broken<'a> {
    /// The API it speaks.
    pub(super) route: Route,
    /// The client's body as it came.
    pub(super) raw: &'a Bytes,
    /// What was sent.
    pub(super) journal: &'a Journal,
    /// What the leader to carry on can do.
    pub(super) caps: Caps,
    /// Moves of one request.
    pub(super) max_moves: u32,
    /// Token ids were asked for and are to be hidden from the client.
    pub(super) token_ids: bool,
}

/// The state of carrying one stream on.
#[derive(Debug, Default)]
pub(super) struct Carry {
    /// Times the stream went on at another leader.
    pub(super) moves: u32,
    tried: Tried,
    answers: Answers,
    attempt: Option<Attempt>,
}

impl Carry {
    /// The next step.
    pub(super) fn plan(&mut self, now: &Broken<'_>) -> Plan {
        // Another way at the same leader, after one that failed there, is no further move.
        let used_up = self.moves > now.max_moves || (self.moves == now.max_moves && self.tried.is_empty());
        if used_up && !now.journal.complete() {
            return Plan::Refuse(Refusal::Moves);
        }
        let Some(body) = Object::parse(now.raw) else { return Plan::Refuse(Refusal::Request) };
        let Some(facts) = Facts::read(now.route, &body) else { return Plan::Refuse(Refusal::Request) };
        Planner { now, body: &body, facts: &facts, tried: &self.tried, answers: &self.answers }.plan()
    }

    /// Keeps what a leader answered.
    pub(super) fn answered(&mut self, ask: Ask, body: Option<&[u8]>) {
        self.answers.put(ask.question, body.and_then(Tokens::read));
    }

    /// A leader refused.
    pub(super) fn refused(&mut self, attempt: Attempt, status: u16, body: &[u8]) -> Next {
        // Load, keys and faults are the leader's; what it says of the request is true for all leaders.
        if !matches!(status, 400 | 404 | 405 | 413 | 422) {
            return Next::OtherLeader;
        }
        let stripped = memmem::find(body, b"does not appear in the chat").is_some();
        self.tried.put(attempt, if stripped { Failure::Stripped } else { Failure::Refused });
        Next::PlanAgain
    }

    /// A leader accepted.
    pub(super) fn begin(&mut self, attempt: Attempt, moved: bool) {
        self.moves = self.moves.saturating_add(u32::from(moved));
        self.attempt = Some(attempt);
    }

    /// The attempt failed.
    pub(super) fn fails(&mut self, failure: Failure) {
        if let Some(attempt) = self.attempt {
            self.tried.put(attempt, failure);
        }
    }

    /// The client got something new: the next break is another one, and its text is longer.
    pub(super) fn goes_on(&mut self) {
        self.tried = Tried::default();
        self.answers = Answers::default();
    }
}
