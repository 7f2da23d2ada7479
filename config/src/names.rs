//! Rules for served names: `names.pins` and `names.merge`.
//!
//! Owns: reading both structures, and that no name has two rules. Must not: know which deployments exist.
//! Next step of the path: `discovery` builds pools by these rules.

use std::collections::{BTreeMap, BTreeSet};

use crate::layer::{Given, Layer};
use crate::model::{DeploymentRef, MergedPool, NameRules, Pin};
use crate::node::{Content, Node};
use crate::problem::{Place, Problems, Wrong};
use crate::read::{strings, text};
use crate::settings::process::{MERGE, PINS};

/// Reads both structures from the file.
pub(crate) fn read(root: &Node, names: &mut NameRules, problems: &mut Problems) {
    let layer = Layer::File(root);
    if let Some(given) = layer.get(&PINS) {
        names.pins = pins(&given, problems);
    }
    if let Some(given) = layer.get(&MERGE) {
        names.merge = merge(&given, &names.pins, problems);
    }
}

fn pins(given: &Given, problems: &mut Problems) -> BTreeMap<String, Pin> {
    if !matches!(given.node.content, Content::Map(_) | Content::Null) {
        problems.add(&given.place, format!("is {}", given.node.kind()), "give a map from served name to namespace or namespace/deployment");
    }
    let mut pins = BTreeMap::new();
    for (model, node) in given.node.entries() {
        let place = given.place.below(model, node.line);
        match model_name(model).and_then(|()| text(node)).and_then(|text| pin(&text)) {
            Ok(pin) => {
                pins.insert(model.clone(), pin);
            }
            Err(wrong) => problems.add(&place, wrong.wrong, wrong.right),
        }
    }
    pins
}

fn pin(text: &str) -> Result<Pin, Wrong> {
    if text.contains('/') { deployment(text).map(Pin::Deployment) } else { namespace(text).map(|()| Pin::Namespace(text.to_owned())) }
}

fn merge(given: &Given, pins: &BTreeMap<String, Pin>, problems: &mut Problems) -> Vec<MergedPool> {
    let items = match &given.node.content {
        Content::List(items) => items.as_slice(),
        Content::Null => &[],
        Content::Scalar(_) | Content::Plain(_) | Content::Map(_) => {
            problems.add(&given.place, format!("is {}", given.node.kind()), "give a list of {model, deployments}");
            &[]
        }
    };
    let mut seen = BTreeSet::new();
    let mut pools = Vec::new();
    for (index, item) in items.iter().enumerate() {
        let place = Place { path: format!("{}[{index}]", given.place.path), line: item.line };
        let Some(pool) = merged(item, &place, problems) else { continue };
        if pins.contains_key(&pool.model) {
            problems.add(&place, format!("{:?} is pinned by names.pins too", pool.model), "give one rule for each name");
        }
        if !seen.insert(pool.model.clone()) {
            problems.add(&place, format!("{:?} is merged twice", pool.model), "list all its deployments in one entry");
        }
        pools.push(pool);
    }
    pools
}

fn merged(item: &Node, place: &Place, problems: &mut Problems) -> Option<MergedPool> {
    if !matches!(item.content, Content::Map(_)) {
        problems.add(place, format!("is {}", item.kind()), "give {model: NAME, deployments: [namespace/deployment, …]}");
        return None;
    }
    for (key, value) in item.entries().iter().filter(|(key, _)| !matches!(key.as_str(), "model" | "deployments")) {
        problems.add(&place.below(key, value.line), "unknown key", "known here: model, deployments");
    }
    let missing = |key: &str| Wrong::new(format!("has no {key}"), "give {model: NAME, deployments: [namespace/deployment, …]}");
    let model = item.at("model").ok_or_else(|| missing("model")).and_then(text).and_then(|name| model_name(&name).map(|()| name));
    let model = model.map_err(|wrong| problems.add(place, wrong.wrong, wrong.right)).ok();
    let Some(node) = item.at("deployments") else {
        let wrong = missing("deployments");
        problems.add(place, wrong.wrong, wrong.right);
        return None;
    };
    let given = Given { place: place.below("deployments", node.line), node: node.clone() };
    let deployments = deployments(&given, problems)?;
    Some(MergedPool { model: model?, deployments })
}

fn deployments(given: &Given, problems: &mut Problems) -> Option<Vec<DeploymentRef>> {
    let texts = strings(given, problems)?;
    if texts.len() < 2 {
        problems.add(&given.place, format!("lists {} deployment(s)", texts.len()), "list at least two, or use names.pins for one");
    }
    let mut deployments = Vec::with_capacity(texts.len());
    for text in texts {
        match deployment(&text) {
            Ok(deployment) if deployments.contains(&deployment) => {
                problems.add(&given.place, format!("{deployment} is listed twice"), "list each deployment once");
            }
            Ok(deployment) => deployments.push(deployment),
            Err(wrong) => problems.add(&given.place, wrong.wrong, wrong.right),
        }
    }
    Some(deployments)
}

fn model_name(name: &str) -> Result<(), Wrong> {
    if name.trim().is_empty() { Err(Wrong::new("the model name is empty", "name the served model")) } else { Ok(()) }
}

fn deployment(text: &str) -> Result<DeploymentRef, Wrong> {
    let wrong = || Wrong::new(format!("{text:?} is no deployment"), "write namespace/deployment");
    let (namespace, name) = text.split_once('/').ok_or_else(wrong)?;
    if !label(namespace) || !(1..=253).contains(&name.len()) || !name.split('.').all(label) {
        return Err(wrong());
    }
    Ok(DeploymentRef { namespace: namespace.to_owned(), name: name.to_owned() })
}

/// Whether the text can be a namespace's name (RFC 1123 label).
pub(crate) fn namespace(text: &str) -> Result<(), Wrong> {
    if label(text) {
        return Ok(());
    }
    Err(Wrong::new(format!("{text:?} is no namespace name"), "write lower-case letters, digits and dashes, at most 63"))
}

fn label(text: &str) -> bool {
    (1..=63).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
        && !text.starts_with('-')
        && !text.ends_with('-')
}
