//! Where a value can come from, from weak to strong: default, file, environment, flag.
//!
//! Owns: finding the value of a setting in one layer, with its place. Must not: interpret it (`read`) or choose between layers:
//! `overlay` lays them over each other one by one, so that the value of every layer is checked, not only the winning one.
//! Next step of the path: `read`.

use crate::args::ServeArgs;
use crate::node::{Content, Node};
use crate::problem::{Place, join};
use crate::setting::{Kind, Setting};

/// Looks up an environment variable.
pub(crate) type Env<'a> = dyn Fn(&str) -> Option<String> + 'a;

/// One source of values.
pub(crate) enum Layer<'a> {
    Defaults,
    /// The file's top level.
    File(&'a Node),
    Env(&'a Env<'a>),
    Flags(&'a ServeArgs),
    /// The file's section for one model.
    Pool {
        model: &'a str,
        node: &'a Node,
    },
}

/// A value with its place.
pub(crate) struct Given {
    pub(crate) place: Place,
    pub(crate) node: Node,
}

impl Layer<'_> {
    /// The value that this layer has for `setting`.
    pub(crate) fn get(&self, setting: &Setting) -> Option<Given> {
        match self {
            Self::Defaults => {
                let text = setting.default?;
                Some(Given { place: Place::new(setting.path), node: from_text(setting, &[text.to_owned()]) })
            }
            Self::File(root) => from_file(root, "", setting),
            Self::Pool { model, node } if setting.per_pool => from_file(node, &join("pools", model), setting),
            Self::Pool { .. } => None,
            Self::Env(env) => {
                let name = setting.variable()?;
                // An empty variable is how shells and manifests say "not set".
                let text = env(&name).filter(|text| !text.is_empty())?;
                Some(Given { place: Place::new(name), node: from_text(setting, &[text]) })
            }
            Self::Flags(args) => {
                let place = Place::new(format!("--{}", setting.flag()?));
                Some(Given { place, node: from_text(setting, args.given(setting)?) })
            }
        }
    }
}

fn from_file(root: &Node, prefix: &str, setting: &Setting) -> Option<Given> {
    let node = root.at(setting.path)?.clone();
    let path = if prefix.is_empty() { setting.path.to_owned() } else { format!("{prefix}.{}", setting.path) };
    Some(Given { place: Place { path, line: node.line }, node })
}

/// Flags and variables are text; commas separate the items of a list.
fn from_text(setting: &Setting, texts: &[String]) -> Node {
    match setting.kind {
        Kind::List => {
            Node::list(texts.iter().flat_map(|text| text.split(',')).map(str::trim).filter(|item| !item.is_empty()).map(str::to_owned))
        }
        Kind::Leaders => Node::list(texts.iter().cloned()),
        Kind::Address
        | Kind::Duration { .. }
        | Kind::Size { .. }
        | Kind::Count { .. }
        | Kind::CountOrAuto { .. }
        | Kind::Ratio
        | Kind::Switch
        | Kind::Choice(_)
        | Kind::Text
        | Kind::File
        | Kind::Folder
        | Kind::Structure => texts.last().map_or(Node { line: None, content: Content::Null }, |text| Node::scalar(text.trim())),
    }
}
