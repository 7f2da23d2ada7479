//! Which leader takes the next attempt: power of two choices on running requests. Pure; randomness is passed in.
//!
//! Rules: groups that are likely replaced next are taken only when there is no other; groups that this request has tried are not taken again;
//! a leader whose last answers were server errors counts as loaded, since failing fast must not look like being idle.

use std::sync::Arc;

use rand::Rng;

use crate::groups::state::GroupState;
use crate::groups::table::PoolEntry;

/// A leader that a request has been at. It may be taken again only when it has been proven anew since.
#[derive(Debug, Clone)]
pub struct Tried {
    group: Arc<GroupState>,
    proof: u64,
}

impl Tried {
    /// The leader as of now.
    pub fn now(group: &Arc<GroupState>) -> Self {
        Self { group: group.clone(), proof: group.proof() }
    }

    fn excludes(&self, group: &Arc<GroupState>) -> bool {
        Arc::ptr_eq(&self.group, group) && group.proof() <= self.proof
    }
}

/// Draws before all candidates are looked at.
const DRAWS: usize = 4;

/// The leader for a request that has already been at `tried`. `None`: no other is there to take it.
pub fn pick<'a>(entry: &'a PoolEntry, tried: &[Tried], rng: &mut impl Rng) -> Option<&'a Arc<GroupState>> {
    best_of(&entry.preferred, tried, rng).or_else(|| best_of(&entry.next_to_go, tried, rng))
}

fn best_of<'a>(candidates: &'a [Arc<GroupState>], tried: &[Tried], rng: &mut impl Rng) -> Option<&'a Arc<GroupState>> {
    let fit = |group: &&Arc<GroupState>| group.trusted() && !tried.iter().any(|t| t.excludes(group));
    if candidates.len() <= 2 {
        return lighter(candidates.iter().filter(fit), rng);
    }
    let mut drawn: [Option<&Arc<GroupState>>; 2] = [None, None];
    for _ in 0..DRAWS {
        let group = &candidates[rng.random_range(0..candidates.len())];
        if !fit(&group) || drawn[0].is_some_and(|first| Arc::ptr_eq(first, group)) {
            continue;
        }
        if drawn[0].is_none() {
            drawn[0] = Some(group);
        } else {
            drawn[1] = Some(group);
            break;
        }
    }
    match drawn {
        [Some(_), Some(_)] => lighter(drawn.into_iter().flatten(), rng),
        // Most are unfit: look at all of them once.
        _ => lighter(candidates.iter().filter(fit), rng),
    }
}

fn lighter<'a>(fit: impl Iterator<Item = &'a Arc<GroupState>>, rng: &mut impl Rng) -> Option<&'a Arc<GroupState>> {
    let mut best: Option<(&Arc<GroupState>, u64)> = None;
    let mut ties = 1u32;
    for group in fit {
        let load = load(group);
        match best {
            Some((_, least)) if load > least => continue,
            Some((_, least)) if load == least => {
                ties += 1;
                if rng.random_range(0..ties) != 0 {
                    continue;
                }
            }
            _ => ties = 1,
        }
        best = Some((group, load));
    }
    best.map(|(group, _)| group)
}

/// Running requests, multiplied for each server error in a row.
fn load(state: &GroupState) -> u64 {
    (u64::from(state.in_flight()) + 1) << (3 * state.health.penalty().min(8))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::groups::permits::Permit;
    use crate::groups::table::Tables;
    use crate::testing;
    use rand::SeedableRng;
    use rand::rngs::SmallRng;
    use std::collections::HashMap;

    fn entry(groups: usize) -> Arc<PoolEntry> {
        let tables = Tables::new(1, testing::metrics());
        tables.rebuild(testing::snapshot("m", groups), &testing::config(), std::time::SystemTime::UNIX_EPOCH);
        tables.load().pool("m").unwrap().clone()
    }

    fn spread(entry: &PoolEntry, tried: &[Tried], picks: usize) -> HashMap<String, usize> {
        let mut rng = SmallRng::seed_from_u64(7);
        let mut seen = HashMap::new();
        for _ in 0..picks {
            if let Some(group) = pick(entry, tried, &mut rng) {
                *seen.entry(group.key.to_string()).or_default() += 1;
            }
        }
        seen
    }

    #[test]
    fn idle_leaders_share_evenly() {
        for groups in [1, 2, 3, 10] {
            let seen = spread(&entry(groups), &[], 1000 * groups);
            assert_eq!(seen.len(), groups);
            assert!(seen.values().all(|n| (700..=1300).contains(n)), "{seen:?}");
        }
    }

    #[test]
    fn the_lighter_of_two_wins_and_failing_fast_is_not_light() {
        let entry = entry(2);
        let busy = Permit::take(&entry.preferred[0]);
        assert_eq!(spread(&entry, &[], 100).len(), 1);
        drop(busy);
        entry.preferred[1].health.server_error(0);
        let _busy: Vec<_> = (0..5).map(|_| Permit::take(&entry.preferred[0])).collect();
        assert_eq!(spread(&entry, &[], 100), HashMap::from([(entry.preferred[0].key.to_string(), 100)]));
    }

    #[test]
    fn tried_and_distrusted_leaders_are_left_out() {
        let entry = entry(3);
        let tried = [Tried::now(&entry.preferred[0])];
        assert!(!spread(&entry, &tried, 300).contains_key(&entry.preferred[0].key.to_string()));
        entry.preferred[1].health.fault(entry.preferred[1].proof());
        assert_eq!(spread(&entry, &tried, 300).len(), 1);
        entry.preferred[2].health.fault(entry.preferred[2].proof());
        assert!(spread(&entry, &tried, 10).is_empty());
    }
}
