//! Small JSON tools that keep bytes as they are: objects as borrowed fields, strings in their escaped form.
//!
//! Owns no knowledge of requests or events. Used by every other file here; nothing else of the gateway needs it.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use smallvec::SmallVec;

/// An object's fields in their order, values as they were written.
#[derive(Debug, Clone, Default)]
pub(super) struct Object<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'a> Object<'a> {
    /// `None` if `bytes` is no JSON object.
    pub(super) fn parse(bytes: &'a [u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok()
    }

    /// `None` if `raw` is no object.
    pub(super) fn of(raw: &'a RawValue) -> Option<Self> {
        if raw.get().starts_with('{') { Self::parse(raw.get().as_bytes()) } else { None }
    }

    /// The value of `key` unless it is missing or null. Of duplicate keys the last counts, as in the engines' parser.
    pub(super) fn get(&self, key: &str) -> Option<&'a RawValue> {
        self.0.iter().rev().find(|(name, _)| name == key).map(|(_, raw)| *raw).filter(|raw| raw.get() != "null")
    }

    /// Whether `key` is there at all, null or not.
    pub(super) fn has(&self, key: &str) -> bool {
        self.0.iter().any(|(name, _)| name == key)
    }

    /// The fields in their order.
    pub(super) fn fields(&self) -> impl Iterator<Item = (&str, &'a RawValue)> {
        self.0.iter().map(|(name, raw)| (name.as_ref(), *raw))
    }

    /// The value of `key` as an unsigned number.
    pub(super) fn number(&self, key: &str) -> Option<u64> {
        self.get(key)?.get().parse().ok()
    }

    /// The value of `key` as a number.
    pub(super) fn float(&self, key: &str) -> Option<f64> {
        self.get(key)?.get().parse().ok()
    }

    /// Whether `key` is `true`.
    pub(super) fn flag(&self, key: &str) -> bool {
        self.get(key).is_some_and(|raw| raw.get() == "true")
    }

    /// The value of `key` as decoded text.
    pub(super) fn text(&self, key: &str) -> Option<Cow<'a, str>> {
        text(self.get(key)?)
    }

    /// The value of `key` as an object.
    pub(super) fn object(&self, key: &str) -> Option<Object<'a>> {
        Object::of(self.get(key)?)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Object<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields;
        impl<'de> Visitor<'de> for Fields {
            type Value = Object<'de>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut fields = Vec::with_capacity(12);
                while let Some((Key(name), raw)) = map.next_entry::<Key<'de>, &'de RawValue>()? {
                    fields.push((name, raw));
                }
                Ok(Object(fields))
            }
        }
        deserializer.deserialize_map(Fields)
    }
}

#[derive(Deserialize)]
struct Key<'a>(#[serde(borrow)] Cow<'a, str>);

/// A list's elements as they were written. `None` if `raw` is no list.
pub(super) fn list(raw: &RawValue) -> Option<SmallVec<[&RawValue; 2]>> {
    let elements: Vec<&RawValue> = serde_json::from_str(raw.get()).ok()?;
    Some(elements.into())
}

/// A list of whole numbers that fit a token id.
pub(super) fn ids(raw: &RawValue) -> Option<Vec<u32>> {
    serde_json::from_str(raw.get()).ok()
}

/// A JSON string, decoded.
pub(super) fn text(raw: &RawValue) -> Option<Cow<'_, str>> {
    let inner = escaped(raw)?;
    if inner.contains('\\') { serde_json::from_str(raw.get()).ok().map(Cow::Owned) } else { Some(Cow::Borrowed(inner)) }
}

/// What stands between the quotes of a JSON string, as it was written.
pub(super) fn escaped(raw: &RawValue) -> Option<&str> {
    raw.get().strip_prefix('"')?.strip_suffix('"')
}

/// Decodes what [`escaped`] gave, also when it was joined from several strings.
pub(super) fn unescape(escaped: &[u8]) -> Option<String> {
    let mut quoted = Vec::with_capacity(escaped.len() + 2);
    quoted.push(b'"');
    quoted.extend_from_slice(escaped);
    quoted.push(b'"');
    serde_json::from_slice(&quoted).ok()
}

/// Writes an object field by field.
#[derive(Debug)]
pub(super) struct Writer {
    out: Vec<u8>,
    empty: bool,
}

impl Writer {
    /// An empty object that will be appended to `out`.
    pub(super) fn new(mut out: Vec<u8>) -> Self {
        out.push(b'{');
        Self { out, empty: true }
    }

    /// A field whose value is JSON already.
    pub(super) fn raw(&mut self, name: &str, json: &str) {
        self.name(name).extend_from_slice(json.as_bytes());
    }

    /// A field whose value is written by the caller.
    pub(super) fn name(&mut self, name: &str) -> &mut Vec<u8> {
        if !self.empty {
            self.out.push(b',');
        }
        self.empty = false;
        push_string(&mut self.out, name);
        self.out.push(b':');
        &mut self.out
    }

    /// A field with a string value.
    pub(super) fn string(&mut self, name: &str, value: &str) {
        let out = self.name(name);
        push_string(out, value);
    }

    /// A field with a whole number.
    pub(super) fn number(&mut self, name: &str, value: u64) {
        let out = self.name(name);
        out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
    }

    /// Closes the object.
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.out.push(b'}');
        self.out
    }
}

/// Appends `text` as a JSON string.
pub(super) fn push_string(out: &mut Vec<u8>, text: &str) {
    // Writing a string into a Vec cannot fail; a failure would leave the empty string.
    let quoted = serde_json::to_vec(text).unwrap_or_else(|_| b"\"\"".to_vec());
    out.extend_from_slice(&quoted);
}

/// Appends a list of numbers.
pub(super) fn push_ids(out: &mut Vec<u8>, ids: impl IntoIterator<Item = u32>) {
    out.push(b'[');
    let mut buffer = itoa::Buffer::new();
    for (place, id) in ids.into_iter().enumerate() {
        if place > 0 {
            out.push(b',');
        }
        out.extend_from_slice(buffer.format(id).as_bytes());
    }
    out.push(b']');
}
