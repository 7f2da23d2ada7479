//! Which names a deployment serves, and which of its groups serve which. Pure.
//!
//! Owns: the order of trust (operator contract section 7): a managed role's name is `spec.model.name`; a take-over role's is what its
//! leader lists, before that what its command line says. Must not: settle who owns a name (`table` does).

use std::collections::BTreeMap;

use crate::fact::{DeploymentFact, RoleFact, RoleKind, Str};
use crate::snapshot::GroupPhase;
use crate::source::command::MAX_NAMES;
use crate::view::Target;

/// Under which the names that a router lists are known.
const ROUTER: &str = "router";

/// The names of one deployment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Served {
    /// Every name, the primary one first.
    pub names: Vec<Str>,
    /// The names of some role are not known yet.
    pub pending: bool,
}

/// What one target serves. `None`: nobody knows yet, so it counts for every name of its role.
pub fn of_target(deployment: &DeploymentFact, target: &Target) -> Option<Vec<Str>> {
    if !target.group.managed {
        let names = match target.learned.as_deref() {
            Some(learned) => learned,
            None => target.declared.as_slice(),
        };
        return (!names.is_empty()).then(|| bounded(names.iter().cloned()));
    }
    // A managed engine serves the model's name; what it lists besides are adapters, believed only if the list has the model too.
    let adapters = target.learned.iter().flat_map(|learned| learned.iter()).cloned();
    let consistent = target.learned.as_ref().is_some_and(|learned| learned.contains(&deployment.model));
    Some(bounded(std::iter::once(deployment.model.clone()).chain(adapters.filter(|_| consistent))))
}

/// What a deployment serves. `known` holds the names by role as last learned, and is brought up to date: they outlive a gap in which no
/// group serves.
pub fn of_deployment(deployment: &DeploymentFact, targets: &[Target], known: &mut BTreeMap<Str, Vec<Str>>) -> Served {
    let mut served = Served::default();
    known.retain(|role, _| **role == *ROUTER || deployment.roles.iter().any(|present| present.name == *role));
    if deployment.router.is_some() {
        let names = behind_router(deployment, targets, known);
        served.pending = names.is_empty();
        served.names = names;
        return served;
    }
    for role in deployment.roles.iter().filter(|role| role.kind == RoleKind::Server) {
        let names = of_role(deployment, role, targets, known);
        served.pending |= names.is_empty() && !deployment.deleting;
        served.names.extend(names);
    }
    served.names = bounded(std::mem::take(&mut served.names).into_iter());
    served
}

fn of_role(deployment: &DeploymentFact, role: &RoleFact, targets: &[Target], known: &mut BTreeMap<Str, Vec<Str>>) -> Vec<Str> {
    let of_role = || targets.iter().filter(|target| target.role.as_ref() == Some(&role.name));
    let mut names: Vec<Str> =
        of_role().filter(|target| !target.group.members.is_empty()).filter_map(|target| of_target(deployment, target)).flatten().collect();
    let serves = of_role().any(|target| target.group.phase == GroupPhase::Serving && target.learned.is_some());
    if !serves {
        let before = known.get(&role.name).cloned().unwrap_or_default();
        names = before.into_iter().chain(names).collect();
    }
    if names.is_empty() {
        names = if role.take_over { role.declared_names.clone() } else { vec![deployment.model.clone()] };
    }
    let names = bounded(names.into_iter());
    if serves {
        known.insert(role.name.clone(), names.clone());
    }
    names
}

/// The router answers for every role: the model's name while all roles are managed, else what it lists or what a command line says.
fn behind_router(deployment: &DeploymentFact, targets: &[Target], known: &mut BTreeMap<Str, Vec<Str>>) -> Vec<Str> {
    let listed = targets.first().and_then(|target| of_target(deployment, target));
    if let Some(names) = listed {
        known.insert(Str::from(ROUTER), names.clone());
        return names;
    }
    let before = known.get(ROUTER).cloned().unwrap_or_default();
    let declared = deployment.roles.iter().flat_map(|role| role.declared_names.iter().cloned());
    bounded(if before.is_empty() { declared.collect() } else { before }.into_iter())
}

fn bounded(names: impl Iterator<Item = Str>) -> Vec<Str> {
    let mut kept: Vec<Str> = Vec::new();
    for name in names.filter(|name| !name.is_empty()) {
        if kept.len() == MAX_NAMES {
            break;
        }
        if !kept.contains(&name) {
            kept.push(name);
        }
    }
    kept
}
