//! The query of a list or a watch, and the selectors in it. Pure.

use std::borrow::Cow;
use std::collections::HashMap;

use serde_json::Value;

use super::refusal::Refusal;

/// The parameters by name, decoded; of a name that comes twice the last counts.
#[derive(Debug, Default)]
pub(super) struct Query(HashMap<String, String>);

impl Query {
    pub(super) fn parse(text: Option<&str>) -> Self {
        let pairs = text.unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
        Self(pairs.map(|pair| pair.split_once('=').unwrap_or((pair, ""))).map(|(k, v)| (decode(k), decode(v))).collect())
    }

    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    pub(super) fn flag(&self, name: &str) -> bool {
        matches!(self.get(name), Some("true" | "1"))
    }

    pub(super) fn number(&self, name: &str) -> Result<Option<u64>, Refusal> {
        let parse = |text: &str| text.parse().map_err(|_| Refusal::bad(format!("{name}: {text:?} is not a number")));
        self.get(name).map(parse).transpose()
    }

    pub(super) fn selector(&self) -> Result<Selector, Refusal> {
        let mut terms = Vec::new();
        for term in split_terms(self.get("labelSelector").unwrap_or_default()) {
            terms.push((Of::Label, Term::parse(term)?));
        }
        for term in split_terms(self.get("fieldSelector").unwrap_or_default()) {
            terms.push((Of::Field, Term::parse(term)?));
        }
        Ok(Selector(terms))
    }
}

/// Which objects a list or a watch is about.
#[derive(Debug, Clone, Default)]
pub(super) struct Selector(Vec<(Of, Term)>);

#[derive(Debug, Clone, Copy)]
enum Of {
    Label,
    Field,
}

#[derive(Debug, Clone)]
enum Term {
    In(String, Vec<String>),
    NotIn(String, Vec<String>),
    Exists(String),
    Absent(String),
}

impl Selector {
    pub(super) fn matches(&self, object: &Value) -> bool {
        self.0.iter().all(|(of, term)| match of {
            Of::Label => term.holds(|key| object["metadata"]["labels"][key].as_str()),
            Of::Field => term.holds(|path| path.split('.').fold(object, |value, field| &value[field]).as_str()),
        })
    }
}

impl Term {
    fn parse(text: &str) -> Result<Self, Refusal> {
        let text = text.trim();
        for (word, negated) in [(" notin ", true), (" in ", false)] {
            if let Some((key, values)) = text.split_once(word) {
                let values = values.trim().strip_prefix('(').and_then(|values| values.strip_suffix(')'));
                let values = values.ok_or_else(|| Refusal::bad(format!("selector {text:?}")))?;
                let values = values.split(',').map(|value| value.trim().to_owned()).collect();
                let key = key.trim().to_owned();
                return Ok(if negated { Self::NotIn(key, values) } else { Self::In(key, values) });
            }
        }
        if let Some((key, value)) = text.split_once("!=") {
            return Ok(Self::NotIn(key.trim().to_owned(), vec![value.trim().to_owned()]));
        }
        if let Some((key, value)) = text.split_once("==").or_else(|| text.split_once('=')) {
            return Ok(Self::In(key.trim().to_owned(), vec![value.trim().to_owned()]));
        }
        Ok(match text.strip_prefix('!') {
            Some(key) => Self::Absent(key.to_owned()),
            None => Self::Exists(text.to_owned()),
        })
    }

    fn holds<'a>(&self, get: impl Fn(&str) -> Option<&'a str>) -> bool {
        match self {
            Self::In(key, values) => get(key).is_some_and(|value| values.iter().any(|wanted| wanted == value)),
            Self::NotIn(key, values) => get(key).is_none_or(|value| !values.iter().any(|wanted| wanted == value)),
            Self::Exists(key) => get(key).is_some(),
            Self::Absent(key) => get(key).is_none(),
        }
    }
}

/// Splits at commas outside parentheses.
fn split_terms(text: &str) -> Vec<&str> {
    let mut depth = 0_u32;
    let outside = |c: char| {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    };
    text.split(outside).filter(|term| !term.trim().is_empty()).collect()
}

fn decode(text: &str) -> String {
    let spaced: Cow<'_, str> = if text.contains('+') { text.replace('+', " ").into() } else { text.into() };
    let mut bytes = Vec::with_capacity(spaced.len());
    let mut rest = spaced.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        let hex = (*first == b'%').then(|| tail.get(..2)).flatten().and_then(|two| std::str::from_utf8(two).ok());
        match hex.and_then(|two| u8::from_str_radix(two, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &tail[2..];
            }
            None => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn selectors_select() {
        let object = json!({"metadata": {"name": "p", "labels": {"a": "1", "b/c": "x"}}, "spec": {"nodeName": "n"}});
        for (query, expect) in [
            ("", true),
            ("labelSelector=a%3D1", true),
            ("labelSelector=a=2", false),
            ("labelSelector=a==1,b%2Fc", true),
            ("labelSelector=a!=1", false),
            ("labelSelector=z!=1,!z", true),
            ("labelSelector=!a", false),
            ("labelSelector=a+in+(1,2),b/c%20in%20(x)", true),
            ("labelSelector=a+notin+(1,2)", false),
            ("fieldSelector=metadata.name%3Dp,spec.nodeName=n", true),
            ("fieldSelector=metadata.name=q", false),
        ] {
            assert_eq!(Query::parse(Some(query)).selector().unwrap().matches(&object), expect, "{query}");
        }
        assert!(Query::parse(Some("labelSelector=a in 1")).selector().is_err());
        assert!(Query::parse(Some("limit=x")).number("limit").is_err());
    }
}
