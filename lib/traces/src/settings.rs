//! Where spans go and how: by the environment variables that OpenTelemetry's specification names, so that whoever has set them for one
//! program has for this.

use std::{path::PathBuf, time::Duration};

use http::{HeaderName, HeaderValue, Uri, uri};

use super::{
    messages::{self, EXPORT, TRACES},
    span::Attributes,
};

/// No answer is waited for any longer, unless it is said otherwise.
const TIMEOUT: Duration = Duration::from_secs(10);

/// And no longer than this, whatever is said: nothing else is sent meanwhile.
const LONGEST_TIMEOUT: Duration = Duration::from_secs(600);

/// Between two exports of metrics, unless it is said otherwise; and at the least.
const METRIC_INTERVAL: Duration = Duration::from_secs(60);
const LEAST_METRIC_INTERVAL: Duration = Duration::from_secs(1);

/// What is exported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// Spans, to whoever is named.
    Traces,
    /// Metrics, where somebody asks for them: not every receiver of spans takes them.
    Metrics,
}

impl Signal {
    /// As variables name it.
    fn variable(self) -> &'static str {
        match self {
            Self::Traces => "TRACES",
            Self::Metrics => "METRICS",
        }
    }

    /// What it consists of, for people.
    pub fn items(self) -> &'static str {
        match self {
            Self::Traces => "spans",
            Self::Metrics => "points of metrics",
        }
    }

    fn grpc_path(self) -> &'static str {
        match self {
            Self::Traces => EXPORT,
            Self::Metrics => messages::metrics::EXPORT,
        }
    }

    fn http_path(self) -> &'static str {
        match self {
            Self::Traces => TRACES,
            Self::Metrics => messages::metrics::METRICS,
        }
    }
}

/// What requests are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP with protobuf in its body.
    Http,
    /// gRPC.
    Grpc,
}

/// How requests are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// Not at all.
    None,
    /// By gzip.
    Gzip,
}

/// Where spans go, and how.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// What is exported.
    pub signal: Signal,
    /// What requests are sent to, path included.
    pub target: Uri,
    /// What they are.
    pub protocol: Protocol,
    /// What stands at their head besides. Values are not printed.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// How long an answer is waited for.
    pub timeout: Duration,
    /// How they are compressed.
    pub compression: Compression,
    /// Certificates (PEM) of whom the receiver's must be signed by; the system's, where there is none.
    pub certificate: Option<PathBuf>,
    /// Certificate and key (PEM) of whoever sends.
    pub client: Option<(PathBuf, PathBuf)>,
    /// What is said of whoever is measured, besides what is known of it: `service.name` among it.
    pub resource: Attributes,
}

/// What is set cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// The address is none.
    #[error(
        "{name}: {text} is no address of a receiver: write http://HOST:PORT or https://HOST:PORT"
    )]
    Endpoint {
        /// Where it was set.
        name: String,
        /// What was set.
        text: String,
    },
    /// It has a name and a password.
    #[error(
        "{name}: credentials do not belong into an address: write them into OTEL_EXPORTER_OTLP_HEADERS, as Authorization=…"
    )]
    Credentials {
        /// Where it was set.
        name: String,
    },
    /// It is of something else.
    #[error("{name}: there is no {text} here: write {known}")]
    Unknown {
        /// Where it was set.
        name: String,
        /// What was set.
        text: String,
        /// What there is.
        known: &'static str,
    },
    /// Headers cannot be read. Their values may be secrets, and are not told.
    #[error(
        "{name}: header {number} cannot be read: write NAME=VALUE, one after the other with commas between, and as in an address what is no letter (%20)"
    )]
    Header {
        /// Where it was set.
        name: String,
        /// Which of them, from one.
        number: usize,
    },
    /// A key without its certificate, or the other way round.
    #[error(
        "OTEL_EXPORTER_OTLP_CLIENT_KEY and OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE need each other"
    )]
    HalfClient,
}

/// What is set, by name.
struct Environment<'a>(&'a dyn Fn(&str) -> Option<String>, Signal);

impl Environment<'_> {
    fn of_signal(&self, what: &str) -> Option<(String, String)> {
        self.get(&format!("OTEL_EXPORTER_OTLP_{}_{what}", self.1.variable()))
    }

    /// A variable, if it is set to something, with its name.
    fn get(&self, name: &str) -> Option<(String, String)> {
        let value = (self.0)(name).map(|value| value.trim().to_string());
        let value = value.filter(|value| !value.is_empty());
        value.map(|value| (name.to_string(), value))
    }

    /// A variable of exporters: what is said of this signal alone comes first.
    fn exporter(&self, what: &str) -> Option<(String, String)> {
        self.of_signal(what)
            .or_else(|| self.get(&format!("OTEL_EXPORTER_OTLP_{what}")))
    }
}

impl Settings {
    /// By the environment, and by an endpoint that was named beside it, which comes first. None where nobody says where spans go, or
    /// that none go anywhere.
    pub fn new(
        endpoint: Option<&str>,
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Option<Self>, SettingsError> {
        Self::of(Signal::Traces, endpoint, variable)
    }

    /// The same of another signal.
    pub fn of(
        signal: Signal,
        endpoint: Option<&str>,
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Option<Self>, SettingsError> {
        let environment = Environment(variable, signal);
        if is_off(&environment, endpoint.is_some())? {
            return Ok(None);
        }
        let protocol = protocol(&environment)?;
        let Some(target) = target(endpoint, protocol, &environment)? else {
            return Ok(None);
        };
        Ok(Some(Self {
            signal,
            target,
            protocol,
            headers: headers(&environment)?,
            timeout: timeout(&environment)?,
            compression: compression(&environment)?,
            certificate: environment
                .exporter("CERTIFICATE")
                .map(|(_, path)| path.into()),
            client: client(&environment)?,
            resource: resource(&environment)?,
        }))
    }

    /// Of spans, by the variables of a named exporter alone: nothing of the default's, its credentials among it, is another's.
    pub fn of_exporter(
        name: &str,
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Option<Self>, SettingsError> {
        Self::new(None, &|plain| variable(&of_exporter(name, plain)))
    }

    /// The receiver, as people are told of it.
    pub fn receiver(&self) -> String {
        let protocol = match self.protocol {
            Protocol::Http => "HTTP",
            Protocol::Grpc => "gRPC",
        };
        let authority = self.target.authority().map(uri::Authority::as_str);
        format!("{} by {protocol}", authority.unwrap_or_default())
    }
}

/// The variable that is to a named exporter what this one is to the default. No variable has two lines within its name, so none of one exporter is
/// another's: what stands before them is the variable, what stands behind them the exporter.
fn of_exporter(name: &str, variable: &str) -> String {
    format!(
        "{variable}__{}",
        name.to_ascii_uppercase().replace('-', "_")
    )
}

/// Who names an endpoint on the command line wants spans there, whatever variables say.
fn is_off(environment: &Environment<'_>, is_named: bool) -> Result<bool, SettingsError> {
    let signal = environment.1;
    if is_named && signal == Signal::Traces {
        return Ok(false);
    }
    let disabled = environment.get("OTEL_SDK_DISABLED");
    if disabled.is_some_and(|(_, value)| value.eq_ignore_ascii_case("true")) {
        return Ok(true);
    }
    let exporter = environment.get(&format!("OTEL_{}_EXPORTER", signal.variable()));
    let unset = signal == Signal::Metrics && environment.of_signal("ENDPOINT").is_none();
    let words = [("otlp", false), ("none", true)];
    one_of(exporter, unset, words, "otlp or none")
}

/// What a variable's word stands for, which is one of these.
fn one_of<T>(
    variable: Option<(String, String)>,
    unset: T,
    words: [(&str, T); 2],
    known: &'static str,
) -> Result<T, SettingsError> {
    let Some((name, text)) = variable else {
        return Ok(unset);
    };
    let mut words = words.into_iter();
    let meant = words.find(|(word, _)| *word == text);
    meant
        .map(|(_, meant)| meant)
        .ok_or(SettingsError::Unknown { name, text, known })
}

fn protocol(environment: &Environment<'_>) -> Result<Protocol, SettingsError> {
    let variable = environment.exporter("PROTOCOL");
    let words = [("http/protobuf", Protocol::Http), ("grpc", Protocol::Grpc)];
    one_of(variable, Protocol::Http, words, "http/protobuf or grpc")
}

/// The time between two exports of metrics.
pub fn metric_interval(
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<Duration, SettingsError> {
    let environment = Environment(variable, Signal::Metrics);
    match environment.get("OTEL_METRIC_EXPORT_INTERVAL") {
        None => Ok(METRIC_INTERVAL),
        Some((name, text)) => Ok(milliseconds(name, text)?.max(LEAST_METRIC_INTERVAL)),
    }
}

fn milliseconds(name: String, text: String) -> Result<Duration, SettingsError> {
    match text.parse() {
        Ok(milliseconds) if milliseconds > 0 => Ok(Duration::from_millis(milliseconds)),
        _ => Err(SettingsError::Unknown {
            name,
            text,
            known: "a number of milliseconds",
        }),
    }
}

fn compression(environment: &Environment<'_>) -> Result<Compression, SettingsError> {
    let variable = environment.exporter("COMPRESSION");
    let words = [("none", Compression::None), ("gzip", Compression::Gzip)];
    one_of(variable, Compression::None, words, "gzip or none")
}

fn timeout(environment: &Environment<'_>) -> Result<Duration, SettingsError> {
    let Some((name, text)) = environment.exporter("TIMEOUT") else {
        return Ok(TIMEOUT);
    };
    Ok(milliseconds(name, text)?.min(LONGEST_TIMEOUT))
}

fn client(environment: &Environment<'_>) -> Result<Option<(PathBuf, PathBuf)>, SettingsError> {
    let certificate = environment.exporter("CLIENT_CERTIFICATE");
    match (certificate, environment.exporter("CLIENT_KEY")) {
        (None, None) => Ok(None),
        (Some((_, certificate)), Some((_, key))) => Ok(Some((certificate.into(), key.into()))),
        _ => Err(SettingsError::HalfClient),
    }
}

/// What requests are sent to.
fn target(
    endpoint: Option<&str>,
    protocol: Protocol,
    environment: &Environment<'_>,
) -> Result<Option<Uri>, SettingsError> {
    let signal = environment.1;
    let own = environment.of_signal("ENDPOINT");
    let (name, text, is_whole) = match (endpoint, own) {
        (Some(endpoint), _) => ("--otlp".to_string(), endpoint.to_string(), false),
        // What is said of one signal alone is a whole address already.
        (None, Some((name, text))) => (name, text, true),
        (None, None) => match environment.get("OTEL_EXPORTER_OTLP_ENDPOINT") {
            Some((name, text)) => (name, text, false),
            None => return Ok(None),
        },
    };
    let wrong = || SettingsError::Endpoint {
        name: name.clone(),
        text: text.clone(),
    };
    let insecure = environment.exporter("INSECURE");
    let insecure = insecure.is_some_and(|(_, value)| value.eq_ignore_ascii_case("true"));
    let whole = match (protocol, text.contains("://")) {
        (Protocol::Grpc, false) if insecure => format!("http://{text}"),
        (Protocol::Grpc, false) => format!("https://{text}"),
        _ => text.clone(),
    };
    let mut parts = whole.parse::<Uri>().map_err(|_| wrong())?.into_parts();
    if !matches!(
        parts.scheme.as_ref().map(uri::Scheme::as_str),
        Some("http" | "https")
    ) {
        return Err(wrong());
    }
    let authority = parts.authority.as_ref().ok_or_else(wrong)?;
    if authority.as_str().contains('@') {
        return Err(SettingsError::Credentials { name });
    }
    if authority.host().is_empty() {
        return Err(wrong());
    }
    let base = parts.path_and_query.as_ref().map(|path| path.path());
    let base = base.unwrap_or_default().trim_end_matches('/');
    let path = match (protocol, is_whole) {
        (Protocol::Grpc, _) => signal.grpc_path().to_string(),
        (Protocol::Http, true) if base.is_empty() => "/".to_string(),
        (Protocol::Http, true) => return Uri::from_parts(parts).map(Some).map_err(|_| wrong()),
        (Protocol::Http, false) => format!("{base}/{}", signal.http_path()),
    };
    parts.path_and_query = Some(path.parse().map_err(|_| wrong())?);
    Uri::from_parts(parts).map(Some).map_err(|_| wrong())
}

fn headers(environment: &Environment<'_>) -> Result<Vec<(HeaderName, HeaderValue)>, SettingsError> {
    let Some((name, text)) = environment.exporter("HEADERS") else {
        return Ok(Vec::new());
    };
    let pairs = pairs(&text).into_iter().enumerate();
    let headers = pairs.map(|(index, pair)| {
        let wrong = || SettingsError::Header {
            name: name.clone(),
            number: index + 1,
        };
        let (key, value) = pair.ok_or_else(wrong)?;
        let key = HeaderName::from_bytes(key.as_bytes()).map_err(|_| wrong())?;
        let mut value = HeaderValue::from_str(&value).map_err(|_| wrong())?;
        value.set_sensitive(true);
        Ok((key, value))
    });
    headers.collect()
}

fn resource(environment: &Environment<'_>) -> Result<Attributes, SettingsError> {
    let mut attributes = Attributes::new();
    if let Some((name, text)) = environment.get("OTEL_RESOURCE_ATTRIBUTES") {
        for (index, pair) in pairs(&text).into_iter().enumerate() {
            let (key, value) = pair.ok_or_else(|| SettingsError::Header {
                name: name.clone(),
                number: index + 1,
            })?;
            attributes.push((key.into(), value.into()));
        }
    }
    if let Some((_, service)) = environment.get("OTEL_SERVICE_NAME") {
        attributes.retain(|(key, _)| key != "service.name");
        attributes.push(("service.name".into(), service.into()));
    }
    Ok(attributes)
}

/// `a=1,b=2`, as W3C baggage writes it: values with %20. None for one that is no pair.
fn pairs(text: &str) -> Vec<Option<(String, String)>> {
    let items = text.split(',').filter(|item| !item.trim().is_empty());
    let items = items.map(|item| {
        let (key, value) = item.split_once('=')?;
        let (key, value) = (decoded(key.trim())?, decoded(value.trim())?);
        (!key.is_empty()).then_some((key, value))
    });
    items.collect()
}

fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let digit = |byte: u8| (byte as char).to_digit(16);
            let (high, low) = (digit(rest.next()?)?, digit(rest.next()?)?);
            bytes.push((high * 16 + low) as u8);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests;
