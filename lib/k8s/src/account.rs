//! Where the API server is, and who asks it, as a kubelet tells every pod: by two variables, and a folder with the certificate of who signs
//! for the API server and the token of a service account. Both expire, so the kubelet writes them again, and they are read again.
//!
//! A kubeconfig says more than a pod needs, and to read one takes YAML, commands that make tokens, and paths into their answers. A program
//! that knows a [client of an account](crate::client::of_account) alone is linked with none of that, which is a tenth of the agent.

use std::{
    fs, io,
    net::IpAddr,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use hyper::{
    Uri,
    http::{HeaderValue, uri},
};
use tokio_rustls::rustls::{
    ClientConfig, DigitallySignedStruct, Error as TlsError, RootCertStore, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::ring,
    pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject as _},
};

/// Where a kubelet puts it.
pub const FOLDER: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// What was read is taken for so long. A kubelet writes a token again a good while before it expires.
const TAKEN: Duration = Duration::from_secs(50);

/// Why nobody can be asked.
#[allow(missing_docs, reason = "the texts name the fields")]
#[derive(Debug, thiserror::Error)]
pub enum AccountError {
    /// This is no pod.
    #[error("no API server is named: {0} is not set, as it is in every pod")]
    NoPod(&'static str),
    /// The address is none.
    #[error("{address} is no address of an API server: {why}")]
    Address {
        address: String,
        why: uri::InvalidUri,
    },
    /// A file is not to be read.
    #[error("cannot read {}: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    /// A file holds something else.
    #[error("{} holds no {what}: {why}", path.display())]
    Format {
        path: PathBuf,
        /// What it is to hold.
        what: &'static str,
        /// Why it does not.
        why: String,
    },
    /// TLS cannot be had.
    #[error("cannot speak TLS: {0}")]
    Tls(#[from] TlsError),
}

/// An API server, and a folder that says who it is and who asks.
pub struct Account {
    /// Where the API server is.
    pub(crate) server: Uri,
    pub(crate) tls: ClientConfig,
    /// None where whoever listens would learn it.
    pub(crate) token: Option<Token>,
}

impl Account {
    /// That of the pod that this is.
    pub fn of_pod(folder: &Path) -> Result<Self, AccountError> {
        let variable = |name| std::env::var(name).map_err(|_| AccountError::NoPod(name));
        let host = variable("KUBERNETES_SERVICE_HOST")?;
        let port = variable("KUBERNETES_SERVICE_PORT")?;
        Self::at(&address(&host, &port), folder)
    }

    /// That of an API server elsewhere. Who answers by http is not asked who it is, and not told who asks.
    pub fn at(address: &str, folder: &Path) -> Result<Self, AccountError> {
        let why = |why| AccountError::Address {
            address: address.to_owned(),
            why,
        };
        let server = address.parse::<Uri>().map_err(why)?;
        let secure = server.scheme_str() == Some("https");
        let provider = Arc::new(ring::default_provider());
        let tls =
            ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
        let tls = if secure {
            let trust = Trust(Recent::of(folder.join("ca.crt"), read_roots)?);
            let tls = tls.dangerous();
            tls.with_custom_certificate_verifier(Arc::new(trust))
        } else {
            tls.with_root_certificates(RootCertStore::empty())
        };
        let token = secure.then(|| Recent::of(folder.join("token"), read_token));
        Ok(Self {
            server,
            tls: tls.with_no_client_auth(),
            token: token.transpose()?.map(Arc::new),
        })
    }
}

/// What says in a request who asks.
pub(crate) type Token = Arc<Recent<HeaderValue>>;

fn address(host: &str, port: &str) -> String {
    match host.parse() {
        Ok(IpAddr::V6(host)) => format!("https://[{host}]:{port}"),
        _ => format!("https://{host}:{port}"),
    }
}

/// What a file says, which is read again from time to time. While it cannot be, it says what it said.
pub(crate) struct Recent<T> {
    path: PathBuf,
    read: fn(&Path) -> Result<T, AccountError>,
    last: Mutex<(T, Instant)>,
}

impl<T: Clone> Recent<T> {
    fn of(path: PathBuf, read: fn(&Path) -> Result<T, AccountError>) -> Result<Self, AccountError> {
        let last = Mutex::new((read(&path)?, Instant::now()));
        Ok(Self { path, read, last })
    }

    /// As it is now.
    pub(crate) fn get(&self) -> T {
        self.get_at(Instant::now())
    }

    fn get_at(&self, now: Instant) -> T {
        // What is behind it is whole at any time.
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let (said, when) = &mut *last;
        if now.saturating_duration_since(*when) >= TAKEN {
            match (self.read)(&self.path) {
                Ok(says) => *said = says,
                Err(error) => tracing::warn!(%error, "what it said before is taken"),
            }
            *when = now;
        }
        said.clone()
    }
}

fn read(path: &Path) -> Result<Vec<u8>, AccountError> {
    fs::read(path).map_err(|source| AccountError::Read {
        path: path.to_owned(),
        source,
    })
}

fn read_token(path: &Path) -> Result<HeaderValue, AccountError> {
    let token = read(path)?;
    let said = [b"Bearer ", token.trim_ascii()].concat();
    let mut value = HeaderValue::from_bytes(&said).map_err(|why| AccountError::Format {
        path: path.to_owned(),
        what: "token",
        why: why.to_string(),
    })?;
    value.set_sensitive(true);
    Ok(value)
}

fn read_roots(path: &Path) -> Result<Arc<WebPkiServerVerifier>, AccountError> {
    let format = |why: String| AccountError::Format {
        path: path.to_owned(),
        what: "certificate in PEM",
        why,
    };
    let text = read(path)?;
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&text) {
        let certificate = certificate.map_err(|error| format(error.to_string()))?;
        roots
            .add(certificate)
            .map_err(|error| format(error.to_string()))?;
    }
    let provider = Arc::new(ring::default_provider());
    WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
        .build()
        .map_err(|error| format(error.to_string()))
}

/// Believes whom they have signed who are in a file by now.
struct Trust(Recent<Arc<WebPkiServerVerifier>>);

impl std::fmt::Debug for Trust {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Trust").field(&self.0.path).finish()
    }
}

impl ServerCertVerifier for Trust {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, TlsError> {
        let trust = self.0.get();
        trust.verify_server_cert(end_entity, intermediates, name, ocsp, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        let trust = self.0.get();
        trust.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        let trust = self.0.get();
        trust.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.get().supported_verify_schemes()
    }
}

#[cfg(test)]
mod tests;
