//! Keys of engines that were started with `--api-key`, read from files.
//!
//! Owns: a small cache; a file is looked at again after [`FRESH`], so a rotated key needs no restart. Keys are never logged (invariant 10).

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use http::HeaderValue;

/// How long a key read is used without looking again.
const FRESH: Duration = Duration::from_secs(5);
/// Files remembered; a configuration has no more pools than that with keys of their own.
const MAX_FILES: usize = 4096;

/// See the module.
#[derive(Debug, Default)]
pub struct EngineKeys {
    files: Mutex<HashMap<PathBuf, Read>>,
}

#[derive(Debug)]
struct Read {
    at: Instant,
    bearer: Option<HeaderValue>,
}

impl EngineKeys {
    /// `Bearer KEY` of a key file; `None`: it cannot be read or is no header value. Reads a file of a few bytes at most every [`FRESH`].
    pub fn bearer(&self, file: &Path) -> Option<HeaderValue> {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(read) = files.get(file)
            && read.at.elapsed() < FRESH
        {
            return read.bearer.clone();
        }
        let bearer = read(file);
        if files.len() >= MAX_FILES {
            files.clear();
        }
        files.insert(file.to_owned(), Read { at: Instant::now(), bearer: bearer.clone() });
        bearer
    }
}

fn read(file: &Path) -> Option<HeaderValue> {
    let text =
        std::fs::read_to_string(file).inspect_err(|error| tracing::warn!(file = %file.display(), %error, "engine key not read")).ok()?;
    let mut value = HeaderValue::from_str(&format!("Bearer {}", text.trim())).ok()?;
    value.set_sensitive(true);
    Some(value)
}
