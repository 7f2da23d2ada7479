//! Prints docs/config.md: `cargo run -p config --example reference > docs/config.md`.

use std::io::Write;

fn main() -> std::io::Result<()> {
    std::io::stdout().write_all(config::reference().as_bytes())
}
