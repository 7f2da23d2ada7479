//! When the certificates that engines show end.
//!
//! Owns: reading the end out of a certificate, and the soonest end of those seen lately. Must not: judge a certificate (the policies in `tls`
//! do) or hold more than two numbers, however many engines there are. Next step: the gateway's metrics.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

/// A certificate counts for one to two of these after it was last seen. The probes make a handshake with every leader far more often.
const WINDOW: Duration = Duration::from_secs(3600);

/// The soonest end among certificates seen lately.
#[derive(Debug, Default)]
pub(super) struct Expiry(Mutex<Windows>);

#[derive(Debug, Default)]
struct Windows {
    begun: Option<SystemTime>,
    now: Option<i64>,
    before: Option<i64>,
}

impl Expiry {
    /// A handshake at `now` showed this certificate. One that cannot be read says nothing.
    pub(super) fn seen(&self, certificate: &[u8], now: SystemTime) {
        let Some(end) = not_after(certificate) else { return };
        let mut windows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        windows.roll(now);
        windows.now = Some(windows.now.map_or(end, |soonest| soonest.min(end)));
    }

    /// Seconds since the epoch; `None`: no certificate was seen lately.
    pub(super) fn soonest(&self, now: SystemTime) -> Option<i64> {
        let mut windows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        windows.roll(now);
        windows.now.into_iter().chain(windows.before).min()
    }
}

impl Windows {
    fn roll(&mut self, now: SystemTime) {
        let age = self.begun.map_or(Duration::MAX, |begun| now.duration_since(begun).unwrap_or_default());
        if age < WINDOW {
            return;
        }
        self.before = self.now.take().filter(|_| age < WINDOW * 2);
        self.begun = Some(now);
    }
}

/// `notAfter` of a DER certificate (RFC 5280 section 4.1), in seconds since the epoch.
fn not_after(certificate: &[u8]) -> Option<i64> {
    const SEQUENCE: u8 = 0x30;
    const VERSION: u8 = 0xa0;
    let (_, certificate, _) = value(certificate).filter(|(tag, ..)| *tag == SEQUENCE)?;
    let (_, mut rest, _) = value(certificate).filter(|(tag, ..)| *tag == SEQUENCE)?;
    // Version (optional), serial number, signature algorithm, issuer, validity.
    if value(rest)?.0 == VERSION {
        rest = value(rest)?.2;
    }
    for _ in 0..3 {
        rest = value(rest)?.2;
    }
    let (_, validity, _) = value(rest)?;
    let (tag, time, _) = value(value(validity)?.2)?;
    seconds(tag, time)
}

/// The first value: its tag, its content, and what comes behind it. Lengths of more than four bytes are no certificate's.
fn value(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = der.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = if first < 0x80 {
        (usize::from(first), rest)
    } else {
        let (bytes, rest) = rest.split_at_checked(usize::from(first & 0x7f)).filter(|(bytes, _)| bytes.len() <= 4)?;
        (bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)), rest)
    };
    let (content, behind) = rest.split_at_checked(length)?;
    Some((tag, content, behind))
}

/// UTCTime (two digits of the year, 1950 to 2049) or GeneralizedTime, both as RFC 5280 allows them: to the second, in UTC.
fn seconds(tag: u8, time: &[u8]) -> Option<i64> {
    const UTC_TIME: u8 = 0x17;
    const GENERALIZED_TIME: u8 = 0x18;
    let digits = time.strip_suffix(b"Z").filter(|digits| digits.iter().all(u8::is_ascii_digit))?;
    let pair = |at: usize| Some(i64::from(*digits.get(at)? - b'0') * 10 + i64::from(*digits.get(at + 1)? - b'0'));
    let (year, rest) = match (tag, digits.len()) {
        (UTC_TIME, 12) => (pair(0)? + if pair(0)? < 50 { 2000 } else { 1900 }, 2),
        (GENERALIZED_TIME, 14) => (pair(0)? * 100 + pair(2)?, 4),
        _ => return None,
    };
    let days = days(year, pair(rest)?, pair(rest + 2)?);
    Some(((days * 24 + pair(rest + 4)?) * 60 + pair(rest + 6)?) * 60 + pair(rest + 8)?)
}

/// Days from the epoch to a date of the Gregorian calendar. The year is counted from March, so that the leap day is its last.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let month = (month + 9) % 12;
    let since_year_zero = year * 365 + year / 4 - year / 100 + year / 400 + (month * 153 + 2) / 5 + day - 1;
    // 1 March of the year 0 to 1 January 1970.
    since_year_zero - 719_468
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    use super::*;

    fn certificate(year: i32, month: u8, day: u8) -> Vec<u8> {
        let mut params = CertificateParams::new(["engine".to_owned()]).unwrap();
        params.not_after = date_time_ymd(year, month, day);
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().to_vec()
    }

    #[test]
    fn the_end_is_read_from_real_certificates() {
        // `date -u -d DATE +%s`; the last one needs a GeneralizedTime.
        for ((year, month, day), expect) in
            [((2030, 1, 1), 1_893_456_000), ((2028, 2, 29), 1_835_395_200), ((2027, 12, 31), 1_830_211_200), ((2100, 3, 1), 4_107_542_400)]
        {
            assert_eq!(not_after(&certificate(year, month, day)), Some(expect), "{year}-{month}-{day}");
        }
    }

    #[test]
    fn what_is_no_certificate_has_no_end() {
        let whole = certificate(2030, 1, 1);
        for cut in 0..whole.len() {
            assert_eq!(not_after(&whole[..cut]), None);
        }
        for changed in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[changed] ^= 0xff;
            not_after(&bytes);
        }
        assert_eq!(seconds(0x17, b"49123123595Z"), None);
        assert_eq!(seconds(0x17, b"500101000000Z"), Some(-631_152_000));
        assert_eq!(seconds(0x18, b"20300101000000+"), None);
    }

    #[test]
    fn the_soonest_counts_until_it_is_seen_no_more() {
        let at = |minutes: u64| UNIX_EPOCH + Duration::from_secs(minutes * 60);
        let (soon, late) = (certificate(2030, 1, 1), certificate(2040, 1, 1));
        let expiry = Expiry::default();
        assert_eq!(expiry.soonest(at(0)), None);
        expiry.seen(&soon, at(1));
        expiry.seen(&late, at(2));
        assert_eq!(expiry.soonest(at(3)), not_after(&soon));
        expiry.seen(&late, at(65));
        assert_eq!(expiry.soonest(at(66)), not_after(&soon));
        expiry.seen(&late, at(130));
        assert_eq!(expiry.soonest(at(131)), not_after(&late));
        assert_eq!(expiry.soonest(at(1000)), None);
    }
}
