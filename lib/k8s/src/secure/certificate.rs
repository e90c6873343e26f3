//! The certificate that a door shows: one from a folder, such as a mounted Secret, or one of its own making. Neither lasts
//! for ever, so both are exchanged while the door stands.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, PoisonError, RwLock, Weak},
    time::Duration,
};

use rcgen::{CertificateParams, KeyPair};
use time::OffsetDateTime;
use tokio::time::Instant;
use tokio_rustls::rustls::{
    self, ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, pem::PemObject as _},
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};

/// How often a folder is looked at.
const LOOK: Duration = Duration::from_secs(10);

/// How long a certificate of our own making is valid, and when the next one is made.
const VALID: Duration = Duration::from_secs(30 * 24 * 3600);
const RENEWED: Duration = Duration::from_secs(10 * 24 * 3600);

/// How far another's clock may be behind.
const SKEW: Duration = Duration::from_secs(3600);

/// Why there is no certificate.
#[allow(missing_docs, reason = "the texts name the fields")]
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// A file is not to be read.
    #[error("cannot read {}: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    /// A file holds something else.
    #[error("{} holds no {what} in PEM: {why}", path.display())]
    Format {
        path: PathBuf,
        /// What it is to hold.
        what: &'static str,
        /// Why it does not.
        why: String,
    },
    /// The certificate and the key are no pair, or of a kind that cannot be used.
    #[error("the certificate cannot be used with its key: {0}")]
    Pair(#[from] rustls::Error),
    /// None can be made.
    #[error("cannot make a certificate: {0}")]
    Make(#[from] rcgen::Error),
}

/// Where a certificate comes from.
#[derive(Clone, Debug)]
pub enum Source {
    /// A folder of `tls.crt` and `tls.key`.
    Folder(PathBuf),
    /// Made here, for this name.
    OwnMaking(String),
}

/// What a certificate was read from: when it changes, it is read again.
type Origin = (Vec<u8>, Vec<u8>);

/// The one that is shown.
#[derive(Debug)]
pub struct Certificate {
    source: Source,
    current: RwLock<Arc<CertifiedKey>>,
}

impl Certificate {
    /// The first one.
    pub fn new(source: Source) -> Result<Arc<Self>, CertificateError> {
        let current = match &source {
            Source::Folder(folder) => parse(folder, &read(folder)?)?,
            Source::OwnMaking(name) => make(name)?,
        };
        Ok(Arc::new(Self {
            source,
            current: RwLock::new(Arc::new(current)),
        }))
    }

    /// A TLS server that shows it.
    pub fn server(self: Arc<Self>) -> Result<ServerConfig, CertificateError> {
        let provider = Arc::new(ring::default_provider());
        let mut server = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_cert_resolver(self);
        server.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(server)
    }

    fn show(&self, certificate: CertifiedKey) {
        // What is behind it is whole at any time.
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(certificate);
    }
}

impl ResolvesServerCert for Certificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let current = self.current.read();
        Some(current.unwrap_or_else(PoisonError::into_inner).clone())
    }
}

/// Exchanges it whenever that is due, as long as somebody shows it. One that cannot be used is told of, once, and the one before
/// is shown.
pub async fn keep_fresh(certificate: Weak<Certificate>) {
    let mut origin = Origin::default();
    let mut made = Instant::now();
    let mut said = None;
    loop {
        tokio::time::sleep(LOOK).await;
        let Some(certificate) = certificate.upgrade() else {
            return;
        };
        let fresh = match &certificate.source {
            Source::Folder(folder) => read(folder).and_then(|found| {
                if found == origin {
                    return Ok(None);
                }
                let fresh = parse(folder, &found);
                origin = found;
                fresh.map(Some)
            }),
            Source::OwnMaking(_) if made.elapsed() < RENEWED => Ok(None),
            Source::OwnMaking(name) => {
                made = Instant::now();
                make(name).map(Some)
            }
        };
        match fresh {
            Ok(Some(fresh)) => {
                certificate.show(fresh);
                said = None;
            }
            Ok(None) => {}
            Err(error) => {
                let error = error.to_string();
                if said.as_ref() != Some(&error) {
                    tracing::warn!(%error, "the certificate of the metrics stays as it was");
                    said = Some(error);
                }
            }
        }
    }
}

fn read(folder: &Path) -> Result<Origin, CertificateError> {
    let file = |name| {
        let path = folder.join(name);
        fs::read(&path).map_err(|source| CertificateError::Read { path, source })
    };
    Ok((file("tls.crt")?, file("tls.key")?))
}

fn parse(folder: &Path, (chain, key): &Origin) -> Result<CertifiedKey, CertificateError> {
    let format = |name, what, why: &dyn std::fmt::Display| CertificateError::Format {
        path: folder.join(name),
        what,
        why: why.to_string(),
    };
    let chain: Vec<_> = CertificateDer::pem_slice_iter(chain)
        .collect::<Result<_, _>>()
        .map_err(|error| format("tls.crt", "certificate", &error))?;
    if chain.is_empty() {
        return Err(format("tls.crt", "certificate", &"there is none"));
    }
    let key = PrivateKeyDer::from_pem_slice(key)
        .map_err(|error| format("tls.key", "private key", &error))?;
    Ok(pair(chain, key)?)
}

/// One that is valid from now on.
fn make(name: &str) -> Result<CertifiedKey, CertificateError> {
    let key = KeyPair::generate()?;
    let mut certificate = CertificateParams::new([name.to_owned()])?;
    let now = OffsetDateTime::now_utc();
    certificate.not_before = now - SKEW;
    certificate.not_after = now + VALID;
    let certificate = certificate.self_signed(&key)?;
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    Ok(pair(vec![certificate.der().clone()], key)?)
}

fn pair(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<CertifiedKey, rustls::Error> {
    CertifiedKey::from_der(chain, key, &ring::default_provider())
}

#[cfg(test)]
mod tests;
