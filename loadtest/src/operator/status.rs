//! `status` of a ModelDeployment, rebuilt at every pass and written only when it differs. Pure.

use serde_json::{Value, json};

use super::eligibility::Verdicts;
use super::render;
use super::retire::Retirement;
use super::slots::Slots;
use super::spec::{Deployment, Role};
use super::view::View;

/// Counts of one role.
struct Count {
    desired: u32,
    ready: u32,
    admitted: u32,
    outdated: u32,
    unmanaged: bool,
}

/// The status of a deployment that is not being deleted.
pub(super) fn of(view: &View, slots: &Slots, retirement: Option<&Retirement>, verdicts: &Verdicts) -> Value {
    let deployment = &view.deployment;
    let counts: Vec<(&Role, Count)> = deployment.spec.roles.iter().map(|role| (role, count(view, role))).collect();
    let (ready, desired) = counts.iter().fold((0, 0), |(ready, desired), (_, count)| (ready + count.ready, desired + count.desired));
    let mut status = json!({
        "phase": phase(ready, desired),
        "endpoint": endpoint(deployment),
        "roles": counts.iter().map(|(role, count)| role_status(role, count, verdicts)).collect::<Vec<_>>(),
        "conditions": conditions(&counts, slots, verdicts),
        "roleSummary": format!("{ready}S"),
    });
    if ready < desired {
        status["phaseMessage"] = json!(format!("{ready} of {desired} replicas are ready"));
    }
    if let Some(retirement) = retirement {
        status["retirement"] = json!(retirement);
    }
    status
}

/// The status of one that is.
pub(super) fn deleting(deployment: &Deployment) -> Value {
    let mut status = deployment.status.clone();
    status["phase"] = json!("Deleting");
    status
}

/// Whether two statuses differ in anything but the times of their conditions.
pub(super) fn differs(standing: &Value, wanted: &Value) -> bool {
    let timeless = |status: &Value| {
        let mut status = status.clone();
        for condition in status["conditions"].as_array_mut().into_iter().flatten() {
            condition["lastTransitionTime"].take();
        }
        status
    };
    timeless(standing) != timeless(wanted)
}

fn count(view: &View, role: &Role) -> Count {
    let replicas: Vec<_> = view.ordinals(&role.name, role.replicas).into_iter().map(|ordinal| view.replica(&role.name, ordinal)).collect();
    let number = |matches: &dyn Fn(&super::view::Replica<'_>) -> bool| {
        u32::try_from(replicas.iter().filter(|replica| matches(replica)).count()).unwrap_or(u32::MAX)
    };
    let deployed = view.role_pods(&role.name).map(|pod| !render::is_managed(pod)).last();
    Count {
        desired: role.replicas,
        ready: number(&|replica| replica.is_ready()),
        admitted: number(&|replica| replica.is_admitted()),
        outdated: number(&|replica| !replica.pods.is_empty() && replica.is_outdated(&view.deployment, role)),
        unmanaged: deployed.unwrap_or(!role.managed()),
    }
}

/// `Degraded` too when more than the desired number are ready (an aborted scale-down): the operator compares for equality.
fn phase(ready: u32, desired: u32) -> &'static str {
    match ready {
        0 => "Starting",
        ready if ready == desired => "Ready",
        _ => "Degraded",
    }
}

fn endpoint(deployment: &Deployment) -> String {
    let port = deployment.spec.roles.first().map_or(8000, |role| role.port().1);
    format!("http://{}.{}.svc:{port}", deployment.name, deployment.namespace)
}

fn role_status(role: &Role, count: &Count, verdicts: &Verdicts) -> Value {
    let load_balance = match (count.unmanaged, role.every_rank_serves()) {
        (true, _) => "Unknown",
        (false, true) => "External",
        (false, false) => "Internal",
    };
    let mut status = json!({
        "name": role.name, "kind": role.kind, "desired": count.desired, "ready": count.ready, "quotaReserved": count.admitted,
        "unmanaged": count.unmanaged,
        "parallelism": {"declared": {}, "loadBalance": load_balance},
        "endpoints": {"serving": {"state": "NotConfigured"}},
    });
    if let Some(eligible) = verdicts.eligible(&role.name) {
        status["endpoints"]["eligible"] = json!(eligible);
    }
    status
}

fn conditions(counts: &[(&Role, Count)], slots: &Slots, verdicts: &Verdicts) -> Value {
    let sum = |field: fn(&Count) -> u32| counts.iter().map(|(_, count)| field(count)).sum::<u32>();
    let (desired, ready, admitted) = (sum(|count| count.desired), sum(|count| count.ready), sum(|count| count.admitted));
    let up_to_date = match (sum(|count| count.outdated), slots.is_empty() && admitted >= desired) {
        (1.., _) => ("False", "RolloutInProgress"),
        (0, false) if slots.is_empty() || ready > 0 => ("False", "ReplacementInProgress"),
        (0, false) => ("False", "RolloutInProgress"),
        (0, true) => ("True", "UpToDate"),
    };
    let quota = if admitted >= desired { ("True", "Reserved") } else { ("False", "Pending") };
    let kinds = if ready > 0 { ("True", "AllKindsReady") } else { ("False", "KindsNotReady") };
    let all_eligible = counts.iter().all(|(role, count)| verdicts.eligible(&role.name).is_none_or(|eligible| eligible >= count.desired));
    let eligibility = match (verdicts.any(), all_eligible) {
        (false, _) => ("Unknown", "NotObserved"),
        (true, true) => ("True", "AllEligible"),
        (true, false) => ("False", "NotAllEligible"),
    };
    let now = k8s_openapi::jiff::Timestamp::now();
    let rows = [
        ("DomainRegistered", ("True", "NotApplicable")),
        ("QuotaReserved", quota),
        ("CacheAttached", ("True", "NotApplicable")),
        ("ReplicasUpToDate", up_to_date),
        ("RoleKindsReady", kinds),
        ("KVEventsPublishing", ("True", "NotApplicable")),
        ("RouterReady", ("True", "NotApplicable")),
        ("WeightsReady", ("True", "Ready")),
        ("EndpointEligibility", eligibility),
    ];
    rows.into_iter()
        .map(|(kind, (status, reason))| json!({"type": kind, "status": status, "reason": reason, "message": "", "lastTransitionTime": now}))
        .collect()
}
