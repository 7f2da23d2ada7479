//! Refuses what no setting owns: unknown keys, repeated keys, values where a section belongs.
//!
//! Owns: the walk over the whole tree, and the hint at what was meant. Must not: look at values.
//! Next step of the path: none; `load` runs it beside the reading of values.

use std::collections::BTreeSet;

use crate::node::{Content, Node};
use crate::problem::{Place, Problems, join};
use crate::setting::Setting;
use crate::settings;

/// Checks every key of a file.
pub(crate) fn check(root: &Node, problems: &mut Problems) {
    repeated(root, &Place::default(), problems);
    let process: Vec<_> = settings::all().collect();
    section(root, "", &Place::default(), &process, problems);
    let pool: Vec<_> = settings::all().filter(|setting| setting.per_pool).collect();
    let Some(pools) = root.at("pools") else { return };
    let place = Place { path: "pools".to_owned(), line: pools.line };
    if !matches!(pools.content, Content::Map(_) | Content::Null) {
        problems.add(&place, format!("is {}", pools.kind()), "give a map from model name to settings");
    }
    for (model, node) in pools.entries() {
        let place = place.below(model, node.line);
        if model.trim().is_empty() {
            problems.add(&place, "the model name is empty", "name the served model");
        }
        section(node, "", &place, &pool, problems);
    }
}

/// One section: `prefix` is its path within `rows`, `place` the path that the author sees.
fn section(node: &Node, prefix: &str, place: &Place, rows: &[&Setting], problems: &mut Problems) {
    if !matches!(node.content, Content::Map(_) | Content::Null) {
        let where_ = if place.path.is_empty() { Place { path: "the file".to_owned(), line: node.line } } else { place.clone() };
        problems.add(&where_, format!("is {}", node.kind()), format!("give a section with the keys {}", known(prefix, rows).join(", ")));
        return;
    }
    for (key, value) in node.entries() {
        let path = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
        let place = place.below(key, value.line);
        if rows.iter().any(|row| row.path == path) {
            continue;
        }
        let below = format!("{path}.");
        if rows.iter().any(|row| row.path.starts_with(&below)) {
            section(value, &path, &place, rows, problems);
        } else {
            problems.add(&place, "unknown key", hint(key, &known(prefix, rows)));
        }
    }
}

/// The keys that may stand in a section, in the table's order.
fn known(prefix: &str, rows: &[&Setting]) -> Vec<&'static str> {
    let mut seen = BTreeSet::new();
    let step = |row: &&Setting| {
        let rest = if prefix.is_empty() { row.path } else { row.path.strip_prefix(prefix)?.strip_prefix('.')? };
        rest.split('.').next()
    };
    rows.iter().filter_map(step).filter(|key| seen.insert(*key)).collect()
}

fn hint(key: &str, known: &[&str]) -> String {
    let flat = |text: &str| text.to_ascii_lowercase().replace(['-', '_', ' '], "");
    let wanted = flat(key);
    let near = known.iter().map(|name| (distance(&wanted, &flat(name)), name)).min();
    match near {
        Some((far, name)) if far <= 2 && far < wanted.chars().count() => format!("did you mean {name}?"),
        _ => format!("known here: {}", known.join(", ")),
    }
}

/// Levenshtein distance; names longer than any key are simply far away.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().take(64).collect(), b.chars().take(64).collect());
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut previous = i;
        let mut left = i + 1;
        let mut next = vec![left];
        for (y, above) in b.iter().zip(row.iter().skip(1)) {
            left = (previous + usize::from(x != y)).min(above + 1).min(left + 1);
            previous = *above;
            next.push(left);
        }
        row = next;
    }
    row.last().copied().unwrap_or(0)
}

/// Names every key that stands twice in one section, wherever it is.
fn repeated(node: &Node, place: &Place, problems: &mut Problems) {
    if let Content::List(items) = &node.content {
        for (index, item) in items.iter().enumerate() {
            repeated(item, &Place { path: format!("{}[{index}]", place.path), line: item.line }, problems);
        }
    }
    let mut seen = BTreeSet::new();
    for (key, value) in node.entries() {
        if !seen.insert(key) {
            problems.add(&Place { path: join(&place.path, key), line: value.line }, "the key stands twice", "keep one of them");
        }
        repeated(value, &place.below(key, value.line), problems);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances() {
        for (a, b, expect) in
            [("", "", 0), ("abc", "", 3), ("", "abc", 3), ("timout", "timeout", 1), ("kitten", "sitting", 3), ("ab", "ba", 2)]
        {
            assert_eq!(distance(a, b), expect, "{a} {b}");
        }
    }
}
