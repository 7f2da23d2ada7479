//! The OTLP exporter of these settings.
//!
//! Owns: transport and TLS towards the collector. Must not: retry or queue (`export` does). Headers come from
//! `OTEL_EXPORTER_OTLP_HEADERS`, which the exporter reads itself.

use std::fs;
use std::sync::Arc;

use hyper_rustls::HttpsConnectorBuilder;
use opentelemetry::KeyValue;
use opentelemetry_http::hyper::HyperClient;
use opentelemetry_otlp::tonic_types::transport::{Certificate, ClientTlsConfig};
use opentelemetry_otlp::{SpanExporter, WithExportConfig, WithHttpConfig, WithTonicConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SpanExporter as _;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

use super::{Protocol, TraceError, TraceSettings};

/// Builds it; connects at the first export. Needs a Tokio runtime.
pub(super) fn otlp(settings: &TraceSettings) -> Result<SpanExporter, TraceError> {
    let mut exporter = match settings.protocol {
        Protocol::Grpc => grpc(settings)?,
        Protocol::Http => http(settings)?,
    };
    exporter.set_resource(&resource(settings));
    Ok(exporter)
}

fn grpc(settings: &TraceSettings) -> Result<SpanExporter, TraceError> {
    let mut builder = SpanExporter::builder().with_tonic().with_endpoint(&settings.endpoint).with_timeout(settings.timeout);
    if settings.endpoint.starts_with("https:") {
        let tls = match &settings.certificate {
            Some(file) => {
                let pem = read(file)?;
                certificates(file, &pem)?;
                ClientTlsConfig::new().ca_certificate(Certificate::from_pem(pem))
            }
            None => ClientTlsConfig::new().with_native_roots(),
        };
        builder = builder.with_tls_config(tls);
    }
    builder.build().map_err(refused)
}

fn http(settings: &TraceSettings) -> Result<SpanExporter, TraceError> {
    let connector = HttpsConnectorBuilder::new().with_tls_config(tls(settings)?).https_or_http().enable_http1().build();
    let client = HyperClient::new(connector, settings.timeout, None);
    let builder = SpanExporter::builder().with_http().with_http_client(client);
    builder.with_endpoint(&settings.endpoint).with_timeout(settings.timeout).build().map_err(refused)
}

fn tls(settings: &TraceSettings) -> Result<ClientConfig, TraceError> {
    let mut roots = RootCertStore::empty();
    if settings.endpoint.starts_with("https:") {
        match &settings.certificate {
            Some(file) => {
                roots.add_parsable_certificates(certificates(file, &read(file)?)?);
            }
            None => drop(roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs)),
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().map_err(refused)?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}

fn read(file: &str) -> Result<Vec<u8>, TraceError> {
    fs::read(file).map_err(|e| TraceError::Exporter(format!("{file}: {e}")))
}

/// The certificates of a PEM file; one without any would have every collector refused, and nobody told why.
fn certificates(file: &str, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, TraceError> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let why = match found {
        Ok(found) if !found.is_empty() => return Ok(found),
        Ok(_) => "no certificate in it".to_owned(),
        Err(error) => error.to_string(),
    };
    Err(TraceError::Exporter(format!("{file}: {why}")))
}

fn refused(error: impl std::fmt::Display) -> TraceError {
    TraceError::Exporter(error.to_string())
}

/// Who sends: `OTEL_RESOURCE_ATTRIBUTES` and `OTEL_SERVICE_NAME`, else `leadgate`.
fn resource(settings: &TraceSettings) -> Resource {
    let mut builder = Resource::builder().with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")));
    if !settings.named {
        builder = builder.with_service_name("leadgate");
    }
    builder.with_attribute(KeyValue::new("service.instance.id", uuid::Uuid::new_v4().to_string())).build()
}
