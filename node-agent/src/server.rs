//! The agent's HTTP endpoints, behind two doors.
//!
//! `/healthz` is a sign of life of the engine and not of a listening socket, and is told on a thread of its own: whatever comes to the
//! metrics' door, and however long the engine takes to come round, the kubelet has its answer at once. `/metrics` is read from the
//! kernel when it is asked for, though once a second at most, however many ask: see [`pages`].

mod pages;

use std::{
    net::SocketAddr,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use ckb_probe_k8s::{
    listener::{self, Answer, ListenError, Page},
    secure::{CertificateError, Protection, Secure},
};
use kube::Client;
use tokio::{
    net::TcpListener,
    runtime,
    sync::{Notify, mpsc, oneshot},
    time::timeout,
};

use crate::export::exposition::Format;

/// The engine came round so lately that it need not be asked whether it lives.
const FRESH: Duration = Duration::from_secs(1);

/// It has so long to come round when it is asked; the kubelet waits for three seconds.
const PATIENCE: Duration = Duration::from_secs(2);

/// Who wants the text of `/metrics`.
#[derive(Debug)]
pub struct MetricsRequest {
    /// How it is to be written.
    pub format: Format,
    /// Where it goes, or the reason why there is none.
    pub answer: oneshot::Sender<Result<String, String>>,
}

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
    /// There is no thread to answer the kubelet.
    #[error("cannot answer for the agent's health: {0}")]
    Health(#[source] std::io::Error),
}

/// The engine's signs of life.
pub struct Pulse {
    began: Instant,
    /// When it came round last, in milliseconds since then.
    beat: AtomicU64,
    /// Whether it has had its first orders.
    ordered: AtomicBool,
    wanted: Notify,
    beaten: Notify,
}

impl Default for Pulse {
    fn default() -> Self {
        Self {
            began: Instant::now(),
            beat: AtomicU64::new(0),
            ordered: AtomicBool::new(false),
            wanted: Notify::new(),
            beaten: Notify::new(),
        }
    }
}

impl Pulse {
    /// The engine has come round, with or without orders so far.
    pub fn beat(&self, ordered: bool) {
        self.beat.store(self.now(), Ordering::Relaxed);
        self.ordered.store(ordered, Ordering::Relaxed);
        self.beaten.notify_waiters();
    }

    /// Waits until somebody wants to know whether the engine comes round, which it does for nothing else when it is idle.
    pub async fn wanted(&self) {
        self.wanted.notified().await;
    }

    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn age(&self) -> Duration {
        let beat = self.beat.load(Ordering::Relaxed);
        Duration::from_millis(self.now().saturating_sub(beat))
    }

    async fn health(&self) -> Page {
        let mut beaten = pin!(self.beaten.notified());
        beaten.as_mut().enable();
        if self.age() >= FRESH {
            self.wanted.notify_one();
            if timeout(PATIENCE, beaten).await.is_err() {
                let seconds = self.age().as_secs();
                return Page::Unavailable(format!("the engine is stuck for {seconds} s\n"));
            }
        }
        Page::Text("ok\n".to_string())
    }

    fn readiness(&self) -> Page {
        if self.ordered.load(Ordering::Relaxed) {
            Page::Text("ok\n".to_string())
        } else {
            Page::Unavailable("no orders seen yet: is the API server reachable?\n".to_string())
        }
    }
}

/// Two doors that nobody stands behind yet.
pub struct Server {
    metrics: TcpListener,
    secure: Option<Arc<Secure>>,
    health: TcpListener,
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

    /// Serves for ever: the signs of life from now on, and what the engine answers to those who want metrics, once that is awaited.
    pub fn serve(
        self,
        pulse: Arc<Pulse>,
    ) -> Result<
        (
            impl Future<Output = ()> + Send + use<>,
            mpsc::Receiver<MetricsRequest>,
        ),
        ServerError,
    > {
        let health = self.health.into_std().map_err(ServerError::Health)?;
        let named = thread::Builder::new().name("health".to_string());
        let runtime = runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(ServerError::Health)?;
        named
            .spawn(move || {
                runtime.block_on(async {
                    if let Ok(health) = TcpListener::from_std(health) {
                        serve_health(health, pulse).await;
                    }
                });
            })
            .map_err(ServerError::Health)?;
        let (wanting, wanted) = mpsc::channel(1);
        let (pages, making) = pages::pages(wanting);
        let metrics = listener::serve(self.metrics, self.secure, move |asked| match asked.path {
            "/metrics" => {
                let (pages, format) = (pages.clone(), Format::accepted(asked.accept));
                Box::pin(async move { pages.next(format).await })
            }
            _ => unknown("there is /metrics here, and /healthz at a door of its own\n"),
        });
        let serving = async {
            tokio::join!(metrics, making);
        };
        Ok((serving, wanted))
    }
}

async fn serve_health(listener: TcpListener, pulse: Arc<Pulse>) {
    listener::serve(listener, None, move |asked| {
        let pulse = Arc::clone(&pulse);
        match asked.path {
            "/healthz" => Box::pin(async move { pulse.health().await }),
            "/readyz" => Box::pin(async move { pulse.readiness() }),
            _ => unknown("there are /healthz and /readyz here\n"),
        }
    })
    .await;
}

fn unknown(known: &'static str) -> Answer {
    Box::pin(std::future::ready(Page::Unknown(known)))
}

#[cfg(test)]
mod tests;
