//! Runs small Python programs with the real OpenAI client against the gateway.
//!
//! The interpreter is a virtual environment that `tests/python/setup` makes once, with the versions of `tests/python/requirements.txt`.

use std::path::PathBuf;
use std::time::Duration;

use tokio::sync::OnceCell;

use crate::poll::PATIENCE;
use crate::process::{Process, Spec};
use crate::{Outcome, binaries};

/// Runs `tests/python/<program>` with `OPENAI_BASE_URL` set and gives what it printed; an error unless it exits with 0.
pub async fn run(program: &str, base_url: &str, args: &[&str]) -> Outcome<String> {
    let interpreter = interpreter().await?;
    let dir = tempfile::TempDir::with_prefix("leadgate-python-")?;
    let script = binaries::in_tests("python").join(program);
    let mut all: Vec<std::ffi::OsString> = vec![script.into()];
    all.extend(args.iter().map(Into::into));
    let env = vec![("OPENAI_BASE_URL".to_owned(), base_url.into()), ("OPENAI_API_KEY".to_owned(), "none".into())];
    let process = Process::start(Spec { program: interpreter.clone(), args: all, env, log: dir.path().join("log"), litter: None })?;
    let limit = PATIENCE + Duration::from_secs(60);
    match process.wait(limit).await? {
        0 => Ok(process.log()),
        code => Err(format!("{program} ended with {code}:\n{}", process.log()).into()),
    }
}

async fn interpreter() -> Outcome<&'static PathBuf> {
    static INTERPRETER: OnceCell<PathBuf> = OnceCell::const_new();
    INTERPRETER
        .get_or_try_init(|| async {
            let setup = || binaries::run_for_path(&mut std::process::Command::new(binaries::in_tests("python/setup")));
            tokio::task::spawn_blocking(setup).await?
        })
        .await
}
