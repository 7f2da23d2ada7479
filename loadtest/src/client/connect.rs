//! Connections: kept ones for HTTP/1.1, shared ones for HTTP/2.
//!
//! Owns the tasks that drive connections; dropping the client ends them. A kept connection that turns out dead counts as
//! a failed request, as it does for clients without retries, unless nothing was sent on it yet.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

/// Idle connections that are kept at most.
const MAX_IDLE: usize = 4096;

/// The version of HTTP that is spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// HTTP/1.1, one request at a time on a connection.
    #[default]
    H1,
    /// HTTP/2 with prior knowledge.
    H2,
}

/// Where requests go.
#[derive(Debug, Clone)]
pub struct Target {
    /// Tried in turn, one for each new connection: two gateways behind one name look like this.
    pub addresses: Vec<SocketAddr>,
    /// The `Host` or `:authority`.
    pub authority: String,
    /// The version of HTTP.
    pub protocol: Protocol,
    /// Connections that HTTP/2 requests are spread over.
    pub h2_connections: usize,
    /// Headers of every request, for example `authorization`.
    pub headers: HeaderMap,
}

impl Target {
    /// HTTP/1.1 to one address.
    pub fn at(address: SocketAddr) -> Self {
        Self {
            addresses: vec![address],
            authority: address.to_string(),
            protocol: Protocol::H1,
            h2_connections: 4,
            headers: HeaderMap::new(),
        }
    }
}

/// A request that got no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// No connection.
    #[error("no connection: {0}")]
    Connect(std::io::Error),
    /// The connection ended or broke the protocol.
    #[error("{0}")]
    Http(#[from] hyper::Error),
    /// The request cannot be written.
    #[error("{0}")]
    Request(#[from] http::Error),
}

type H1 = http1::SendRequest<Full<Bytes>>;
type H2 = http2::SendRequest<Full<Bytes>>;

/// Sends requests to one target.
#[derive(Debug)]
pub struct Client {
    target: Target,
    idle: Mutex<Vec<H1>>,
    shared: Vec<tokio::sync::Mutex<Option<H2>>>,
    turn: AtomicUsize,
    drivers: Mutex<JoinSet<()>>,
}

impl Client {
    /// A client without connections.
    pub fn new(target: Target) -> Self {
        let shared = (0..target.h2_connections.max(1)).map(|_| tokio::sync::Mutex::new(None)).collect();
        Self { target, idle: Mutex::default(), shared, turn: AtomicUsize::new(0), drivers: Mutex::default() }
    }

    /// Sends a POST with a JSON body. The lease keeps an HTTP/1.1 connection; give it back with [`Client::done`] behind
    /// a whole answer, or drop it to close the connection.
    ///
    /// # Errors
    ///
    /// If there is no connection or no answer.
    pub async fn post(&self, path: &str, id: &str, body: Bytes) -> Result<(Response<Incoming>, Lease), ClientError> {
        let mut request = Request::post(path).body(Full::new(body))?;
        *request.headers_mut() = self.target.headers.clone();
        let headers = request.headers_mut();
        headers.insert(http::header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(HeaderName::from_static("x-request-id"), HeaderValue::from_str(id).map_err(http::Error::from)?);
        match self.target.protocol {
            Protocol::H1 => self.post_h1(request).await,
            Protocol::H2 => self.post_h2(path, request).await,
        }
    }

    /// Takes a connection back, behind the last byte of its answer.
    pub fn done(&self, lease: Lease) {
        if let Lease(Some(sender)) = lease
            && !sender.is_closed()
        {
            let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
            if idle.len() < MAX_IDLE {
                idle.push(sender);
            }
        }
    }

    async fn post_h1(&self, mut request: Request<Full<Bytes>>) -> Result<(Response<Incoming>, Lease), ClientError> {
        let host = HeaderValue::from_str(&self.target.authority).map_err(http::Error::from)?;
        request.headers_mut().insert(http::header::HOST, host);
        while let Some(mut sender) = self.kept() {
            if sender.ready().await.is_err() {
                continue;
            }
            match sender.try_send_request(request).await {
                Ok(response) => return Ok((response, Lease(Some(sender)))),
                Err(mut error) => match error.take_message() {
                    // Not a byte was sent: closed by the server while idle.
                    Some(unsent) => request = unsent,
                    None => return Err(error.into_error().into()),
                },
            }
        }
        let mut sender = self.connect_h1().await?;
        let response = sender.send_request(request).await?;
        Ok((response, Lease(Some(sender))))
    }

    fn kept(&self) -> Option<H1> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(sender) = idle.pop() {
            if !sender.is_closed() {
                return Some(sender);
            }
        }
        None
    }

    async fn connect_h1(&self) -> Result<H1, ClientError> {
        let (sender, connection) = http1::handshake(TokioIo::new(self.dial().await?)).await?;
        self.drive(async move {
            // How it ended is seen by the request on it.
            let _ = connection.await;
        });
        Ok(sender)
    }

    async fn post_h2(&self, path: &str, mut request: Request<Full<Bytes>>) -> Result<(Response<Incoming>, Lease), ClientError> {
        let uri = format!("http://{}{path}", self.target.authority);
        *request.uri_mut() = uri.parse().map_err(http::Error::from)?;
        let place = &self.shared[self.turn.fetch_add(1, Relaxed) % self.shared.len()];
        let mut sender = {
            let mut kept = place.lock().await;
            match kept.as_ref().filter(|sender| !sender.is_closed()) {
                Some(sender) => sender.clone(),
                None => kept.insert(self.connect_h2().await?).clone(),
            }
        };
        Ok((sender.send_request(request).await?, Lease(None)))
    }

    async fn connect_h2(&self) -> Result<H2, ClientError> {
        let stream = TokioIo::new(self.dial().await?);
        let (sender, connection) = http2::handshake(TokioExecutor::new(), stream).await?;
        self.drive(async move {
            let _ = connection.await;
        });
        Ok(sender)
    }

    async fn dial(&self) -> Result<TcpStream, ClientError> {
        let turn = self.turn.fetch_add(1, Relaxed);
        let count = self.target.addresses.len();
        let Some(address) = self.target.addresses.get(turn % count.max(1)) else {
            return Err(ClientError::Connect(std::io::Error::other("the target has no address")));
        };
        let stream = TcpStream::connect(address).await.map_err(ClientError::Connect)?;
        stream.set_nodelay(true).map_err(ClientError::Connect)?;
        Ok(stream)
    }

    fn drive(&self, connection: impl Future<Output = ()> + Send + 'static) {
        let mut drivers = self.drivers.lock().unwrap_or_else(PoisonError::into_inner);
        while drivers.try_join_next().is_some() {}
        drivers.spawn(connection);
    }
}

/// The connection that an answer comes on.
#[derive(Debug)]
pub struct Lease(Option<H1>);
