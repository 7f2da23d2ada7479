//! What must hold after every run. Pure: reads what was noted, says what is wrong.
//!
//! Owns: the rules. Each is a sentence of issue or architecture: ends, texts, permits, double executions, moves, deadlines.

use std::collections::BTreeMap;
use std::time::Duration;

use discovery::snapshot::GroupId;
use loadtest::engine::whole::Answer;
use loadtest::engine::{expected_chat, expected_completion};

use crate::arrivals::{Arrival, Ends, How, Told};
use crate::client::{Report, Verdict};
use crate::plan::{Break, CHAT, Plan};

/// What a dial can take before it proves that a leader is gone.
const VERIFY: Duration = Duration::from_millis(2500);

/// What a reading client waits for the error event at the gateway's end.
const LAST_WORD: Duration = Duration::from_secs(1);

/// All that is wrong with how the clients' requests ended.
pub(crate) fn clients(plan: &Plan, reports: &[Report]) -> Vec<String> {
    reports.iter().flat_map(|report| client(plan, report).into_iter().map(|wrong| format!("{}: {wrong}", report.plan.id))).collect()
}

fn client(plan: &Plan, report: &Report) -> Vec<String> {
    let mut wrong = report.heard.oddities.clone();
    let expected = if report.plan.path == CHAT { expected_chat } else { expected_completion };
    let due = match expected(&report.plan.body, &plan.persona) {
        Ok(due) => due,
        Err(error) => return vec![format!("the plan's request is refused: {}", error.message)],
    };
    let heard = &report.heard;
    let complete = match &report.verdict {
        Verdict::Left => false,
        Verdict::Nothing(why) => {
            wrong.push(format!("no answer at all: {why}"));
            false
        }
        Verdict::Answered { status: 200, clean } => {
            let whole = heard.finished() && (heard.mark || !report.plan.stream);
            match (whole, *clean, &heard.error) {
                (true, true, None) => true,
                // An explicit error event, then the cut.
                (_, false, Some(_)) if !heard.mark => false,
                other => {
                    wrong.push(format!("ended in no known way: whole, clean, error = {other:?}, mark {}", heard.mark));
                    false
                }
            }
        }
        Verdict::Answered { status, clean } => {
            if !clean || heard.error.is_none() {
                wrong.push(format!("status {status} without an error object (clean {clean})"));
            }
            false
        }
    };
    wrong.extend(texts(&due, report, complete));
    wrong.extend(times(plan, report));
    // A way that is not exact is refused by rule; everything else must go well while only announced things happen.
    let excused = complete || report.verdict == Verdict::Left || heard.error.as_deref() == Some("not_resumable");
    if plan.announced && !excused {
        wrong.push(format!("failed although only announced things happened: {:?} {:?}", report.verdict, heard.error));
    }
    wrong
}

fn texts(due: &Answer, report: &Report, complete: bool) -> Vec<String> {
    let mut wrong = Vec::new();
    let heard = &report.heard;
    if heard.choices.len() > due.choices.len() || (complete && heard.choices.len() != due.choices.len()) {
        wrong.push(format!("{} choices, {} due", heard.choices.len(), due.choices.len()));
    }
    for (index, (due, came)) in due.choices.iter().zip(&heard.choices).enumerate() {
        if !due.content.starts_with(&came.content) {
            wrong.push(format!("text of choice {index} is not what was due\n  due  {:?}\n  came {:?}", due.content, came.content));
        } else if complete && due.content.len() != came.content.len() {
            wrong.push(format!("choice {index} ends after {} of {} bytes", came.content.len(), due.content.len()));
        }
        let finish = due.finish.map(|finish| finish.as_str());
        if complete && came.finish.as_deref() != finish {
            wrong.push(format!("finish {:?}, due {finish:?}", came.finish));
        }
    }
    let usage = (due.usage.prompt as u64, due.usage.completion as u64);
    let asked = report.plan.body.get("stream_options").is_some();
    // A break behind the finish: tokens held back for a stop string of a sampled text can be counted by nobody, so no usage is better than a guess.
    let uncountable = report.plan.body.get("stop").is_some() && report.plan.body.get("temperature").is_none() && heard.usage.is_none();
    if complete && (asked || heard.usage.is_some()) && heard.usage != Some(usage) && !uncountable {
        wrong.push(format!("usage {:?}, due {usage:?}", heard.usage));
    }
    wrong
}

fn times(plan: &Plan, report: &Report) -> Vec<String> {
    let mut wrong = Vec::new();
    let settings = plan.settings();
    let slow = report.plan.slow * 4;
    let silence = settings.clocks.first_event.max(settings.clocks.idle) + settings.resume.stall + Duration::from_secs(5) + slow;
    if report.plan.stream && report.silence > silence {
        wrong.push(format!("silent for {:?}", report.silence));
    }
    if let Some((at, grace)) = plan.end
        && report.plan.slow.is_zero()
        && report.ended > at + grace + LAST_WORD
    {
        wrong.push(format!("not ended with the gateway, but at {:?}", report.ended));
    }
    wrong
}

/// All that is wrong with which leader was asked what.
pub(crate) fn arrivals(plan: &Plan, reports: &[Report], arrivals: &[Arrival], ends: &BTreeMap<GroupId, Ends>) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut by_request: BTreeMap<&str, Vec<&Arrival>> = BTreeMap::new();
    for arrival in arrivals {
        by_request.entry(&arrival.request).or_default().push(arrival);
    }
    for (request, all) in by_request {
        let left = reports.iter().any(|report| report.plan.id == request && report.verdict == Verdict::Left);
        wrong.extend(request_of((plan, ends), &all, left).into_iter().map(|what| format!("{request}: {what}")));
    }
    wrong
}

fn request_of(rules: (&Plan, &BTreeMap<GroupId, Ends>), all: &[&Arrival], left: bool) -> Vec<String> {
    let mut wrong = Vec::new();
    for arrival in all {
        if !arrival.proven {
            wrong.push(format!("reached {} before it was proven", arrival.leader.0));
        }
        if !arrival.told.serving {
            wrong.push(format!("reached {} which was known not to serve at {:?}", arrival.leader.0, arrival.at));
        }
        if arrival.end.is_none() {
            wrong.push(format!("still runs at {}", arrival.leader.0));
        }
    }
    for pair in all.windows(2) {
        wrong.extend(second_try(rules, pair[0], pair[1], all));
    }
    if let Some(unplanned) = too_many_moves(all) {
        wrong.push(format!("moved {unplanned} times after unplanned deaths"));
    }
    if let Some(Arrival { end: Some((at, How::Left { working: true }, told)), leader, .. }) = all.last()
        && !left
        && !told.silence_is_loss
        && rules.0.end.is_none_or(|(closing, grace)| *at < closing + grace)
    {
        wrong.push(format!("given up at {} while it worked", leader.0));
    }
    wrong
}

/// Why `second` was not allowed behind `first`.
fn second_try((plan, ends): (&Plan, &BTreeMap<GroupId, Ends>), first: &Arrival, second: &Arrival, all: &[&Arrival]) -> Option<String> {
    let (at, how, told) = first.end?;
    let place = format!("{} then {}", first.leader.0, second.leader.0);
    if second.at < at {
        return Some(format!("at two leaders at once: {place}"));
    }
    let moved = all.iter().any(|arrival| arrival.at <= first.at && arrival.events > 0);
    let allowed = match how {
        How::Refused => true,
        How::Complete => false,
        // A continuation that disagrees is dropped for another way.
        How::Left { working } => !working || told.silence_is_loss || moved,
        How::Broken(_) if moved => plan.settings().resume.enabled,
        How::Broken(Break::Abort | Break::Error | Break::NoFinish | Break::MarkOnly) => true,
        How::Broken(Break::Cut | Break::CutInside | Break::Reset) => {
            let ends = ends.get(&first.leader).copied().unwrap_or_default();
            told.dying || [ends.closed, ends.dying].into_iter().flatten().any(|since| since <= second.at)
        }
    };
    (!allowed).then(|| format!("tried again without proof: {place} after {how:?}"))
}

/// Moves after deaths that nobody had announced, if they are more than the one that is allowed.
fn too_many_moves(all: &[&Arrival]) -> Option<usize> {
    let unplanned = |told: Told| !told.leaving;
    let moves = all.windows(2).filter(|pair| match pair[0].end {
        Some((at, How::Broken(_) | How::Left { .. }, told)) => unplanned(told) && pair[1].at.saturating_sub(at) < VERIFY,
        _ => false,
    });
    let moves = moves.count();
    (moves > 1).then_some(moves)
}
