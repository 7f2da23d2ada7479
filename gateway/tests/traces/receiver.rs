//! Where traces arrive: a receiver on a real socket that decodes what OTLP says.

use std::convert::Infallible;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::{Buf, Bytes};
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use rustls::ServerConfig;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

/// What a collector has received.
#[derive(Clone)]
pub struct Received(Arc<Mutex<Vec<Span>>>, watch::Sender<usize>);

impl Received {
    fn take(&self, message: &[u8]) {
        let request = ExportTraceServiceRequest::decode(message).unwrap();
        let mut held = self.0.lock().unwrap();
        for resource in request.resource_spans {
            let attributes = resource.resource.unwrap().attributes;
            assert!(attributes.iter().any(|a| a.key == "service.name"), "{attributes:?}");
            held.extend(resource.scope_spans.into_iter().flat_map(|s| s.spans));
        }
        self.1.send_replace(held.len());
    }

    /// Spans so far.
    pub fn count(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    /// All spans, once there are `count`.
    pub async fn wait(&self, count: usize) -> Vec<Span> {
        let mut seen = self.1.subscribe();
        tokio::time::timeout(Duration::from_secs(30), seen.wait_for(|n| *n >= count)).await.expect("spans in time").unwrap();
        self.0.lock().unwrap().clone()
    }
}

/// A collector on a port of its own; `grpc`: unary calls with their framing, else HTTP/1.1.
pub async fn collector(grpc: bool, tasks: &mut JoinSet<()>) -> (String, Received) {
    listen(grpc, None, tasks).await
}

/// The same behind TLS. Writes the certificate that it shows to `certificate`, as PEM.
pub async fn tls_collector(grpc: bool, certificate: &Path, tasks: &mut JoinSet<()>) -> (String, Received) {
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    std::fs::write(certificate, made.cert.pem()).unwrap();
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let mut config = builder.with_no_client_auth().with_single_cert(vec![made.cert.der().clone()], key).unwrap();
    config.alpn_protocols = vec![if grpc { b"h2".to_vec() } else { b"http/1.1".to_vec() }];
    listen(grpc, Some(TlsAcceptor::from(Arc::new(config))), tasks).await
}

async fn listen(grpc: bool, tls: Option<TlsAcceptor>, tasks: &mut JoinSet<()>) -> (String, Received) {
    let received = Received(Arc::default(), watch::channel(0).0);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let scheme = if tls.is_some() { "https" } else { "http" };
    let url = format!("{scheme}://{}", listener.local_addr().unwrap());
    let kept = received.clone();
    tasks.spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((socket, _)) = listener.accept().await {
            let (kept, tls) = (kept.clone(), tls.clone());
            connections.spawn(async move {
                let Some(tls) = tls else { return connection(socket, grpc, kept).await };
                // A client that does not trust the certificate ends here.
                if let Ok(socket) = tls.accept(socket).await {
                    connection(socket, grpc, kept).await;
                }
            });
        }
    });
    (url, received)
}

async fn connection(socket: impl AsyncRead + AsyncWrite + Send + Unpin + 'static, grpc: bool, received: Received) {
    let service = service_fn(move |request| answer(request, grpc, received.clone()));
    let socket = TokioIo::new(socket);
    if grpc {
        drop(http2::Builder::new(TokioExecutor::new()).serve_connection(socket, service).await);
    } else {
        drop(http1::Builder::new().serve_connection(socket, service).await);
    }
}

type Answer = http_body_util::combinators::UnsyncBoxBody<Bytes, Infallible>;

async fn answer(request: Request<Incoming>, grpc: bool, received: Received) -> Result<Response<Answer>, Infallible> {
    let path = request.uri().path().to_owned();
    let mut body = request.into_body().collect().await.unwrap().to_bytes();
    if !grpc {
        assert_eq!(path, "/v1/traces");
        received.take(&body);
        return Ok(Response::new(Full::default().boxed_unsync()));
    }
    assert_eq!(path, "/opentelemetry.proto.collector.trace.v1.TraceService/Export");
    assert_eq!(body.get_u8(), 0, "not compressed");
    assert_eq!(usize::try_from(body.get_u32()).unwrap(), body.len());
    received.take(&body);
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static("0"));
    let frames = [Ok(Frame::data(Bytes::from_static(&[0, 0, 0, 0, 0]))), Ok(Frame::trailers(trailers))];
    let mut response = Response::new(StreamBody::new(futures_util::stream::iter(frames)).boxed_unsync());
    response.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc"));
    Ok(response)
}
