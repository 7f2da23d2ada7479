//! `leadgate explain`: where a request for a model would go now, and why not elsewhere.
//!
//! Owns: the printing. Must not: decide; the gateway explains itself at `/debug/explain`.

use std::io::Write;

use clap::Args;

use super::fetch::{FetchError, encoded, fetch};
use super::table::table;
use crate::admin::model::{Explanation, GroupVerdict};

/// Flags of `leadgate explain`.
#[derive(Debug, Clone, Args)]
pub struct ExplainArgs {
    /// Model name as a request would have it.
    #[arg(long, value_name = "MODEL")]
    pub model: String,
    /// A request header `Name: value`; repeatable. No header changes the choice of a group today, and the output says so.
    #[arg(long = "header", value_name = "HEADER")]
    pub headers: Vec<String>,
    /// Admin port of the gateway.
    #[arg(long, value_name = "URL", env = "LEADGATE_ADMIN_URL", default_value = super::ADMIN)]
    pub admin: String,
}

/// Prints the explanation. True when a request would be taken (at once or after a wait).
///
/// # Errors
/// When the admin port does not answer or the output cannot be written.
pub async fn explain(args: &ExplainArgs, out: &mut (impl Write + Send)) -> Result<bool, FetchError> {
    let path = format!("/debug/explain?model={}", encoded(&args.model));
    let explanation: Explanation = fetch(&args.admin, &path).await?;
    out.write_all(render(&explanation, !args.headers.is_empty()).as_bytes())?;
    Ok(explanation.refusal.is_none())
}

fn render(explanation: &Explanation, headers: bool) -> String {
    let mut out = format!("{}\n", explanation.verdict);
    if let Some(pool) = explanation.pool.as_ref().filter(|p| **p != explanation.model) {
        out.push_str(&format!("`{}` leads to the pool `{pool}`.\n", explanation.model));
    }
    if let Some(code) = &explanation.refusal {
        out.push_str(&format!("Refusal: {code}\n"));
    }
    if explanation.waiting > 0 {
        out.push_str(&format!("Waiting already: {}\n", explanation.waiting));
    }
    if headers {
        out.push_str("No request header changes the choice of a group.\n");
    }
    if !explanation.groups.is_empty() {
        out.push('\n');
        out.push_str(&table(&["GROUP", "STANDING", "IN-FLIGHT", "LEADER", "WHY"], &rows(&explanation.groups)));
    }
    out
}

fn rows(groups: &[GroupVerdict]) -> Vec<Vec<String>> {
    let none = || "<none>".to_owned();
    let row = |g: &GroupVerdict| {
        let why = if g.why.is_empty() { none() } else { g.why.join(",") };
        vec![g.key.clone(), g.standing.clone(), g.in_flight.to_string(), g.address.clone().unwrap_or_else(none), why]
    };
    groups.iter().map(row).collect()
}
