//! Runs that once failed, by what they showed. Each is a test of its own for ever: a seed, or a seed's plan with what matters set by hand.

use std::time::Duration;

use crate::check;
use crate::plan::{Ending, Plan, Trouble, TroubleKind};

#[test]
fn a_seed_replays_exactly() {
    for seed in [3, 11, 37] {
        let (one, two) = (crate::world::play(Plan::of(seed)), crate::world::play(Plan::of(seed)));
        assert_eq!(one.journal, two.journal, "seed {seed}");
    }
}

/// The event was given up a second after it was written, while the client was still reading what came before it.
#[test]
fn a_slow_client_gets_the_error_event_before_the_cut() {
    check(Plan::of(32));
}

/// Two requests that a stopping leader had refused kept their places in the release window while they waited for the next leader: nobody was
/// released until they timed out.
#[test]
fn requests_that_wait_again_give_their_place_in_the_window_back() {
    let mut plan = Plan::of(37);
    let replace = |at, ending| Trouble { at: Duration::from_millis(at), slot: 0, kind: TroubleKind::Replace(ending) };
    plan.troubles = vec![replace(879, Ending::RunOn), replace(900, Ending::Silence)];
    check(plan);
}

/// A group that was missing from the snapshots for a second came back as another one: what ran there was taken for lost and sent again.
#[test]
fn a_group_that_comes_back_keeps_its_requests() {
    check(Plan::of(14));
}

/// Only groups of the last snapshot were told of the gateway's end: a stream at one that had left it ran on without its error event.
#[test]
fn the_gateways_end_reaches_streams_at_groups_that_are_gone() {
    let mut plan = Plan::of(12);
    plan.troubles.clear();
    for client in &mut plan.clients {
        client.at = Duration::from_secs(1);
    }
    plan.absence = Some((Duration::from_secs(2), Duration::from_secs(3600)));
    plan.end_at(Duration::from_secs(3), Duration::from_secs(1));
    check(plan);
}
