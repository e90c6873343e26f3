//! Pages for anybody who can connect, which any pod can: so connections are bounded in number, time and size.
//!
//! Whoever comes is let in; where there are too many, who has the most loses its oldest. Those who hold theirs open, and
//! send or read slowly, keep nobody out but themselves.

mod pieces;

use std::{
    convert::Infallible,
    io,
    net::SocketAddr,
    pin::Pin,
    sync::{Arc, Weak},
    time::Duration,
};

use http_body_util::{Either, Full};
use hyper::{
    Method, Request, Response, StatusCode,
    body::{Bytes, Incoming},
    header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue, WWW_AUTHENTICATE},
    rt::{Read, Write},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use pieces::Pieces;
use tokio::{
    net::{TcpListener, TcpStream},
    task::AbortHandle,
    time::timeout,
};

use crate::{
    connections::{ConnectionLimits, Connections},
    secure::Secure,
};

/// More connections than any set of probes and scrapers needs.
const PLACES: ConnectionLimits = ConnectionLimits { all: 32, each: 8 };

/// Who sends no request in this time is cut off.
const HEADER_TIMEOUT: Duration = Duration::from_secs(5);

/// Of a request's head.
const MAX_HEADER_BYTES: usize = 16 << 10;

/// No connection lasts longer: clients open another.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(60);

/// What a client is told: text, or why there is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Page {
    /// As it was asked for.
    Text(String),
    /// A long text, of which no connection has a copy: who has not read it when it is dropped is cut off.
    Shared(SharedText),
    /// There is no such page.
    Unknown(&'static str),
    /// Not now, or not well.
    Unavailable(String),
}

/// A text that somebody else keeps.
#[derive(Clone, Debug)]
pub struct SharedText {
    text: Weak<String>,
    media_type: &'static str,
}

impl SharedText {
    /// This one, of this type, as long as it is kept.
    pub fn of(text: &Arc<String>, media_type: &'static str) -> Self {
        Self {
            text: Arc::downgrade(text),
            media_type,
        }
    }

    /// The text, if it is still kept.
    pub fn text(&self) -> Option<Arc<String>> {
        self.text.upgrade()
    }
}

impl PartialEq for SharedText {
    fn eq(&self, other: &Self) -> bool {
        self.text.ptr_eq(&other.text)
    }
}

impl Eq for SharedText {}

/// What a client asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked<'a> {
    /// The path.
    pub path: &'a str,
    /// What it would rather have, as the header `Accept` says; empty where it does not say.
    pub accept: &'a str,
}

/// Short texts are of this type.
const PLAIN: &str = "text/plain; version=0.0.4; charset=utf-8";

/// What goes to a client.
type Told = Either<Full<Bytes>, Pieces>;

/// What is behind a path.
pub type Answer = Pin<Box<dyn Future<Output = Page> + Send>>;

/// The address is taken, or not ours.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}: {source}")]
pub struct ListenError {
    address: SocketAddr,
    source: io::Error,
}

/// Binds an address.
pub async fn bind(address: SocketAddr) -> Result<TcpListener, ListenError> {
    let listener = TcpListener::bind(address).await;
    listener.map_err(|source| ListenError { address, source })
}

/// Serves the pages for ever: to everybody, or to those whom the API server lets read `/metrics`.
pub async fn serve<Pages>(listener: TcpListener, secure: Option<Arc<Secure>>, pages: Pages)
where
    Pages: Fn(&Asked<'_>) -> Answer + Clone + Send + Sync + 'static,
{
    let mut guests: Connections<AbortHandle> = Connections::new(PLACES);
    loop {
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            // One client's failure, or too many open files: both pass.
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        guests.retain(|guest| !guest.is_finished());
        let connection = tokio::spawn(connection(stream, secure.clone(), pages.clone()));
        if let Some(goes) = guests.admit(peer.ip(), connection.abort_handle()) {
            goes.abort();
        }
    }
}

/// A client that goes away, or stays too long, is its own affair: nothing of it is told.
async fn connection<Pages>(stream: TcpStream, secure: Option<Arc<Secure>>, pages: Pages)
where
    Pages: Fn(&Asked<'_>) -> Answer + Clone + Send + Sync + 'static,
{
    let exchange = async {
        match &secure {
            None => speak(TokioIo::new(stream), None, pages).await,
            Some(secure) => {
                let greeted = timeout(HEADER_TIMEOUT, secure.greet(stream)).await;
                if let Ok(Ok(stream)) = greeted {
                    speak(TokioIo::new(stream), Some(secure), pages).await;
                }
            }
        }
    };
    let _ = timeout(CONNECTION_TIMEOUT, exchange).await;
}

async fn speak<Pages>(stream: impl Read + Write + Unpin, secure: Option<&Arc<Secure>>, pages: Pages)
where
    Pages: Fn(&Asked<'_>) -> Answer,
{
    let service = service_fn(|request| respond(request, secure, &pages));
    let _ = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_buf_size(MAX_HEADER_BYTES)
        .serve_connection(stream, service)
        .await;
}

async fn respond(
    request: Request<Incoming>,
    secure: Option<&Arc<Secure>>,
    pages: &impl Fn(&Asked<'_>) -> Answer,
) -> Result<Response<Told>, Infallible> {
    if request.method() != Method::GET && request.method() != Method::HEAD {
        return Ok(text(StatusCode::METHOD_NOT_ALLOWED, "GET only\n"));
    }
    if let Some(secure) = secure
        && let Err(refusal) = secure.admit(token(&request)).await
    {
        let mut response = text(refusal.status(), format!("{refusal}\n"));
        if response.status() == StatusCode::UNAUTHORIZED {
            let bearer = HeaderValue::from_static("Bearer");
            response.headers_mut().insert(WWW_AUTHENTICATE, bearer);
        }
        return Ok(response);
    }
    let accept = request.headers().get(ACCEPT);
    let accept = accept.and_then(|value| value.to_str().ok());
    let asked = Asked {
        path: request.uri().path(),
        accept: accept.unwrap_or_default(),
    };
    Ok(match pages(&asked).await {
        Page::Text(page) => text(StatusCode::OK, page),
        Page::Shared(page) => page.text().map_or_else(
            || text(StatusCode::SERVICE_UNAVAILABLE, "gone by now\n"),
            |text| {
                let pieces = Either::Right(Pieces::of(&text));
                response(StatusCode::OK, page.media_type, pieces)
            },
        ),
        Page::Unknown(known) => text(StatusCode::NOT_FOUND, known),
        Page::Unavailable(why) => text(StatusCode::SERVICE_UNAVAILABLE, why),
    })
}

/// What a client shows to be let in.
fn token(request: &Request<Incoming>) -> Option<&str> {
    let shown = request.headers().get(AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = shown.split_once(' ')?;
    scheme
        .eq_ignore_ascii_case("Bearer")
        .then_some(token.trim())
}

fn text(status: StatusCode, body: impl Into<Bytes>) -> Response<Told> {
    response(status, PLAIN, Either::Left(Full::new(body.into())))
}

fn response(status: StatusCode, media_type: &'static str, body: Told) -> Response<Told> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let media_type = HeaderValue::from_static(media_type);
    response.headers_mut().insert(CONTENT_TYPE, media_type);
    response
}

#[cfg(test)]
mod tests;
