//! The same request again, and what comes again of it.

use bytes::Bytes;

use super::Planner;
use crate::resume::body;
use crate::resume::expect::{Again, Expect};
use crate::resume::json;
use crate::resume::plan::{Attempt, Plan, Resend};
use crate::resume::sent::Sent;
use crate::resume::splice::Splice;

impl Planner<'_> {
    pub(super) fn replay(&self) -> Plan {
        let asked = if self.now.token_ids { body::with_token_ids(self.now.raw) } else { None };
        let body = asked.map_or_else(|| self.now.raw.clone(), Bytes::from);
        let expects = self.now.journal.choices.iter().filter_map(expect_again).collect();
        let splice = Box::new(Splice { expects, ..Splice::default() });
        Plan::Send(Resend { way: Attempt::Replay.way(), path: None, body, attempt: Attempt::Replay, splice })
    }
}

/// All that was sent of a choice comes again. `None` only if it does not decode, and then nothing of it is expected to
/// match: the journal never holds such a text.
fn expect_again(sent: &Sent) -> Option<Expect> {
    let text = |escaped: &[u8]| json::unescape(escaped).map(Again::new);
    let mut tools = Vec::new();
    for call in &sent.tools {
        tools.push((call.index, Again::new(call.name.clone().unwrap_or_default()), text(&call.arguments)?));
    }
    Some(Expect {
        index: sent.index,
        reasoning: text(&sent.reasoning)?,
        content: text(&sent.content)?,
        content_begun: false,
        tools,
        finish: sent.finish.as_deref().map(str::to_owned),
        logprobs: sent.logprobs,
        ids: sent.ids_sent,
    })
}
