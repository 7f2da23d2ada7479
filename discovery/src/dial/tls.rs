//! TLS policies towards https engines: nothing checked, the chain, or chain and name.
//!
//! Owns: building `rustls` client configurations and keeping one for each policy. Must not: open sockets. The crypto provider (`ring`) is
//! passed explicitly, so that no process-wide default is needed.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use config::{TlsVerify, UpstreamTls};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

use super::DialError;
use crate::snapshot::Address;

/// More policies than this are not kept: a configuration that changes its CA path on every reload must not grow the process.
const KEPT: usize = 64;

/// What a client configuration depends on. The CA file's stamp is part of it, so that a rotated bundle is read again.
#[derive(Debug, PartialEq, Eq, Hash)]
struct PolicyKey {
    verify: u8,
    ca_file: Option<PathBuf>,
    stamp: Option<(SystemTime, u64)>,
}

/// The client configurations built so far.
#[derive(Debug, Default)]
pub(super) struct Policies {
    built: Mutex<HashMap<PolicyKey, Arc<ClientConfig>>>,
}

impl Policies {
    /// The configuration of a policy, built on first use and again when the CA file changed.
    pub(super) fn get(&self, tls: &UpstreamTls) -> Result<Arc<ClientConfig>, DialError> {
        let key = PolicyKey {
            verify: match tls.verify {
                TlsVerify::None => 0,
                TlsVerify::Chain => 1,
                TlsVerify::Full => 2,
            },
            ca_file: tls.ca_file.clone(),
            stamp: tls.ca_file.as_deref().and_then(stamp),
        };
        let mut built = self.built.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(config) = built.get(&key) {
            return Ok(config.clone());
        }
        let config = Arc::new(build(tls)?);
        if built.len() >= KEPT {
            built.clear();
        }
        built.insert(key, config.clone());
        Ok(config)
    }
}

fn stamp(path: &Path) -> Option<(SystemTime, u64)> {
    let meta = std::fs::metadata(path).ok()?;
    Some((meta.modified().ok()?, meta.len()))
}

/// The name that is sent (SNI) and, under `full`, checked.
pub(super) fn server_name(address: &Address, tls: &UpstreamTls) -> Result<ServerName<'static>, DialError> {
    let name = tls.server_name.as_deref().unwrap_or(&address.host);
    ServerName::try_from(name.to_owned()).map_err(|error| DialError::Tls(format!("server name {name:?}: {error}")))
}

/// Tells a TLS failure from a broken socket.
pub(super) fn handshake_error(error: io::Error) -> DialError {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        Some(inner) => DialError::Tls(inner.to_string()),
        None => DialError::Io(error),
    }
}

fn build(tls: &UpstreamTls) -> Result<ClientConfig, DialError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions().map_err(refuse)?;
    let verifier: Arc<dyn ServerCertVerifier> = match tls.verify {
        TlsVerify::None => Arc::new(AnyCertificate(provider)),
        TlsVerify::Chain => Arc::new(ChainOnly(chain_verifier(tls, provider)?)),
        TlsVerify::Full => chain_verifier(tls, provider)?,
    };
    let mut config = builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

fn chain_verifier(tls: &UpstreamTls, provider: Arc<CryptoProvider>) -> Result<Arc<WebPkiServerVerifier>, DialError> {
    let roots = match &tls.ca_file {
        Some(path) => roots_of(path)?,
        None => system_roots(),
    };
    WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build().map_err(refuse)
}

fn roots_of(path: &Path) -> Result<RootCertStore, DialError> {
    let unreadable = |error: rustls::pki_types::pem::Error| DialError::Tls(format!("CA file {}: {error}", path.display()));
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(path).map_err(unreadable)? {
        roots.add(certificate.map_err(unreadable)?).map_err(refuse)?;
    }
    Ok(roots)
}

fn system_roots() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    let (_, ignored) = roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    tracing::debug!(kept = roots.len(), ignored, "system trust roots loaded");
    roots
}

fn refuse(error: impl std::fmt::Display) -> DialError {
    DialError::Tls(error.to_string())
}

/// `none`: any certificate. The handshake's signature is still checked, so the peer owns the key of what it shows.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// `chain`: a trusted chain for any name, since a Pod IP is in no certificate.
#[derive(Debug)]
struct ChainOnly(Arc<WebPkiServerVerifier>);

impl ServerCertVerifier for ChainOnly {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        // webpki checks the chain first and the name last: a name error means that the chain was good.
        match self.0.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now) {
            Err(rustls::Error::InvalidCertificate(CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. })) => {
                Ok(ServerCertVerified::assertion())
            }
            other => other,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}
