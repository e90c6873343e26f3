//! What the API server was asked to write, by its own count.

use std::collections::BTreeMap;

use kube::Client;

use crate::{
    failure::{Failure, Result},
    metrics::Metrics,
};

const COUNTER: &str = "apiserver_request_total";
const STORE: &str = "apiserver_storage_size_bytes";
const DURATION: &str = "apiserver_request_duration_seconds";

/// Writes of statuses of CkbProbes, as the API server counts them: how many, and the seconds from when a request was there until
/// its answer was sent, waiting for its turn included.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Statuses {
    /// How many writes.
    pub count: f64,
    /// Seconds of all of them.
    pub seconds: f64,
}

impl Statuses {
    /// Those that came since then.
    pub fn since(self, before: Self) -> Self {
        Self {
            count: self.count - before.count,
            seconds: self.seconds - before.seconds,
        }
    }

    /// Milliseconds that one took, on the average; None without any.
    pub fn mean_ms(self) -> Option<f64> {
        (self.count > 0.0).then(|| self.seconds / self.count * 1000.0)
    }
}

/// All of them so far.
pub async fn statuses(client: &Client) -> Result<Statuses> {
    let metrics = metrics(client, DURATION).await?;
    let of = |what: &str| {
        let labels = [("resource", "ckbprobes"), ("subresource", "status")];
        metrics.total(&format!("{DURATION}_{what}"), &labels)
    };
    Ok(Statuses {
        count: of("count"),
        seconds: of("sum"),
    })
}

/// Requests by verb and resource, those aside that come with time alone: renewals of Leases, and the reports of agents.
pub async fn writes(client: &Client) -> Result<BTreeMap<String, f64>> {
    let metrics = metrics(client, COUNTER).await?;
    let mut counts = BTreeMap::new();
    for sample in &metrics.samples {
        let label = |name: &str| sample.labels.get(name).map_or("", String::as_str);
        let (verb, resource, subresource) =
            (label("verb"), label("resource"), label("subresource"));
        let reads = ["GET", "LIST", "WATCH", "CONNECT"].contains(&verb);
        if !reads && resource != "leases" && (resource, subresource) != ("nodeprobes", "status") {
            let name = format!("{verb} {resource}/{subresource}");
            *counts.entry(name).or_default() += sample.value;
        }
    }
    Ok(counts)
}

/// Megabytes of the file in which etcd has everything. It grows, and what is let go of is used again.
pub async fn store_mb(client: &Client) -> Result<f64> {
    let metrics = metrics(client, STORE).await?;
    let bytes = metrics.sum(STORE, &[]);
    Ok(bytes.ok_or_else(|| Failure::missing(STORE))? / 1e6)
}

/// What the API server says of itself in metrics whose names begin like this.
async fn metrics(client: &Client, name: &str) -> Result<Metrics> {
    let request = hyper::Request::get("/metrics")
        .body(Vec::new())
        .map_err(Failure::format("a request"))?;
    let text = client.request_text(request).await?;
    // Other metrics may have labels that we cannot read.
    let lines = text.lines().filter(|line| line.starts_with(name));
    Metrics::parse(lines.fold(String::new(), |all, line| all + line + "\n"))
}

/// What came between two counts.
pub fn since(
    before: &BTreeMap<String, f64>,
    after: &BTreeMap<String, f64>,
) -> BTreeMap<String, f64> {
    after
        .iter()
        .map(|(name, count)| {
            let known = before.get(name).copied().unwrap_or_default();
            (name.clone(), count - known)
        })
        .collect()
}
