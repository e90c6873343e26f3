//! What the operator tells whoever asks: at one door whether it lives, at another its metrics.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use ckb_probe_k8s::listener::{Answer, Page};

use crate::metrics::Metrics;

/// What the pages show.
#[derive(Clone, Debug)]
pub struct Pages {
    /// The metrics.
    pub metrics: Metrics,
    /// Whether the caches are complete. A replica that stands by is ready too.
    pub ready: Arc<AtomicBool>,
}

impl Pages {
    /// `/healthz` and `/readyz`.
    pub fn health(&self, path: &str) -> Answer {
        answer(match path {
            "/healthz" => Page::Text("ok\n".to_owned()),
            "/readyz" if self.ready.load(Ordering::Relaxed) => Page::Text("ok\n".to_owned()),
            "/readyz" => Page::Unavailable("the caches are not complete yet\n".to_owned()),
            _ => Page::Unknown("there are /healthz and /readyz here\n"),
        })
    }

    /// `/metrics`.
    pub fn metrics(&self, path: &str) -> Answer {
        answer(match path {
            "/metrics" => match self.metrics.render() {
                Ok(metrics) => Page::Text(metrics),
                Err(error) => Page::Unavailable(format!("{error}\n")),
            },
            _ => Page::Unknown("there is /metrics here, and /healthz at a door of its own\n"),
        })
    }
}

fn answer(page: Page) -> Answer {
    Box::pin(std::future::ready(page))
}

#[cfg(test)]
mod tests;
