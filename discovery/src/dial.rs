//! Dialling of a leader: one TCP connection, with TLS where the engine speaks https.
//!
//! Owns: name resolution, the connect and handshake clocks, and the words for what went wrong. Must not: pool connections, speak HTTP or
//! retry. Used by the probes (`probe`) and by the gateway's upstream pool, so that both see a leader in the same way.

mod conn;
mod expiry;
mod tls;

use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use config::UpstreamTls;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};
use tokio_rustls::TlsConnector;

pub use conn::{ByteStream, Conn};

use crate::snapshot::Address;

/// Why a leader could not be reached. Nothing of a request was sent in any of these cases.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// The name has no address, or the resolver failed.
    #[error("the name does not resolve: {0}")]
    Resolve(String),
    /// The port refuses connections: the engine is not up yet, or is gone.
    #[error("connection refused")]
    Refused,
    /// No route to the host or its network.
    #[error("host unreachable")]
    Unreachable,
    /// No answer in time: a host that swallows SYNs, or a TLS peer that does not answer.
    #[error("no answer to {0} in time")]
    Timeout(DialStep),
    /// The peer's certificate or its TLS is not acceptable, or the policy cannot be set up (a CA file that cannot be read).
    #[error("TLS: {0}")]
    Tls(String),
    /// Anything else, such as a reset during the handshake.
    #[error("connecting: {0}")]
    Io(#[source] io::Error),
}

/// Which wait of a dial ran out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DialStep {
    /// Name resolution and TCP connect.
    Connect,
    /// TLS handshake.
    Handshake,
}

impl std::fmt::Display for DialStep {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Connect => "connect",
            Self::Handshake => "the TLS handshake",
        })
    }
}

/// A connect that is under way.
pub type Connecting = Pin<Box<dyn Future<Output = io::Result<Box<dyn ByteStream>>> + Send>>;

/// Where connections are made instead of by the machine's own TCP: a simulation's network. Speaks no TLS.
pub trait Network: std::fmt::Debug + Send + Sync {
    /// Connects to `address`. The dialler bounds the wait; an error's kind says what a socket's would.
    fn connect(&self, address: &Address) -> Connecting;
}

/// Opens connections to leaders. One for the process: it keeps the TLS policies that were built.
#[derive(Debug, Default)]
pub struct Dialer {
    policies: tls::Policies,
    certificates: expiry::Expiry,
    /// `None`: TCP.
    network: Option<Arc<dyn Network>>,
}

impl Dialer {
    /// A dialer without any policy built yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// A dialler that connects by `network`, to http addresses only.
    pub fn over(network: Arc<dyn Network>) -> Self {
        Self { network: Some(network), ..Self::default() }
    }

    /// The soonest end of the certificates that engines showed in the last hour or two, in seconds since the epoch; `None`: there was none.
    pub fn certificate_expiry(&self) -> Option<i64> {
        self.certificates.soonest(SystemTime::now())
    }

    /// Connects to `address`, by TLS if it is an https one; `TCP_NODELAY` is set and ALPN offers `http/1.1` alone.
    ///
    /// `timeout` bounds resolving plus TCP connect, and then once more the TLS handshake. A name with several addresses is tried in the
    /// resolver's order; each address gets an equal share of what is left, so that one that swallows SYNs cannot use up all of it.
    /// Dropping the future closes what was opened.
    pub async fn connect(&self, address: &Address, tls: &UpstreamTls, timeout: Duration) -> Result<Conn, DialError> {
        if let Some(network) = &self.network {
            return connect_by(&**network, address, Instant::now() + timeout).await;
        }
        let tcp = connect_tcp(address, Instant::now() + timeout).await?;
        // A socket without NODELAY still works; it is only slower.
        if let Err(error) = tcp.set_nodelay(true) {
            tracing::debug!(%address, %error, "TCP_NODELAY not set");
        }
        if !address.https {
            return Ok(Conn::Plain(tcp));
        }
        let config = self.policies.get(tls)?;
        let name = tls::server_name(address, tls)?;
        let handshake = TlsConnector::from(config).connect(name, tcp);
        match timeout_at(Instant::now() + timeout, handshake).await {
            Ok(Ok(stream)) => {
                if let Some(shown) = stream.get_ref().1.peer_certificates().and_then(<[_]>::first) {
                    self.certificates.seen(shown, SystemTime::now());
                }
                Ok(Conn::Tls(Box::new(stream)))
            }
            Ok(Err(error)) => Err(tls::handshake_error(error)),
            Err(_) => Err(DialError::Timeout(DialStep::Handshake)),
        }
    }
}

async fn connect_by(network: &dyn Network, address: &Address, deadline: Instant) -> Result<Conn, DialError> {
    match timeout_at(deadline, network.connect(address)).await {
        Ok(Ok(stream)) => Ok(Conn::Other(stream)),
        Ok(Err(error)) => Err(connect_error(error)),
        Err(_) => Err(DialError::Timeout(DialStep::Connect)),
    }
}

async fn connect_tcp(address: &Address, deadline: Instant) -> Result<TcpStream, DialError> {
    let targets = resolve(address, deadline).await?;
    let mut last = DialError::Resolve("no address".to_owned());
    for (tried, target) in targets.iter().enumerate() {
        let left = deadline.saturating_duration_since(Instant::now());
        let share = left / u32::try_from(targets.len() - tried).unwrap_or(u32::MAX);
        match timeout_at(Instant::now() + share, TcpStream::connect(target)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => last = connect_error(error),
            Err(_) => last = DialError::Timeout(DialStep::Connect),
        }
    }
    Err(last)
}

async fn resolve(address: &Address, deadline: Instant) -> Result<Vec<SocketAddr>, DialError> {
    if let Ok(ip) = address.host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(ip, address.port)]);
    }
    let lookup = tokio::net::lookup_host((&*address.host, address.port));
    match timeout_at(deadline, lookup).await {
        Ok(Ok(found)) => Ok(found.collect()),
        Ok(Err(error)) => Err(DialError::Resolve(error.to_string())),
        Err(_) => Err(DialError::Timeout(DialStep::Connect)),
    }
}

// `ErrorKind` is non-exhaustive: what has no word of its own is `Io`.
#[allow(clippy::wildcard_enum_match_arm)]
fn connect_error(error: io::Error) -> DialError {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => DialError::Refused,
        io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => DialError::Unreachable,
        io::ErrorKind::TimedOut => DialError::Timeout(DialStep::Connect),
        _ => DialError::Io(error),
    }
}

#[cfg(test)]
pub(crate) mod tests;
