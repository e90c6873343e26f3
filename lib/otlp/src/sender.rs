//! One request, and what came of it.

use std::{
    error::Error,
    io::{self, Write as _},
    time::{Duration, SystemTime},
};

use base64::{Engine as _, engine::general_purpose::STANDARD_NO_PAD};
use bytes::Bytes;
use ckb_probe_traces::{
    Compression, Protocol, Settings,
    answer::{self, Answer, Outcome},
};
use flate2::write::GzEncoder;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::{
    HeaderMap, Method, Request, Response, Version,
    body::Incoming,
    header::{CONTENT_ENCODING, CONTENT_TYPE, RETRY_AFTER, TE, USER_AGENT},
};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_timeout::TimeoutConnector;
use hyper_util::{
    client::legacy::{self, Client, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use tokio::time::timeout;

use super::{
    overheard::{self, LastWord, Overhearing},
    tls::{self, TlsError},
};

/// Until there is a connection, TLS included.
const CONNECT: Duration = Duration::from_secs(5);

/// A connection that nobody uses is kept for so long: the next request finds it open, as a rule, and not about to be closed.
const IDLE: Duration = Duration::from_secs(20);

/// Of an answer no more is read than this.
const ANSWER_BYTES: usize = 64 << 10;

/// Before each message of gRPC: whether it is compressed, and its length in four bytes.
const FRAME: usize = 5;

const AGENT: &str = concat!("ckb-probe/", env!("CARGO_PKG_VERSION"));

type Connector = Overhearing<TimeoutConnector<HttpsConnector<HttpConnector>>>;
type RequestClient = Client<Connector, Full<Bytes>>;

/// Sends requests to one receiver.
pub struct Sender {
    settings: Settings,
    client: RequestClient,
    last_word: LastWord,
}

impl Sender {
    /// To whom the settings name. Nothing is connected yet.
    pub fn new(settings: Settings) -> Result<Self, TlsError> {
        let last_word = LastWord::default();
        Ok(Self {
            client: client(&settings, &last_word)?,
            settings,
            last_word,
        })
    }

    /// Sends a request, and says what came of it.
    pub async fn send(&mut self, message: Vec<u8>) -> Answer {
        let answer = self.attempt(message).await;
        if answer.outcome == Outcome::Unsent && tls::has_files(&self.settings) {
            // Certificates are renewed: the next connection is made with those that are there then. What cannot be read now, such as a
            // key that is being replaced, leaves those that were.
            if let Ok(client) = client(&self.settings, &self.last_word) {
                self.client = client;
            }
        }
        answer
    }

    async fn attempt(&self, message: Vec<u8>) -> Answer {
        let request = match self.request(message) {
            Ok(request) => request,
            Err(error) => return Answer::new(Outcome::Refused, error.to_string()),
        };
        match timeout(self.settings.timeout, self.exchange(request)).await {
            Ok(answer) => answer,
            Err(_) => Answer::new(
                Outcome::Unanswered,
                format!("no answer within {} ms", self.settings.timeout.as_millis()),
            ),
        }
    }

    async fn exchange(&self, request: Request<Full<Bytes>>) -> Answer {
        self.last_word.take();
        let response = match self.client.request(request).await {
            Ok(response) => response,
            Err(error) => return self.failed(&error),
        };
        match self.settings.protocol {
            Protocol::Http => http_answer(response).await,
            Protocol::Grpc => grpc_answer(response).await,
        }
    }

    /// Without an answer. What never left was not taken; of anything else nobody knows.
    fn failed(&self, error: &legacy::Error) -> Answer {
        let said = self.last_word.take().or_else(|| overheard::said(error));
        let unwelcome = said.and_then(|said| tls::unwelcome(said, self.settings.client.is_some()));
        if let Some(message) = unwelcome {
            // Whoever does not want to hear from a client has read nothing of what it sent.
            return Answer::new(Outcome::Unsent, message);
        }
        let mut message = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            message = format!("{message}: {cause}");
            source = cause.source();
        }
        let outcome = match error.is_connect() {
            true => Outcome::Unsent,
            false => Outcome::Unanswered,
        };
        Answer::new(outcome, message)
    }

    fn request(&self, message: Vec<u8>) -> Result<Request<Full<Bytes>>, RequestError> {
        let compressed = self.settings.compression == Compression::Gzip;
        let message = match compressed {
            true => gzip(&message)?,
            false => message,
        };
        let mut request = Request::new(Full::default());
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.settings.target.clone();
        let headers = request.headers_mut();
        headers.insert(USER_AGENT, hyper::header::HeaderValue::from_static(AGENT));
        let of = hyper::header::HeaderValue::from_static;
        let body = match self.settings.protocol {
            Protocol::Http => {
                headers.insert(CONTENT_TYPE, of("application/x-protobuf"));
                if compressed {
                    headers.insert(CONTENT_ENCODING, of("gzip"));
                }
                message
            }
            Protocol::Grpc => {
                headers.insert(CONTENT_TYPE, of("application/grpc"));
                headers.insert(TE, of("trailers"));
                if compressed {
                    headers.insert("grpc-encoding", of("gzip"));
                }
                framed(message, compressed)?
            }
        };
        for (name, value) in &self.settings.headers {
            headers.insert(name.clone(), value.clone());
        }
        if self.settings.protocol == Protocol::Grpc {
            *request.version_mut() = Version::HTTP_2;
        }
        *request.body_mut() = Full::new(body.into());
        Ok(request)
    }
}

/// To whom the settings name.
fn client(settings: &Settings, last_word: &LastWord) -> Result<RequestClient, TlsError> {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    let tls = HttpsConnectorBuilder::new()
        .with_tls_config(tls::config(settings)?)
        .https_or_http();
    let connector = match settings.protocol {
        Protocol::Http => tls.enable_http1().wrap_connector(tcp),
        Protocol::Grpc => tls.enable_http2().wrap_connector(tcp),
    };
    let mut connector = TimeoutConnector::new(connector);
    connector.set_connect_timeout(Some(CONNECT));
    let connector = Overhearing {
        connector,
        last_word: last_word.clone(),
    };
    Ok(Client::builder(TokioExecutor::new())
        .timer(TokioTimer::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE)
        .http2_only(settings.protocol == Protocol::Grpc)
        .build(connector))
}

/// There is nothing that could be sent.
#[derive(Debug, thiserror::Error)]
enum RequestError {
    /// It cannot be compressed.
    #[error("cannot compress a request: {0}")]
    Gzip(#[from] io::Error),
    /// gRPC has no such message.
    #[error("a request of {0} bytes is more than gRPC has messages of")]
    Long(usize),
}

/// Quickly: what is sent is short of bytes, and whoever measures is short of time.
fn gzip(message: &[u8]) -> io::Result<Vec<u8>> {
    let room = Vec::with_capacity(message.len() / 4);
    let mut encoder = GzEncoder::new(room, flate2::Compression::fast());
    encoder.write_all(message)?;
    encoder.finish()
}

fn framed(message: Vec<u8>, compressed: bool) -> Result<Vec<u8>, RequestError> {
    let length = u32::try_from(message.len()).map_err(|_| RequestError::Long(message.len()))?;
    let mut framed = Vec::with_capacity(FRAME + message.len());
    framed.push(u8::from(compressed));
    framed.extend(length.to_be_bytes());
    framed.extend(message);
    Ok(framed)
}

async fn http_answer(response: Response<Incoming>) -> Answer {
    let status = response.status().as_u16();
    let after = response.headers().get(RETRY_AFTER);
    let after = after
        .and_then(|value| value.to_str().ok())
        .map(str::to_string);
    let body = Limited::new(response.into_body(), ANSWER_BYTES)
        .collect()
        .await;
    // Its status says what became of the request, also where the rest is lost.
    let body = body.map(|body| body.to_bytes()).unwrap_or_default();
    answer::of_http(status, &body, after.as_deref(), SystemTime::now())
}

async fn grpc_answer(response: Response<Incoming>) -> Answer {
    let status = response.status().as_u16();
    if status != 200 {
        // Something in between, which does not speak gRPC.
        return answer::of_http(status, &[], None, SystemTime::now());
    }
    let head = response.headers().clone();
    if head.contains_key("grpc-status") {
        return grpc_status(&head, &[]);
    }
    let body = Limited::new(response.into_body(), ANSWER_BYTES)
        .collect()
        .await;
    let body = match body {
        Ok(body) => body,
        Err(error) => return Answer::new(Outcome::Unanswered, error.to_string()),
    };
    let trailers = body.trailers().cloned().unwrap_or_default();
    let body = body.to_bytes();
    grpc_status(&trailers, body.get(FRAME..).unwrap_or_default())
}

fn grpc_status(fields: &HeaderMap, body: &[u8]) -> Answer {
    let field = |name: &str| fields.get(name).and_then(|value| value.to_str().ok());
    let Some(code) = field("grpc-status").and_then(|code| code.parse().ok()) else {
        return Answer::new(Outcome::Unanswered, "an answer without a gRPC status");
    };
    let details = field("grpc-status-details-bin").unwrap_or_default();
    let details = STANDARD_NO_PAD.decode(details.trim_end_matches('='));
    answer::of_grpc(
        code,
        field("grpc-message").unwrap_or_default(),
        &details.unwrap_or_default(),
        body,
    )
}
