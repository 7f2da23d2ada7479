//! What is wrong with a configuration, one line a problem.
//!
//! Owns: the shape and the wording frame of problems. Must not: decide whether something is wrong (`read`, `keys`, `rules`).
//! Next step of the path: `load` hands the list to the caller, who prints it or logs it.

use std::fmt;

/// Where a value came from: a YAML path such as `pools.demo-chat.clocks.connect`, a flag such as `--listen`, or a variable's name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Place {
    pub(crate) path: String,
    /// Line of the configuration file, from 1.
    pub(crate) line: Option<u64>,
}

impl Place {
    pub(crate) fn new(path: impl Into<String>) -> Self {
        Self { path: path.into(), line: None }
    }

    /// The place of `key` below this one.
    pub(crate) fn below(&self, key: &str, line: Option<u64>) -> Self {
        Self { path: join(&self.path, key), line: line.or(self.line) }
    }
}

/// `prefix.key`, with the key in quotes where it holds a dot or white space itself (model names do).
pub(crate) fn join(prefix: &str, key: &str) -> String {
    let plain = !key.is_empty() && !key.contains(|c: char| c == '.' || c == ':' || c.is_whitespace() || c.is_control());
    let key = if plain { key.to_owned() } else { format!("{key:?}") };
    if prefix.is_empty() { key } else { format!("{prefix}.{key}") }
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Where: a YAML path, a flag, an environment variable or a file.
    pub path: String,
    /// Line of the configuration file, from 1, where it is known.
    pub line: Option<u64>,
    /// What is wrong.
    pub wrong: String,
    /// What would be right.
    pub right: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.wrong)?;
        if let Some(line) = self.line {
            write!(f, " (line {line})")?;
        }
        write!(f, "; {}", self.right)
    }
}

/// Every problem of one configuration, in the order in which they were found. Displays one line a problem.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Problems(Vec<Problem>);

impl Problems {
    /// True when the configuration can be used.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The problems one by one.
    pub fn iter(&self) -> std::slice::Iter<'_, Problem> {
        self.0.iter()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn add(&mut self, place: &Place, wrong: impl Into<String>, right: impl Into<String>) {
        let problem = Problem { path: place.path.clone(), line: place.line, wrong: one_line(wrong), right: one_line(right) };
        if !self.0.contains(&problem) {
            self.0.push(problem);
        }
    }
}

/// Values may hold line breaks and escape sequences; a problem stays one line and never drives a terminal.
fn one_line(text: impl Into<String>) -> String {
    text.into().chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

impl<'a> IntoIterator for &'a Problems {
    type Item = &'a Problem;
    type IntoIter = std::slice::Iter<'a, Problem>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            problem.fmt(f)?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}

/// What is wrong with one value and what would be right, before its place is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wrong {
    pub(crate) wrong: String,
    pub(crate) right: String,
}

impl Wrong {
    pub(crate) fn new(wrong: impl Into<String>, right: impl Into<String>) -> Self {
        Self { wrong: wrong.into(), right: right.into() }
    }
}
