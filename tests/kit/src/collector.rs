//! The real OpenTelemetry Collector, which writes what it takes to a file.

mod points;
mod profiles;

use std::{
    collections::BTreeMap,
    fs,
    net::{SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

pub use points::CollectedPoint;
pub use profiles::CollectedStack;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use crate::{PATIENCE, repository};

/// A span, as the Collector wrote it down.
#[derive(Clone, Debug, PartialEq)]
pub struct CollectedSpan {
    /// Its trace, in hexadecimal.
    pub trace: String,
    /// Its number, the same.
    pub id: String,
    /// What it is a part of; empty for a root.
    pub parent: String,
    /// What it is.
    pub name: String,
    /// Its place between processes, by OTLP's numbers.
    pub kind: u64,
    /// When it began, in nanoseconds since 1970.
    pub start_ns: u64,
    /// When it ended.
    pub end_ns: u64,
    /// What is said of it.
    pub attributes: BTreeMap<String, Value>,
    /// What is said of where it is from.
    pub resource: BTreeMap<String, Value>,
    /// Who says so.
    pub scope: String,
}

/// How it is spoken with by TLS.
#[derive(Clone, Debug)]
pub struct Tls {
    /// Its certificate.
    pub certificate: PathBuf,
    /// The key of that.
    pub key: PathBuf,
    /// Certificates of whom those of clients must be signed by; None where anybody may speak with it.
    pub clients: Option<PathBuf>,
}

/// The Collector. It ends when this is dropped.
#[derive(Debug)]
pub struct Collector {
    folder: TempDir,
    http: SocketAddr,
    grpc: SocketAddr,
    tls: Option<Tls>,
    /// Whether it takes profiles, too, which it does where its gate for that is open.
    takes_profiles: bool,
    starts: usize,
    child: Option<Child>,
}

impl Collector {
    /// Starts a Collector that takes spans without TLS.
    ///
    /// # Panics
    /// When it does not start: `scripts/setup.sh unit` builds it.
    pub fn start() -> Self {
        Self::start_with(None)
    }

    /// Starts a Collector that takes spans with TLS, if there are certificates.
    ///
    /// # Panics
    /// When it does not start.
    pub fn start_with(tls: Option<Tls>) -> Self {
        Self::started(tls, false)
    }

    /// Starts a Collector that takes profiles as well, without TLS.
    ///
    /// # Panics
    /// When it does not start.
    pub fn start_with_profiles() -> Self {
        Self::started(None, true)
    }

    fn started(tls: Option<Tls>, takes_profiles: bool) -> Self {
        let mut collector = Self {
            folder: TempDir::with_prefix("ckb-probe-collector-").unwrap(),
            http: free(),
            grpc: free(),
            tls,
            takes_profiles,
            starts: 0,
            child: None,
        };
        collector.begin();
        collector
    }

    /// Where it takes requests over HTTP.
    pub fn http(&self) -> String {
        format!("{}://{}", self.scheme(), self.http)
    }

    /// Where it takes requests over gRPC.
    pub fn grpc(&self) -> String {
        format!("{}://{}", self.scheme(), self.grpc)
    }

    fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "https" } else { "http" }
    }

    /// Starts it again after an end.
    ///
    /// # Panics
    /// When it does not start.
    pub fn begin(&mut self) {
        self.starts += 1;
        let tls = match &self.tls {
            Some(tls) => format!(
                ", tls: {{cert_file: {}, key_file: {}{}}}",
                tls.certificate.display(),
                tls.key.display(),
                tls.clients
                    .as_ref()
                    .map_or_else(String::new, |clients| format!(
                        ", client_ca_file: {}",
                        clients.display()
                    ))
            ),
            None => String::new(),
        };
        let config = format!(
            "receivers:\n  otlp: {{protocols: {{http: {{endpoint: '{}'{tls}}}, grpc: {{endpoint: '{}'{tls}}}}}}}\n\
             exporters:\n  file: {{path: '{}', flush_interval: 50ms}}\n  file/metrics: {{path: '{}', flush_interval: 50ms}}\n\
             service:\n  telemetry: {{metrics: {{level: none}}}}\n  pipelines:\n    traces: {{receivers: [otlp], exporters: [file]}}\n    \
             metrics: {{receivers: [otlp], exporters: [file/metrics]}}\n",
            self.http,
            self.grpc,
            self.file(self.starts).display(),
            self.metrics_file(self.starts).display(),
        );
        let config = match self.takes_profiles {
            true => {
                config.replace(
                    "exporters:\n",
                    &format!(
                        "exporters:\n  file/profiles: {{path: '{}', flush_interval: 50ms}}\n",
                        self.profiles_file(self.starts).display()
                    ),
                ) + "    profiles: {receivers: [otlp], exporters: [file/profiles]}\n"
            }
            false => config,
        };
        let path = self.folder.path().join("config.yaml");
        fs::write(&path, config).unwrap();
        let log = fs::File::create(self.folder.path().join("log")).unwrap();
        let program = built("otelcol", "OTELCOL").join("bin/collector");
        let child = Command::new(&program)
            .arg("--config")
            .arg(&path)
            .args(
                self.takes_profiles
                    .then_some("--feature-gates=service.profilesSupport"),
            )
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn();
        let child = child.unwrap_or_else(|error| {
            panic!(
                "{}: {error}: scripts/setup.sh unit builds it",
                program.display()
            )
        });
        self.child = Some(child);
        for address in [self.http, self.grpc] {
            self.wait_for(address);
        }
    }

    fn wait_for(&mut self, address: SocketAddr) {
        let until = Instant::now() + PATIENCE;
        while TcpStream::connect(address).is_err() {
            let ended = self
                .child
                .as_mut()
                .and_then(|child| child.try_wait().unwrap());
            let log = || fs::read_to_string(self.folder.path().join("log")).unwrap();
            assert!(ended.is_none() && Instant::now() < until, "{}", log());
            sleep(Duration::from_millis(20));
        }
    }

    /// Has it end in good order: what it took is in its file.
    ///
    /// # Panics
    /// When it does not.
    pub fn end(&mut self) {
        self.signal(Signal::TERM);
    }

    /// Kills it.
    ///
    /// # Panics
    /// When that fails.
    pub fn kill(&mut self) {
        self.signal(Signal::KILL);
    }

    fn signal(&mut self, signal: Signal) {
        if let Some(mut child) = self.child.take() {
            kill_process(Pid::from_child(&child), signal).unwrap();
            child.wait().unwrap();
        }
    }

    fn file(&self, start: usize) -> PathBuf {
        self.folder.path().join(format!("spans-{start}.json"))
    }

    fn metrics_file(&self, start: usize) -> PathBuf {
        self.folder.path().join(format!("metrics-{start}.json"))
    }

    fn profiles_file(&self, start: usize) -> PathBuf {
        self.folder.path().join(format!("profiles-{start}.json"))
    }

    /// Stacks of profiles that it has written since it was started last, once there are some.
    ///
    /// # Panics
    /// When there are none in time.
    pub fn wait_for_profiles(&self) -> Vec<CollectedStack> {
        let until = Instant::now() + PATIENCE;
        loop {
            let stacks = profiles::read(&self.profiles_file(self.starts));
            if !stacks.is_empty() {
                return stacks;
            }
            assert!(Instant::now() < until, "no profile");
            sleep(Duration::from_millis(50));
        }
    }

    /// Points of metrics that it has written since it was started last, once there are so many.
    ///
    /// # Panics
    /// When there are not in time.
    pub fn wait_for_points(&self, count: usize) -> Vec<CollectedPoint> {
        let until = Instant::now() + PATIENCE;
        loop {
            let points = points::read(&self.metrics_file(self.starts));
            if points.len() >= count {
                return points;
            }
            assert!(Instant::now() < until, "{} of {count} points", points.len());
            sleep(Duration::from_millis(50));
        }
    }

    /// What it has written, over all of its starts.
    ///
    /// # Panics
    /// When that cannot be read.
    pub fn spans(&self) -> Vec<CollectedSpan> {
        let files = (1..=self.starts).map(|start| self.file(start));
        files.flat_map(|file| read(&file)).collect()
    }

    /// The same, once it has written so many.
    ///
    /// # Panics
    /// When it does not in time.
    pub fn wait_for_spans(&self, count: usize) -> Vec<CollectedSpan> {
        let until = Instant::now() + PATIENCE;
        loop {
            let spans = self.spans();
            if spans.len() >= count {
                return spans;
            }
            assert!(Instant::now() < until, "{} of {count} spans", spans.len());
            sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// An address that nobody listens at.
///
/// # Panics
/// When there is none.
pub fn free() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap()
}

/// Where `scripts/setup.sh` has put what it built of this name, in the version that `scripts/lib.sh` says.
///
/// # Panics
/// When the script has no such version.
pub fn built(name: &str, variable: &str) -> PathBuf {
    let script = fs::read_to_string(repository().join("scripts/lib.sh")).unwrap();
    let mut lines = script.lines().map(str::trim);
    let version = lines.find_map(|line| line.strip_prefix(&format!("{variable}=")));
    crate::cache().join(format!("{name}-{}", version.unwrap()))
}

/// Spans of a file of JSON lines; a last line that is not whole is none yet.
fn read(file: &Path) -> Vec<CollectedSpan> {
    let text = fs::read_to_string(file).unwrap_or_default();
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let mut spans = Vec::new();
    for line in whole.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        for place in items(&line["resourceSpans"]) {
            let resource = attributes(&place["resource"]["attributes"]);
            for scope in items(&place["scopeSpans"]) {
                let name = text_of(&scope["scope"]["name"]);
                let all = items(&scope["spans"]).iter();
                spans.extend(all.map(|span| collected(span, &resource, &name)));
            }
        }
    }
    spans
}

fn collected(span: &Value, resource: &BTreeMap<String, Value>, scope: &str) -> CollectedSpan {
    let time = |name: &str| text_of(&span[name]).parse().unwrap_or_default();
    CollectedSpan {
        trace: text_of(&span["traceId"]),
        id: text_of(&span["spanId"]),
        parent: text_of(&span["parentSpanId"]),
        kind: span["kind"].as_u64().unwrap_or_default(),
        name: text_of(&span["name"]),
        start_ns: time("startTimeUnixNano"),
        end_ns: time("endTimeUnixNano"),
        attributes: attributes(&span["attributes"]),
        resource: resource.clone(),
        scope: scope.to_string(),
    }
}

fn items(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text_of(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_string()
}

/// By name. Whole numbers are texts in OTLP's JSON.
fn attributes(list: &Value) -> BTreeMap<String, Value> {
    let list = items(list).iter();
    list.map(|one| {
        let value = &one["value"];
        let plain = match value["intValue"].as_str() {
            Some(number) => number.parse::<i64>().unwrap().into(),
            None => value
                .as_object()
                .and_then(|value| value.values().next().cloned())
                .unwrap_or_default(),
        };
        (text_of(&one["key"]), plain)
    })
    .collect()
}
