//! One object's JSON to a fact, so that an object that cannot be read costs itself only and not its list.
//!
//! Owns: the choice of the mirror type by kind. Must not: know labels (`operator`) or where the JSON came from. Next step: the source hands
//! the fact on.

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::object::{DeploymentObject, PodObject, ServiceObject};
use super::operator;
use crate::fact::{Fact, Kind, Str};

/// What one object turned out to be.
#[derive(Debug)]
pub(crate) enum Decoded {
    /// An object of ours.
    Fact(Fact),
    /// Readable, but none of the operator's objects.
    Foreign,
    /// Not what its kind promises.
    Unreadable(serde_json::Error),
}

/// The part of an object that every kind has.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Envelope {
    pub(crate) metadata: Identity,
}

/// Its identity.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Identity {
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) resource_version: String,
}

impl Identity {
    pub(crate) fn uid(&self) -> Str {
        self.uid.as_str().into()
    }
}

/// Reads the JSON text of an object.
pub(crate) fn text(kind: Kind, json: &str) -> Decoded {
    match kind {
        Kind::Deployment => decoded(serde_json::from_str::<DeploymentObject>(json), operator::deployment),
        Kind::Pod => decoded(serde_json::from_str::<PodObject>(json), operator::pod),
        Kind::Service => decoded(serde_json::from_str::<ServiceObject>(json), operator::service),
    }
}

/// Reads an object that was parsed already.
pub(crate) fn value(kind: Kind, json: serde_json::Value) -> Decoded {
    match kind {
        Kind::Deployment => decoded(from::<DeploymentObject>(json), operator::deployment),
        Kind::Pod => decoded(from::<PodObject>(json), operator::pod),
        Kind::Service => decoded(from::<ServiceObject>(json), operator::service),
    }
}

fn from<T: DeserializeOwned>(json: serde_json::Value) -> Result<T, serde_json::Error> {
    serde_json::from_value(json)
}

fn decoded<T>(object: Result<T, serde_json::Error>, fact: impl FnOnce(T) -> Option<Fact>) -> Decoded {
    match object {
        Ok(object) => fact(object).map_or(Decoded::Foreign, Decoded::Fact),
        Err(error) => Decoded::Unreadable(error),
    }
}
