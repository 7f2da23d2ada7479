//! The network between the gateway and the leaders: addresses, connections in memory, refusals and lost hosts.
//!
//! Owns: which address is whose, and the wire's own fault, the reset. Must not: know HTTP. The gateway reaches it through
//! `discovery::dial::Network`.

use std::collections::BTreeMap;
use std::future::{pending, ready};
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use discovery::dial::{ByteStream, Connecting, Network};
use discovery::snapshot::Address;
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf, duplex};

use crate::leader::Leader;
use crate::mood::Port;

/// Bytes that fit on a wire in each direction.
const WIRE: usize = 16 * 1024;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Net {
    leaders: Mutex<BTreeMap<Arc<str>, Arc<Leader>>>,
    strays: Mutex<Vec<String>>,
}

impl Net {
    /// From now on `host` is this leader's.
    pub(crate) fn give(&self, host: &Arc<str>, leader: &Arc<Leader>) {
        self.leaders.lock().unwrap_or_else(PoisonError::into_inner).insert(host.clone(), leader.clone());
    }

    /// Addresses that were dialled and are no leader's.
    pub(crate) fn strays(&self) -> Vec<String> {
        self.strays.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Network for Net {
    fn connect(&self, address: &Address) -> Connecting {
        let leader = self.leaders.lock().unwrap_or_else(PoisonError::into_inner).get(&address.host).cloned();
        let Some(leader) = leader else {
            self.strays.lock().unwrap_or_else(PoisonError::into_inner).push(address.to_string());
            return Box::pin(ready(Err(io::ErrorKind::ConnectionRefused.into())));
        };
        match leader.mood().port {
            Port::Refuses => Box::pin(ready(Err(io::ErrorKind::ConnectionRefused.into()))),
            Port::Swallows => Box::pin(pending()),
            Port::Accepts => {
                let (ours, theirs) = duplex(WIRE);
                let reset = Arc::new(AtomicBool::new(false));
                leader.accept(theirs, reset.clone());
                let wire: Box<dyn ByteStream> = Box::new(Wire { io: ours, reset });
                Box::pin(ready(Ok(wire)))
            }
        }
    }
}

/// The gateway's end of a connection to a leader.
#[derive(Debug)]
struct Wire {
    io: DuplexStream,
    /// The other end closed it by a reset: what was sent and not read is lost.
    reset: Arc<AtomicBool>,
}

impl Wire {
    fn lost(&self) -> io::Result<()> {
        if self.reset.load(Ordering::Relaxed) { Err(io::ErrorKind::ConnectionReset.into()) } else { Ok(()) }
    }
}

impl AsyncRead for Wire {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.lost()?;
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl AsyncWrite for Wire {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.lost()?;
        Pin::new(&mut self.io).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}
