//! The engine key that probes carry: read from its file at every round, so that a rotated key is used from the next probe on.
//!
//! Owns: reading and trimming. Must not: log or show a key. While the file is away for a moment (a Secret being swapped) the last good
//! key goes on.

use std::path::{Path, PathBuf};

use http::HeaderValue;

/// A larger file is not a key.
const MAX_BYTES: u64 = 16 * 1024;

/// The last key that was read, and from where.
#[derive(Debug, Default)]
pub(super) struct KeyFile {
    last: Option<(PathBuf, HeaderValue)>,
}

impl KeyFile {
    /// `Authorization` value made of the file's key; `None` if there is none and never was.
    pub(super) async fn read(&mut self, path: &Path) -> Option<HeaderValue> {
        match bearer(path).await {
            Ok(value) => self.last = Some((path.to_owned(), value)),
            Err(problem) => tracing::warn!(file = %path.display(), problem, "engine key not readable"),
        }
        self.last.as_ref().filter(|(of, _)| of == path).map(|(_, value)| value.clone())
    }
}

async fn bearer(path: &Path) -> Result<HeaderValue, String> {
    let meta = tokio::fs::metadata(path).await.map_err(|error| error.to_string())?;
    if meta.len() > MAX_BYTES {
        return Err(format!("larger than {MAX_BYTES} bytes"));
    }
    let text = tokio::fs::read_to_string(path).await.map_err(|error| error.to_string())?;
    let key = text.trim();
    if key.is_empty() {
        return Err("empty".to_owned());
    }
    let mut value = HeaderValue::try_from(format!("Bearer {key}")).map_err(|_| "not a header value".to_owned())?;
    value.set_sensitive(true);
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_key_is_trimmed_reread_and_outlives_its_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        let mut file = KeyFile::default();
        assert_eq!(file.read(&path).await, None);
        std::fs::write(&path, " \n").unwrap();
        assert_eq!(file.read(&path).await, None, "empty");
        std::fs::write(&path, "one\n").unwrap();
        assert_eq!(file.read(&path).await.unwrap(), "Bearer one");
        std::fs::write(&path, "two").unwrap();
        assert_eq!(file.read(&path).await.unwrap(), "Bearer two");
        std::fs::remove_file(&path).unwrap();
        assert_eq!(file.read(&path).await.unwrap(), "Bearer two");
        assert_eq!(file.read(&dir.path().join("other")).await, None, "another file's key is not used");
    }
}
