//! The agent's HTTP endpoints. Each request is answered by the engine itself, so `/healthz` is a sign of life
//! and not of a listening socket, and `/metrics` is read from the kernel when it is asked for.
//!
//! They are behind two doors, and the engine answers first who asks whether it lives: whatever comes to the metrics' door, the
//! kubelet is told.

use std::{net::SocketAddr, sync::Arc};

use ckb_probe_k8s::{
    listener::{self, Answer, ListenError, Page},
    secure::{CertificateError, Protection, Secure},
};
use kube::Client;
use tokio::{
    net::TcpListener,
    sync::{mpsc, oneshot},
};

/// What is asked of the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// `/healthz`: does it live?
    Healthy,
    /// `/readyz`: has it had its first orders?
    Ready,
    /// `/metrics`.
    Metrics,
}

/// A question, and where its answer goes: a text, or the reason why not.
pub type EndpointRequest = (Endpoint, oneshot::Sender<Result<String, String>>);

/// How many of a kind wait at most, before those who ask do.
const WAITING: usize = 16;

/// Where the doors are, and who may come in.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Of `/metrics`.
    pub metrics: SocketAddr,
    /// Who may read them.
    pub protection: Protection,
    /// Of `/healthz` and `/readyz`.
    pub health: SocketAddr,
}

/// The doors cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The address is taken or not allowed.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// There is no certificate to protect the metrics with.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
}

/// Two doors that nobody stands behind yet.
pub struct Server {
    metrics: TcpListener,
    secure: Option<Arc<Secure>>,
    health: TcpListener,
}

/// What those who came want to know.
pub struct EndpointRequests {
    health: mpsc::Receiver<EndpointRequest>,
    metrics: mpsc::Receiver<EndpointRequest>,
}

impl Server {
    /// Opens the doors.
    pub async fn open(settings: &Settings, client: Client) -> Result<Self, ServerError> {
        Ok(Self {
            metrics: listener::bind(settings.metrics).await?,
            secure: Secure::new(&settings.protection, client)?,
            health: listener::bind(settings.health).await?,
        })
    }

    /// Serves for ever what the engine answers to the inquiries.
    pub fn serve(self) -> (impl Future<Output = ()> + Send + use<>, EndpointRequests) {
        let (health, health_inquiries) = mpsc::channel(WAITING);
        let (metrics, metrics_inquiries) = mpsc::channel(WAITING);
        let inquiries = EndpointRequests {
            health: health_inquiries,
            metrics: metrics_inquiries,
        };
        let health = listener::serve(self.health, None, move |path| match path {
            "/healthz" => ask(&health, Endpoint::Healthy),
            "/readyz" => ask(&health, Endpoint::Ready),
            _ => unknown("there are /healthz and /readyz here\n"),
        });
        let metrics = listener::serve(self.metrics, self.secure, move |path| match path {
            "/metrics" => ask(&metrics, Endpoint::Metrics),
            _ => unknown("there is /metrics here, and /healthz at a door of its own\n"),
        });
        let both = async {
            tokio::select! {
                () = health => {}
                () = metrics => {}
            }
        };
        (both, inquiries)
    }
}

impl EndpointRequests {
    /// The next one; of health, if there is any.
    pub async fn recv(&mut self) -> Option<EndpointRequest> {
        tokio::select! {
            biased;
            inquiry = self.health.recv() => inquiry,
            inquiry = self.metrics.recv() => inquiry,
        }
    }
}

fn ask(inquiries: &mpsc::Sender<EndpointRequest>, question: Endpoint) -> Answer {
    let inquiries = inquiries.clone();
    Box::pin(async move {
        let (sender, receiver) = oneshot::channel();
        let _ = inquiries.send((question, sender)).await;
        match receiver.await {
            Ok(Ok(text)) => Page::Text(text),
            Ok(Err(reason)) => Page::Unavailable(reason),
            Err(_) => Page::Unavailable("the agent is going down\n".to_string()),
        }
    })
}

fn unknown(known: &'static str) -> Answer {
    Box::pin(std::future::ready(Page::Unknown(known)))
}

#[cfg(test)]
mod tests;
