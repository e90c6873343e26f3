//! A Prometheus, by its HTTP API.

use std::{
    error::Error,
    fs,
    path::{Path, PathBuf},
};

use ckb_probe_k8s::client::{ClientError, Handshake, client, handshake};
use ckb_probe_report::prometheus::{
    answer::{AnswerError, Series, excerpt, read},
    question::Grid,
};
use http_body_util::BodyExt as _;
use kube::{Client, Config, client::Body, config::AuthInfo};
use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

/// The token, where no file has it.
pub const TOKEN: &str = "CKB_PROBE_PROMETHEUS_TOKEN";

/// No answer is longer, in MiB.
const MOST: usize = 256;

/// Why Prometheus tells nothing.
#[derive(Debug, thiserror::Error)]
pub enum PrometheusError {
    /// It is no address.
    #[error(
        "{0:?} is no address of a Prometheus: such as http://127.0.0.1:9090, or https://prometheus.example.org/path"
    )]
    Address(String),
    /// What is configured is of no use.
    #[error("cannot connect to {0}: {1}")]
    Client(String, #[source] ClientError),
    /// There are no certificates to tell it by.
    #[error(
        "cannot ask Prometheus at {address}: the file {} of --ca {why}. It is to have the certificates, in PEM, of who signed that of Prometheus",
        file.display()
    )]
    Authority {
        /// Where it is.
        address: String,
        /// What was named.
        file: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// There is no token to show.
    #[error(
        "cannot ask Prometheus at {address}: the file {} of --token-file {why}. It is to have a bearer token, and nothing else",
        file.display()
    )]
    Token {
        /// Where it is.
        address: String,
        /// What was named.
        file: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// It may be somebody else.
    #[error(
        "Prometheus at {address} shows a certificate that is not to be trusted: {why}. Name the certificates of who signed it with --ca, and \
         Prometheus by a name that the certificate has"
    )]
    Untrusted {
        /// Where it is.
        address: String,
        /// What is wrong with it.
        why: String,
    },
    /// It does not speak TLS.
    #[error("what is at {0} does not speak TLS: is it to begin with http:// instead?")]
    NoTls(String),
    /// Nobody answers.
    #[error(
        "cannot reach Prometheus at {address}: {why}. Where it runs in a cluster, this makes it reachable: kubectl port-forward -n NAMESPACE \
         service/PROMETHEUS 9090, with --prometheus http://127.0.0.1:9090"
    )]
    Unreachable {
        /// Where it should be.
        address: String,
        /// How the attempt to connect ended.
        why: String,
    },
    /// It wants to know who asks, or does not serve them.
    #[error(
        "Prometheus at {0} refuses who asks ({1}): a bearer token is read from --token-file, or from {TOKEN}; a name and a password from the address, as in \
         https://NAME:PASSWORD@prometheus.example.org"
    )]
    Unauthorized(String, u16),
    /// What it says is no answer.
    #[error("{0} answers {1}: {2}")]
    Status(String, u16, String),
    /// It says too much.
    #[error("an answer of {0} has more than {MOST} MiB: ask for less, by --last, --pod or --probe")]
    TooLong(String),
    /// It refuses, or is something else.
    #[error("{0}: {1}")]
    Answer(String, #[source] AnswerError),
}

/// A Prometheus.
pub struct Prometheus {
    client: Client,
    /// Without what is secret.
    address: String,
    warned: Vec<String>,
}

impl Prometheus {
    /// One at this address. Nothing is asked yet.
    pub fn at(
        address: &str,
        token_file: Option<&PathBuf>,
        ca: Option<&PathBuf>,
    ) -> Result<Self, PrometheusError> {
        let invalid = || PrometheusError::Address(excerpt(address));
        let uri: hyper::Uri = address.parse().map_err(|_| invalid())?;
        let authority = uri.authority().ok_or_else(invalid)?;
        if !matches!(uri.scheme_str(), Some("http" | "https")) || uri.query().is_some() {
            return Err(invalid());
        }
        let (own, host) = match authority.as_str().rsplit_once('@') {
            Some((own, host)) => (Some(own), host),
            None => (None, authority.as_str()),
        };
        let path = uri.path().trim_end_matches('/');
        let scheme = uri.scheme_str().unwrap_or_default();
        let shown = format!("{scheme}://{host}{path}");
        let mut config = Config::new(shown.parse().map_err(|_| invalid())?);
        config.default_retry = false;
        config.auth_info = auth(&shown, token_file, own)?;
        if let Some(file) = ca {
            are_certificates(&shown, file)?;
            config.root_cert_file = Some(file.clone());
        }
        let client = client(config);
        Ok(Self {
            client: client.map_err(|error| PrometheusError::Client(shown.clone(), error))?,
            address: shown,
            warned: Vec::new(),
        })
    }

    /// Where it is, without what is secret.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// What it warned of meanwhile, each once.
    pub fn warnings(&self) -> &[String] {
        &self.warned
    }

    /// What a query gives at these times: in parts, the earlier first.
    pub async fn range(
        &mut self,
        query: &str,
        grid: Grid,
        mut take: impl FnMut(Vec<Series>),
    ) -> Result<(), PrometheusError> {
        for Grid { from, to, step } in grid.parts() {
            let query = utf8_percent_encode(query, NON_ALPHANUMERIC);
            let path =
                format!("/api/v1/query_range?query={query}&start={from}&end={to}&step={step}");
            take(self.get(&path).await?);
        }
        Ok(())
    }

    async fn get(&mut self, path: &str) -> Result<Vec<Series>, PrometheusError> {
        let address = || self.address.clone();
        let unreachable = |error: &(dyn Error + 'static)| match handshake(error) {
            Some(Handshake::Untrusted(why)) => PrometheusError::Untrusted {
                address: address(),
                why,
            },
            Some(Handshake::NoTls) => PrometheusError::NoTls(address()),
            None => PrometheusError::Unreachable {
                address: address(),
                why: innermost(error),
            },
        };
        let request = hyper::Request::get(path)
            .header("accept", "application/json")
            .body(Body::empty());
        let request = request.map_err(|_| PrometheusError::Address(address()))?;
        let answer = self.client.send(request).await;
        let answer = answer.map_err(|error| unreachable(&error))?;
        let status = answer.status();
        let mut body = Vec::new();
        let mut parts = answer.into_body();
        while let Some(part) = parts.frame().await {
            let part = part.map_err(|error| unreachable(&error))?;
            body.extend_from_slice(part.data_ref().map_or(&[], |data| data));
            if body.len() > MOST << 20 {
                return Err(PrometheusError::TooLong(address()));
            }
        }
        if matches!(status.as_u16(), 401 | 403) {
            return Err(PrometheusError::Unauthorized(address(), status.as_u16()));
        }
        match read(&body) {
            Ok((series, warnings)) => {
                for warning in warnings {
                    if !self.warned.contains(&warning) {
                        self.warned.push(warning);
                    }
                }
                Ok(series)
            }
            // A proxy says why in its own words.
            Err(AnswerError::Foreign(said)) if !status.is_success() => {
                Err(PrometheusError::Status(address(), status.as_u16(), said))
            }
            Err(error) => Err(PrometheusError::Answer(address(), error)),
        }
    }
}

/// Who asks: by a token, or by the name and the password of the address.
fn auth(
    address: &str,
    token_file: Option<&PathBuf>,
    own: Option<&str>,
) -> Result<AuthInfo, PrometheusError> {
    let mut auth = AuthInfo::default();
    if let Some(file) = token_file {
        auth.token = Some(token(address, file)?.into());
    } else if let Ok(token) = std::env::var(TOKEN) {
        auth.token = Some(token.trim().to_owned().into());
    } else if let Some((name, password)) = own.and_then(|own| own.split_once(':')) {
        let plain = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
        auth.username = Some(plain(name));
        auth.password = Some(plain(password).into());
    }
    Ok(auth)
}

/// The token in a file, without the end of its line, which no header may have.
fn token(address: &str, file: &Path) -> Result<String, PrometheusError> {
    let useless = |why: String| PrometheusError::Token {
        address: address.to_owned(),
        file: file.to_owned(),
        why,
    };
    let text = fs::read_to_string(file);
    let text = text.map_err(|error| useless(format!("cannot be read ({error})")))?;
    match text.trim() {
        "" => Err(useless("is empty".to_owned())),
        token if token.contains(char::is_whitespace) => {
            Err(useless("has more than one word".to_owned()))
        }
        token => Ok(token.to_owned()),
    }
}

/// Whether there is one at least: what is in it is judged as it is used.
fn are_certificates(address: &str, file: &Path) -> Result<(), PrometheusError> {
    let useless = |why: String| PrometheusError::Authority {
        address: address.to_owned(),
        file: file.to_owned(),
        why,
    };
    let text = fs::read(file);
    let text = text.map_err(|error| useless(format!("cannot be read ({error})")))?;
    let begin = b"-----BEGIN CERTIFICATE-----";
    match text.windows(begin.len()).any(|part| part == begin) {
        true => Ok(()),
        false => Err(useless("has no certificate in PEM".to_owned())),
    }
}

/// Each layer says what the next one says, too: the last is what happened.
fn innermost(error: &dyn Error) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}
