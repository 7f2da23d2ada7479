//! What a setting is: its path, kind, bounds, default with reason, and the flag and variable that follow from its path.
//!
//! Owns: the vocabulary of the table in `settings`. Must not: read values (`read`) or know the typed configuration.
//! Next step of the path: `settings` lists the rows; `args`, `layer`, `keys` and `reference` all work from them.

use std::time::Duration;

/// Bound of every duration: a year. It keeps sums of deadlines far from the clock's own limits.
pub(crate) const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);

/// One row of the table: the only place where a setting's name, default and documentation stand.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Setting {
    /// Dotted YAML path.
    pub(crate) path: &'static str,
    pub(crate) kind: Kind,
    /// In the notation of the environment; `None`: not set.
    pub(crate) default: Option<&'static str>,
    /// Why the default is what it is.
    pub(crate) why: &'static str,
    /// What it does, with its bounds' meaning.
    pub(crate) doc: &'static str,
    /// Applied without a restart.
    pub(crate) live: bool,
    /// Can be given under `pools.<model>` too.
    pub(crate) per_pool: bool,
    flag: Option<&'static str>,
}

/// What a setting takes.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    /// `IP:PORT`.
    Address,
    /// With a unit, both bounds included.
    Duration { min: Duration, max: Duration },
    /// Bytes, with a unit, both bounds included.
    Size { min: u64, max: u64 },
    /// A whole number, both bounds included.
    Count { min: u64, max: u64 },
    /// A whole number, or `auto`.
    CountOrAuto { min: u64, max: u64 },
    /// 0 to 1, both included.
    Ratio,
    /// `true` or `false`.
    Switch,
    /// One word of a closed list.
    Choice(fn() -> Vec<&'static str>),
    /// Any text that is not empty.
    Text,
    /// Path of a file.
    File,
    /// Path of a folder.
    Folder,
    /// Texts; commas separate them in the environment and in a flag.
    List,
    /// `MODEL=URL[,URL…]`, several.
    Leaders,
    /// A structure that only the file can give.
    Structure,
}

/// An enum whose values are written as words.
pub(crate) trait Words: Sized + Copy + 'static {
    /// Every word with its value.
    const WORDS: &'static [(&'static str, Self)];
}

fn words<T: Words>() -> Vec<&'static str> {
    T::WORDS.iter().map(|(word, _)| *word).collect()
}

impl Setting {
    const fn new(path: &'static str, kind: Kind, default: Option<&'static str>) -> Self {
        Self { path, kind, default, why: "", doc: "", live: true, per_pool: false, flag: None }
    }

    pub(crate) const fn address(path: &'static str, default: &'static str) -> Self {
        Self::new(path, Kind::Address, Some(default))
    }

    /// At least 1 ms; `or_zero` lifts that.
    pub(crate) const fn duration(path: &'static str, default: &'static str) -> Self {
        Self::new(path, Kind::Duration { min: Duration::from_millis(1), max: LONGEST }, Some(default))
    }

    pub(crate) const fn size(path: &'static str, default: &'static str, min: u64, max: u64) -> Self {
        Self::new(path, Kind::Size { min, max }, Some(default))
    }

    pub(crate) const fn count(path: &'static str, default: &'static str, min: u64, max: u64) -> Self {
        Self::new(path, Kind::Count { min, max }, Some(default))
    }

    pub(crate) const fn ratio(path: &'static str, default: &'static str) -> Self {
        Self::new(path, Kind::Ratio, Some(default))
    }

    pub(crate) const fn switch(path: &'static str, default: &'static str) -> Self {
        Self::new(path, Kind::Switch, Some(default))
    }

    pub(crate) const fn choice<T: Words>(path: &'static str, default: &'static str) -> Self {
        Self::new(path, Kind::Choice(words::<T>), Some(default))
    }

    pub(crate) const fn list(path: &'static str, default: &'static str) -> Self {
        Self::new(path, Kind::List, Some(default))
    }

    pub(crate) const fn text(path: &'static str, default: &'static str) -> Self {
        Self::new(path, Kind::Text, Some(default))
    }

    /// A setting that is not set by default.
    pub(crate) const fn unset(path: &'static str, kind: Kind) -> Self {
        Self::new(path, kind, None)
    }

    pub(crate) const fn count_or_auto(path: &'static str, min: u64, max: u64) -> Self {
        Self::new(path, Kind::CountOrAuto { min, max }, Some("auto"))
    }

    /// Zero is a value with a meaning of its own, which the documentation names.
    pub(crate) const fn or_zero(mut self) -> Self {
        if let Kind::Duration { max, .. } = self.kind {
            self.kind = Kind::Duration { min: Duration::ZERO, max };
        }
        self
    }

    pub(crate) const fn doc(mut self, doc: &'static str) -> Self {
        self.doc = doc;
        self
    }

    pub(crate) const fn why(mut self, why: &'static str) -> Self {
        self.why = why;
        self
    }

    /// The flag's name where it does not follow from the path.
    pub(crate) const fn flag_name(mut self, flag: &'static str) -> Self {
        self.flag = Some(flag);
        self
    }

    /// Takes effect at the next start only.
    pub(crate) const fn at_start(mut self) -> Self {
        self.live = false;
        self
    }

    pub(crate) const fn per_pool(mut self) -> Self {
        self.per_pool = true;
        self
    }

    /// `hold-timeout` for `hold.timeout`; `None` for structures.
    pub(crate) fn flag(&self) -> Option<String> {
        if matches!(self.kind, Kind::Structure) {
            return None;
        }
        Some(self.flag.map_or_else(|| self.path.replace(['.', '_'], "-"), str::to_owned))
    }

    /// `LEADGATE_HOLD_TIMEOUT` for `hold.timeout`.
    pub(crate) fn variable(&self) -> Option<String> {
        self.flag().map(|flag| format!("LEADGATE_{}", flag.replace('-', "_").to_ascii_uppercase()))
    }

    /// The first step of the path: the section that the setting belongs to, empty for top-level settings.
    pub(crate) fn section(&self) -> &'static str {
        self.path.split_once('.').map_or("", |(section, _)| section)
    }
}
