//! The file changes under a running process, in each of the ways in which files change.

#![allow(clippy::expect_used, clippy::panic, reason = "a test that cannot go on has failed")]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use config::{Config, Problems, Reloaded, ServeArgs, Watch, watch};
use tempfile::TempDir;

/// Well below the recheck interval, so that only a file event can be in time.
const DEADLINE: Duration = Duration::from_secs(20);

struct Watched {
    news: Receiver<Result<Reloaded, Problems>>,
    _watch: Watch,
}

impl Watched {
    fn start(path: &Path, env: impl Fn(&str) -> Option<String> + Send + Clone + 'static) -> Self {
        let args = ServeArgs::for_file(path);
        let current = Config::load(&args, env.clone(), |path| fs::read_to_string(path)).expect("config");
        let (sender, news) = channel();
        let watch = watch(args, env, Arc::new(current), move |outcome| drop(sender.send(outcome))).expect("thread").expect("file");
        Self { news, _watch: watch }
    }

    fn next(&self) -> Result<Reloaded, Problems> {
        self.news.recv_timeout(DEADLINE).expect("a change is noticed")
    }

    fn expect_hold(&self, seconds: u64) {
        assert_eq!(self.next().expect("good").config.defaults.hold.timeout, Duration::from_secs(seconds));
    }
}

fn hold(seconds: u64) -> String {
    format!("hold:\n  timeout: {seconds}s\n")
}

fn folder() -> TempDir {
    TempDir::new().expect("folder")
}

#[test]
fn written_in_place_and_renamed_over() {
    let folder = folder();
    let path = folder.path().join("c.yaml");
    fs::write(&path, hold(1)).expect("write");
    let watched = Watched::start(&path, |_| None);
    fs::write(&path, hold(2)).expect("write");
    watched.expect_hold(2);
    for seconds in 3..6 {
        let fresh = folder.path().join(".c.yaml.swp");
        fs::write(&fresh, hold(seconds)).expect("write");
        fs::rename(&fresh, &path).expect("rename");
        watched.expect_hold(seconds);
    }
}

#[test]
fn a_bad_file_keeps_the_old_one_and_says_so_once() {
    let folder = folder();
    let path = folder.path().join("c.yaml");
    fs::write(&path, hold(1)).expect("write");
    let watched = Watched::start(&path, |_| None);
    fs::write(&path, "hold: { timeout: soon }").expect("write");
    let problems = watched.next().expect_err("bad").to_string();
    assert!(problems.starts_with("hold.timeout: \"soon\" is no duration (line 1)"), "{problems}");
    fs::remove_file(&path).expect("remove");
    assert!(watched.next().expect_err("gone").to_string().contains("cannot be read"));
    fs::write(&path, hold(1)).expect("write");
    watched.expect_hold(1);
}

/// A ConfigMap's volume: the file is a link into `..data`, which is a link to a folder that is replaced whole.
#[test]
fn config_map_swap() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    let version = |name: &str, seconds: u64| {
        fs::create_dir(at(name)).expect("folder");
        fs::write(at(name).join("c.yaml"), hold(seconds)).expect("write");
    };
    version("..v1", 1);
    symlink("..v1", at("..data")).expect("link");
    symlink("..data/c.yaml", at("c.yaml")).expect("link");
    let watched = Watched::start(&at("c.yaml"), |_| None);
    for seconds in 2..5 {
        let fresh = format!("..v{seconds}");
        version(&fresh, seconds);
        symlink(&fresh, at("..data_tmp")).expect("link");
        fs::rename(at("..data_tmp"), at("..data")).expect("rename");
        fs::remove_dir_all(at(&format!("..v{}", seconds - 1))).expect("remove");
        watched.expect_hold(seconds);
    }
}

/// The file is a link into another folder, where it is written.
#[test]
fn link_into_another_folder() {
    let (here, there) = (folder(), folder());
    let (path, target) = (here.path().join("c.yaml"), there.path().join("real.yaml"));
    fs::write(&target, hold(1)).expect("write");
    symlink(&target, &path).expect("link");
    let watched = Watched::start(&path, |_| None);
    fs::write(&target, hold(2)).expect("write");
    watched.expect_hold(2);
}

#[test]
fn what_needs_a_restart_is_kept_and_named() {
    let folder = folder();
    let path = folder.path().join("c.yaml");
    fs::write(&path, "listen: 127.0.0.1:1\n").expect("write");
    let watched = Watched::start(&path, |_| None);
    fs::write(&path, "listen: 127.0.0.1:2\nworkers: 1000\nnamespace: a\nlog: { level: debug }\n").expect("write");
    let reloaded = watched.next().expect("good");
    assert_eq!(reloaded.kept, ["listen", "workers", "source"]);
    assert_eq!((reloaded.config.listen.port(), reloaded.config.log.level.as_str()), (1, "debug"));
}

#[test]
fn flags_and_environment_stay_stronger() {
    let folder = folder();
    let path = folder.path().join("c.yaml");
    fs::write(&path, hold(1)).expect("write");
    let watched = Watched::start(&path, |name| (name == "LEADGATE_HOLD_TIMEOUT").then(|| "9s".to_owned()));
    fs::write(&path, format!("{}log: {{ level: debug }}\n", hold(2))).expect("write");
    let reloaded = watched.next().expect("good");
    assert_eq!((reloaded.config.defaults.hold.timeout, reloaded.config.log.level.as_str()), (Duration::from_secs(9), "debug"));
}

/// Reading the file is a file event too; it must not make the watch read again for ever.
#[test]
fn a_change_between_load_and_watch_is_noticed() {
    let folder = folder();
    let path = folder.path().join("c.yaml");
    fs::write(&path, hold(2)).expect("write");
    let args = ServeArgs::for_file(path);
    let (sender, news) = channel();
    let current = Arc::new(Config::default());
    let watch = watch(args, |_| None, current, move |outcome| drop(sender.send(outcome))).expect("thread").expect("file");
    let reloaded = news.recv_timeout(DEADLINE).expect("noticed").expect("good");
    assert_eq!(reloaded.config.defaults.hold.timeout, Duration::from_secs(2));
    drop(watch);
    assert!(news.recv().is_err(), "the thread has ended");
}

#[test]
fn nothing_to_watch_without_a_file() {
    let none = watch(ServeArgs::default(), |_| None, Arc::new(Config::default()), |_| {}).expect("no thread");
    assert!(none.is_none());
}
