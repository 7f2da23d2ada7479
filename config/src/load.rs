//! From flags, environment and file to a checked configuration.
//!
//! Owns: the order of the steps and the precedence flag > environment > file > default. Must not: touch the world itself; the
//! environment and the files come through functions that the caller gives.
//! Next step of the path: the caller's composition root, or `reload`.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use crate::args::{CONFIG_VARIABLE, ServeArgs};
use crate::layer::{Env, Layer};
use crate::model::{Config, PoolSettings};
use crate::node::{self, Content, Node};
use crate::overlay::PoolDraft;
use crate::problem::{Place, Problems, join};
use crate::read::Reader;
use crate::settings::pool::KEY_FORWARD;
use crate::source::SourceBuilder;
use crate::{keys, names, overlay, rules};

/// Bound of a configuration file: far more than every pool of a large cluster needs.
const MAX_FILE: usize = 4 << 20;

impl ServeArgs {
    /// The configuration file: `--config`, else `LEADGATE_CONFIG`.
    pub fn config_file(&self, env: impl Fn(&str) -> Option<String>) -> Option<PathBuf> {
        self.config.clone().or_else(|| env(CONFIG_VARIABLE).filter(|path| !path.is_empty()).map(PathBuf::from))
    }
}

impl Config {
    /// Builds the configuration. `env` looks up an environment variable, `read` reads a file (the configuration itself and the files
    /// that it names); both are called on this thread only.
    ///
    /// # Errors
    /// Every problem that was found, in all layers: also that of a value which a stronger layer replaces.
    pub fn load(
        args: &ServeArgs,
        env: impl Fn(&str) -> Option<String>,
        read: impl Fn(&Path) -> io::Result<String>,
    ) -> Result<Self, Problems> {
        let mut problems = Problems::default();
        let file = args.config_file(&env).and_then(|path| file(&path, &read, &mut problems));
        let root = file.unwrap_or(Node { line: None, content: Content::Null });
        let config = build(&root, args, &env, &mut problems);
        rules::all(&config, &read, &mut problems);
        if problems.is_empty() { Ok(config) } else { Err(problems) }
    }
}

/// What is wrong with a file alone, without flags and environment. Reads the file and those that it names.
pub fn check(path: &Path) -> Problems {
    let args = ServeArgs::for_file(path);
    Config::load(&args, |_| None, |path| std::fs::read_to_string(path)).err().unwrap_or_default()
}

impl Default for Config {
    /// The documented defaults.
    fn default() -> Self {
        build(&Node { line: None, content: Content::Null }, &ServeArgs::default(), &|_| None, &mut Problems::default())
    }
}

impl Default for PoolSettings {
    /// The documented defaults.
    fn default() -> Self {
        PoolSettings::clone(&Config::default().defaults)
    }
}

fn file(path: &Path, read: &dyn Fn(&Path) -> io::Result<String>, problems: &mut Problems) -> Option<Node> {
    let place = Place::new(path.display().to_string());
    let text = match read(path) {
        Ok(text) => text,
        Err(error) => {
            problems.add(&place, format!("cannot be read: {error}"), "name a file that can be read");
            return None;
        }
    };
    if text.len() > MAX_FILE {
        problems.add(&place, format!("is larger than {MAX_FILE} bytes"), "give settings only");
        return None;
    }
    match node::parse(&text) {
        Ok(root) => {
            keys::check(&root, problems);
            Some(root)
        }
        Err(wrong) => {
            problems.add(&place, wrong.wrong, wrong.right);
            None
        }
    }
}

/// Lays the layers over each other, from weak to strong.
fn build(root: &Node, args: &ServeArgs, env: &Env<'_>, problems: &mut Problems) -> Config {
    let processors = thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let mut config = overlay::blank();
    let mut draft = PoolDraft::blank();
    let mut source = SourceBuilder::default();
    for layer in [Layer::Defaults, Layer::File(root), Layer::Env(env), Layer::Flags(args)] {
        let mut reader = Reader { layer, problems };
        overlay::process(&mut reader, processors, &mut config);
        overlay::pool(&mut reader, &mut draft);
        source.overlay(&mut reader);
    }
    config.source = source.finish();
    names::read(root, &mut config.names, problems);
    for (model, node) in root.at("pools").map_or(&[][..], Node::entries) {
        let mut own = draft.clone();
        overlay::pool(&mut Reader { layer: Layer::Pool { model, node }, problems }, &mut own);
        let path = format!("{}.{}", join("pools", model), KEY_FORWARD.path);
        config.pools.insert(model.clone(), Arc::new(own.finish(&path, problems)));
    }
    config.defaults = Arc::new(draft.finish(KEY_FORWARD.path, problems));
    config
}
