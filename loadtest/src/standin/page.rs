//! A list answer, in pages. Pure.
//!
//! A page is cut by key; the token names the version of the first page and the last key. Later pages show the present, not the first
//! page's version: a client that watches from that version sees what it missed.

use std::sync::Arc;

use serde_json::{Value, json};

use super::refusal::Refusal;
use super::route::Kind;
use super::store::Key;

/// Where a list goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Token {
    pub(super) revision: u64,
    namespace: String,
    name: String,
}

impl Token {
    pub(super) fn parse(text: &str) -> Result<Self, Refusal> {
        let mut parts = text.splitn(3, '/');
        let revision = parts.next().and_then(|text| text.parse().ok());
        match (revision, parts.next(), parts.next()) {
            (Some(revision), Some(namespace), Some(name)) => Ok(Self { revision, namespace: namespace.to_owned(), name: name.to_owned() }),
            _ => Err(Refusal::bad("continue: not a token of this server")),
        }
    }

    fn is_before(&self, key: &Key) -> bool {
        (self.namespace.as_str(), self.name.as_str()) < (key.namespace.as_str(), key.name.as_str())
    }
}

/// What one list request asks for.
#[derive(Debug, Default)]
pub(super) struct Page {
    pub(super) from: Option<Token>,
    /// `None`: everything.
    pub(super) limit: Option<usize>,
}

/// The list object of `objects` (ordered by key) at `revision`.
pub(super) fn list(kind: Kind, objects: Vec<(Key, Arc<Value>)>, revision: u64, page: &Page) -> Value {
    let mut rest: Vec<_> = objects.into_iter().filter(|(key, _)| page.from.as_ref().is_none_or(|token| token.is_before(key))).collect();
    let revision = page.from.as_ref().map_or(revision, |token| token.revision);
    let mut metadata = json!({"resourceVersion": revision.to_string()});
    let left = page.limit.map_or(0, |limit| rest.len().saturating_sub(limit));
    rest.truncate(rest.len() - left);
    if left > 0
        && let Some((last, _)) = rest.last()
    {
        metadata["continue"] = format!("{revision}/{}/{}", last.namespace, last.name).into();
        metadata["remainingItemCount"] = left.into();
    }
    let items: Vec<Value> = rest.into_iter().map(|(_, object)| item(kind, &object)).collect();
    json!({"kind": format!("{}List", kind.name()), "apiVersion": kind.api_version(), "metadata": metadata, "items": items})
}

/// Items of core lists carry no kind and no version of their own; those of custom resources do.
fn item(kind: Kind, object: &Value) -> Value {
    let mut object = object.clone();
    if kind.group().is_empty()
        && let Some(fields) = object.as_object_mut()
    {
        fields.remove("kind");
        fields.remove("apiVersion");
    }
    object
}
