//! Which scenarios make up the full matrix, and a selection in which every pair of settings occurs. Pure.

use std::collections::BTreeSet;

use super::scenario::{Event, Mode};

/// Mode, size, replicas, event.
pub(super) type Cell = (Mode, u32, u32, Event);

const MODES: [Mode; 2] = [Mode::TakeOver, Mode::Managed];
const SIZES: [u32; 2] = [2, 3];
const REPLICAS: [u32; 3] = [2, 1, 4];
const EVENTS: [Event; 6] =
    [Event::Roll, Event::FollowerKilled, Event::LeaderKilled, Event::ContainerRestart, Event::ApiServerDown, Event::GatewayRolled];

/// All 72 of them.
pub(super) fn full() -> Vec<Cell> {
    let mut cells = Vec::new();
    for mode in MODES {
        for size in SIZES {
            for replicas in REPLICAS {
                cells.extend(EVENTS.map(|event| (mode, size, replicas, event)));
            }
        }
    }
    cells
}

/// Greedily, the cell with the most pairs that are still missing comes next; ties go to the earlier one, so the selection is fixed.
pub(super) fn pairwise() -> Vec<Cell> {
    let all = full();
    let mut missing: BTreeSet<(String, String)> = all.iter().flat_map(pairs).collect();
    let mut chosen = Vec::new();
    while !missing.is_empty() {
        let gain = |cell: &&Cell| pairs(cell).iter().filter(|pair| missing.contains(*pair)).count();
        let Some(best) = all.iter().rev().max_by_key(gain).copied() else { break };
        missing.retain(|pair| !pairs(&best).contains(pair));
        chosen.push(best);
    }
    chosen
}

fn pairs(cell: &Cell) -> Vec<(String, String)> {
    let (mode, size, replicas, event) = cell;
    let values = [format!("{mode:?}"), format!("size {size}"), format!("replicas {replicas}"), format!("{event:?}")];
    let mut pairs = Vec::new();
    for (at, one) in values.iter().enumerate() {
        pairs.extend(values.iter().skip(at + 1).map(|other| (one.clone(), other.clone())));
    }
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairwise_holds_every_pair_in_a_quarter_of_the_cells() {
        let (all, chosen) = (full(), pairwise());
        let of = |cells: &[Cell]| cells.iter().flat_map(pairs).collect::<BTreeSet<_>>();
        assert_eq!(of(&all), of(&chosen));
        assert_eq!(all.len(), 72);
        assert!((18..=20).contains(&chosen.len()), "{}", chosen.len());
    }
}
