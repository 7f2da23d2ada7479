//! Arbitrary text never panics and never hangs: bytes at random, and pieces of real configurations put together at random.

#![allow(clippy::expect_used, clippy::panic, reason = "a test that cannot go on has failed")]

use config::{Config, ServeArgs};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

const PIECES: &[&str] = &[
    "listen",
    "hold",
    "timeout",
    "pools",
    "demo",
    "clocks",
    "connect",
    "names",
    "pins",
    "merge",
    "model",
    "deployments",
    "leaders",
    "namespace",
    ": ",
    ":\n",
    "\n",
    "\n  ",
    "\n    ",
    "- ",
    "[",
    "]",
    "{",
    "}",
    ", ",
    "\"",
    "'",
    "|",
    ">",
    "&a ",
    "*a",
    "<<: ",
    "!!int ",
    "? ",
    "# ",
    "---\n",
    "...\n",
    "~",
    "null",
    "true",
    "1s",
    "99999999999999999999h",
    "64KiB",
    "-1",
    "0x1F",
    "1e999",
    ".inf",
    "http://h:1",
    "a=http://h:1",
    "ns/name",
    "\u{feff}",
    "\u{0}",
    "é",
    "🦀",
    "\t",
    "%YAML 1.2\n",
    "\\u0000",
    "*",
    "/",
    "..",
];

/// Loads `text` as the file, as a variable and as a flag.
fn load(text: &str) {
    let args = ServeArgs::try_parse(["--config", "c"]).expect("flags");
    let problems = Config::load(&args, |_| None, |_| Ok(text.to_owned())).err().unwrap_or_default().to_string();
    assert!(!problems.contains('\u{1b}'));
    drop(Config::load(&ServeArgs::default(), |name| (name != "LEADGATE_CONFIG").then(|| text.to_owned()), |_| Ok(text.to_owned())));
    if let Ok(args) = ServeArgs::try_parse([format!("--leaders={text}"), format!("--hold-timeout={text}"), format!("--namespace={text}")]) {
        drop(Config::load(&args, |_| None, |_| Ok(text.to_owned())));
    }
}

#[test]
fn pieces_at_random() {
    for seed in 0..500 {
        let mut random = StdRng::seed_from_u64(seed);
        let length = random.random_range(0..40);
        let text: String = (0..length).filter_map(|_| PIECES.choose(&mut random).copied()).collect();
        load(&text);
    }
}

#[test]
fn characters_at_random() {
    for seed in 0..500 {
        let mut random = StdRng::seed_from_u64(seed);
        let length = random.random_range(0..80);
        let wide = seed % 2 == 0;
        let text: String =
            (0..length).map(|_| if wide { random.random::<char>() } else { char::from(random.random_range(0..128_u8)) }).collect();
        load(&text);
    }
}
