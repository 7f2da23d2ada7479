//! What is wrong with an answer, in words that can be counted.
//!
//! Pure. Text that differs is told apart: lost at the end, lost in the middle, repeated, or another text, since each
//! points to another mistake of a resume.

use crate::engine::whole::Answer;

use super::transcript::Transcript;

/// A difference between the text that was due and the text that came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(tag = "fault", rename_all = "snake_case")]
pub enum TextFault {
    /// It ends too early.
    Truncated {
        /// Bytes that came.
        at: usize,
        /// Bytes that are missing.
        missing: usize,
    },
    /// Something is left out in the middle.
    Lost {
        /// Where.
        at: usize,
        /// How many bytes.
        bytes: usize,
    },
    /// Something comes twice.
    Repeated {
        /// Where.
        at: usize,
        /// How many bytes.
        bytes: usize,
    },
    /// It goes on behind its end.
    Longer {
        /// Where the end should be.
        at: usize,
    },
    /// Another text.
    Changed {
        /// Where.
        at: usize,
    },
}

/// Anything wrong with an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(tag = "problem", rename_all = "snake_case")]
pub enum Problem {
    /// The text, the reasoning or the arguments of a choice.
    Text(TextFault),
    /// A choice too many or too few.
    Choices,
    /// Another finish reason.
    Finish,
    /// Other counts of tokens, or none though asked for.
    Usage,
    /// Another tool, or none.
    Tool,
    /// A second role event.
    SecondRole,
    /// `id` or `created` changed.
    IdentityChanged,
    /// An event behind `[DONE]`.
    AfterDone,
    /// Text behind a finish.
    AfterFinish,
    /// An event that is no JSON.
    NotJson,
    /// Bytes that are no events.
    NotEvents,
    /// The stream ends inside an event.
    EndsInsideEvent,
    /// The engine must refuse this request, but it was answered.
    NotRefused,
}

impl Problem {
    /// The word in counters.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Text(TextFault::Truncated { .. }) => "text truncated",
            Self::Text(TextFault::Lost { .. }) => "text lost",
            Self::Text(TextFault::Repeated { .. }) => "text repeated",
            Self::Text(TextFault::Longer { .. }) => "text too long",
            Self::Text(TextFault::Changed { .. }) => "text changed",
            Self::Choices => "choices",
            Self::Finish => "finish reason",
            Self::Usage => "usage",
            Self::Tool => "tool",
            Self::SecondRole => "second role event",
            Self::IdentityChanged => "identity changed",
            Self::AfterDone => "event behind [DONE]",
            Self::AfterFinish => "text behind finish",
            Self::NotJson => "event is no JSON",
            Self::NotEvents => "no event stream",
            Self::EndsInsideEvent => "ends inside an event",
            Self::NotRefused => "not refused",
        }
    }
}

/// How far a repetition or a gap is looked for.
const REACH: usize = 8192;

/// How many bytes behind it must agree.
const AGREE: usize = 12;

/// Compares a text with the one that was due.
pub fn compare(due: &str, came: &str) -> Option<TextFault> {
    let (due, came) = (due.as_bytes(), came.as_bytes());
    let at = due.iter().zip(came).take_while(|(a, b)| a == b).count();
    if at == came.len() {
        return (at < due.len()).then_some(TextFault::Truncated { at, missing: due.len() - at });
    }
    if at == due.len() {
        let repeated = repetition(due, came, at);
        return Some(repeated.unwrap_or(TextFault::Longer { at }));
    }
    Some(repetition(due, came, at).or_else(|| gap(due, came, at)).unwrap_or(TextFault::Changed { at }))
}

/// True if `came` goes on as `due` does.
fn agrees(due: &[u8], came: &[u8]) -> bool {
    let len = due.len().min(came.len()).min(AGREE);
    len > 0 && due[..len] == came[..len]
}

fn repetition(due: &[u8], came: &[u8], at: usize) -> Option<TextFault> {
    (1..=at.min(REACH)).find(|back| agrees(&due[at - back..], &came[at..])).map(|bytes| TextFault::Repeated { at, bytes })
}

fn gap(due: &[u8], came: &[u8], at: usize) -> Option<TextFault> {
    (1..(due.len() - at).min(REACH)).find(|ahead| agrees(&due[at + ahead..], &came[at..])).map(|bytes| TextFault::Lost { at, bytes })
}

/// Compares an answer with the one that was due. `partial` is for streams that the client itself broke off: what came must
/// be right, but need not be all.
pub(crate) fn check(due: &Answer, came: &Transcript, partial: bool, usage_due: bool) -> Vec<Problem> {
    let mut problems = came.problems.clone();
    let mut note = |problem: Problem| {
        if !problems.contains(&problem) {
            problems.push(problem);
        }
    };
    for (said, heard) in due.choices.iter().zip(&came.choices) {
        let (tool, arguments) = said.tool.as_ref().map_or((None, ""), |(name, arguments, _)| (Some(name.as_str()), arguments.as_str()));
        for (due, came) in [(said.content.as_str(), &heard.content), (&said.reasoning, &heard.reasoning), (arguments, &heard.arguments)] {
            match compare(due, came) {
                None => {}
                Some(TextFault::Truncated { .. }) if partial => {}
                Some(fault) => note(Problem::Text(fault)),
            }
        }
        if partial {
            continue;
        }
        if heard.tool.as_deref() != tool {
            note(Problem::Tool);
        }
        if heard.finish.as_deref() != said.finish.map(|finish| finish.as_str()) {
            note(Problem::Finish);
        }
    }
    if !partial && due.choices.len() != came.choices.len() {
        note(Problem::Choices);
    }
    let counts = (due.usage.prompt as u64, due.usage.completion as u64);
    if !partial && (came.usage.is_some() || usage_due) && came.usage != Some(counts) {
        note(Problem::Usage);
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_told_apart() {
        let due = "The quick brown fox jumps over the lazy dog and runs away.";
        let check = |came: &str, expect: Option<TextFault>| assert_eq!(compare(due, came), expect, "{came:?}");
        check(due, None);
        check("The quick", Some(TextFault::Truncated { at: 9, missing: due.len() - 9 }));
        check("The quick brown brown fox jumps over the lazy dog and runs away.", Some(TextFault::Repeated { at: 16, bytes: 6 }));
        check("The quick fox jumps over the lazy dog and runs away.", Some(TextFault::Lost { at: 10, bytes: 6 }));
        check("The quick brown cat sleeps under a chair in the afternoon sun.", Some(TextFault::Changed { at: 16 }));
        check(&format!("{due} The"), Some(TextFault::Longer { at: due.len() }));
        check(&format!("{due}{}", &due[40..]), Some(TextFault::Repeated { at: due.len(), bytes: due.len() - 40 }));
    }
}
