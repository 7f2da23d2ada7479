//! What an operator of the gateway reads in the log: groups that change their phase, and names that are learned.
//!
//! Owns: these lines. Must not: change anything. What is shown for the first time is said at debug level, since a start shows everything.

use std::collections::BTreeMap;

use crate::fact::Str;
use crate::snapshot::{GroupKey, ReplicaGroup};
use crate::view::Target;

/// One deployment as far as it is worth a line.
pub(crate) struct View<'a> {
    pub(crate) names: &'a [Str],
    pub(crate) targets: &'a [Target],
}

/// Says what changed between two views of one deployment.
pub(crate) fn changes(before: Option<View<'_>>, after: Option<View<'_>>) {
    let empty = || View { names: &[], targets: &[] };
    let (before, after) = (before.unwrap_or_else(empty), after.unwrap_or_else(empty));
    if before.names != after.names
        && let Some(target) = after.targets.first()
    {
        let names: Vec<&str> = after.names.iter().map(|name| &**name).take(8).collect();
        tracing::info!(group = %target.group.key, names = names.join(","), "served names");
    }
    let known: BTreeMap<&GroupKey, &ReplicaGroup> = before.targets.iter().map(|target| (&target.group.key, &*target.group)).collect();
    for target in after.targets {
        let group = &*target.group;
        match known.get(&group.key) {
            None => tracing::debug!(group = %group.key, phase = group.phase.as_str(), reasons = reasons(group), "group seen"),
            Some(old) if old.phase != group.phase => {
                let (from, to) = (old.phase.as_str(), group.phase.as_str());
                tracing::info!(group = %group.key, from, to, reasons = reasons(group), "group changed its phase");
            }
            Some(old) if old.reasons != group.reasons => {
                tracing::debug!(group = %group.key, reasons = reasons(group), "group changed its reasons")
            }
            Some(_) => {}
        }
    }
}

fn reasons(group: &ReplicaGroup) -> String {
    let words: Vec<&str> = group.reasons.iter().map(|reason| reason.as_str()).collect();
    words.join(",")
}
