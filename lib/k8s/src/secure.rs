//! Metrics for those only whom the API server lets read them: TLS, and who asks is asked for a token, as with the secure
//! metrics of controller-runtime.

use std::{io, path::PathBuf, sync::Arc};

use clap::Args;
use hyper::StatusCode;
use kube::Client;
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, server::TlsStream};

mod access;
mod certificate;

use access::Access;
pub use certificate::CertificateError;
use certificate::{Certificate, Source};

/// How metrics are protected.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub struct Protection {
    /// Serve /metrics over TLS only, to those whose token the API server knows and lets get /metrics
    #[arg(
        id = "metrics-secure",
        long = "metrics-secure",
        env = "METRICS_SECURE",
        default_value_t = false,
        action = clap::ArgAction::Set,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true"
    )]
    pub secure: bool,

    /// The folder of tls.crt and tls.key, read again when they change [default: none, and a certificate of its own making]
    #[arg(
        id = "metrics-certificate",
        long = "metrics-certificate",
        env = "METRICS_CERTIFICATE",
        requires = "metrics-secure"
    )]
    pub certificate: Option<PathBuf>,

    /// The name in a certificate of its own making
    #[arg(
        id = "metrics-server-name",
        long = "metrics-server-name",
        env = "METRICS_SERVER_NAME",
        default_value = "ckb-probe"
    )]
    pub server_name: String,
}

/// A door that opens to those who may come in.
pub struct Secure {
    acceptor: TlsAcceptor,
    access: Access,
}

/// Why somebody is not let in.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// The API server knows no such token.
    #[error(
        "unauthorized: send a token that the API server knows, as `Authorization: Bearer TOKEN`"
    )]
    Unknown,
    /// It does, but this is not for them.
    #[error(
        "forbidden: {0} may not get the path /metrics: bind them to the ClusterRole for reading metrics"
    )]
    Forbidden(String),
    /// The API server does not say.
    #[error("cannot ask the API server who this is: {0}")]
    Unanswered(String),
}

impl Refusal {
    /// What it is called in HTTP.
    pub fn status(&self) -> StatusCode {
        match self {
            Self::Unknown => StatusCode::UNAUTHORIZED,
            Self::Forbidden(_) => StatusCode::FORBIDDEN,
            Self::Unanswered(_) => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

impl Secure {
    /// As it is asked for: `None` where metrics are for everybody. Keeps the certificate fresh as long as it is there.
    pub fn new(
        protection: &Protection,
        client: Client,
    ) -> Result<Option<Arc<Self>>, CertificateError> {
        let Protection {
            secure: true,
            certificate,
            server_name,
        } = protection
        else {
            return Ok(None);
        };
        let source = match certificate {
            Some(folder) => Source::Folder(folder.clone()),
            None => Source::OwnMaking(server_name.clone()),
        };
        let certificate = Certificate::new(source)?;
        let acceptor = TlsAcceptor::from(Arc::new(certificate.clone().server()?));
        tokio::spawn(certificate::keep_fresh(Arc::downgrade(&certificate)));
        Ok(Some(Arc::new(Self {
            acceptor,
            access: Access::new(client),
        })))
    }

    /// The beginning of a conversation.
    pub async fn greet(&self, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        self.acceptor.accept(stream).await
    }

    /// Whether somebody with this token may read metrics.
    pub async fn admit(&self, token: Option<&str>) -> Result<(), Refusal> {
        self.access.admit(token).await
    }
}
