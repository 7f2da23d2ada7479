//! Seeds that once failed, by what they showed. Each is a test of its own for ever.

use crate::check;

#[test]
fn a_seed_replays_exactly() {
    for seed in [3, 11, 37] {
        let (one, two) = (crate::world::play(seed).unwrap(), crate::world::play(seed).unwrap());
        assert_eq!(one.journal, two.journal, "seed {seed}");
    }
}

/// The event was given up a second after it was written, while the client was still reading what came before it.
#[test]
fn a_slow_client_gets_the_error_event_before_the_cut() {
    check(32);
}
