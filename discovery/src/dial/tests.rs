use std::path::PathBuf;
use std::sync::Arc;

use config::TlsVerify;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use tokio::io::{AsyncReadExt as _, AsyncWrite as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket};
use tokio_rustls::TlsAcceptor;

use super::*;
use crate::tasks::TaskSet;

/// Long enough that only a hang reaches it.
const AMPLE: Duration = Duration::from_secs(20);
/// For waits that are meant to run out.
const SHORT: Duration = Duration::from_millis(100);

/// A CA in a file, and a server certificate of it for the name `engine.test`.
pub(crate) struct Pki {
    dir: tempfile::TempDir,
    pub(crate) acceptor: TlsAcceptor,
}

impl Pki {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let acceptor = Self::issue(&dir.path().join("ca.pem"));
        Self { dir, acceptor }
    }

    pub(crate) fn ca_file(&self) -> PathBuf {
        self.dir.path().join("ca.pem")
    }

    /// Writes a new CA to `file` and returns a server with a certificate of it.
    fn issue(file: &std::path::Path) -> TlsAcceptor {
        let ca_key = KeyPair::generate().unwrap();
        let mut ca = CertificateParams::new(Vec::<String>::new()).unwrap();
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        std::fs::write(file, ca.self_signed(&ca_key).unwrap().pem()).unwrap();
        let key = KeyPair::generate().unwrap();
        let leaf = CertificateParams::new(vec!["engine.test".to_owned()]).unwrap();
        let leaf = leaf.signed_by(&key, &Issuer::new(ca, ca_key)).unwrap();
        let mut config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![leaf.der().clone()], PrivateKeyDer::try_from(key.serialize_der()).unwrap())
            .unwrap();
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        TlsAcceptor::from(Arc::new(config))
    }
}

pub(crate) fn policy(verify: TlsVerify, ca_file: Option<PathBuf>, server_name: Option<&str>) -> UpstreamTls {
    UpstreamTls { verify, ca_file, server_name: server_name.map(str::to_owned) }
}

fn plain() -> UpstreamTls {
    policy(TlsVerify::None, None, None)
}

fn at(https: bool, addr: SocketAddr) -> Address {
    Address { https, host: addr.ip().to_string().into(), port: addr.port() }
}

async fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    (listener, addr)
}

/// Answers each TLS connection with one echoed byte.
async fn tls_echo(tasks: &TaskSet, acceptor: TlsAcceptor) -> SocketAddr {
    let (listener, addr) = listener().await;
    tasks.spawn("tls echo", async move {
        while let Ok((tcp, _)) = listener.accept().await {
            let Ok(mut tls) = acceptor.accept(tcp).await else { continue };
            let mut byte = [0];
            if tls.read_exact(&mut byte).await.is_ok() {
                tls.write_all(&byte).await.ok();
                tls.shutdown().await.ok();
            }
        }
    });
    addr
}

/// One byte there and back.
async fn echoes(conn: &mut Conn) -> bool {
    conn.write_all(b"x").await.unwrap();
    let mut byte = [0];
    conn.read_exact(&mut byte).await.unwrap();
    byte == *b"x"
}

#[tokio::test]
async fn a_plain_connection_has_nodelay_and_carries_bytes() {
    let (listener, addr) = listener().await;
    let mut conn = Dialer::new().connect(&at(false, addr), &plain(), AMPLE).await.unwrap();
    assert!(conn.tcp().unwrap().nodelay().unwrap());
    assert!(conn.is_write_vectored());
    let (mut peer, _) = listener.accept().await.unwrap();
    conn.write_all(b"ping").await.unwrap();
    let mut got = [0; 4];
    peer.read_exact(&mut got).await.unwrap();
    assert_eq!(&got, b"ping");
}

#[tokio::test]
async fn a_name_is_resolved() {
    let (_listener, addr) = listener().await;
    let address = Address { https: false, host: "localhost".into(), port: addr.port() };
    let conn = Dialer::new().connect(&address, &plain(), AMPLE).await.unwrap();
    assert_eq!(conn.tcp().unwrap().peer_addr().unwrap(), addr);
    let nowhere = Address { https: false, host: "no such name".into(), port: 1 };
    let error = Dialer::new().connect(&nowhere, &plain(), AMPLE).await.unwrap_err();
    assert!(matches!(error, DialError::Resolve(_)), "{error:?}");
}

#[tokio::test]
async fn a_closed_port_refuses() {
    let (listener, addr) = listener().await;
    drop(listener);
    let error = Dialer::new().connect(&at(false, addr), &plain(), AMPLE).await.unwrap_err();
    assert!(matches!(error, DialError::Refused), "{error:?}");
}

#[tokio::test]
async fn a_host_that_swallows_syns_times_out() {
    // The kernel drops SYNs once the accept queue is full, as a dead node does.
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(1).unwrap();
    let address = at(false, listener.local_addr().unwrap());
    let mut queued = Vec::new();
    let error = loop {
        match Dialer::new().connect(&address, &plain(), SHORT).await {
            Ok(conn) => queued.push(conn),
            Err(error) => break error,
        }
        assert!(queued.len() < 64, "the accept queue never filled");
    };
    assert!(matches!(error, DialError::Timeout(DialStep::Connect)), "{error:?}");
}

#[tokio::test]
async fn a_peer_that_never_answers_the_handshake_times_out() {
    let (_listener, addr) = listener().await;
    let error = Dialer::new().connect(&at(true, addr), &plain(), SHORT).await.unwrap_err();
    assert!(matches!(error, DialError::Timeout(DialStep::Handshake)), "{error:?}");
}

#[tokio::test]
async fn a_peer_that_does_not_speak_tls_is_a_tls_failure() {
    let (listener, addr) = listener().await;
    let tasks = TaskSet::new();
    tasks.spawn("plain", async move {
        let (mut tcp, _) = listener.accept().await.unwrap();
        tcp.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.ok();
        tcp.read_to_end(&mut Vec::new()).await.ok();
    });
    let error = Dialer::new().connect(&at(true, addr), &plain(), AMPLE).await.unwrap_err();
    assert!(matches!(error, DialError::Tls(_)), "{error:?}");
    tasks.shutdown().await;
}

#[tokio::test]
async fn each_policy_checks_what_it_says() {
    let tasks = TaskSet::new();
    let (pki, stranger) = (Pki::new(), Pki::new());
    let address = at(true, tls_echo(&tasks, pki.acceptor.clone()).await);
    let (own, other) = (|| Some(pki.ca_file()), || Some(stranger.ca_file()));
    let dialer = Dialer::new();
    for (policy, good) in [
        (policy(TlsVerify::None, None, None), true),
        (policy(TlsVerify::None, other(), None), true),
        (policy(TlsVerify::Chain, own(), None), true),
        (policy(TlsVerify::Chain, own(), Some("wrong.test")), true),
        (policy(TlsVerify::Chain, other(), None), false),
        (policy(TlsVerify::Full, own(), Some("engine.test")), true),
        (policy(TlsVerify::Full, own(), None), false),
        (policy(TlsVerify::Full, own(), Some("wrong.test")), false),
        (policy(TlsVerify::Full, other(), Some("engine.test")), false),
        (policy(TlsVerify::Full, Some("/nowhere/ca.pem".into()), Some("engine.test")), false),
        (policy(TlsVerify::Full, own(), Some("not a name")), false),
    ] {
        match dialer.connect(&address, &policy, AMPLE).await {
            Ok(mut conn) => {
                assert!(good, "{policy:?} accepted");
                let Conn::Tls(tls) = &conn else { panic!("not TLS") };
                assert_eq!(tls.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
                assert!(echoes(&mut conn).await);
                assert!(dialer.certificate_expiry().is_some(), "whether it is checked or not");
            }
            Err(error) => assert!(!good && matches!(error, DialError::Tls(_)), "{policy:?}: {error:?}"),
        }
    }
    tasks.shutdown().await;
}

#[tokio::test]
async fn a_rotated_ca_file_is_read_again() {
    let tasks = TaskSet::new();
    let pki = Pki::new();
    let policy = policy(TlsVerify::Chain, Some(pki.ca_file()), None);
    let dialer = Dialer::new();
    let before = at(true, tls_echo(&tasks, pki.acceptor.clone()).await);
    dialer.connect(&before, &policy, AMPLE).await.unwrap();
    let rotated = Pki::issue(&pki.ca_file());
    // Filesystem clocks are coarse: the stamp must differ for certain.
    let later = std::time::SystemTime::now() + Duration::from_secs(5);
    std::fs::File::options().append(true).open(pki.ca_file()).unwrap().set_modified(later).unwrap();
    let after = at(true, tls_echo(&tasks, rotated).await);
    dialer.connect(&after, &policy, AMPLE).await.unwrap();
    tasks.shutdown().await;
}
