//! One value of one layer, from text to its type, within the setting's bounds.
//!
//! Owns: what each kind of setting accepts, and the message for what it does not. Must not: compare settings with each other (`rules`).
//! Next step of the path: `overlay` calls this for each field of the typed configuration.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::layer::{Given, Layer};
use crate::node::{Content, Node};
use crate::problem::{Problems, Wrong};
use crate::setting::{Kind, Setting, Words};
use crate::units;

/// Reads settings of one layer; a value that is absent or wrong leaves the target as it was.
pub(crate) struct Reader<'a> {
    pub(crate) layer: Layer<'a>,
    pub(crate) problems: &'a mut Problems,
}

impl Reader<'_> {
    pub(crate) fn address(&mut self, setting: &Setting, into: &mut SocketAddr) {
        self.take(setting, into, |text, _| {
            text.parse().map_err(|_| Wrong::new(format!("{text:?} is no address"), "write IP:PORT such as 0.0.0.0:8080 or [::]:8080"))
        });
    }

    pub(crate) fn duration(&mut self, setting: &Setting, into: &mut Duration) {
        self.take(setting, into, duration);
    }

    pub(crate) fn size<T: TryFrom<u64>>(&mut self, setting: &Setting, into: &mut T) {
        self.take(setting, into, |text, kind| fit(size(text, kind)?));
    }

    pub(crate) fn count<T: TryFrom<u64>>(&mut self, setting: &Setting, into: &mut T) {
        self.take(setting, into, |text, kind| fit(count(text, kind)?));
    }

    /// Like `count`; `auto` gives `auto`.
    pub(crate) fn count_or(&mut self, setting: &Setting, auto: usize, into: &mut usize) {
        self.take(setting, into, |text, kind| if text == "auto" { Ok(auto) } else { fit(count(text, kind)?) });
    }

    pub(crate) fn ratio(&mut self, setting: &Setting, into: &mut f64) {
        self.take(setting, into, |text, _| {
            let value = text.parse().ok().filter(|value| (0.0..=1.0).contains(value));
            value.ok_or_else(|| Wrong::new(format!("{text:?} is no number from 0 to 1"), "write for example 0.25"))
        });
    }

    pub(crate) fn switch(&mut self, setting: &Setting, into: &mut bool) {
        self.take(setting, into, |text, _| match text.to_ascii_lowercase().as_str() {
            "true" | "on" | "yes" | "1" => Ok(true),
            "false" | "off" | "no" | "0" => Ok(false),
            _ => Err(Wrong::new(format!("{text:?} is neither true nor false"), "write true or false")),
        });
    }

    pub(crate) fn choice<T: Words>(&mut self, setting: &Setting, into: &mut T) {
        self.take(setting, into, |text, _| {
            let found = T::WORDS.iter().find(|(word, _)| *word == text).map(|(_, value)| *value);
            found.ok_or_else(|| {
                let words: Vec<_> = T::WORDS.iter().map(|(word, _)| *word).collect();
                Wrong::new(format!("{text:?} is not known here"), format!("write {}", words.join(" or ")))
            })
        });
    }

    pub(crate) fn text(&mut self, setting: &Setting, into: &mut String) {
        self.take_node(setting, into, |node, _| text(node));
    }

    /// `null` takes the value away.
    pub(crate) fn optional_text(&mut self, setting: &Setting, into: &mut Option<String>) {
        self.take_optional(setting, into, text);
    }

    /// `null` takes the value away.
    pub(crate) fn optional_path(&mut self, setting: &Setting, into: &mut Option<PathBuf>) {
        self.take_optional(setting, into, |node| text(node).map(PathBuf::from));
    }

    pub(crate) fn list(&mut self, setting: &Setting, into: &mut Vec<String>) {
        let Some(given) = self.layer.get(setting) else { return };
        if let Some(items) = strings(&given, self.problems) {
            *into = items;
        }
    }

    fn take<T>(&mut self, setting: &Setting, into: &mut T, parse: impl FnOnce(&str, Kind) -> Result<T, Wrong>) {
        self.take_node(setting, into, |node, kind| parse(&scalar(node)?, kind));
    }

    fn take_node<T>(&mut self, setting: &Setting, into: &mut T, parse: impl FnOnce(&Node, Kind) -> Result<T, Wrong>) {
        let Some(given) = self.layer.get(setting) else { return };
        match parse(&given.node, setting.kind) {
            Ok(value) => *into = value,
            Err(wrong) => self.problems.add(&given.place, wrong.wrong, wrong.right),
        }
    }

    fn take_optional<T>(&mut self, setting: &Setting, into: &mut Option<T>, parse: impl FnOnce(&Node) -> Result<T, Wrong>) {
        if self.layer.get(setting).is_some_and(|given| given.node.content == Content::Null) {
            *into = None;
            return;
        }
        self.take_node(setting, into, |node, _| parse(node).map(Some));
    }
}

/// The text of a single value.
pub(crate) fn scalar(node: &Node) -> Result<String, Wrong> {
    match &node.content {
        Content::Scalar(text) | Content::Plain(text) => Ok(text.clone()),
        Content::Null => Err(Wrong::new("has no value", "give one or remove the key")),
        Content::List(_) | Content::Map(_) => Err(Wrong::new(format!("is {}", node.kind()), "give a single value")),
    }
}

/// The text of a single value that is meant as text.
pub(crate) fn text(node: &Node) -> Result<String, Wrong> {
    match &node.content {
        Content::Plain(value) => Err(Wrong::new(format!("{value} is no text for YAML"), "put the value in quotes")),
        Content::Scalar(_) | Content::Null | Content::List(_) | Content::Map(_) => not_empty(&scalar(node)?),
    }
}

/// The texts of a list; a single value is a list of one. `None` after a problem.
pub(crate) fn strings(given: &Given, problems: &mut Problems) -> Option<Vec<String>> {
    let items = match &given.node.content {
        Content::List(items) => items.as_slice(),
        Content::Null | Content::Scalar(_) | Content::Plain(_) | Content::Map(_) => std::slice::from_ref(&given.node),
    };
    let mut texts = Vec::with_capacity(items.len());
    for (index, item) in items.iter().enumerate() {
        match text(item) {
            Ok(text) => texts.push(text),
            Err(wrong) => {
                let mut place = given.place.clone();
                place.path = format!("{}[{index}]", place.path);
                place.line = item.line.or(place.line);
                problems.add(&place, wrong.wrong, wrong.right);
                return None;
            }
        }
    }
    Some(texts)
}

fn not_empty(text: &str) -> Result<String, Wrong> {
    let text = text.trim();
    if text.is_empty() { Err(Wrong::new("is empty", "give a value or remove the key")) } else { Ok(text.to_owned()) }
}

fn duration(text: &str, kind: Kind) -> Result<Duration, Wrong> {
    let Some(value) = units::duration(text) else {
        return Err(Wrong::new(format!("{text:?} is no duration"), format!("write {}", units::DURATION_FORM)));
    };
    let Kind::Duration { min, max } = kind else { return Ok(value) };
    if (min..=max).contains(&value) {
        return Ok(value);
    }
    let (min, max) = (units::duration_text(min), units::duration_text(max));
    Err(Wrong::new(format!("{text} is out of bounds"), format!("write a duration from {min} to {max}")))
}

fn size(text: &str, kind: Kind) -> Result<u64, Wrong> {
    let Some(value) = units::size(text) else {
        return Err(Wrong::new(format!("{text:?} is no size"), format!("write {}", units::SIZE_FORM)));
    };
    let Kind::Size { min, max } = kind else { return Ok(value) };
    if (min..=max).contains(&value) {
        return Ok(value);
    }
    let (min, max) = (units::size_text(min), units::size_text(max));
    Err(Wrong::new(format!("{text} is out of bounds"), format!("write a size from {min} to {max}")))
}

fn count(text: &str, kind: Kind) -> Result<u64, Wrong> {
    let auto = if matches!(kind, Kind::CountOrAuto { .. }) { ", or auto" } else { "" };
    let (Kind::Count { min, max } | Kind::CountOrAuto { min, max }) = kind else {
        return Err(Wrong::new("takes no number", "remove the value"));
    };
    let value = text.parse().ok().filter(|value| (min..=max).contains(value));
    value.ok_or_else(|| Wrong::new(format!("{text:?} is not possible"), format!("write a whole number from {min} to {max}{auto}")))
}

fn fit<T: TryFrom<u64>>(value: u64) -> Result<T, Wrong> {
    T::try_from(value).map_err(|_| Wrong::new(format!("{value} is too large for this machine"), "write a smaller number"))
}
