//! The agent's HTTP endpoints. Each request is answered by the engine itself, so `/healthz` is a sign of life
//! and not of a listening socket, and `/metrics` is read from the kernel when it is asked for.
//!
//! Any pod may connect, so connections are bounded in number, time and size. Whoever connects last is served: where there are
//! too many the oldest goes, and those who hold theirs open keep nobody out.

use std::{collections::VecDeque, convert::Infallible, io, net::SocketAddr, time::Duration};

use http_body_util::Full;
use hyper::{Request, Response, StatusCode, body::Bytes, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{mpsc, oneshot},
    task::AbortHandle,
    time::timeout,
};
use tracing::debug;

/// More than any set of probes and scrapers needs.
const MAX_CONNECTIONS: usize = 32;

/// Who sends no request in this time is cut off.
const HEADER_TIMEOUT: Duration = Duration::from_secs(5);

/// Of a request's head.
const MAX_HEADER_BYTES: usize = 16 << 10;

/// No connection lasts longer: clients open another.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(120);

/// What is asked of the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// `/healthz`: does it live?
    Healthy,
    /// `/readyz`: has it had its first orders?
    Ready,
    /// `/metrics`.
    Metrics,
}

/// A question, and where its answer goes: a text, or the reason why not.
pub type Inquiry = (Question, oneshot::Sender<Result<String, String>>);

/// Binds the address.
pub async fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    TcpListener::bind(address).await
}

/// Serves for ever. Returns only when nobody can answer any more.
pub async fn serve(listener: TcpListener, inquiries: mpsc::Sender<Inquiry>) {
    let mut connections: VecDeque<AbortHandle> = VecDeque::new();
    while !inquiries.is_closed() {
        match listener.accept().await {
            Ok((stream, _)) => {
                connections.retain(|connection| !connection.is_finished());
                if connections.len() >= MAX_CONNECTIONS
                    && let Some(oldest) = connections.pop_front()
                {
                    oldest.abort();
                }
                let connection = tokio::spawn(connection(stream, inquiries.clone()));
                connections.push_back(connection.abort_handle());
            }
            Err(error) => {
                debug!(%error, "cannot accept a connection");
                // Out of descriptors, most likely: give somebody time to close one.
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            }
        }
    }
}

async fn connection(stream: TcpStream, inquiries: mpsc::Sender<Inquiry>) {
    let service = service_fn(|request| answer(request, &inquiries));
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_buf_size(MAX_HEADER_BYTES)
        .serve_connection(TokioIo::new(stream), service);
    if let Ok(Err(error)) = timeout(CONNECTION_TIMEOUT, connection).await {
        debug!(%error, "a connection ended early");
    }
}

async fn answer(
    request: Request<hyper::body::Incoming>,
    inquiries: &mpsc::Sender<Inquiry>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let question = match request.uri().path() {
        "/healthz" => Question::Healthy,
        "/readyz" => Question::Ready,
        "/metrics" => Question::Metrics,
        _ => {
            return Ok(reply(
                StatusCode::NOT_FOUND,
                "there are /healthz, /readyz and /metrics\n".to_string(),
            ));
        }
    };
    let (sender, receiver) = oneshot::channel();
    let _ = inquiries.send((question, sender)).await;
    Ok(match receiver.await {
        Ok(Ok(text)) => reply(StatusCode::OK, text),
        Ok(Err(reason)) => reply(StatusCode::SERVICE_UNAVAILABLE, reason),
        Err(_) => reply(
            StatusCode::SERVICE_UNAVAILABLE,
            "the agent is going down\n".to_string(),
        ),
    })
}

fn reply(status: StatusCode, text: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    response.headers_mut().insert(
        hyper::header::CONTENT_TYPE,
        hyper::header::HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8"),
    );
    response
}

#[cfg(test)]
mod tests;
