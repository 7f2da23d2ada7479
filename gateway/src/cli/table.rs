//! Columns, the way `kubectl get` prints them.
//!
//! Owns: widths. Must not: know what is in the cells.

/// Lines of a table: capital headings, three spaces between columns, no trailing spaces. Control characters in cells become `?`, so that
/// a name cannot speak to the terminal.
pub(super) fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let mut widths: Vec<usize> = head.iter().map(|h| h.chars().count()).collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let head: Vec<String> = head.iter().map(|h| (*h).to_owned()).collect();
    let mut out = String::new();
    for row in std::iter::once(&head).chain(rows) {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            let shown: String = cell.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
            line.push_str(&format!("{shown:<width$}   ", width = *width));
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

/// A duration in seconds as `kubectl` writes ages: `5s`, `3m20s`, `2h5m`, `3d4h`.
pub(super) fn age(seconds: f64) -> String {
    // Ages are positive and far below 2^53; a nonsensical one prints as 0.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let whole = seconds.max(0.0) as u64;
    match whole {
        0..120 => format!("{whole}s"),
        120..7200 => two(whole / 60, "m", whole % 60, "s"),
        7200..172_800 => two(whole / 3600, "h", whole % 3600 / 60, "m"),
        _ => two(whole / 86_400, "d", whole % 86_400 / 3600, "h"),
    }
}

fn two(large: u64, unit: &str, small: u64, small_unit: &str) -> String {
    if small == 0 { format!("{large}{unit}") } else { format!("{large}{unit}{small}{small_unit}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let rows = vec![vec!["a".to_owned(), "long cell".to_owned()], vec!["bb\u{1b}[2J".to_owned(), "x".to_owned()]];
        assert_eq!(table(&["ONE", "TWO"], &rows), "ONE      TWO\na        long cell\nbb?[2J   x\n");
    }

    #[test]
    fn ages() {
        let all: Vec<_> = [0.0, 119.9, 120.0, 200.0, 7500.0, 180_000.0, -1.0, f64::NAN].into_iter().map(age).collect();
        assert_eq!(all, ["0s", "119s", "2m", "3m20s", "2h5m", "2d2h", "0s", "0s"]);
    }
}
