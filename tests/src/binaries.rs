//! Where the programs under test and beside it come from; each is built at most once in a test process.
//!
//! The API server comes from `tests/apiserver/build`, the collector of traces from `tests/collector/build`; the project's own binaries are
//! built by cargo into the target folder of the running test, so that a test never meets a stale gateway.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tokio::sync::OnceCell;

use crate::Outcome;

/// The folder with kube-apiserver, etcd and kubectl. The first call of a fresh machine takes minutes (the build script says so).
/// `LEADGATE_APISERVER_BIN` names a folder to use instead.
pub async fn apiserver_folder() -> Outcome<&'static Path> {
    static FOLDER: OnceCell<PathBuf> = OnceCell::const_new();
    let folder = FOLDER.get_or_try_init(|| blocking(find_apiserver_folder)).await?;
    Ok(folder)
}

/// The gateway's binary. `LEADGATE_BIN` names one to use instead.
pub async fn gateway() -> Outcome<&'static Path> {
    static BINARY: OnceCell<PathBuf> = OnceCell::const_new();
    let path = BINARY.get_or_try_init(|| blocking(|| own_binary("gateway", "leadgate", "LEADGATE_BIN"))).await?;
    Ok(path)
}

/// The load generator's binary. `LEADGATE_LOADTEST_BIN` names one to use instead.
pub async fn loadtest() -> Outcome<&'static Path> {
    static BINARY: OnceCell<PathBuf> = OnceCell::const_new();
    let path = BINARY.get_or_try_init(|| blocking(|| own_binary("loadtest", "loadtest", "LEADGATE_LOADTEST_BIN"))).await?;
    Ok(path)
}

/// The OpenTelemetry collector. The first call of a fresh machine takes minutes (the build script says so).
pub async fn collector() -> Outcome<&'static Path> {
    static BINARY: OnceCell<PathBuf> = OnceCell::const_new();
    let path = BINARY.get_or_try_init(|| blocking(|| run_for_path(&mut Command::new(in_tests("collector/build"))))).await?;
    Ok(path)
}

/// A file or folder of the `tests` crate, by its path inside it.
pub fn in_tests(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

async fn blocking(work: impl FnOnce() -> Outcome<PathBuf> + Send + 'static) -> Outcome<PathBuf> {
    tokio::task::spawn_blocking(work).await?
}

fn find_apiserver_folder() -> Outcome<PathBuf> {
    match std::env::var_os("LEADGATE_APISERVER_BIN") {
        Some(folder) => Ok(folder.into()),
        None => run_for_path(&mut Command::new(in_tests("apiserver/build"))),
    }
}

/// Runs a setup script whose stdout is one path; its messages go to our stderr.
pub(crate) fn run_for_path(command: &mut Command) -> Outcome<PathBuf> {
    let output = command.stderr(Stdio::inherit()).output().map_err(|error| format!("{command:?}: {error}"))?;
    if !output.status.success() {
        return Err(format!("{command:?} ended with {}", output.status).into());
    }
    Ok(PathBuf::from(String::from_utf8(output.stdout)?.trim_end()))
}

fn own_binary(package: &str, name: &str, variable: &str) -> Outcome<PathBuf> {
    if let Some(path) = std::env::var_os(variable) {
        return Ok(path.into());
    }
    // target/<profile>/deps/<this test>
    let exe = std::env::current_exe()?;
    let profile = exe.ancestors().nth(2).ok_or("the test executable is in no target folder")?;
    let target = profile.parent().ok_or("the profile folder has no parent")?;
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = Command::new(cargo);
    build.current_dir(env!("CARGO_MANIFEST_DIR")).args(["build", "--quiet", "--package", package, "--bin", name]);
    build.arg("--target-dir").arg(target);
    if profile.ends_with("release") {
        build.arg("--release");
    }
    let status = build.status()?;
    if !status.success() {
        return Err(format!("cargo could not build {name}: {status}").into());
    }
    Ok(profile.join(name))
}
