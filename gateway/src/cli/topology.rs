//! `leadgate topology`: pools, groups, phases, reasons, leaders, requests in flight.
//!
//! Owns: the columns. Must not: sort or judge; it prints `/debug/snapshot`.

use std::io::Write;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::fetch::{FetchError, fetch, get};
use super::table::{age, table};
use crate::admin::model::{GroupState, PoolState, State};

/// How it is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// The columns that matter most.
    Table,
    /// With members, health, incarnation and drain budget.
    Wide,
    /// The admin port's JSON as it is.
    Json,
}

/// Flags of `leadgate topology`.
#[derive(Debug, Clone, Args)]
pub struct TopologyArgs {
    /// Admin port of the gateway.
    #[arg(long, value_name = "URL", env = "LEADGATE_ADMIN_URL", default_value = super::ADMIN)]
    pub admin: String,
    /// Print again whenever something changed, until interrupted.
    #[arg(long, short = 'w')]
    pub watch: bool,
    /// Form of the output.
    #[arg(long, short = 'o', value_enum, default_value = "table")]
    pub output: Output,
}

/// Between two looks of `--watch`.
const PACE: Duration = Duration::from_secs(1);

/// Prints the topology once, or again and again.
///
/// # Errors
/// When the admin port does not answer (with `--watch` only the first time) or the output cannot be written.
pub async fn topology(args: &TopologyArgs, out: &mut (impl Write + Send)) -> Result<(), FetchError> {
    let mut last = print(args).await?;
    put(out, &last)?;
    if !args.watch {
        return Ok(());
    }
    loop {
        tokio::time::sleep(PACE).await;
        let next = print(args).await.unwrap_or_else(|e| format!("{e}\n"));
        if next != last {
            put(out, &format!("\n{next}"))?;
            last = next;
        }
    }
}

fn put(out: &mut impl Write, text: &str) -> Result<(), FetchError> {
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

async fn print(args: &TopologyArgs) -> Result<String, FetchError> {
    if args.output == Output::Json {
        let bytes = get(&args.admin, "/debug/snapshot").await?;
        return Ok(format!("{}\n", String::from_utf8_lossy(&bytes)));
    }
    let state: State = fetch(&args.admin, "/debug/snapshot").await?;
    Ok(render(&state, args.output == Output::Wide))
}

fn render(state: &State, wide: bool) -> String {
    let mut head = vec!["POOL", "GROUP", "PHASE", "READY", "IN-FLIGHT", "LEADER", "REASON"];
    if wide {
        head.extend(["HEALTH", "POD", "FIRST-TOKEN", "FAILURES", "DRAIN", "NEXT", "INCARNATION"]);
    }
    let rows: Vec<_> = state.pools.iter().chain(&state.unnamed).flat_map(|p| pool(p, wide)).collect();
    let mut out = if rows.is_empty() { format!("No pools found ({}).\n", state.source) } else { table(&head, &rows) };
    for note in notes(state) {
        out.push_str(&note);
        out.push('\n');
    }
    out
}

fn pool(pool: &PoolState, wide: bool) -> Vec<Vec<String>> {
    let name = if pool.model.is_empty() { "<unnamed>" } else { &pool.model };
    if pool.groups.is_empty() {
        return vec![vec![name.to_owned(), "<none>".to_owned()]];
    }
    pool.groups.iter().map(|g| group(name, g, wide)).collect()
}

fn group(pool: &str, group: &GroupState, wide: bool) -> Vec<String> {
    let ready = group.members.iter().filter(|m| m.ready && !m.deleting).count();
    let address = group.leader.as_ref().map_or("<none>", |l| &l.address);
    let mut row = vec![
        pool.to_owned(),
        group.key.clone(),
        group.phase.clone(),
        format!("{ready}/{}", group.members.len()),
        group.in_flight.to_string(),
        address.to_owned(),
        or_none(&group.reasons.join(",")),
    ];
    if wide {
        let drain = group.drain.as_ref().map_or_else(|| "<none>".to_owned(), |d| format!("{} left", age(d.streams_left_seconds)));
        row.extend([
            group.health.clone(),
            group.leader.as_ref().map_or_else(|| "<none>".to_owned(), |l| l.pod.clone()),
            group.first_token_seconds.map_or_else(|| "<none>".to_owned(), |s| format!("{:.0}ms", s * 1000.0)),
            format!("{}/{}", group.failures, group.attempts),
            drain,
            if group.next_to_go { "yes".to_owned() } else { "no".to_owned() },
            group.incarnation.clone(),
        ]);
    }
    row
}

fn or_none(text: &str) -> String {
    if text.is_empty() { "<none>".to_owned() } else { text.to_owned() }
}

/// What a table of groups cannot say. The age is left out while it is small, so that `--watch` prints changes only.
fn notes(state: &State) -> Vec<String> {
    let mut notes = Vec::new();
    let waiting = state.pools.iter().filter(|p| p.waiting > 0).map(|p| format!("{} waiting for {}", p.waiting, p.model));
    notes.extend(waiting);
    notes.extend(state.conflicts.iter().map(|c| format!("name conflict: {} is {}'s, not {}'s", c.model, c.owner, c.refused.join(", "))));
    if state.names_pending {
        notes.push("served names of some deployment are not known yet".to_owned());
    }
    if state.age_seconds >= 60.0 {
        notes.push(format!("snapshot {} was last confirmed {} ago", state.generation, age(state.age_seconds)));
    }
    notes.extend(state.watches.iter().filter_map(|w| w.error.as_ref().map(|e| format!("watch of {}: {e}", w.resource))));
    notes.extend(state.not_ready.iter().map(|m| format!("not ready: {m}")));
    notes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::model::{LeaderState, MemberState};

    #[test]
    fn prints_like_kubectl() {
        let leader = LeaderState { pod: "m-0-m0".into(), uid: Some("u".into()), address: "http://127.0.0.2:8000".into() };
        let member = |ready| MemberState { ready, ..MemberState::default() };
        let serving = GroupState {
            key: "ns/m/w/0".into(),
            phase: "Serving".into(),
            leader: Some(leader),
            members: vec![member(true), member(true)],
            in_flight: 3,
            ..GroupState::default()
        };
        let forming = GroupState {
            key: "ns/m/w/1".into(),
            phase: "Forming".into(),
            reasons: vec!["member_missing".into()],
            members: vec![member(false)],
            ..GroupState::default()
        };
        let pool = PoolState { model: "qwen".into(), groups: vec![serving, forming], waiting: 2, ..PoolState::default() };
        let state = State { pools: vec![pool], ..State::default() };
        let expect = "\
POOL   GROUP      PHASE     READY   IN-FLIGHT   LEADER                  REASON
qwen   ns/m/w/0   Serving   2/2     3           http://127.0.0.2:8000   <none>
qwen   ns/m/w/1   Forming   0/1     0           <none>                  member_missing
2 waiting for qwen
";
        assert_eq!(render(&state, false), expect);
        assert!(render(&state, true).lines().next().is_some_and(|l| l.ends_with("INCARNATION")));
    }

    #[test]
    fn nothing_is_said_in_words() {
        let state = State { source: "leaders".into(), not_ready: vec!["first list".into()], ..State::default() };
        assert_eq!(render(&state, false), "No pools found (leaders).\nnot ready: first list\n");
    }
}
