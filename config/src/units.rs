//! Durations and sizes as people write them: `250ms`, `2s`, `10min`, `1h`; `64KiB`, `1MiB`.
//!
//! Owns: both directions (text to value, value to text), safe against overflow. Must not: know what a value is for or its bounds.
//! Next step of the path: `read` compares the value with the setting's bounds.

use std::time::Duration;

const NANOS: [(&str, u64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("min", 60_000_000_000),
    ("h", 3_600_000_000_000),
    ("d", 86_400_000_000_000),
];

const BYTES: [(&str, u64); 10] = [
    ("B", 1),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("kB", 1_000),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
];

/// What a duration looks like, for messages.
pub(crate) const DURATION_FORM: &str = "a number with a unit: 250ms, 2s, 10min, 1h";

/// What a size looks like, for messages.
pub(crate) const SIZE_FORM: &str = "a number with a unit: 512B, 64KiB, 1MiB, 2GiB";

/// `1h`, `1h30min`, `1.5s`; a bare `0` needs no unit. `None` for anything else, also where the sum does not fit 64 bits of nanoseconds.
pub(crate) fn duration(text: &str) -> Option<Duration> {
    let text = text.trim();
    if text == "0" {
        return Some(Duration::ZERO);
    }
    let mut rest = text;
    let mut total: u64 = 0;
    while !rest.is_empty() {
        let (value, after) = part(rest, &NANOS)?;
        total = total.checked_add(value)?;
        rest = after.trim_start();
    }
    if text.is_empty() { None } else { Some(Duration::from_nanos(total)) }
}

/// `64KiB`, `1.5MiB`; a bare `0` needs no unit. `None` for anything else, also where it does not fit 64 bits.
pub(crate) fn size(text: &str) -> Option<u64> {
    let text = text.trim();
    if text == "0" {
        return Some(0);
    }
    let (value, rest) = part(text, &BYTES)?;
    rest.is_empty().then_some(value)
}

/// The shortest exact text of a duration.
pub(crate) fn duration_text(value: Duration) -> String {
    let nanos = value.as_nanos();
    let units: [(&str, u128); 7] = [
        ("d", 86_400_000_000_000),
        ("h", 3_600_000_000_000),
        ("min", 60_000_000_000),
        ("s", 1_000_000_000),
        ("ms", 1_000_000),
        ("us", 1_000),
        ("ns", 1),
    ];
    exact(nanos, &units).unwrap_or_else(|| "0s".to_owned())
}

/// The shortest exact text of a size.
pub(crate) fn size_text(value: u64) -> String {
    let units: [(&str, u128); 5] = [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];
    exact(u128::from(value), &units).unwrap_or_else(|| "0B".to_owned())
}

fn exact(value: u128, units: &[(&str, u128)]) -> Option<String> {
    let (unit, scale) = units.iter().find(|(_, scale)| value != 0 && value.is_multiple_of(*scale))?;
    Some(format!("{}{unit}", value / scale))
}

/// One number with its unit from the front of `text`, and what follows.
fn part<'a>(text: &'a str, units: &[(&str, u64)]) -> Option<(u64, &'a str)> {
    let number_end = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let (number, rest) = text.split_at(number_end);
    let rest = rest.trim_start();
    let unit_end = rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len());
    let (unit, rest) = rest.split_at(unit_end);
    let scale = units.iter().find(|(name, _)| *name == unit)?.1;
    Some((scaled(number, scale)?, rest))
}

/// `number` (digits with at most one point) times `scale`; the part below one is cut off.
fn scaled(number: &str, scale: u64) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    if whole.is_empty() || fraction.is_empty() || fraction.contains('.') || fraction.len() > 9 {
        return None;
    }
    let whole: u128 = whole.parse().ok()?;
    let digits: u128 = fraction.parse().ok()?;
    let below_one = u128::from(scale).checked_mul(digits)? / 10_u128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let sum = whole.checked_mul(u128::from(scale))?.checked_add(below_one)?;
    u64::try_from(sum).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        let check = |text: &str, millis: Option<u64>| assert_eq!(duration(text), millis.map(Duration::from_millis), "{text:?}");
        check("250ms", Some(250));
        check("2s", Some(2_000));
        check("1.5s", Some(1_500));
        check("10min", Some(600_000));
        check("10m", Some(600_000));
        check("1h", Some(3_600_000));
        check("1h30min", Some(5_400_000));
        check("1h 30min", Some(5_400_000));
        check(" 2 s ", Some(2_000));
        check("7d", Some(604_800_000));
        check("0", Some(0));
        check("0s", Some(0));
        for bad in ["", "5", "s", "-1s", "1.s", ".5s", "1..5s", "1sec", "1 h 30", "soon", "∞", "1h∞", "999999999999999999999h", "99999999h"]
        {
            check(bad, None);
        }
    }

    #[test]
    fn sizes() {
        let check = |text: &str, bytes: Option<u64>| assert_eq!(size(text), bytes, "{text:?}");
        check("512B", Some(512));
        check("64KiB", Some(65_536));
        check("1.5MiB", Some(1_572_864));
        check("1 GiB", Some(1_073_741_824));
        check("10kB", Some(10_000));
        check("10MB", Some(10_000_000));
        check("0", Some(0));
        check("16777215TiB", Some(16_777_215 << 40));
        for bad in ["", "64", "64K", "64kib", "1MiB1KiB", "-1KiB", "16777216TiB", "99999999999999999999999999999999999999999TiB"] {
            check(bad, None);
        }
    }

    #[test]
    fn texts_are_read_back() {
        for value in [0, 1, 1_000_000, 1_500_000_000, 7_200_000_000_000, 86_400_000_000_000 * 365] {
            let value = Duration::from_nanos(value);
            assert_eq!(duration(&duration_text(value)), Some(value));
        }
        for value in [0, 1, 65_536, 65_537, 1 << 30, u64::MAX] {
            assert_eq!(size(&size_text(value)), Some(value));
        }
    }
}
