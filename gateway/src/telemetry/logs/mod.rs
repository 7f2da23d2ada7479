//! Log lines of the process: JSON or text on standard error, level changeable while it runs.
//!
//! Owns: the subscriber, its filter and the writer. Must not: block a request (a full queue drops the line and counts it) or carry
//! prompts, completions or keys; callers log ids, names and closed words. Next step: `writer`.

mod access;
mod line;
mod writer;

use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use config::{LogFormat, LogSettings};
use prometheus::IntCounter;
use thiserror::Error;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, Registry, fmt as tracing_fmt, reload};

pub use access::{AccessLog, AccessRecord};
pub use writer::LineWriter;

/// Longest filter that `set_level` takes, bytes.
pub const LEVEL_BYTES: usize = 4096;

/// Why logging could not be set up or changed.
#[derive(Debug, Error)]
pub enum LogError {
    /// The filter is not one.
    #[error("not a log filter such as `info` or `info,discovery=debug`: {0}")]
    Filter(String),
    /// A subscriber exists already.
    #[error("log subscriber already installed")]
    Installed,
    /// The writer's thread could not start.
    #[error("log writer: {0}")]
    Writer(#[from] io::Error),
}

type Filter = reload::Handle<EnvFilter, Registry>;

/// The installed log. Keep it until the end of the process and `flush` it there.
pub struct Logs {
    filter: Option<Filter>,
    level: Mutex<String>,
    writer: LineWriter,
    format: LogFormat,
}

impl fmt::Debug for Logs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Logs").field("format", &self.format).finish_non_exhaustive()
    }
}

impl Logs {
    /// Installs the process's subscriber, writing to standard error. `dropped` counts lines that found the queue full.
    ///
    /// # Errors
    /// A filter that cannot be read, a second call, a thread that cannot start.
    pub fn install(settings: &LogSettings, dropped: IntCounter) -> Result<Arc<Self>, LogError> {
        let writer = LineWriter::start(io::stderr(), dropped)?;
        let (filter, handle) = reload::Layer::new(parse(&settings.level)?);
        let lines = lines(settings.format, writer.clone());
        tracing_subscriber::registry().with(lines.with_filter(filter)).try_init().map_err(|_| LogError::Installed)?;
        Ok(Arc::new(Self { filter: Some(handle), level: Mutex::new(settings.level.clone()), writer, format: settings.format }))
    }

    /// Without a subscriber, for tests of what stands around it: `set_level` only checks and remembers.
    pub fn detached(writer: LineWriter, format: LogFormat) -> Arc<Self> {
        Arc::new(Self { filter: None, level: Mutex::new("info".to_owned()), writer, format })
    }

    /// The filter in force.
    pub fn level(&self) -> String {
        self.level.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Changes the filter for every line from now on.
    ///
    /// # Errors
    /// A filter that cannot be read; the old one stays.
    pub fn set_level(&self, level: &str) -> Result<(), LogError> {
        let filter = parse(level)?;
        let mut held = self.level.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(handle) = &self.filter {
            handle.reload(filter).map_err(|e| LogError::Filter(e.to_string()))?;
        }
        level.trim().clone_into(&mut held);
        Ok(())
    }

    /// The writer of access lines with these settings; make a new one when they change.
    pub fn access(&self, settings: &LogSettings) -> AccessLog {
        AccessLog::new(settings, self.format, self.writer.clone())
    }

    /// Waits until every line so far is written, at most `bound`. False when the bound passed.
    pub fn flush(&self, bound: Duration) -> bool {
        self.writer.flush(bound)
    }
}

fn parse(level: &str) -> Result<EnvFilter, LogError> {
    let level = level.trim();
    if level.is_empty() || level.len() > LEVEL_BYTES {
        return Err(LogError::Filter("empty or too long".to_owned()));
    }
    EnvFilter::builder().parse(level).map_err(|e| LogError::Filter(e.to_string()))
}

fn lines(format: LogFormat, writer: LineWriter) -> Box<dyn Layer<Registry> + Send + Sync> {
    let base = tracing_fmt::layer().with_writer(writer).with_ansi(false);
    match format {
        LogFormat::Json => base.json().flatten_event(true).with_current_span(false).with_span_list(false).boxed(),
        LogFormat::Text => base.boxed(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_filter_keeps_the_old_one() {
        let dropped = IntCounter::new("d", "d").unwrap();
        let logs = Logs::detached(LineWriter::start(io::sink(), dropped).unwrap(), LogFormat::Json);
        assert!(logs.set_level("info,discovery=debug").is_ok());
        assert!(logs.set_level("=!=").is_err());
        assert!(logs.set_level("").is_err());
        assert!(logs.set_level(&"a=debug,".repeat(1000)).is_err());
        assert_eq!(logs.level(), "info,discovery=debug");
    }
}
