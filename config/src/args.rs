//! The flags of `leadgate serve` and `leadgate check`, made from the table of settings.
//!
//! Owns: `--config` and one flag for each setting that is no structure. Must not: read values; a flag's text goes through the same
//! reader as the file's, so that all problems come out together. Next step of the path: `layer` looks the flags up.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, value_parser};

use crate::setting::{Kind, Setting};
use crate::settings;

/// The name of the variable that stands for `--config`.
pub const CONFIG_VARIABLE: &str = "LEADGATE_CONFIG";

/// What was given on the command line. Flatten it into a clap command with `#[command(flatten)]`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServeArgs {
    /// `--config FILE`.
    pub config: Option<PathBuf>,
    given: BTreeMap<&'static str, Vec<String>>,
}

impl ServeArgs {
    /// A file and nothing else.
    pub fn for_file(path: impl Into<PathBuf>) -> Self {
        Self { config: Some(path.into()), given: BTreeMap::new() }
    }

    /// Reads flags alone, without the program's name: `["--listen", "127.0.0.1:0"]`.
    ///
    /// # Errors
    /// Unknown flags and flags without a value.
    pub fn try_parse<T: Into<OsString> + Clone>(flags: impl IntoIterator<Item = T>) -> Result<Self, clap::Error> {
        let command = Self::augment_args(Command::new("leadgate").no_binary_name(true));
        Self::from_arg_matches(&command.try_get_matches_from(flags)?)
    }

    /// The values given for one setting, in order; `None` where the flag is absent.
    pub(crate) fn given(&self, setting: &Setting) -> Option<&[String]> {
        self.given.get(setting.path).map(Vec::as_slice)
    }
}

impl Args for ServeArgs {
    fn augment_args(command: Command) -> Command {
        let config = Arg::new("config")
            .long("config")
            .value_name("FILE")
            .value_parser(value_parser!(PathBuf))
            .help(format!("YAML file with settings, watched for change [env: {CONFIG_VARIABLE}]"));
        settings::all().fold(command.arg(config), |command, setting| match arg(setting) {
            Some(arg) => command.arg(arg),
            None => command,
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for ServeArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut args = Self::default();
        args.update_from_arg_matches(matches)?;
        Ok(args)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        if let Some(config) = matches.get_one::<PathBuf>("config") {
            self.config = Some(config.clone());
        }
        for setting in settings::all().filter(|setting| setting.flag().is_some()) {
            if let Some(values) = matches.get_many::<String>(setting.path) {
                self.given.insert(setting.path, values.cloned().collect());
            }
        }
        Ok(())
    }
}

fn arg(setting: &'static Setting) -> Option<Arg> {
    let default = setting.default.filter(|text| !text.is_empty()).map_or_else(String::new, |text| format!(" [default: {text}]"));
    let env = setting.variable()?;
    let arg = Arg::new(setting.path)
        .long(setting.flag()?)
        .value_name(value_name(setting.kind))
        .help(format!("{}{default} [env: {env}]", setting.doc.trim_end_matches('.')))
        .help_heading(heading(setting.section()));
    Some(match setting.kind {
        Kind::Switch => arg.num_args(0..=1).require_equals(true).default_missing_value("true"),
        Kind::List | Kind::Leaders => arg.action(ArgAction::Append),
        Kind::Address
        | Kind::Duration { .. }
        | Kind::Size { .. }
        | Kind::Count { .. }
        | Kind::CountOrAuto { .. }
        | Kind::Ratio
        | Kind::Choice(_)
        | Kind::Text
        | Kind::File
        | Kind::Folder
        | Kind::Structure => arg,
    })
}

fn heading(section: &str) -> String {
    if section.is_empty() { "Main settings".to_owned() } else { format!("Section `{section}`") }
}

fn value_name(kind: Kind) -> String {
    match kind {
        Kind::Address => "IP:PORT".to_owned(),
        Kind::Duration { .. } => "TIME".to_owned(),
        Kind::Size { .. } => "SIZE".to_owned(),
        Kind::Count { .. } | Kind::CountOrAuto { .. } => "COUNT".to_owned(),
        Kind::Ratio => "RATIO".to_owned(),
        Kind::Switch => "true|false".to_owned(),
        Kind::Choice(words) => words().join("|"),
        Kind::Text => "TEXT".to_owned(),
        Kind::File => "FILE".to_owned(),
        Kind::Folder => "DIR".to_owned(),
        Kind::List => "ITEM[,ITEM…]".to_owned(),
        Kind::Leaders => "MODEL=URL[,URL…]".to_owned(),
        Kind::Structure => "YAML".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_is_well_formed() {
        ServeArgs::augment_args(Command::new("leadgate")).debug_assert();
    }

    #[test]
    fn flags_are_collected() {
        let args = ServeArgs::try_parse([
            "--config",
            "a.yaml",
            "--namespace",
            "x",
            "--namespace",
            "y,z",
            "--all-namespaces",
            "--body-limit",
            "1MiB",
            "--resume-enabled=false",
        ])
        .expect("flags");
        assert_eq!(args.config, Some(PathBuf::from("a.yaml")));
        assert_eq!(args.given(&settings::process::NAMESPACE), Some(&["x".to_owned(), "y,z".to_owned()][..]));
        assert_eq!(args.given(&settings::process::ALL_NAMESPACES), Some(&["true".to_owned()][..]));
        assert_eq!(args.given(&settings::process::BODY), Some(&["1MiB".to_owned()][..]));
        assert_eq!(args.given(&settings::pool::RESUME_ENABLED), Some(&["false".to_owned()][..]));
        assert_eq!(args.given(&settings::process::LISTEN), None);
        assert!(ServeArgs::try_parse(["--lissten", "x"]).is_err());
    }
}
