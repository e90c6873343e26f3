//! Whom the receiver must be, and who it is told that is sending.

use std::{
    io,
    path::{Path, PathBuf},
};

use ckb_probe_traces::Settings;
use hyper_rustls::ConfigBuilderExt as _;
use rustls::{
    AlertDescription, ClientConfig, RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};

/// There can be no TLS as it is set.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read, or has nothing of what it should.
    #[error("{0}: {1}: name a file with certificates or a key in PEM")]
    File(PathBuf, #[source] rustls::pki_types::pem::Error),
    /// It has no certificate.
    #[error("{0} has no certificate: name a file with certificates in PEM")]
    Nothing(PathBuf),
    /// The system has no certificates.
    #[error(
        "this system has no certificates to tell a receiver by ({0}): name a file of them in OTEL_EXPORTER_OTLP_CERTIFICATE"
    )]
    NoRoots(#[source] io::Error),
    /// Certificate and key are not each other's, or of no use.
    #[error("TLS does not work with these certificates and this key: {0}")]
    Unusable(#[from] rustls::Error),
}

/// What is set, for connections.
pub fn config(settings: &Settings) -> Result<ClientConfig, TlsError> {
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let builder =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let builder = match &settings.certificate {
        Some(path) => {
            let mut roots = RootCertStore::empty();
            for certificate in certificates(path)? {
                roots.add(certificate)?;
            }
            builder.with_root_certificates(roots)
        }
        // Nobody is asked for its certificates where no connection needs any.
        None if settings.target.scheme_str() == Some("http") => {
            builder.with_root_certificates(RootCertStore::empty())
        }
        None => builder.with_native_roots().map_err(TlsError::NoRoots)?,
    };
    Ok(match &settings.client {
        Some((certificate, key)) => {
            let chain = certificates(certificate)?;
            let own = PrivateKeyDer::from_pem_file(key);
            let own = own.map_err(|error| TlsError::File(key.clone(), error))?;
            builder.with_client_auth_cert(chain, own)?
        }
        None => builder.with_no_client_auth(),
    })
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let failed = |error| TlsError::File(path.to_owned(), error);
    let all = CertificateDer::pem_file_iter(path).map_err(failed)?;
    let all = all.collect::<Result<Vec<_>, _>>().map_err(failed)?;
    if all.is_empty() {
        return Err(TlsError::Nothing(path.to_owned()));
    }
    Ok(all)
}

/// Whether anything of it is in files, which may be replaced.
pub fn has_files(settings: &Settings) -> bool {
    settings.certificate.is_some() || settings.client.is_some()
}

/// What a receiver says that speaks with those alone whom it knows, in words; None of anything else. `has_certificate`: one was shown.
pub fn unwelcome(said: AlertDescription, has_certificate: bool) -> Option<String> {
    match (said, has_certificate) {
        // The last two are what TLS 1.2 says.
        (
            AlertDescription::CertificateRequired
            | AlertDescription::BadCertificate
            | AlertDescription::HandshakeFailure,
            false,
        ) => Some(
            "the receiver wants to know by a certificate who sends: name one and its key in OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE and _CLIENT_KEY \
             (in a cluster otlp.clientSecret)"
                .to_string(),
        ),
        (
            AlertDescription::BadCertificate
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::CertificateRevoked
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateUnknown
            | AlertDescription::UnknownCA
            | AlertDescription::AccessDenied
            | AlertDescription::DecryptError,
            true,
        ) => Some(format!(
            "the receiver does not accept the certificate in OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE: it says {said:?}"
        )),
        _ => None,
    }
}
