//! Hands what is published to whoever collects profiles, in one of two forms ([`form`]).
//!
//! It is beside the point of this process, and must never be in its way: what cannot be handed over in time is dropped and counted.

mod form;
#[cfg(test)]
mod tests;

use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBuilder};
use ckb_probe_crds::CkbProfileSpec;
pub use form::Form;
use form::{Answer, Request};
use http::{HeaderName, HeaderValue, Uri};
use kube::{Client, Config, config::InferConfigError};
use tokio::sync::mpsc;

use super::publish::blocking;
use crate::metrics::Metrics;

/// Profiles that wait: at half a mebibyte each.
const QUEUE: usize = 8;
/// What is tried again, is tried so often.
const TRIES: usize = 5;
/// No try takes longer.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The server that profiles are pushed to.
#[derive(Clone, Debug)]
pub struct PushConfig {
    /// The server's address, to which the form adds its path.
    pub url: Uri,
    /// How profiles are sent.
    pub form: Form,
    /// Sent with each profile: who we are.
    pub headers: Vec<(HeaderName, HeaderValue)>,
}

/// Why nothing can be handed over, ever.
#[derive(Debug, thiserror::Error)]
pub enum PushError {
    /// It is no address.
    #[error(
        "{url} is no address of a server that takes profiles, such as http://pyroscope:4040: {why}"
    )]
    Url {
        /// What was given.
        url: String,
        /// What is wrong with it.
        why: String,
    },
    /// A header makes no sense. Its value may be a secret, and is not shown.
    #[error(
        "header {0} for pushing profiles is none: it is to be a line such as `X-Scope-OrgID: team-a`"
    )]
    Header(usize),
    /// There is no client.
    #[error("cannot make a client to push profiles with: {0}")]
    Client(#[from] kube::Error),
    /// The surroundings make no sense.
    #[error("cannot make a client to push profiles with: {0}")]
    Config(#[from] InferConfigError),
}

impl PushConfig {
    /// Reads an address, and headers of a line each. Empty lines, and those that begin with `#`, are left out.
    ///
    /// # Errors
    ///
    /// When either makes no sense.
    pub fn parse(url: &str, form: Form, headers: &str) -> Result<Self, PushError> {
        let wrong = |why: String| PushError::Url {
            url: url.to_owned(),
            why,
        };
        let parsed: Uri = url
            .trim_end_matches('/')
            .parse()
            .map_err(|error: http::uri::InvalidUri| wrong(error.to_string()))?;
        if !matches!(parsed.scheme_str(), Some("http" | "https")) || parsed.host().is_none() {
            return Err(wrong(
                "it has to begin with http:// or https:// and a name".to_owned(),
            ));
        }
        if parsed.query().is_some() {
            return Err(wrong("it must not have a query".to_owned()));
        }
        let lines = (1..).zip(headers.lines().map(str::trim));
        let lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
        let headers = lines.map(|(number, line)| {
            let (name, value) = line.split_once(':').ok_or(PushError::Header(number))?;
            let name = name.trim().parse().map_err(|_| PushError::Header(number))?;
            let mut value: HeaderValue = value
                .trim()
                .parse()
                .map_err(|_| PushError::Header(number))?;
            value.set_sensitive(true);
            Ok((name, value))
        });
        Ok(Self {
            url: parsed,
            form,
            headers: headers.collect::<Result<_, PushError>>()?,
        })
    }
}

/// A profile to be handed over.
#[derive(Debug)]
struct Pushed {
    /// Where it was published.
    namespace: String,
    spec: CkbProfileSpec,
}

/// Where profiles are left to be handed over.
#[derive(Clone, Debug)]
pub struct Pusher {
    queue: mpsc::Sender<Pushed>,
    metrics: Metrics,
}

impl Pusher {
    /// One, and who does the work: to be run beside everything else.
    ///
    /// # Errors
    ///
    /// When there can be no client.
    pub fn new(
        config: PushConfig,
        metrics: Metrics,
    ) -> Result<(Self, impl Future<Output = ()> + use<>), PushError> {
        let PushConfig { url, form, headers } = config;
        // The client that is there: it has TLS, the machine's roots, and proxies, and adds the address in front.
        let mut config = Config::new(url);
        config.headers = headers;
        config.connect_timeout = Some(TIMEOUT);
        config.read_timeout = Some(TIMEOUT);
        config.write_timeout = Some(TIMEOUT);
        config.default_retry = false;
        let client = Client::try_from(config)?;
        let (queue, waiting) = mpsc::channel(QUEUE);
        let work = work(client, form, waiting, metrics.clone());
        Ok((Self { queue, metrics }, work))
    }

    /// Leaves one that was published in this namespace, if there is room.
    pub fn offer(&self, namespace: &str, spec: CkbProfileSpec) {
        let namespace = namespace.to_owned();
        if self.queue.try_send(Pushed { namespace, spec }).is_err() {
            self.metrics.profiles.push_dropped("QueueFull");
        }
    }
}

async fn work(client: Client, form: Form, mut waiting: mpsc::Receiver<Pushed>, metrics: Metrics) {
    // So that what happens again and again is told once.
    let mut failing = false;
    while let Some(profile) = waiting.recv().await {
        // Others have this thread meanwhile: to read stacks and write them anew takes a while.
        let made = blocking(move || form.request(&profile.namespace, &profile.spec)).await;
        let pushed = match made {
            Ok(Ok(request)) => push(&client, form, &request).await,
            Ok(Err(error)) => Err((REFUSED, error.to_string())),
            Err(error) => Err((REFUSED, error.to_string())),
        };
        match pushed {
            Ok(()) => {
                metrics.profiles.pushed();
                if std::mem::replace(&mut failing, false) {
                    tracing::info!("profiles can be pushed again");
                }
            }
            Err((reason, error)) => {
                metrics.profiles.push_dropped(reason);
                if !std::mem::replace(&mut failing, true) {
                    tracing::warn!(%error, reason, "a profile could not be pushed, and is dropped");
                }
            }
        }
    }
    // Nobody publishes any more; whoever runs this wants it to last.
    std::future::pending().await
}

async fn push(
    client: &Client,
    form: Form,
    request: &Request,
) -> Result<(), (&'static str, String)> {
    let mut waits = ExponentialBuilder::default()
        .with_min_delay(Duration::from_secs(1))
        .with_max_delay(Duration::from_secs(30))
        .with_max_times(TRIES - 1)
        .with_jitter()
        .build();
    loop {
        let (reason, error) = match attempt(client, form, request).await {
            Ok(()) => return Ok(()),
            Err(failure) => failure,
        };
        let wait = waits.next().filter(|_| reason != REFUSED);
        let Some(wait) = wait else {
            return Err((reason, error));
        };
        tokio::time::sleep(wait).await;
    }
}

/// Will be refused again.
const REFUSED: &str = "Refused";

async fn attempt(
    client: &Client,
    form: Form,
    request: &Request,
) -> Result<(), (&'static str, String)> {
    let request = request.clone().into_http();
    let request = request.map_err(|error| (REFUSED, error.to_string()))?;
    match tokio::time::timeout(TIMEOUT, client.request_text(request)).await {
        Ok(Ok(answer)) => match form.read(&answer) {
            Answer::Taken => Ok(()),
            Answer::Refused(why) => Err((REFUSED, why)),
        },
        // It was taken, or not, and to send it again would help neither.
        Ok(Err(error @ kube::Error::FromUtf8(_))) => Err((REFUSED, error.to_string())),
        Ok(Err(kube::Error::Api(status)))
            if (400..500).contains(&status.code) && status.code != 429 =>
        {
            Err((REFUSED, status.to_string()))
        }
        Ok(Err(error)) => Err(("Unreachable", error.to_string())),
        Err(_) => Err((
            "Unreachable",
            format!("no answer within {} s", TIMEOUT.as_secs()),
        )),
    }
}
