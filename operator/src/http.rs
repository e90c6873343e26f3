//! `/healthz`, `/readyz` and `/metrics`.
//!
//! Any pod may connect, so connections are bounded in number, time and size. Whoever connects last is served: where there are
//! too many the oldest goes, and those who hold theirs open keep nobody out.

use std::{
    collections::VecDeque,
    convert::Infallible,
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use http_body_util::Full;
use hyper::{
    Method, Request, Response, StatusCode,
    body::{Bytes, Incoming},
    header::CONTENT_TYPE,
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{net::TcpListener, task::AbortHandle};

use crate::metrics::Metrics;

/// More connections than any set of probes and scrapers needs.
const MAX_CONNECTIONS: usize = 32;
/// A client that sends no request in this time is cut off.
const HEADER_TIMEOUT: Duration = Duration::from_secs(5);
/// Of a request's head.
const MAX_HEADER_BYTES: usize = 16 << 10;
/// No connection lasts longer: clients open another.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(120);

/// What the pages show.
#[derive(Clone, Debug)]
pub struct Pages {
    /// The metrics.
    pub metrics: Metrics,
    /// Whether the caches are complete. A replica that stands by is ready too.
    pub ready: Arc<AtomicBool>,
}

/// Answers for ever. An error is the listener's.
pub async fn serve(listener: TcpListener, pages: Pages) -> io::Error {
    let mut connections: VecDeque<AbortHandle> = VecDeque::new();
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            // One client's failure, or too many open files: both pass.
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        connections.retain(|connection| !connection.is_finished());
        if connections.len() >= MAX_CONNECTIONS
            && let Some(oldest) = connections.pop_front()
        {
            oldest.abort();
        }
        let pages = pages.clone();
        let connection = tokio::spawn(async move {
            let service = service_fn(move |request| {
                let response = respond(&pages, &request);
                async move { Ok::<_, Infallible>(response) }
            });
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEADER_TIMEOUT)
                .max_buf_size(MAX_HEADER_BYTES)
                .serve_connection(TokioIo::new(stream), service);
            // A client that goes away, or stays too long, is its own affair.
            let _ = tokio::time::timeout(CONNECTION_TIMEOUT, connection).await;
        });
        connections.push_back(connection.abort_handle());
    }
}

fn respond(pages: &Pages, request: &Request<Incoming>) -> Response<Full<Bytes>> {
    if request.method() != Method::GET && request.method() != Method::HEAD {
        return text(StatusCode::METHOD_NOT_ALLOWED, "GET only\n");
    }
    match request.uri().path() {
        "/healthz" => text(StatusCode::OK, "ok\n"),
        "/readyz" if pages.ready.load(Ordering::Relaxed) => text(StatusCode::OK, "ok\n"),
        "/readyz" => text(
            StatusCode::SERVICE_UNAVAILABLE,
            "the caches are not complete yet\n",
        ),
        "/metrics" => match pages.metrics.render() {
            Ok(metrics) => text(StatusCode::OK, metrics),
            Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")),
        },
        _ => text(
            StatusCode::NOT_FOUND,
            "there are /healthz, /readyz and /metrics\n",
        ),
    }
}

fn text(status: StatusCode, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(
        CONTENT_TYPE,
        hyper::header::HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8"),
    );
    response
}

#[cfg(test)]
mod tests;
