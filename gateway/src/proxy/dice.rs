//! Where the randomness of picks comes from: the thread's generator, or one seed for all of them.
//!
//! Owns: the choice between the two. A simulation that gives a seed gets the same picks again. Must not: be used for anything secret.

use std::cell::RefCell;
use std::sync::{Mutex, PoisonError};

use rand::rngs::SmallRng;
use rand::{RngCore, SeedableRng};

thread_local! {
    static THREAD: RefCell<SmallRng> = RefCell::new(SmallRng::from_rng(&mut rand::rng()));
}

/// See the module. The default draws from the thread's generator.
#[derive(Debug, Default)]
pub struct Dice {
    seeded: Option<Mutex<SmallRng>>,
}

impl Dice {
    /// Every draw follows from `seed` and from the draws before it.
    pub fn seeded(seed: u64) -> Self {
        Self { seeded: Some(Mutex::new(SmallRng::seed_from_u64(seed))) }
    }

    /// A small generator for one pick.
    pub fn draw(&self) -> SmallRng {
        match &self.seeded {
            None => THREAD.with_borrow_mut(|thread| SmallRng::seed_from_u64(thread.next_u64())),
            Some(seeded) => SmallRng::from_rng(&mut *seeded.lock().unwrap_or_else(PoisonError::into_inner)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::Rng;

    #[test]
    fn a_seed_gives_the_same_draws_and_each_draw_another() {
        let (one, two) = (Dice::seeded(7), Dice::seeded(7));
        let draws = |dice: &Dice| -> Vec<u64> { (0..3).map(|_| dice.draw().random()).collect() };
        let first = draws(&one);
        assert_eq!(first, draws(&two));
        assert!(first[0] != first[1] && first[1] != first[2]);
    }
}
