//! A Prometheus, by its HTTP API.

use std::{error::Error, path::PathBuf};

use ckb_probe_k8s::client::{ClientError, client};
use ckb_probe_report::prometheus::{
    answer::{AnswerError, Series, excerpt, read},
    question::Grid,
};
use http_body_util::BodyExt as _;
use kube::{Client, Config, client::Body, config::AuthInfo};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

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
    /// A file with certificates, or a token, is of no use.
    #[error("cannot connect to {0}: {1}")]
    Client(String, #[source] ClientError),
    /// Nobody answers.
    #[error(
        "cannot reach Prometheus at {address}: {why}. Where it runs in a cluster, this makes it reachable: kubectl port-forward -n NAMESPACE \
         service/PROMETHEUS 9090, with --prometheus http://127.0.0.1:9090"
    )]
    Unreachable {
        /// Where it should be.
        address: String,
        /// What happened.
        why: String,
    },
    /// It wants to know who asks, or does not serve them.
    #[error(
        "Prometheus at {0} refuses who asks ({1}): a bearer token is read from --token-file, or from {TOKEN}"
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
        config.root_cert_file = ca.cloned();
        config.auth_info = auth(token_file, own);
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
        let unreachable = |error: &dyn Error| PrometheusError::Unreachable {
            address: address(),
            why: innermost(error),
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
fn auth(token_file: Option<&PathBuf>, own: Option<&str>) -> AuthInfo {
    let mut auth = AuthInfo::default();
    if let Some(file) = token_file {
        auth.token_file = Some(file.display().to_string());
    } else if let Ok(token) = std::env::var(TOKEN) {
        auth.token = Some(token.into());
    } else if let Some((name, password)) = own.and_then(|own| own.split_once(':')) {
        auth.username = Some(name.to_owned());
        auth.password = Some(password.to_owned().into());
    }
    auth
}

/// Each layer says what the next one says, too: the last is what happened.
fn innermost(error: &dyn Error) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}
