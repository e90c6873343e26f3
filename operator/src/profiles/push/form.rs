//! How a profile is written down for a server: as Pyroscope's HTTP API takes it (`POST /ingest`, `format=pprof`), which others speak, too
//! (Grafana Alloy, for example); or as OTLP has profiles, which is alpha.

use std::io::Write as _;

use ckb_probe_crds::{CkbProfileSpec, ProfileMode};
use ckb_probe_profiles::{
    Profile, otlp,
    pprof::{Limits, ReadError},
};
use clap::ValueEnum;
use flate2::{Compression, write::GzEncoder};
use http::header;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::json;

/// What a server takes.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, ValueEnum)]
pub enum Form {
    /// Pyroscope's HTTP API.
    #[default]
    Pyroscope,
    /// OTLP's profiles over HTTP, as they are in protocol 1.9: receivers of another release may not read them.
    OtlpAlpha,
}

/// What is sent.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// Path and query, after the server's address.
    pub target: String,
    headers: Vec<(header::HeaderName, String)>,
    body: Vec<u8>,
}

/// What a server that answered well did.
#[derive(Debug, PartialEq)]
pub enum Answer {
    /// It has the profile.
    Taken,
    /// It has not, and says why.
    Refused(String),
}

/// Between the parts of a request: no pprof that is gzipped has it but by chance of one in 2^150.
const BOUNDARY: &str = "ckb-probe-5f1c2b7e9a3d4c60b8e1f2a7";

/// Who sends.
const SENDER: &str = "ckb-probe";

impl Form {
    /// One that was published in this namespace.
    ///
    /// # Errors
    ///
    /// When its stacks cannot be read, of which they need be for OTLP alone.
    pub fn request(self, namespace: &str, spec: &CkbProfileSpec) -> Result<Request, ReadError> {
        match self {
            Self::Pyroscope => Ok(pyroscope(namespace, spec)),
            Self::OtlpAlpha => of_otlp(namespace, spec),
        }
    }

    /// What a server says that answered well.
    pub fn read(self, answer: &str) -> Answer {
        match self {
            Self::Pyroscope => Answer::Taken,
            Self::OtlpAlpha => {
                otlp::refused(answer.as_bytes()).map_or(Answer::Taken, Answer::Refused)
            }
        }
    }
}

impl Request {
    /// The same for the client.
    ///
    /// # Errors
    ///
    /// When the target is none.
    pub fn into_http(self) -> http::Result<http::Request<Vec<u8>>> {
        let Self {
            target,
            headers,
            body,
        } = self;
        let mut request = http::Request::post(target);
        for (name, value) in headers {
            request = request.header(name, value);
        }
        request.body(body)
    }
}

/// A receiver has a profile for each sample type.
fn of_otlp(namespace: &str, spec: &CkbProfileSpec) -> Result<Request, ReadError> {
    let profile = Profile::from_pprof(&spec.pprof.0, &Limits::PART)?;
    let request = profile.to_otlp(&[
        ("service.name", SENDER),
        ("k8s.namespace.name", namespace),
        ("ckb_probe.ckbprobe", &spec.ckb_probe),
        ("ckb_probe.probe", &spec.probe),
        ("ckb_probe.mode", spec.mode.as_str()),
    ]);
    let mut body = GzEncoder::new(Vec::new(), Compression::default());
    // Memory takes all that is written.
    let _ = body.write_all(&request);
    Ok(Request {
        target: otlp::PATH.to_owned(),
        headers: vec![
            (header::CONTENT_TYPE, "application/x-protobuf".to_owned()),
            (header::CONTENT_ENCODING, "gzip".to_owned()),
        ],
        body: body.finish().unwrap_or_default(),
    })
}

fn pyroscope(namespace: &str, spec: &CkbProfileSpec) -> Request {
    let began = spec.window.began_at.0.as_second();
    let lasted = i64::try_from(spec.window.milliseconds.div_ceil(1000)).unwrap_or(0);
    // The server refuses what ends as it begins.
    let until = began.saturating_add(lasted.max(1));
    let name = format!(
        "{SENDER}{{namespace={namespace},ckbprobe={},probe={},mode={}}}",
        spec.ckb_probe,
        spec.probe,
        spec.mode.as_str()
    );
    Request {
        target: format!(
            "/ingest?name={}&from={began}&until={until}&format=pprof&spyName={SENDER}",
            utf8_percent_encode(&name, NON_ALPHANUMERIC)
        ),
        headers: vec![(
            header::CONTENT_TYPE,
            format!("multipart/form-data; boundary={BOUNDARY}"),
        )],
        body: multipart(&spec.pprof.0, spec.mode),
    }
}

/// The stacks, and what their sample types are called: without that the server takes those only that Go's profiles have.
fn multipart(pprof: &[u8], mode: ProfileMode) -> Vec<u8> {
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
