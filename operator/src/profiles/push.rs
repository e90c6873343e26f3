//! Hands what is published to whoever collects profiles, by Pyroscope's HTTP API (`POST /ingest`, `format=pprof`), which others speak,
//! too: Grafana Alloy, for example.
//!
//! It is beside the point of this process, and must never be in its way: what cannot be handed over in time is dropped and counted.

use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBuilder};
use ckb_probe_crds::{CkbProfileSpec, ProfileMode};
use http::{HeaderName, HeaderValue, Request, Uri, header};
use kube::{Client, Config, config::InferConfigError};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::json;
use tokio::sync::mpsc;

use crate::metrics::Metrics;

/// Profiles that wait: at half a mebibyte each.
const QUEUE: usize = 8;
/// What is tried again, is tried so often.
const TRIES: usize = 5;
/// No try takes longer.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Between the parts of a request: no pprof that is gzipped has it but by chance of one in 2^150.
const BOUNDARY: &str = "ckb-probe-5f1c2b7e9a3d4c60b8e1f2a7";

/// The server that profiles are pushed to.
#[derive(Clone, Debug)]
pub struct PushConfig {
    /// The server's address, to which `/ingest` is added.
    pub url: Uri,
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
    pub fn parse(url: &str, headers: &str) -> Result<Self, PushError> {
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
            headers: headers.collect::<Result<_, PushError>>()?,
        })
    }
}

/// A profile to be handed over.
#[derive(Clone, Debug, PartialEq)]
pub struct Pushed {
    /// Path and query.
    target: String,
    /// `multipart/form-data`.
    body: Vec<u8>,
}

impl Pushed {
    /// One that was published in this namespace.
    pub fn of(namespace: &str, spec: &CkbProfileSpec) -> Self {
        let began = spec.window.began_at.0.as_second();
        let lasted = i64::try_from(spec.window.milliseconds.div_ceil(1000)).unwrap_or(0);
        // The server refuses what ends as it begins.
        let until = began.saturating_add(lasted.max(1));
        let name = format!(
            "ckb-probe{{namespace={namespace},ckbprobe={},probe={},mode={}}}",
            spec.ckb_probe,
            spec.probe,
            spec.mode.as_str()
        );
        Self {
            target: format!(
                "/ingest?name={}&from={began}&until={until}&format=pprof&spyName=ckb-probe",
                utf8_percent_encode(&name, NON_ALPHANUMERIC)
            ),
            body: form(&spec.pprof.0, spec.mode),
        }
    }
}

/// The stacks, and what their sample types are called: without that the server takes those only that Go's profiles have.
fn form(pprof: &[u8], mode: ProfileMode) -> Vec<u8> {
    let names = match mode {
        ProfileMode::Cpu => json!({
            "samples": { "units": "samples", "display-name": "samples", "sampled": true },
            "cpu": { "units": "nanoseconds", "display-name": "cpu", "sampled": true },
        }),
        ProfileMode::OffCpu => json!({
            "wait": { "units": "nanoseconds", "display-name": "offcpu", "sampled": true },
        }),
        ProfileMode::Memory => json!({
            "faults": { "units": "count", "display-name": "page_faults", "sampled": true },
            "space": { "units": "bytes", "display-name": "touched_space", "sampled": true },
        }),
        ProfileMode::Allocations => json!({
            "alloc_space": { "units": "bytes", "display-name": "alloc_space", "sampled": true },
            "free_space": { "units": "bytes", "display-name": "free_space", "sampled": true },
        }),
        ProfileMode::Threads => json!({
            "threads": { "units": "count", "display-name": "threads", "aggregation": "average" },
            "in_state": { "units": "nanoseconds", "display-name": "threads_in_state", "aggregation": "average" },
        }),
        ProfileMode::SlowCalls => json!({
            "slow_calls": { "units": "count", "display-name": "slow_calls" },
            "duration": { "units": "nanoseconds", "display-name": "slow_calls_time" },
        }),
    };
    let names = names.to_string();
    let mut form = Vec::with_capacity(pprof.len() + 1024);
    for (field, file, content) in [
        ("profile", "profile.pprof", pprof),
        (
            "sample_type_config",
            "sample_type_config.json",
            names.as_bytes(),
        ),
    ] {
        let head = format!(
            "--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"{field}\"; filename=\"{file}\"\r\n\
             Content-Type: application/octet-stream\r\n\r\n"
        );
        form.extend_from_slice(head.as_bytes());
        form.extend_from_slice(content);
        form.extend_from_slice(b"\r\n");
    }
    form.extend_from_slice(format!("--{BOUNDARY}--\r\n").as_bytes());
    form
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
        let PushConfig { url, headers } = config;
        // The client that is there: it has TLS, the machine's roots, and proxies, and adds the address in front.
        let mut config = Config::new(url);
        config.headers = headers;
        config.connect_timeout = Some(TIMEOUT);
        config.read_timeout = Some(TIMEOUT);
        config.write_timeout = Some(TIMEOUT);
        config.default_retry = false;
        let client = Client::try_from(config)?;
        let (queue, waiting) = mpsc::channel(QUEUE);
        let work = work(client, waiting, metrics.clone());
        Ok((Self { queue, metrics }, work))
    }

    /// Leaves it, if there is room.
    pub fn offer(&self, profile: Pushed) {
        if self.queue.try_send(profile).is_err() {
            self.metrics.profiles.push_dropped("QueueFull");
        }
    }
}

async fn work(client: Client, mut waiting: mpsc::Receiver<Pushed>, metrics: Metrics) {
    // So that what happens again and again is told once.
    let mut failing = false;
    while let Some(profile) = waiting.recv().await {
        match push(&client, &profile).await {
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

async fn push(client: &Client, profile: &Pushed) -> Result<(), (&'static str, String)> {
    let mut waits = ExponentialBuilder::default()
        .with_min_delay(Duration::from_secs(1))
        .with_max_delay(Duration::from_secs(30))
        .with_max_times(TRIES - 1)
        .with_jitter()
        .build();
    loop {
        let (reason, error) = match attempt(client, profile).await {
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

async fn attempt(client: &Client, profile: &Pushed) -> Result<(), (&'static str, String)> {
    let request = Request::post(&profile.target)
        .header(
            header::CONTENT_TYPE,
            format!("multipart/form-data; boundary={BOUNDARY}"),
        )
        .body(profile.body.clone())
        .map_err(|error| (REFUSED, error.to_string()))?;
    match tokio::time::timeout(TIMEOUT, client.request_text(request)).await {
        Ok(Ok(_)) => Ok(()),
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

#[cfg(test)]
mod tests;
