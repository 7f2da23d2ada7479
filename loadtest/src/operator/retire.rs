//! Scale-down: the retirement protocol of the operator since v0.9.0. Pure; time comes in.
//!
//! Without a router nobody can confirm that a replica is out of use, so the operation is `Aborted` after its withdrawal budget and the
//! replica stays: a deployment does not shrink by lowering `replicas`. `confirmed` plays a router that does confirm.

use k8s_openapi::jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::keys;
use super::plan::Action;
use super::slots;
use super::spec::{Deployment, Role};
use super::view::{Replica, View, is_deleting, label};

/// Seconds for `Admitted`, `Disqualified` and `Withdrawing` together.
const WITHDRAWAL_SECONDS: i64 = 30;
/// Seconds for `Draining`.
const DRAIN_SECONDS: i64 = 240;
/// Seconds for the whole operation.
const WHOLE_SECONDS: i64 = 300;

/// `status.retirement`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Retirement {
    pub(super) role_name: String,
    pub(super) replica_ordinal: u32,
    pub(super) observed_generation: i64,
    #[serde(rename = "targetMemberUIDs")]
    pub(super) target_member_uids: Vec<String>,
    #[serde(rename = "targetWorkloadUID", default, skip_serializing_if = "Option::is_none")]
    pub(super) target_workload_uid: Option<String>,
    pub(super) state: State,
    #[serde(default)]
    pub(super) reason: String,
    pub(super) started_at: Timestamp,
    pub(super) deadline: Timestamp,
    pub(super) phase_started_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) last_consumed_retry_token: Option<String>,
}

/// Steps of the protocol. `Completed` is never stored: the field goes away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum State {
    Admitted,
    Disqualified,
    Withdrawing,
    Draining,
    Deleting,
    Settling,
    Aborted,
}

/// What decides besides the view.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moment {
    pub(super) now: Timestamp,
    /// Factor on the protocol's budgets.
    pub(super) time_scale: f64,
    /// Somebody (a router) confirms that withdrawn replicas get no requests.
    pub(super) confirmed: bool,
}

/// The retirement after this pass, and what it asks for.
pub(super) fn advance(view: &View, current: Option<Retirement>, moment: Moment) -> (Option<Retirement>, Vec<Action>) {
    let Some(current) = current else { return (start(view, moment), vec![]) };
    let deployment = &view.deployment;
    let Some(role) = deployment.role(&current.role_name).filter(|role| current.replica_ordinal >= role.replicas) else {
        // The count was raised again: the replica is adopted as it is.
        return (None, vec![]);
    };
    let replica = view.replica(&role.name, current.replica_ordinal);
    match current.state {
        State::Aborted => (Some(retry(deployment, current, moment)), vec![]),
        State::Deleting | State::Settling => finish(view, role, &replica, current),
        State::Admitted | State::Disqualified | State::Withdrawing | State::Draining => {
            let next = before_delete(view, role, &replica, current, moment);
            let actions = if next.state == State::Deleting { slots::remove(view, role, &replica) } else { vec![] };
            (Some(next), actions)
        }
    }
}

fn start(view: &View, moment: Moment) -> Option<Retirement> {
    view.deployment.spec.roles.iter().find_map(|role| {
        let surplus = view.ordinals(&role.name, role.replicas).into_iter().rev().filter(|ordinal| *ordinal >= role.replicas);
        let mut standing = surplus.map(|ordinal| view.replica(&role.name, ordinal));
        let replica = standing.find(|replica| replica.pods.iter().any(|pod| !is_deleting(pod)))?;
        Some(admit(&view.deployment, role, &replica, moment))
    })
}

fn admit(deployment: &Deployment, role: &Role, replica: &Replica<'_>, moment: Moment) -> Retirement {
    Retirement {
        role_name: role.name.clone(),
        replica_ordinal: replica.ordinal,
        observed_generation: deployment.generation,
        target_member_uids: replica.uids(),
        target_workload_uid: replica.workload.map(|workload| workload.uid.clone()),
        state: State::Admitted,
        reason: "the endpoint is being withdrawn".to_owned(),
        started_at: moment.now,
        deadline: later(moment, WHOLE_SECONDS),
        phase_started_at: moment.now,
        last_consumed_retry_token: None,
    }
}

fn before_delete(view: &View, role: &Role, replica: &Replica<'_>, current: Retirement, moment: Moment) -> Retirement {
    let draining = current.state == State::Draining;
    let (budget, since) = if draining { (DRAIN_SECONDS, current.phase_started_at) } else { (WITHDRAWAL_SECONDS, current.started_at) };
    if passed(since, moment, budget) {
        let reason = "no router is declared, so established connections cannot be observed";
        return enter(current, State::Aborted, reason, moment);
    }
    let labelled = replica.pods.iter().any(|pod| label(pod, keys::ELIGIBLE).is_some());
    let idle = replica.uids().first().is_some_and(|leader| view.idle.contains(leader));
    let step = match current.state {
        State::Admitted => (!labelled).then_some((State::Disqualified, "out of selection")),
        State::Disqualified => moment.confirmed.then_some((State::Withdrawing, "confirmed unserved")),
        // Only managed engines have gauges that the operator can read.
        State::Withdrawing => role.managed().then_some((State::Draining, "reading engine gauges")),
        State::Draining => idle.then_some((State::Deleting, "idle")),
        State::Deleting | State::Settling | State::Aborted => None,
    };
    match step {
        Some((state, reason)) => enter(current, state, reason, moment),
        None => current,
    }
}

fn finish(view: &View, role: &Role, replica: &Replica<'_>, current: Retirement) -> (Option<Retirement>, Vec<Action>) {
    if replica.pods.is_empty() && replica.workload.is_none() { (None, vec![]) } else { (Some(current), slots::remove(view, role, replica)) }
}

/// An aborted operation starts again only on new intent: `<role>:<ordinal>:<token>` with a token not yet used.
fn retry(deployment: &Deployment, current: Retirement, moment: Moment) -> Retirement {
    let wanted = deployment.annotations.get(keys::RETIREMENT_RETRY).map(String::as_str).unwrap_or_default();
    let prefix = format!("{}:{}:", current.role_name, current.replica_ordinal);
    let token = wanted.strip_prefix(&prefix).filter(|token| Some(*token) != current.last_consumed_retry_token.as_deref());
    let Some(token) = token.map(str::to_owned) else { return current };
    let restarted =
        Retirement { started_at: moment.now, deadline: later(moment, WHOLE_SECONDS), last_consumed_retry_token: Some(token), ..current };
    enter(restarted, State::Admitted, "retried", moment)
}

fn enter(current: Retirement, state: State, reason: &str, moment: Moment) -> Retirement {
    Retirement { state, reason: reason.to_owned(), phase_started_at: moment.now, ..current }
}

fn later(moment: Moment, seconds: i64) -> Timestamp {
    moment.now.checked_add(k8s_openapi::jiff::SignedDuration::from_secs_f64(scaled(moment, seconds))).unwrap_or(moment.now)
}

fn passed(since: Timestamp, moment: Moment, seconds: i64) -> bool {
    moment.now.duration_since(since).as_secs_f64() >= scaled(moment, seconds)
}

#[expect(clippy::cast_precision_loss, reason = "budgets are a few hundred seconds")]
fn scaled(moment: Moment, seconds: i64) -> f64 {
    seconds as f64 * moment.time_scale
}

#[cfg(test)]
mod tests {
    use super::super::testing::{deployment, stand, view};
    use super::*;
    use serde_json::json;

    fn moment(second: i64, confirmed: bool) -> Moment {
        Moment { now: Timestamp::from_second(second).unwrap(), time_scale: 1.0, confirmed }
    }

    fn surplus(managed: bool) -> View {
        let fields = if managed { json!({"replicas": 1}) } else { json!({"replicas": 1, "command": ["x"]}) };
        let mut view = view(deployment(fields));
        let old = view.deployment.clone();
        stand(&mut view, &old, 0);
        stand(&mut view, &old, 1);
        view
    }

    #[test]
    fn without_a_router_it_is_aborted_and_everything_stays() {
        let view = surplus(true);
        let (first, _) = advance(&view, None, moment(0, false));
        let (second, _) = advance(&view, first, moment(1, false));
        assert_eq!(second.as_ref().unwrap().state, State::Disqualified);
        let (third, actions) = advance(&view, second, moment(31, false));
        assert_eq!((third.as_ref().unwrap().state, actions), (State::Aborted, vec![]));
        assert_eq!(advance(&view, third.clone(), moment(900, false)).0, third);
    }

    #[test]
    fn a_confirmed_one_drains_until_idle_and_then_deletes() {
        let mut view = surplus(true);
        let mut current = None;
        for _ in 0..4 {
            current = advance(&view, current, moment(1, true)).0;
        }
        assert_eq!(current.as_ref().unwrap().state, State::Draining);
        assert_eq!(advance(&view, current.clone(), moment(2, true)).0.unwrap().state, State::Draining);
        view.idle.insert(current.as_ref().unwrap().target_member_uids[0].clone());
        let (current, actions) = advance(&view, current, moment(3, true));
        assert!(matches!(actions[0], Action::DeletePod { .. }));
        view.pods.truncate(1);
        view.workloads.retain(|_, workload| workload.uid == "workload-0");
        assert_eq!(advance(&view, current, moment(4, true)).0, None);
    }

    #[test]
    fn raising_the_count_adopts_and_a_retry_starts_again() {
        let mut view = surplus(false);
        let aborted = Retirement { state: State::Aborted, ..advance(&view, None, moment(0, false)).0.unwrap() };
        view.deployment.annotations.insert(keys::RETIREMENT_RETRY.into(), "server:1:again".into());
        let retried = advance(&view, Some(aborted.clone()), moment(60, false)).0.unwrap();
        assert_eq!((retried.state, retried.last_consumed_retry_token.as_deref()), (State::Admitted, Some("again")));
        view.deployment.spec.roles[0].replicas = 2;
        assert_eq!(advance(&view, Some(aborted), moment(60, false)).0, None);
    }
}
