//! Seeded simulation of the whole request path: the real gateway, simulated clients, leaders, drains, deaths and watch delays.
//!
//! Owns: which seeds are played. A seed is everything: the plan (`plan`), the picks, the order of events. `LEADGATE_SIM_SEEDS=N` plays the
//! seeds below N (200 without), `LEADGATE_SIM_SEED=S` plays one and prints what happened. A seed that fails is kept in `seeds`.
//!
//! Parts: `world` (one run), `plan` (what a seed means), `cluster`, `group` and `views` (truth and what is shown of it), `net`, `leader`,
//! `mood`, `inbox` and `wording` (engines), `client` and `heard` (clients), `arrivals` and `journal` (notes), `judge` (what must hold).

mod arrivals;
mod client;
mod cluster;
mod group;
mod heard;
mod inbox;
mod journal;
mod judge;
mod leader;
mod mood;
mod net;
mod plan;
mod seeds;
mod tasks;
mod views;
mod wording;
mod world;

use std::sync::atomic::{AtomicU64, Ordering};

/// Seeds that are played by default.
const SEEDS: u64 = 200;

/// Plays a plan; panics with all that happened if anything is wrong.
fn check(plan: plan::Plan) {
    let seed = plan.seed;
    let outcome = world::play(plan);
    let wrong = outcome.wrong.join("\n");
    assert!(wrong.is_empty(), "seed {seed} failed; LEADGATE_SIM_SEED={seed} plays it again\n{}\n{wrong}", outcome.journal);
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

#[test]
fn every_seed_keeps_every_promise() {
    if let Some(seed) = number("LEADGATE_SIM_SEED") {
        check(plan::Plan::of(seed));
        println!("{}", world::play(plan::Plan::of(seed)).journal);
        return;
    }
    let seeds = number("LEADGATE_SIM_SEEDS").unwrap_or(SEEDS);
    let next = AtomicU64::new(0);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let failed: Vec<(u64, Vec<String>)> = std::thread::scope(|scope| {
        let play = || -> Vec<(u64, Vec<String>)> {
            let mine = std::iter::from_fn(|| Some(next.fetch_add(1, Ordering::Relaxed)).filter(|seed| *seed < seeds));
            mine.map(|seed| (seed, world::play(plan::Plan::of(seed)).wrong)).filter(|(_, wrong)| !wrong.is_empty()).collect()
        };
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(play)).collect();
        running.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    for (seed, wrong) in &failed {
        println!("seed {seed}:\n  {}", wrong.join("\n  "));
    }
    if let Some(first) = failed.iter().map(|(seed, _)| *seed).min() {
        println!("{} of {seeds} seeds failed", failed.len());
        check(plan::Plan::of(first));
    }
}
