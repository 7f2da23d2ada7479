//! The one discovery source, out of every layer.
//!
//! Owns: that exactly one is chosen (two at one level are a problem, a higher level replaces a lower one's choice) and what each of them
//! needs. Must not: open anything. Next step of the path: `discovery` watches the source.

use std::collections::BTreeSet;
use std::path::PathBuf;

use crate::engine_url;
use crate::layer::Given;
use crate::model::{KubernetesSource, Source, StaticLeaders};
use crate::names;
use crate::node::{Content, Node};
use crate::problem::{Place, Problems};
use crate::read::{Reader, strings, text};
use crate::setting::Setting;
use crate::settings::process::{ALL_NAMESPACES, KUBECONFIG, LEADERS, MANIFESTS, NAMESPACE};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Chosen {
    Kubernetes,
    Manifests,
    Leaders,
}

/// Settings that choose a source when a layer has them.
const CHOICES: [(&Setting, Chosen); 5] = [
    (&KUBECONFIG, Chosen::Kubernetes),
    (&NAMESPACE, Chosen::Kubernetes),
    (&ALL_NAMESPACES, Chosen::Kubernetes),
    (&MANIFESTS, Chosen::Manifests),
    (&LEADERS, Chosen::Leaders),
];

/// What the layers have said so far, from weak to strong.
#[derive(Default)]
pub(crate) struct SourceBuilder {
    chosen: Option<Chosen>,
    kubernetes: KubernetesSource,
    manifests: Option<PathBuf>,
    leaders: Vec<StaticLeaders>,
}

impl SourceBuilder {
    /// Lays one layer over the ones before.
    pub(crate) fn overlay(&mut self, reader: &mut Reader<'_>) {
        if let Some(chosen) = chosen(reader) {
            self.chosen = Some(chosen);
        }
        reader.optional_path(&KUBECONFIG, &mut self.kubernetes.kubeconfig);
        reader.optional_path(&MANIFESTS, &mut self.manifests);
        self.namespaces(reader);
        if let Some(given) = reader.layer.get(&LEADERS) {
            self.leaders = leaders(&given, reader.problems);
        }
    }

    /// `namespace` and `all_namespaces` replace each other from layer to layer and exclude each other within one.
    fn namespaces(&mut self, reader: &mut Reader<'_>) {
        let mut listed = Vec::new();
        let mut all = false;
        reader.list(&NAMESPACE, &mut listed);
        reader.switch(&ALL_NAMESPACES, &mut all);
        let Some(given) = reader.layer.get(&NAMESPACE) else {
            if reader.layer.get(&ALL_NAMESPACES).is_some() {
                self.kubernetes.all_namespaces = all;
                if all {
                    self.kubernetes.namespaces.clear();
                }
            }
            return;
        };
        if all && !listed.is_empty() {
            let other = reader.layer.get(&ALL_NAMESPACES).map_or_else(String::new, |given| given.place.path);
            reader.problems.add(&given.place, format!("given together with {other}"), "give one of them");
        }
        let mut seen = BTreeSet::new();
        for name in &listed {
            if let Err(wrong) = names::namespace(name) {
                reader.problems.add(&given.place, wrong.wrong, wrong.right);
            } else if !seen.insert(name) {
                reader.problems.add(&given.place, format!("{name:?} is listed twice"), "list each namespace once");
            }
        }
        self.kubernetes.all_namespaces = all;
        self.kubernetes.namespaces = listed;
    }

    /// The source.
    pub(crate) fn finish(self) -> Source {
        match (self.chosen, self.manifests) {
            (Some(Chosen::Manifests), Some(folder)) => Source::Manifests(folder),
            (Some(Chosen::Leaders), _) => Source::Leaders(self.leaders),
            _ => Source::Kubernetes(self.kubernetes),
        }
    }
}

/// The source that this layer chooses, if it chooses one.
fn chosen(reader: &mut Reader<'_>) -> Option<Chosen> {
    let present = |setting: &Setting| reader.layer.get(setting).filter(|given| says_something(setting, &given.node));
    let given: Vec<(Place, Chosen)> =
        CHOICES.iter().filter_map(|(setting, chosen)| present(setting).map(|given| (given.place, *chosen))).collect();
    let (first, chosen) = given.first()?.clone();
    if let Some((other, _)) = given.iter().find(|(_, other)| *other != chosen) {
        let wrong = format!("given together with {}: two discovery sources", other.path);
        reader.problems.add(&first, wrong, "give one of Kubernetes (kubeconfig, namespace, all_namespaces), manifests and leaders");
    }
    Some(chosen)
}

/// `all_namespaces: false` and `kubeconfig: null` choose nothing.
fn says_something(setting: &Setting, node: &Node) -> bool {
    match &node.content {
        Content::Null => false,
        Content::Scalar(text) | Content::Plain(text) => {
            setting.path != ALL_NAMESPACES.path || !matches!(text.as_str(), "false" | "off" | "no" | "0")
        }
        Content::List(items) => !items.is_empty(),
        Content::Map(_) => true,
    }
}

/// Every entry of `leaders`: texts `MODEL=URL[,URL…]`, or a map from model to URLs.
fn leaders(given: &Given, problems: &mut Problems) -> Vec<StaticLeaders> {
    let before = problems.len();
    let entries = match &given.node.content {
        Content::Map(entries) => entries.iter().filter_map(|(model, urls)| from_map(&given.place, model, urls, problems)).collect(),
        Content::Null | Content::Scalar(_) | Content::Plain(_) | Content::List(_) => from_texts(given, problems),
    };
    if entries.is_empty() && problems.len() == before && given.node.content != Content::Null {
        problems.add(&given.place, "names no leader", "write MODEL=URL[,URL…]");
    }
    let mut seen = BTreeSet::new();
    for entry in &entries {
        if !seen.insert(&entry.model) {
            problems.add(&given.place, format!("the model {:?} is given twice", entry.model), "give all URLs of a model together");
        }
    }
    entries
}

fn from_map(place: &Place, model: &str, urls: &Node, problems: &mut Problems) -> Option<StaticLeaders> {
    let given = Given { place: place.below(model, urls.line), node: urls.clone() };
    let texts = strings(&given, problems)?;
    let urls = texts.iter().flat_map(|text| text.split(',')).map(str::to_owned).collect();
    Some(entry(&given.place, model, urls, problems))
}

/// `a=http://h:1,http://h:2,b=http://h:3` gives two entries: an item with `=` begins the next one, since a URL here has none.
fn from_texts(given: &Given, problems: &mut Problems) -> Vec<StaticLeaders> {
    let mut raw: Vec<(Place, String, Vec<String>)> = Vec::new();
    let items = match &given.node.content {
        Content::List(items) => items.as_slice(),
        Content::Null | Content::Scalar(_) | Content::Plain(_) | Content::Map(_) => std::slice::from_ref(&given.node),
    };
    for (index, item) in items.iter().enumerate() {
        let path = if item.line.is_some() { format!("{}[{index}]", given.place.path) } else { given.place.path.clone() };
        let place = Place { path, line: item.line.or(given.place.line) };
        match text(item) {
            Ok(entry) => split(&place, &entry, &mut raw, problems),
            Err(_) if item.content == Content::Null && items.len() == 1 => {}
            Err(wrong) => problems.add(&place, wrong.wrong, "write MODEL=URL[,URL…]"),
        }
    }
    raw.into_iter().map(|(place, model, urls)| entry(&place, &model, urls, problems)).collect()
}

fn split(place: &Place, text: &str, raw: &mut Vec<(Place, String, Vec<String>)>, problems: &mut Problems) {
    let first = raw.len();
    for item in text.split(',').map(str::trim).filter(|item| !item.is_empty()) {
        if let Some((model, url)) = item.split_once('=') {
            raw.push((place.clone(), model.to_owned(), vec![url.to_owned()]));
        } else if let Some((_, _, urls)) = raw.get_mut(first..).and_then(<[_]>::last_mut) {
            urls.push(item.to_owned());
        } else {
            problems.add(place, format!("{item:?} names no model"), "write MODEL=URL[,URL…]");
        }
    }
}

fn entry(place: &Place, model: &str, urls: Vec<String>, problems: &mut Problems) -> StaticLeaders {
    let model = model.trim();
    if model.is_empty() {
        problems.add(place, "the model name is empty", "write MODEL=URL[,URL…], with the model * for every name");
    }
    let mut good = Vec::with_capacity(urls.len());
    for url in urls {
        match engine_url::normalise(&url) {
            Ok(url) if good.contains(&url) => problems.add(place, format!("{url} is given twice"), "give each leader once"),
            Ok(url) => good.push(url),
            Err(wrong) => problems.add(place, wrong.wrong, wrong.right),
        }
    }
    StaticLeaders { model: model.to_owned(), urls: good }
}
