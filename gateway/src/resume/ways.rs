//! In which order the ways of carrying on are tried.
//!
//! Owns the decision that the engine facts (section 5) and the issue's rules lead to; the table is docs/resume.md. Whether
//! a way is possible at its turn is the planner's to find out.

use smallvec::{SmallVec, smallvec};

use super::facts::{Facts, Prompt, Sampling};
use super::plan::Attempt;
use super::route::Route;

/// What was sent, as far as the order depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SentKind {
    /// One choice of plain text: no tool call, no second choice, nothing that cannot be put together again.
    pub(super) plain: bool,
    /// Nothing but a role was sent.
    pub(super) empty: bool,
    /// A replacement character was sent: the text is not what the model wrote.
    pub(super) broken: bool,
    /// Reasoning was sent: the engine runs a parser.
    pub(super) reasoning: bool,
    /// The text ends inside a run of blanks.
    pub(super) indented: bool,
}

/// The attempts to make, best first.
pub(super) fn order(route: Route, facts: &Facts, sent: SentKind, token_ids: bool) -> SmallVec<[Attempt; 8]> {
    // An empty prefix is the same request again; a grammar, a penalty or a half call is carried by nothing else.
    if sent.empty || facts.replay_only || !sent.plain {
        return smallvec![Attempt::Replay];
    }
    let ids = token_ids && !facts.stop && !facts.tools && !facts.logprobs && !sent.reasoning;
    let mut order = SmallVec::new();
    // What must come out the same is asked for again first where going on in the middle is not exact.
    let replay_first = facts.sampling == Sampling::Seeded || facts.stop || (facts.tools && facts.repeatable());
    if replay_first {
        order.push(Attempt::Replay);
    }
    if ids {
        order.push(Attempt::TokenIds);
    }
    if !sent.broken && (route == Route::Chat || facts.prompt == Prompt::Text) {
        let no_parser = !facts.tools && !facts.logprobs && !sent.reasoning;
        let possible = |attempt: &&Attempt| **attempt != Attempt::Rendered || (route == Route::Chat && no_parser);
        order.extend(text(facts, sent.indented).iter().filter(possible).copied());
    }
    if !replay_first {
        order.push(Attempt::Replay);
    }
    order
}

fn text(facts: &Facts, indented: bool) -> &'static [Attempt] {
    match (facts.sampling, indented) {
        // Behind held-back text only a cut at a word's end is known to be one of the model's own tokens.
        _ if facts.stop => &[Attempt::Cut],
        (Sampling::Greedy, false) => &[Attempt::Cut, Attempt::All, Attempt::Rendered, Attempt::Space],
        (Sampling::Greedy, true) => &[Attempt::Cut, Attempt::Space, Attempt::All, Attempt::Rendered],
        // A longer overlap would be sampled anew and differ.
        (Sampling::Seeded | Sampling::Free, false) => &[Attempt::All, Attempt::Rendered, Attempt::Space, Attempt::Cut],
        (Sampling::Seeded | Sampling::Free, true) => &[Attempt::Space, Attempt::All, Attempt::Rendered, Attempt::Cut],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resume::json::Object;
    use Attempt::{All, Cut, Rendered, Replay, Space, TokenIds};

    const PLAIN: SentKind = SentKind { plain: true, empty: false, broken: false, reasoning: false, indented: false };

    #[track_caller]
    fn check(fields: &str, sent: SentKind, token_ids: bool, expect: &[Attempt]) {
        let body = format!(r#"{{"messages":[]{fields}}}"#);
        let facts = Facts::read(Route::Chat, &Object::parse(body.as_bytes()).unwrap()).unwrap();
        assert_eq!(order(Route::Chat, &facts, sent, token_ids).as_slice(), expect, "{fields}");
    }

    #[test]
    fn plain_text_prefers_to_continue() {
        check(r#","temperature":0"#, PLAIN, false, &[Cut, All, Rendered, Space, Replay]);
        check("", PLAIN, false, &[All, Rendered, Space, Cut, Replay]);
        check(r#","temperature":0"#, PLAIN, true, &[TokenIds, Cut, All, Rendered, Space, Replay]);
        check("", SentKind { indented: true, ..PLAIN }, false, &[Space, All, Rendered, Cut, Replay]);
    }

    #[test]
    fn what_must_come_out_the_same_is_replayed() {
        check(r#","seed":1"#, PLAIN, false, &[Replay, All, Rendered, Space, Cut]);
        check(r#","seed":1"#, PLAIN, true, &[Replay, TokenIds, All, Rendered, Space, Cut]);
        check(r#","temperature":0,"stop":["x"]"#, PLAIN, true, &[Replay, Cut]);
        check(r#","temperature":0,"tools":[{}]"#, PLAIN, true, &[Replay, Cut, All, Space]);
        check(r#","tools":[{}]"#, PLAIN, false, &[All, Space, Cut, Replay]);
    }

    #[test]
    fn what_only_a_replay_carries() {
        check(r#","n":2"#, PLAIN, true, &[Replay]);
        check(r#","response_format":{"type":"json_object"}"#, PLAIN, true, &[Replay]);
        check("", SentKind { plain: false, ..PLAIN }, true, &[Replay]);
        check("", SentKind { empty: true, ..PLAIN }, true, &[Replay]);
        check(r#","temperature":0"#, SentKind { broken: true, ..PLAIN }, true, &[TokenIds, Replay]);
        check(r#","temperature":0"#, SentKind { reasoning: true, ..PLAIN }, true, &[Cut, All, Space, Replay]);
    }
}
