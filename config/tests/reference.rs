//! docs/config.md says what the code does.

use std::path::Path;

use config::{Config, ServeArgs};

#[test]
fn docs_are_up_to_date() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/config.md");
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(found == config::reference(), "run: cargo run -p config --example reference > docs/config.md");
}

/// Every YAML block of the reference loads.
#[test]
fn examples_load() {
    let text = config::reference();
    let blocks: Vec<_> = text.split("```yaml\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert!(!blocks.is_empty());
    for block in blocks {
        let args = ServeArgs::try_parse(["--config", "c.yaml"]).expect("flags");
        let read = |path: &Path| Ok(if path == Path::new("c.yaml") { block.to_owned() } else { "key".to_owned() });
        if let Err(problems) = Config::load(&args, |_| None, read) {
            panic!("{problems}\n{block}");
        }
    }
}
