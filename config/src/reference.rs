//! Renders docs/config.md from the table of settings.
//!
//! Owns: the layout of the reference and its fixed text. Must not: repeat what the table says. A test compares the rendered text with
//! the file in docs. Next step of the path: none.

use std::fmt::{self, Write};

use crate::setting::{Kind, Setting};
use crate::settings;
use crate::units::{duration_text, size_text};

/// The complete text of docs/config.md.
pub fn reference() -> String {
    let mut out = String::new();
    // Writing into a String cannot fail.
    let _ = render(&mut out);
    out
}

fn render(out: &mut String) -> fmt::Result {
    out.push_str(include_str!("reference_head.md"));
    writeln!(out, "\n## All settings")?;
    for (section, about) in settings::SECTIONS {
        let rows: Vec<_> = settings::all().filter(|row| row.section() == *section).collect();
        if section.is_empty() {
            writeln!(out, "\n### Top level\n\n{about}")?;
        } else {
            let pools = if rows.iter().all(|row| row.per_pool) { " Can be given for each pool." } else { "" };
            writeln!(out, "\n### `{section}`\n\n{about}{pools}")?;
        }
        for row in &rows {
            setting(out, row)?;
        }
    }
    Ok(())
}

fn setting(out: &mut String, row: &Setting) -> fmt::Result {
    writeln!(out, "\n#### `{}`\n\n{}\n", row.path, row.doc)?;
    writeln!(out, "- Takes {}.", takes(row.kind))?;
    match row.default {
        Some("") => writeln!(out, "- Default: empty; {}.", row.why)?,
        Some(text) => writeln!(out, "- Default: `{text}`; {}.", row.why)?,
        None => writeln!(out, "- Default: not set; {}.", row.why)?,
    }
    if let (Some(flag), Some(variable)) = (row.flag(), row.variable()) {
        writeln!(out, "- Flag `--{flag}`, environment `{variable}`.")?;
    }
    let live = if row.live { "A changed file is applied live." } else { "A changed file is applied at the next start." };
    let pool = if row.per_pool || row.section().is_empty() { "" } else { " The same for all pools." };
    writeln!(out, "- {live}{pool}")
}

fn takes(kind: Kind) -> String {
    match kind {
        Kind::Address => "`IP:PORT`".to_owned(),
        Kind::Duration { min, max } => format!("a duration from {} to {}", duration_text(min), duration_text(max)),
        Kind::Size { min, max } => format!("a size from {} to {}", size_text(min), size_text(max)),
        Kind::Count { min, max } => format!("a whole number from {min} to {max}"),
        Kind::CountOrAuto { min, max } => format!("`auto`, or a whole number from {min} to {max}"),
        Kind::Ratio => "a number from 0 to 1".to_owned(),
        Kind::Switch => "`true` or `false` (also `on`, `off`, `yes`, `no`)".to_owned(),
        Kind::Choice(words) => words().iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(" or "),
        Kind::Text => "a text".to_owned(),
        Kind::File => "the path of a file".to_owned(),
        Kind::Folder => "the path of a folder".to_owned(),
        Kind::List => "a list of texts; as flag (repeatable) and variable separated by commas".to_owned(),
        Kind::Leaders => "`MODEL=URL[,URL…]`, repeatable as a flag; in the variable the next `MODEL=` begins the next entry".to_owned(),
        Kind::Structure => "a structure, in the file only".to_owned(),
    }
}
