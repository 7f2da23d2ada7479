//! Tokens counted and texts proven by a leader's `/tokenize`.
//!
//! Owns the answers got at one break. Counts come from here, from ids or from usage fields; they are never guessed from
//! events, since an event may carry no token or several.

use super::json::{self, Object};
use super::plan::Question;

/// An answer of `/tokenize`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Tokens {
    /// How many.
    pub(super) count: u64,
    /// Which; empty if the engine does not say.
    pub(super) ids: Vec<u32>,
    /// The model's length, if it says so.
    pub(super) max_model_len: Option<u64>,
}

impl Tokens {
    /// Reads an answer's body. `None` if it is none.
    pub(super) fn read(body: &[u8]) -> Option<Self> {
        let object = Object::parse(body)?;
        let ids = object.get("tokens").and_then(json::ids).unwrap_or_default();
        let count = object.number("count").or_else(|| u64::try_from(ids.len()).ok().filter(|count| *count > 0))?;
        Some(Self { count, ids, max_model_len: object.number("max_model_len") })
    }
}

/// What was learned by asking.
#[derive(Debug, Default)]
pub(super) struct Answers(Vec<(Question, Option<Tokens>)>);

/// What is known of a question.
#[derive(Debug)]
pub(super) enum Known<'a> {
    /// The answer.
    Yes(&'a Tokens),
    /// It was asked, and there is none.
    No,
    /// It has not been asked yet.
    Unasked,
}

impl Answers {
    /// Keeps an answer; `None`: the leader gave none.
    pub(super) fn put(&mut self, question: Question, tokens: Option<Tokens>) {
        self.0.push((question, tokens));
    }

    /// What is known of `question`.
    pub(super) fn get(&self, question: &Question) -> Known<'_> {
        match self.0.iter().find(|(asked, _)| asked == question) {
            Some((_, Some(tokens))) => Known::Yes(tokens),
            Some((_, None)) => Known::No,
            None => Known::Unasked,
        }
    }

    /// The model's length, if any answer said so.
    pub(super) fn max_model_len(&self) -> Option<u64> {
        self.0.iter().find_map(|(_, tokens)| tokens.as_ref()?.max_model_len)
    }
}

/// Whether `continued` is exactly `prompt` and behind it `text`: then the template takes nothing from the text and puts
/// nothing between, and going on from it is the same as never having stopped.
pub(super) fn proves(prompt: &Tokens, continued: &Tokens, text: &Tokens) -> bool {
    !text.ids.is_empty() && continued.ids.strip_prefix(&prompt.ids[..]).is_some_and(|rest| rest == text.ids)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(ids: &[u32]) -> Tokens {
        Tokens { count: ids.len() as u64, ids: ids.to_vec(), max_model_len: None }
    }

    #[test]
    fn reads_vllms_answer() {
        let read = Tokens::read(br#"{"count":3,"max_model_len":2048,"tokens":[1,369,84],"token_strs":null}"#).unwrap();
        assert_eq!(read, Tokens { count: 3, ids: vec![1, 369, 84], max_model_len: Some(2048) });
        assert_eq!(Tokens::read(br#"{"detail":"Not Found"}"#), None);
        assert_eq!(Tokens::read(b"<html>"), None);
    }

    #[test]
    fn proof_is_the_prompt_and_behind_it_the_text() {
        assert!(proves(&tokens(&[1, 2]), &tokens(&[1, 2, 3, 4]), &tokens(&[3, 4])));
        assert!(!proves(&tokens(&[1, 2]), &tokens(&[1, 2, 3]), &tokens(&[3, 4])));
        assert!(!proves(&tokens(&[1, 2]), &tokens(&[1, 9, 3, 4]), &tokens(&[3, 4])));
        assert!(!proves(&tokens(&[]), &tokens(&[]), &tokens(&[])));
    }
}
