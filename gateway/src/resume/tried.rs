//! What was tried at one break and how it failed.

use smallvec::SmallVec;

use super::plan::Attempt;
use super::refusal::Refusal;

/// How often a few characters may be sampled anew until they are those that were sent. Each failure costs a token or two;
/// what is taken in the end has the right distribution, since it is a sample given what was sent.
const SAMPLE_TRIES: usize = 3;

/// How an attempt failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Failure {
    /// The rest did not agree with what was sent.
    Differed,
    /// The leader refused the request.
    Refused,
    /// The leader's template drops what the rest depends on.
    Stripped,
}

/// The attempts made at one break.
#[derive(Debug, Default)]
pub(super) struct Tried(SmallVec<[(Attempt, Failure); 4]>);

impl Tried {
    /// Keeps a failure.
    pub(super) fn put(&mut self, attempt: Attempt, failure: Failure) {
        self.0.push((attempt, failure));
    }

    /// Nothing has failed at this break.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether `attempt` must not be made again. `samples_anew`: its text is short and sampled.
    pub(super) fn exhausted(&self, attempt: Attempt, samples_anew: bool) -> bool {
        let failures = || self.0.iter().filter(|(tried, _)| *tried == attempt);
        let again = samples_anew && failures().all(|(_, failure)| *failure == Failure::Differed);
        let text = |attempt: Attempt| matches!(attempt, Attempt::Cut | Attempt::All | Attempt::Space);
        // A leader that refuses one continued text for its form refuses the others too.
        let refused = text(attempt) && self.0.iter().any(|(tried, failure)| text(*tried) && *failure != Failure::Differed);
        refused || failures().count() >= if again { SAMPLE_TRIES } else { 1 }
    }

    /// The reason to name when nothing is left to try.
    pub(super) fn reason(&self) -> Option<Refusal> {
        let any = |wanted: &dyn Fn(Attempt, Failure) -> bool| self.0.iter().any(|(attempt, failure)| wanted(*attempt, *failure));
        if any(&|_, failure| failure == Failure::Stripped) {
            Some(Refusal::ReasoningStripped)
        } else if any(&|attempt, failure| attempt != Attempt::Replay && failure == Failure::Differed) {
            Some(Refusal::TextDiffered)
        } else if any(&|_, failure| failure == Failure::Differed) {
            Some(Refusal::ReplayDiffered)
        } else if any(&|_, failure| failure == Failure::Refused) {
            Some(Refusal::LeaderRefused)
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_attempt_is_made_once_but_white_space_is_sampled_again() {
        let mut tried = Tried::default();
        tried.put(Attempt::Replay, Failure::Differed);
        assert!(tried.exhausted(Attempt::Replay, false));
        tried.put(Attempt::Space, Failure::Differed);
        assert!(!tried.exhausted(Attempt::Space, true));
        tried.put(Attempt::Space, Failure::Differed);
        tried.put(Attempt::Space, Failure::Differed);
        assert!(tried.exhausted(Attempt::Space, true));
        assert!(!tried.exhausted(Attempt::All, false));
    }

    #[test]
    fn a_leader_that_refuses_one_continued_text_refuses_them_all() {
        let mut tried = Tried::default();
        tried.put(Attempt::Cut, Failure::Stripped);
        assert!(tried.exhausted(Attempt::All, false));
        assert!(!tried.exhausted(Attempt::Replay, false));
        assert_eq!(tried.reason(), Some(Refusal::ReasoningStripped));
    }
}
