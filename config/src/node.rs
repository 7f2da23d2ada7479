//! YAML text as a tree of plain values with line numbers.
//!
//! The tree is untyped on purpose: a typed serde mirror stops at its first error, and a configuration's author wants all of them.
//! Owns: reading YAML, within bounds. Must not: know a setting. Duplicate keys are kept so that `keys` can name them.
//! Next step of the path: `layer` looks up settings in the tree, `keys` refuses what no setting owns.

use std::fmt;

use serde::Deserialize;
use serde::de::{MapAccess, SeqAccess, Visitor};
use serde_saphyr::{DuplicateKeyPolicy, Spanned};

use crate::problem::Wrong;

/// Nesting that a configuration may have; the deepest setting stands at depth 5.
const MAX_DEPTH: usize = 32;

/// One YAML value and the line on which it stands.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Node {
    /// From 1; `None` for values that do not come from a file.
    pub(crate) line: Option<u64>,
    pub(crate) content: Content,
}

/// A YAML value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Content {
    Null,
    /// A text, quoted or plain.
    Scalar(String),
    /// What YAML takes for a number or a boolean, in text form. It may differ from what was written (`1.10` is `1.1`, `0x1f` is `31`), so
    /// that settings which are texts refuse it.
    Plain(String),
    List(Vec<Node>),
    /// In the file's order, repeated keys included.
    Map(Vec<(String, Node)>),
}

impl Node {
    /// A value that was not read from a file.
    pub(crate) fn scalar(text: impl Into<String>) -> Self {
        Self { line: None, content: Content::Scalar(text.into()) }
    }

    /// A list that was not read from a file.
    pub(crate) fn list(items: impl IntoIterator<Item = String>) -> Self {
        Self { line: None, content: Content::List(items.into_iter().map(Node::scalar).collect()) }
    }

    /// The entries of a map; none for everything else.
    pub(crate) fn entries(&self) -> &[(String, Node)] {
        match &self.content {
            Content::Map(entries) => entries,
            Content::Null | Content::Scalar(_) | Content::Plain(_) | Content::List(_) => &[],
        }
    }

    /// The value at a dotted path of plain keys. Of repeated keys the first one (`keys` refuses the others).
    pub(crate) fn at(&self, path: &str) -> Option<&Node> {
        path.split('.').try_fold(self, |node, key| node.entries().iter().find(|(name, _)| name == key).map(|(_, value)| value))
    }

    /// What kind of value this is, for messages.
    pub(crate) fn kind(&self) -> &'static str {
        match &self.content {
            Content::Null => "nothing",
            Content::Scalar(_) | Content::Plain(_) => "a single value",
            Content::List(_) => "a list",
            Content::Map(_) => "a section",
        }
    }
}

/// Reads one YAML document. An empty one is `Null`.
///
/// # Errors
/// Text that is no YAML, with line and column, and text beyond the reader's bounds (depth, size of what aliases expand to).
pub(crate) fn parse(text: &str) -> Result<Node, Wrong> {
    if text.trim_start_matches('\u{feff}').trim().is_empty() {
        return Ok(Node { line: None, content: Content::Null });
    }
    let options = serde_saphyr::options! {
        duplicate_keys: DuplicateKeyPolicy::PassThrough,
        with_snippet: false,
        strict_booleans: true,
        non_finite_float_policy: serde_saphyr::options::NonFiniteFloatPolicy::AsString,
        budget: serde_saphyr::budget! { max_depth: MAX_DEPTH },
    };
    serde_saphyr::from_str_with_options(text, options).map_err(|error| {
        let at = error.location().map_or_else(String::new, |at| format!("line {}, column {}: ", at.line(), at.column()));
        let error = error.to_string();
        // The parser repeats the place at the end.
        let what = error.split(" at line ").next().unwrap_or_default().trim();
        Wrong::new(format!("{at}not readable as YAML: {what}"), "write one YAML document of sections and keys")
    })
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned = Spanned::<Content>::deserialize(deserializer)?;
        Ok(Self { line: Some(spanned.referenced.line()), content: spanned.value })
    }
}

impl<'de> Deserialize<'de> for Content {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ContentVisitor)
    }
}

struct ContentVisitor;

impl<'de> Visitor<'de> for ContentVisitor {
    type Value = Content;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value, a list or a section")
    }

    fn visit_unit<E>(self) -> Result<Content, E> {
        Ok(Content::Null)
    }

    fn visit_none<E>(self) -> Result<Content, E> {
        Ok(Content::Null)
    }

    fn visit_some<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<Content, D::Error> {
        Content::deserialize(deserializer)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Content, E> {
        Ok(Content::Plain(value.to_string()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Content, E> {
        Ok(Content::Plain(value.to_string()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Content, E> {
        Ok(Content::Plain(value.to_string()))
    }

    fn visit_i128<E>(self, value: i128) -> Result<Content, E> {
        Ok(Content::Plain(value.to_string()))
    }

    fn visit_u128<E>(self, value: u128) -> Result<Content, E> {
        Ok(Content::Plain(value.to_string()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Content, E> {
        Ok(Content::Plain(value.to_string()))
    }

    fn visit_str<E>(self, value: &str) -> Result<Content, E> {
        Ok(Content::Scalar(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Content, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = access.next_element()? {
            items.push(item);
        }
        Ok(Content::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Content, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = access.next_entry()? {
            entries.push(entry);
        }
        Ok(Content::Map(entries))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(node: &Node, path: &str) -> String {
        match &node.at(path).expect(path).content {
            Content::Scalar(text) => text.clone(),
            Content::Plain(text) => format!("plain {text}"),
            other @ (Content::Null | Content::List(_) | Content::Map(_)) => format!("{other:?}"),
        }
    }

    #[test]
    fn scalars_keep_their_text_and_line() {
        let node = parse("a: 64KiB\nb:\n  c: true\n  d: 3\n  1.5: x\ne: 0.25\nf: off\ng: 0123\nh: ~\n").expect("yaml");
        assert_eq!(text(&node, "a"), "64KiB");
        assert_eq!(text(&node, "b.c"), "plain true");
        assert_eq!(text(&node, "b.d"), "plain 3");
        assert_eq!(text(&node, "e"), "plain 0.25");
        assert_eq!(text(&node, "f"), "off");
        assert_eq!(text(&node, "h"), "Null");
        assert_eq!(node.at("b.d").and_then(|n| n.line), Some(4));
        assert_eq!(node.at("b").map(|n| n.entries()[2].0.as_str()), Some("1.5"));
    }

    #[test]
    fn repeated_keys_are_kept() {
        assert_eq!(parse("a: 1\na: 2\n").expect("yaml").entries().len(), 2);
    }

    #[test]
    fn bad_yaml_has_line_and_column() {
        for bad in ["a: [1, 2\nb: 3\n", "a: 1\n b: 2\n  - c\n", "a: *nowhere\n", "\"open", "a: 1\n---\nb: 2\n", "{a: }}"] {
            let wrong = parse(bad).expect_err(bad).wrong;
            assert!(wrong.starts_with("line "), "{bad:?}: {wrong}");
        }
    }

    #[test]
    fn depth_and_expansion_are_bounded() {
        let deep = format!("{}1{}", "[".repeat(10_000), "]".repeat(10_000));
        assert!(parse(&deep).is_err());
        let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
        for level in 1..10 {
            let below = level - 1;
            bomb.push_str(&format!("a{level}: &a{level} [{}]\n", vec![format!("*a{below}"); 10].join(", ")));
        }
        assert!(parse(&bomb).is_err());
    }
}
