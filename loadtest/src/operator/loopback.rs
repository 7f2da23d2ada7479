//! Addresses for simulated Pods: each process claims one `127.X.0.0/16` and hands out its addresses one after the other.
//!
//! Every simulated engine listens on the same port, as real ones do, so two processes must not hand out one address. A lock on a file in
//! the temporary folder, one for each X, keeps them apart; the kernel releases it when the process ends, however it ends.

use std::fs::File;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU32, Ordering};

/// The second octets that are handed out. Service addresses of test clusters are in 127.96.0.0/16, which is left out.
const OCTETS: std::ops::RangeInclusive<u8> = 100..=239;

/// Host parts of one claim: 127.X.1.1 upwards, never ending in 0 or 255.
const HOSTS: u32 = 254 * 254;

/// A claimed range. Clones share it by reference; dropping the last one gives the range back.
#[derive(Debug)]
pub struct Loopback {
    octet: u8,
    next: AtomicU32,
    // Held for its lock only.
    _lock: File,
}

impl Loopback {
    /// Claims a range that no other process holds.
    ///
    /// # Errors
    /// When the temporary folder is not writable, or all 140 ranges are in use.
    pub fn claim() -> std::io::Result<Self> {
        for octet in OCTETS {
            let path = std::env::temp_dir().join(format!("leadgate-loopback-{octet}.lock"));
            let lock = File::options().create(true).append(true).open(path)?;
            if lock.try_lock().is_ok() {
                return Ok(Self { octet, next: AtomicU32::new(0), _lock: lock });
            }
        }
        Err(std::io::Error::other("every loopback range is in use by another process"))
    }

    /// An address that this claim has not handed out before, until 64516 of them are gone; then the first come again.
    pub fn next(&self) -> Ipv4Addr {
        let host = self.next.fetch_add(1, Ordering::Relaxed) % HOSTS;
        let [low, high] = [host % 254, host / 254].map(|part| u8::try_from(part + 1).unwrap_or(1));
        Ipv4Addr::new(127, self.octet, high, low)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn claims_and_addresses_are_distinct() {
        let (one, two) = (Loopback::claim().unwrap(), Loopback::claim().unwrap());
        let addresses: BTreeSet<_> = (0..600).flat_map(|_| [one.next(), two.next()]).collect();
        assert_eq!(addresses.len(), 1200);
        assert!(addresses.iter().all(|address| address.is_loopback() && !matches!(address.octets()[3], 0 | 255)));
    }
}
