//! What the conformance tests are built of: scripted engines, raw clients of both HTTP versions, a gateway over them, objects
//! of a deployment, a collector of traces.
//!
//! Must not: know rules, or wait without a deadline.

pub(crate) mod collector;
pub(crate) mod deployment;
pub(crate) mod engine;
pub(crate) mod gateway;
pub(crate) mod h2;
pub(crate) mod message;
pub(crate) mod script;
pub(crate) mod wire;

use std::future::Future;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU32, Ordering};

use tests::Outcome;
use tests::poll::PATIENCE;

/// Waits for `work`; an error that says `what` once the patience of tests is over.
pub(crate) async fn within<T>(what: &str, work: impl Future<Output = Outcome<T>>) -> Outcome<T> {
    tokio::time::timeout(PATIENCE, work).await.map_err(|_| format!("{what}: not within {PATIENCE:?}"))?
}

/// A loopback address that no other engine of this process has, with a free port.
pub(crate) fn own_address() -> SocketAddr {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    // 127.64.0.0/10; the process id keeps two runs apart.
    let host = (std::process::id().wrapping_mul(512).wrapping_add(number)) & 0x003f_ffff;
    (Ipv4Addr::from(0x7f40_0000 | host), 0).into()
}
