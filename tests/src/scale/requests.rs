//! What the API server was asked to write, by its own count.

use std::collections::BTreeMap;

use kube::Client;

use crate::{
    failure::{Failure, Result},
    metrics::Metrics,
};

const COUNTER: &str = "apiserver_request_total";

/// Requests by verb and resource, those aside that come with time alone: renewals of Leases, and the reports of agents.
pub async fn writes(client: &Client) -> Result<BTreeMap<String, f64>> {
    let request = hyper::Request::get("/metrics")
        .body(Vec::new())
        .map_err(Failure::format("a request"))?;
    let text = client.request_text(request).await?;
    // Other metrics may have labels that we cannot read.
    let lines = text.lines().filter(|line| line.starts_with(COUNTER));
    let metrics = Metrics::parse(lines.fold(String::new(), |all, line| all + line + "\n"))?;
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
