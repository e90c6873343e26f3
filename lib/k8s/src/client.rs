//! A client of the API server that never waits for ever.
//!
//! What is behind a watch that says nothing? Nothing new, most of the time; and sometimes nobody, because a firewall, a
//! load balancer or a node on the way has forgotten the connection. A client that cannot tell would measure for minutes what was to be
//! paused. So whoever is at the other end has to give a sign of life:
//!
//! - over HTTP/2, which the API server speaks, by answering pings. That reaches through whatever forwards bytes;
//! - over HTTP/1.1, where something in between speaks no other, the kernel of the next machine by TCP's own means.
//!
//! And each request has to be answered within a time; only a watch may stay without news as long as it lasts.

use std::{
    error::Error,
    io,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use hyper::{Request, Response, body::Body as HttpBody, header::AUTHORIZATION};
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use hyper_timeout::TimeoutConnector;
use hyper_util::{
    client::legacy::{self, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use kube::{
    Client, Config,
    client::{Body, ConfigExt as _, middleware::BaseUriLayer, retry::RetryPolicy},
};
use tokio_rustls::rustls;
use tower::{BoxError, Service, ServiceBuilder, retry::RetryLayer};
use tower_http::timeout::TimeoutBody;

use crate::account::Account;

/// Until there is a connection, TLS included.
const CONNECT: Duration = Duration::from_secs(5);

/// Until the answer to a request begins, and then between any two parts of it.
const ANSWER: Duration = Duration::from_secs(15);

/// Without news, a watch ends by itself at the API server before that.
const WATCH: Duration = Duration::from_secs(300);

/// Until a part of a request is taken.
const WRITE: Duration = Duration::from_secs(10);

/// Over HTTP/2: after so long without a byte, a sign of life is asked for,
const PING: Duration = Duration::from_secs(8);
/// and awaited for so long.
const PONG: Duration = Duration::from_secs(7);

/// The same by TCP: after so long without a byte,
const KEEPALIVE: Duration = Duration::from_secs(5);
/// every so often,
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(3);
/// until nothing sent has been acknowledged for so long.
#[cfg(target_os = "linux")]
const UNACKNOWLEDGED: Duration = Duration::from_secs(12);

/// A connection that nobody uses is kept for so long.
const IDLE: Duration = Duration::from_secs(60);

type Connector = TimeoutConnector<HttpsConnector<HttpConnector>>;

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// What is configured cannot be used.
    #[error("cannot make a client of the API server: {0}")]
    Config(#[from] kube::Error),
    /// The name to expect in the API server's certificate is none.
    #[error("tls-server-name is no name of a server: {0}")]
    ServerName(String),
}

/// A client as kube makes it, with the deadlines of this module.
pub fn client(config: Config) -> Result<Client, ClientError> {
    // kube says why it cannot, built as it is here.
    if config.proxy_url.is_some() {
        return Ok(Client::try_from(config)?);
    }
    let http = http(
        config.rustls_client_config()?,
        config.tls_server_name.as_deref(),
    )?;
    let retry = config.default_retry.then(retry);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(retry)
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(http);
    Ok(Client::new(service, config.default_namespace))
}

/// The same of a service account, without what a kubeconfig may ask for.
pub fn of_account(account: Account) -> Result<Client, ClientError> {
    let Account { server, tls, token } = account;
    let sign = move |mut request: Request<Body>| {
        if let Some(token) = &token {
            request.headers_mut().insert(AUTHORIZATION, token.get());
        }
        request
    };
    let service = ServiceBuilder::new()
        .layer(BaseUriLayer::new(server))
        .layer(retry())
        .map_request(sign)
        .map_err(BoxError::from)
        .service(http(tls, None)?);
    Ok(Client::new(service, "default"))
}

fn retry() -> RetryLayer<RetryPolicy> {
    RetryLayer::new(RetryPolicy::server_retry())
}

/// Sends requests, with these deadlines, to whoever is expected to have this name, or else that by which it was called.
fn http(
    tls: rustls::ClientConfig,
    server_name: Option<&str>,
) -> Result<Deadlines<legacy::Client<Connector, Body>>, ClientError> {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_keepalive(Some(KEEPALIVE));
    tcp.set_keepalive_interval(Some(KEEPALIVE_INTERVAL));
    // Nobody else has it: elsewhere the deadlines for answers, and keepalives, are what there is.
    #[cfg(target_os = "linux")]
    tcp.set_tcp_user_timeout(Some(UNACKNOWLEDGED));

    let mut https = HttpsConnectorBuilder::new()
        .with_tls_config(tls)
        .https_or_http();
    if let Some(name) = server_name {
        let known = name.to_owned().try_into();
        let known = known.map_err(|_| ClientError::ServerName(name.to_owned()))?;
        https = https.with_server_name_resolver(FixedServerNameResolver::new(known));
    }
    let https = https.enable_http1().enable_http2().wrap_connector(tcp);

    let mut connector = TimeoutConnector::new(https);
    connector.set_connect_timeout(Some(CONNECT));
    connector.set_write_timeout(Some(WRITE));

    let http = legacy::Client::builder(TokioExecutor::new())
        .timer(TokioTimer::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE)
        .http2_keep_alive_interval(PING)
        .http2_keep_alive_timeout(PONG)
        .http2_keep_alive_while_idle(true)
        .build(connector);
    Ok(Deadlines(http))
}

/// Why there is no TLS with who answers.
#[derive(Debug, Eq, PartialEq)]
pub enum Handshake {
    /// It shows a certificate that is not believed; with what is wrong with it.
    Untrusted(String),
    /// It speaks something else.
    NoTls,
}

/// What came in the way of TLS, if it was that which made a request fail.
pub fn handshake(error: &(dyn Error + 'static)) -> Option<Handshake> {
    let mut next = Some(error);
    while let Some(error) = next {
        match error.downcast_ref() {
            Some(invalid @ rustls::Error::InvalidCertificate(_)) => {
                return Some(Handshake::Untrusted(invalid.to_string()));
            }
            Some(rustls::Error::InvalidMessage(_)) => return Some(Handshake::NoTls),
            _ => {}
        }
        // An error of I/O does not name what it is made of as its source, but the source of that.
        let of_io = error.downcast_ref().and_then(io::Error::get_ref);
        next = match of_io {
            Some(inner) => Some(inner),
            None => error.source(),
        };
    }
    None
}

/// Nothing came in time.
#[derive(Debug, thiserror::Error)]
#[error("no answer within {} s", .0.as_secs())]
pub struct NoAnswer(Duration);

/// Gives each request its time.
#[derive(Clone)]
struct Deadlines<S>(S);

impl<S, B> Service<Request<Body>> for Deadlines<S>
where
    S: Service<Request<Body>, Response = Response<B>>,
    S::Error: Into<BoxError>,
    S::Future: Send + 'static,
    B: HttpBody,
{
    type Response = Response<TimeoutBody<B>>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.0.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let between = if is_watch(request.uri().query()) {
            WATCH
        } else {
            ANSWER
        };
        // Of a watch too: the API server sends the head of its answer at once.
        let answer = tokio::time::timeout(ANSWER, self.0.call(request));
        Box::pin(async move {
            let answer = answer.await.map_err(|_| NoAnswer(ANSWER))?;
            let answer = answer.map_err(Into::into)?;
            Ok(answer.map(|body| TimeoutBody::new(between, body)))
        })
    }
}

fn is_watch(query: Option<&str>) -> bool {
    let mut pairs = query.unwrap_or_default().split('&');
    pairs.any(|pair| matches!(pair, "watch=true" | "watch=1"))
}
