//! Whether a request may be tried again before its client has seen an event. Pure.
//!
//! Rule (RFC 9110 9.2.2, invariant 6): only with proof that the first try did nothing or can do nothing any more; never because a clock fired
//! while the group is healthy. A request whose leader died unplanned moves once only, so that a query of death cannot take replica after replica.

use crate::groups::state::Signs;
use crate::telemetry::labels::RetryCause;

/// How a try ended without anything for the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// Not a byte reached the leader.
    NotSent,
    /// The engine refused it (503), or said that nothing was executed.
    Refused,
    /// The engine itself said that the work has ended (abort, engine error).
    Ended,
    /// Cut or silent: the leader may be executing.
    Unknown,
    /// A clock fired.
    Clock,
}

impl Failure {
    /// As a label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NotSent => "not_sent",
            Self::Refused => "refused",
            Self::Ended => "engine_ended",
            Self::Unknown => "cut",
            Self::Clock => "clock",
        }
    }
}

/// What is known of the leader after the failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Evidence {
    /// What discovery says of the group.
    pub signs: Signs,
    /// A new connection to the same incarnation was refused or timed out; `None`: not tried.
    pub refuses: Option<bool>,
}

/// The answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Safe to try at another leader.
    Again {
        /// Counts as the one unplanned move.
        unplanned: bool,
    },
    /// Ask the leader for a new connection first.
    Verify,
    /// The first try may have had an effect, or its clock fired.
    No,
}

/// Judges one failed try.
pub fn judge(failure: Failure, evidence: Evidence) -> Verdict {
    let planned = evidence.signs.leaving();
    match failure {
        Failure::NotSent | Failure::Refused => Verdict::Again { unplanned: false },
        Failure::Ended => Verdict::Again { unplanned: !planned },
        Failure::Unknown | Failure::Clock if evidence.signs.dying() => Verdict::Again { unplanned: !planned },
        Failure::Clock => Verdict::No,
        Failure::Unknown => match evidence.refuses {
            None => Verdict::Verify,
            Some(true) => Verdict::Again { unplanned: true },
            Some(false) => Verdict::No,
        },
    }
}

/// What allowed a second try, in a word.
pub fn cause(failure: Failure, evidence: Evidence) -> RetryCause {
    match failure {
        Failure::NotSent => RetryCause::NotSent,
        Failure::Refused => RetryCause::PeerRefused,
        Failure::Ended => RetryCause::EngineEnded,
        Failure::Unknown | Failure::Clock if evidence.signs.dying() => RetryCause::GroupDying,
        Failure::Unknown | Failure::Clock => RetryCause::PeerGone,
    }
}

/// Tries of one request so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tries {
    /// All of them.
    pub attempts: u32,
    /// Moves away from a leader that died unplanned.
    pub unplanned: u32,
}

impl Tries {
    /// Counts a move and says whether the request's own bounds allow it.
    pub fn may_move(&mut self, unplanned: bool, max_attempts: u32) -> bool {
        self.unplanned += u32::from(unplanned);
        self.attempts < max_attempts && self.unplanned <= 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use discovery::snapshot::Reason;

    fn signs(edit: impl FnOnce(&mut discovery::snapshot::ReplicaGroup)) -> Signs {
        let mut group = testing::group(0);
        edit(&mut group);
        Signs::of(&group)
    }

    #[test]
    fn needs_proof() {
        let healthy = Signs::default();
        let dying = signs(|g| g.reasons = vec![Reason::MemberDeleting]);
        let not_ready = signs(|g| {
            g.broken = true;
            g.reasons = vec![Reason::MemberNotReady];
        });
        let check = |failure, signs, refuses, want| {
            assert_eq!(judge(failure, Evidence { signs, refuses }), want, "{failure:?} {signs:?} {refuses:?}")
        };
        let (again, once) = (Verdict::Again { unplanned: false }, Verdict::Again { unplanned: true });
        check(Failure::NotSent, healthy, None, again);
        check(Failure::Refused, healthy, None, again);
        check(Failure::Ended, healthy, None, once);
        check(Failure::Unknown, healthy, None, Verdict::Verify);
        check(Failure::Unknown, healthy, Some(true), once);
        check(Failure::Unknown, healthy, Some(false), Verdict::No);
        check(Failure::Unknown, not_ready, None, Verdict::Verify);
        check(Failure::Unknown, dying, None, once);
        check(Failure::Unknown, Signs::gone(), None, again);
        check(Failure::Clock, healthy, Some(true), Verdict::No);
        check(Failure::Clock, Signs::gone(), None, again);
    }

    #[test]
    fn moves_once_from_an_unplanned_death_and_stays_within_its_attempts() {
        let mut tries = Tries { attempts: 1, unplanned: 0 };
        assert!(tries.may_move(true, 5));
        assert!(tries.may_move(false, 5));
        assert!(!tries.may_move(true, 5));
        assert!(!Tries { attempts: 3, unplanned: 0 }.may_move(false, 3));
    }
}
