//! Loading from the outside: what a configuration says, and every problem of a bad one.

#![allow(clippy::expect_used, clippy::panic, reason = "a test that cannot go on has failed")]

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use config::{
    Config, DeploymentRef, EngineKey, GenerationProbe, KubernetesSource, LogFormat, Membership, Pin, PoolSettings, Problems, ServeArgs,
    Source, StaticLeaders, TlsVerify,
};

/// Everything that a load can see.
#[derive(Default)]
struct World {
    flags: Vec<&'static str>,
    env: Vec<(&'static str, &'static str)>,
    files: BTreeMap<PathBuf, String>,
}

impl World {
    fn file(yaml: &str) -> Self {
        let mut world = Self { flags: vec!["--config", "c.yaml"], ..Self::default() };
        world.files.insert("c.yaml".into(), yaml.to_owned());
        world
    }

    fn flags(mut self, flags: &[&'static str]) -> Self {
        self.flags.extend(flags);
        self
    }

    fn env(mut self, name: &'static str, value: &'static str) -> Self {
        self.env.push((name, value));
        self
    }

    fn with(mut self, path: &str, text: &str) -> Self {
        self.files.insert(path.into(), text.to_owned());
        self
    }

    fn load(&self) -> Result<Config, Problems> {
        let args = ServeArgs::try_parse(self.flags.iter()).expect("flags");
        let env = |name: &str| self.env.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        Config::load(&args, env, |path| self.read(path))
    }

    fn read(&self, path: &Path) -> io::Result<String> {
        if path == Path::new("folder") {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        self.files.get(path).cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn config(&self) -> Config {
        self.load().unwrap_or_else(|problems| panic!("{problems}"))
    }
}

/// The problems of `world` are exactly `expect`: each a whole line up to the part that says what would be right.
fn problems(world: &World, expect: &[&str]) {
    let found = world.load().err().unwrap_or_default().to_string();
    let found: Vec<_> = found.lines().map(|line| line.rsplit_once("; ").map_or(line, |(wrong, _)| wrong)).collect();
    assert_eq!(found, expect);
}

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_mins(1);
const MIB: usize = 1 << 20;

#[test]
fn defaults_are_as_promised() {
    let config = World::default().config();
    assert_eq!(config, Config::default());
    assert_eq!((config.listen.to_string(), config.admin.to_string()), ("0.0.0.0:8080".into(), "0.0.0.0:9090".into()));
    assert!(config.workers >= 1);
    assert_eq!(config.source, Source::Kubernetes(KubernetesSource::default()));
    assert_eq!(config.membership, Membership::Strict);
    assert_eq!((config.log.format, config.log.level.as_str(), config.log.access), (LogFormat::Json, "info", true));
    assert_eq!((config.limits.body_bytes, config.limits.body_bytes_total, config.limits.connections), (128 << 20, 1 << 30, 16_384));
    assert_eq!(config.cors.allow_origins, ["*"]);
    let pool = config.pool("any");
    assert_eq!(**pool, PoolSettings::default());
    let clocks = &pool.clocks;
    assert_eq!((clocks.connect, clocks.first_event, clocks.response, clocks.idle), (2 * SECOND, 10 * MINUTE, 60 * MINUTE, 10 * MINUTE));
    let hold = &pool.hold;
    assert_eq!((hold.timeout, hold.timeout_unary, hold.timeout_nothing), (30 * MINUTE, 5 * MINUTE, 5 * SECOND));
    assert_eq!((hold.heartbeat_after, hold.release), (5 * SECOND, 4));
    let resume = &pool.resume;
    assert_eq!((resume.enabled, resume.max_moves, resume.token_ids), (true, 3, false));
    assert_eq!((resume.text_bytes, resume.request_bytes, resume.total_bytes), (65_536, MIB, 256 * MIB));
    assert_eq!((pool.probe.misses, pool.probe.generation, pool.tls.verify), (3, GenerationProbe::On, TlsVerify::None));
}

#[test]
fn files_that_say_nothing_are_fine() {
    for yaml in ["", "\n\n", "# nothing yet\n", "---\n", "\u{feff}", "{}", "hold:\npools:\nnames:\n  pins:\n", "pools:\n  demo:\n"] {
        let config = World::file(yaml).config();
        assert_eq!((config.listen, &*config.defaults), (Config::default().listen, &PoolSettings::default()), "{yaml:?}");
    }
}

#[test]
fn a_stronger_layer_wins() {
    let base = "listen: 127.0.0.1:1\nhold: { timeout: 1min }\nnamespace: [a, b]\n";
    let listen = |world: World| world.config().listen.port();
    assert_eq!(listen(World::file(base)), 1);
    assert_eq!(listen(World::file(base).env("LEADGATE_LISTEN", "127.0.0.1:2")), 2);
    assert_eq!(listen(World::file(base).env("LEADGATE_LISTEN", "")), 1);
    assert_eq!(listen(World::file(base).env("LEADGATE_LISTEN", "127.0.0.1:2").flags(&["--listen", "127.0.0.1:3"])), 3);
    let config = World::file(base).env("LEADGATE_HOLD_TIMEOUT", "2min").flags(&["--body-limit", "1MiB"]).config();
    assert_eq!((config.defaults.hold.timeout, config.limits.body_bytes), (2 * MINUTE, 1 << 20));
    let named = World { env: vec![("LEADGATE_CONFIG", "c.yaml")], ..World::default() }.with("c.yaml", base);
    assert_eq!(listen(named), 1);
}

#[test]
fn pools_differ_only_where_they_say_so() {
    let yaml = "
clocks: { idle: 1min }
engine_key: { file: key, forward: true }
pools:
  demo-chat:
    clocks: { connect: 1s }
    engine_key: { file: null, forward: false }
  meta/llama-3.1:
    engine_key: { file: other }
    resume: { enabled: off }
";
    let config = World::file(yaml).with("key", "sesame\n").with("other", "x").flags(&["--clocks-idle", "2min"]).config();
    let demo = config.pool("demo-chat");
    assert_eq!((demo.clocks.connect, demo.clocks.idle, &demo.engine_key), (SECOND, 2 * MINUTE, &None));
    let llama = config.pool("meta/llama-3.1");
    assert_eq!(llama.engine_key, Some(EngineKey { file: "other".into(), forward: true }));
    assert!(!llama.resume.enabled && config.pool("unknown").resume.enabled);
}

#[test]
fn parts_of_the_engine_key_come_from_different_layers() {
    let config = World::file("engine_key: { forward: true }").env("LEADGATE_ENGINE_KEY_FILE", "key").with("key", "k").config();
    assert_eq!(config.defaults.engine_key, Some(EngineKey { file: "key".into(), forward: true }));
}

#[test]
fn names_have_rules() {
    let yaml = "
names:
  pins: { a: team-a, b: team-b/big.chat }
  merge: [{ model: c, deployments: [x/one, y/two] }]
  default_to_only_pool: yes
";
    let names = World::file(yaml).config().names;
    let deployment = |namespace: &str, name: &str| DeploymentRef { namespace: namespace.into(), name: name.into() };
    assert_eq!(names.pins["a"], Pin::Namespace("team-a".into()));
    assert_eq!(names.pins["b"], Pin::Deployment(deployment("team-b", "big.chat")));
    assert_eq!(names.merge[0].deployments, [deployment("x", "one"), deployment("y", "two")]);
    assert!(names.default_to_only_pool);
}

#[test]
fn the_source_is_the_strongest_layers_choice() {
    let check = |world: World, expect: Source| assert_eq!(world.config().source, expect);
    let kubernetes = |namespaces: &[&str], all: bool, kubeconfig: Option<&str>| {
        let namespaces = namespaces.iter().map(|&name| name.to_owned()).collect();
        Source::Kubernetes(KubernetesSource { kubeconfig: kubeconfig.map(PathBuf::from), namespaces, all_namespaces: all })
    };
    let leaders = |entries: &[(&str, &[&str])]| {
        let entry = |(model, urls): &(&str, &[&str])| StaticLeaders {
            model: (*model).to_owned(),
            urls: urls.iter().map(|&url| url.to_owned()).collect(),
        };
        Source::Leaders(entries.iter().map(entry).collect())
    };
    check(World::file("namespace: a"), kubernetes(&["a"], false, None));
    check(World::file("namespace: [a, b]").flags(&["--namespace", "c", "--namespace", "d,e"]), kubernetes(&["c", "d", "e"], false, None));
    check(World::file("namespace: a").flags(&["--all-namespaces"]), kubernetes(&[], true, None));
    check(World::file("all_namespaces: true").env("LEADGATE_NAMESPACE", "a, b"), kubernetes(&["a", "b"], false, None));
    check(World::file("kubeconfig: kube\nnamespace: a").with("kube", ""), kubernetes(&["a"], false, Some("kube")));
    check(World::file("manifests: folder"), Source::Manifests("folder".into()));
    check(World::file("manifests: folder\nall_namespaces: false"), Source::Manifests("folder".into()));
    check(World::file("leaders: ['a=http://h:1']").flags(&["--manifests", "folder"]), Source::Manifests("folder".into()));
    check(World::file("manifests: folder").env("LEADGATE_NAMESPACE", "x"), kubernetes(&["x"], false, None));
    check(
        World::default().flags(&["--leaders", "a=http://h:1,http://h:2", "--leaders", "*=https://[::1]:3"]),
        leaders(&[("a", &["http://h:1", "http://h:2"]), ("*", &["https://[::1]:3"])]),
    );
    let two: &[(&str, &[&str])] = &[("a", &["http://h:1", "http://h:2"]), ("b", &["http://h:3"])];
    check(World::default().env("LEADGATE_LEADERS", "a=http://h:1,http://h:2,b=http://h:3"), leaders(two));
    check(World::file("leaders: { a: ['http://h:1', 'http://h:2'], b: 'http://h:3' }"), leaders(two));
    check(World::file("leaders: 'a=http://h'"), leaders(&[("a", &["http://h:80"])]));
}

#[test]
fn every_problem_is_named_with_its_place() {
    let yaml = "\
listen: nowhere
hold:
  timout: 1s
  timeout: soon
  timeout_unary: 2
pools:
  demo-chat:
    clocks: { connect: 0s }
    limits: { connections: 1 }
  meta/llama-3.1:
    clocks: 5
clocks: [1, 2]
listen: 127.0.0.1:1
";
    let expect = [
        "listen: the key stands twice (line 13)",
        "hold.timout: unknown key (line 3)",
        "clocks: is a list (line 12)",
        "pools.demo-chat.limits: unknown key (line 9)",
        "pools.\"meta/llama-3.1\".clocks: is a single value (line 11)",
        "listen: \"nowhere\" is no address (line 1)",
        "hold.timeout: \"soon\" is no duration (line 4)",
        "hold.timeout_unary: \"2\" is no duration (line 5)",
        "LEADGATE_RESUME_STALL: \"x\" is no duration",
        "--retry-ratio: \"2\" is no number from 0 to 1",
        "pools.demo-chat.clocks.connect: 0s is out of bounds (line 8)",
    ];
    problems(&World::file(yaml).env("LEADGATE_RESUME_STALL", "x").flags(&["--retry-ratio", "2"]), &expect);
}

#[test]
fn single_values_have_bounds() {
    let check = |yaml: &str, expect: &str| problems(&World::file(yaml), &[expect]);
    check("workers: 0", "workers: \"0\" is not possible (line 1)");
    check("workers: many", "workers: \"many\" is not possible (line 1)");
    check("workers: -1", "workers: \"-1\" is not possible (line 1)");
    check("workers: 1.5", "workers: \"1.5\" is not possible (line 1)");
    check("workers: 18446744073709551615", "workers: \"18446744073709551615\" is not possible (line 1)");
    check("membership: Strict", "membership: \"Strict\" is not known here (line 1)");
    check("listen: 8080", "listen: \"8080\" is no address (line 1)");
    check("listen:", "listen: has no value (line 1)");
    check("log: { level: '' }", "log.level: is empty (line 1)");
    check("log: { level: 'info,discovery=loud' }", "log.level: \"discovery=loud\" is no level");
    check("log: { access_sample: .nan }", "log.access_sample: \".nan\" is no number from 0 to 1 (line 1)");
    check("retry: { attempts: 0 }", "retry.attempts: \"0\" is not possible (line 1)");
    check("retry: { ratio: -0.1 }", "retry.ratio: \"-0.1\" is no number from 0 to 1 (line 1)");
    check("resume: { enabled: maybe }", "resume.enabled: \"maybe\" is neither true nor false (line 1)");
    check("limits: { header_bytes: 1KiB }", "limits.header_bytes: 1KiB is out of bounds (line 1)");
    check("limits: { body_bytes: 99999999TiB }", "limits.body_bytes: \"99999999TiB\" is no size (line 1)");
    check("clocks: { idle: 400d }", "clocks.idle: 400d is out of bounds (line 1)");
    check("probe: { serving_interval: 0 }", "probe.serving_interval: 0 is out of bounds (line 1)");
    check("namespace: [Nope]", "namespace: \"Nope\" is no namespace name (line 1)");
    check("namespace: [a, a]", "namespace: \"a\" is listed twice (line 1)");
    check("namespace: 1e3", "namespace[0]: 1000 is no text for YAML (line 1)");
    check("names: { pins: { a: 0x1f } }", "names.pins.a: 31 is no text for YAML (line 1)");
    check("tls: { server_name: 1.10 }", "tls.server_name: 1.1 is no text for YAML (line 1)");
    check("namespace: [a, [b]]", "namespace[1]: is a list (line 1)");
    check("log: { level: \"\\e[31m\\n\" }", "log.level: \"\\u{1b}[31m\" is no level");
    check("[]", "the file: is a list (line 1)");
    check("text", "the file: is a single value (line 1)");
    check("? [a]\n: 1\n", "c.yaml: line 1, column 3: not readable as YAML: expected string scalar");
}

#[test]
fn settings_must_fit_together() {
    let check = |yaml: &str, expect: &str| problems(&World::file(yaml).with("empty", " \n").with("two", "a b"), &[expect]);
    check("admin: 127.0.0.1:8080", "admin: 127.0.0.1:8080 collides with listen 0.0.0.0:8080");
    check("cors: { allow_credentials: true }", "cors.allow_credentials: is on with the origin *");
    check("cors: { allow_origins: ['*', 'https://a.b'] }", "cors.allow_origins: * stands beside others");
    check("cors: { allow_origins: ['https://a.b/x'] }", "cors.allow_origins: \"https://a.b/x\" is not possible");
    check("cors: { allow_methods: ['GET POST'] }", "cors.allow_methods: \"GET POST\" is not possible");
    check("limits: { body_bytes_total: 1MiB }", "limits.body_bytes_total: is smaller than limits.body_bytes");
    check("resume: { total_bytes: 1MiB }", "resume.text_bytes: is, with resume.request_bytes, more than resume.total_bytes");
    check("routes: { extra: [/v1/load_lora_adapter] }", "routes.extra: \"/v1/load_lora_adapter\" controls the engine");
    check("log: { access_fields: [path, path] }", "log.access_fields: \"path\" is listed twice");
    check("log: { access_fields: [prompt] }", "log.access_fields: \"prompt\" is no field of the access line");
    check("kubeconfig: gone", "kubeconfig: gone: entity not found");
    check("manifests: gone", "manifests: gone: entity not found");
    check("manifests: empty", "manifests: empty is a file");
    check("engine_key: { file: gone }", "engine_key.file: gone: entity not found");
    check("engine_key: { file: empty }", "engine_key.file: the file is empty");
    check("engine_key: { file: two }", "engine_key.file: the file holds more than one word of plain ASCII");
    check("pools: { a: { engine_key: { file: gone } } }", "pools.a.engine_key.file: gone: entity not found");
    check("pools: { a: { engine_key: { forward: true } } }", "pools.a.engine_key.forward: is on, but there is no key");
    check("tls: { verify: full, ca_file: two }", "tls.ca_file: two holds no certificate");
    problems(&World::default().flags(&["--config", "gone"]), &["gone: cannot be read: entity not found"]);
}

#[test]
fn sources_exclude_each_other_within_a_layer() {
    let two = |first: &str, second: &str| format!("{first}: given together with {second}: two discovery sources");
    let in_file = format!("{} (line 1)", two("manifests", "leaders"));
    problems(&World::file("manifests: folder\nleaders: ['a=http://h:1']"), &[&in_file]);
    problems(&World::default().flags(&["--namespace", "a", "--manifests", "folder"]), &[&two("--namespace", "--manifests")]);
    let env = World::default().env("LEADGATE_ALL_NAMESPACES", "true").env("LEADGATE_LEADERS", "a=http://h:1");
    problems(&env, &[&two("LEADGATE_ALL_NAMESPACES", "LEADGATE_LEADERS")]);
    problems(&World::file("namespace: a\nall_namespaces: true"), &["namespace: given together with all_namespaces (line 1)"]);
}

#[test]
fn leaders_are_checked() {
    let check = |flag: &'static str, expect: &[&str]| problems(&World::default().flags(&["--leaders", flag]), expect);
    check("http://h:1", &["--leaders: \"http://h:1\" names no model"]);
    check("", &["--leaders: is empty"]);
    check(",", &["--leaders: names no leader"]);
    check("=http://h:1", &["--leaders: the model name is empty"]);
    check("a=http://h:1/v1", &["--leaders: \"http://h:1/v1\" has a path; requests keep their own"]);
    check("a=ws://h:1", &["--leaders: \"ws://h:1\" has a scheme other than http and https"]);
    check("a=http://h:1,http://H:1", &["--leaders: http://h:1 is given twice"]);
    check("a=http://h:1,b=http://h:1,a=http://h:2", &["--leaders: the model \"a\" is given twice"]);
}

#[test]
fn name_rules_are_checked() {
    let check = |yaml: &str, expect: &[&str]| problems(&World::file(yaml), expect);
    check("names: { pins: [a] }", &["names.pins: is a list (line 1)"]);
    check("names: { pins: { a: B } }", &["names.pins.a: \"B\" is no namespace name (line 1)"]);
    check("names: { pins: { a: b/ } }", &["names.pins.a: \"b/\" is no deployment (line 1)"]);
    check("names: { merge: { a: b } }", &["names.merge: is a section (line 1)"]);
    check("names: { merge: [a] }", &["names.merge[0]: is a single value (line 1)"]);
    check("names: { merge: [{}] }", &["names.merge[0]: has no model (line 1)", "names.merge[0]: has no deployments (line 1)"]);
    check("names: { merge: [{ model: a, deployments: [b/c] }] }", &["names.merge[0].deployments: lists 1 deployment(s) (line 1)"]);
    check(
        "names: { merge: [{ model: a, deployments: [b/c, b/c], x: 1 }] }",
        &["names.merge[0].x: unknown key (line 1)", "names.merge[0].deployments: b/c is listed twice (line 1)"],
    );
    check(
        "names: { pins: { a: b }, merge: [{ model: a, deployments: [b/c, b/d] }, { model: a, deployments: [b/e, b/f] }] }",
        &[
            "names.merge[0]: \"a\" is pinned by names.pins too (line 1)",
            "names.merge[1]: \"a\" is pinned by names.pins too (line 1)",
            "names.merge[1]: \"a\" is merged twice (line 1)",
        ],
    );
}

#[test]
fn problems_say_what_would_be_right() {
    let world = World::file("hold:\n  timout: 1s\nall-namespaces: true\nzebra: 1\nclocks: { connect: 2 }\n");
    let text = world.load().expect_err("problems").to_string();
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines[0], "hold.timout: unknown key (line 2); did you mean timeout?");
    assert_eq!(lines[1], "all-namespaces: unknown key (line 3); did you mean all_namespaces?");
    assert!(lines[2].starts_with("zebra: unknown key (line 4); known here: listen, admin, workers"), "{}", lines[2]);
    assert_eq!(lines[3], "clocks.connect: \"2\" is no duration (line 5); write a number with a unit: 250ms, 2s, 10min, 1h");
}
