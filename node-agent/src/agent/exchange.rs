//! What the agent and the API server tell each other: orders, and reports.

use std::time::Duration;

use backon::{BackoffBuilder as _, ExponentialBuilder};
use ckb_probe_crds::{NodeProbe, NodeProbeStatus};
use futures::{Stream, StreamExt};
use kube::{
    Api, Resource as _,
    api::{Patch, PatchParams},
    runtime::{
        WatchStreamExt,
        watcher::{self, ExponentialBackoff, watcher},
    },
};
use serde_json::json;
use tokio::{sync::watch, time::sleep};
use tracing::warn;

const FIELD_MANAGER: &str = "ckb-probe-agent";

/// Between two attempts to write a report: at first, and at most.
const WRITE_AGAIN: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(2));

/// Between two attempts to watch: at first, and at most. The default reaches a minute, and a CkbProbe deleted just
/// after an outage would be probed for so long.
const WATCH_AGAIN: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(3));

/// The NodeProbe of this node as it changes; None while there is none. Errors of the watch are waited out:
/// the orders of before hold until there are new ones.
pub fn orders(api: Api<NodeProbe>, node: &str) -> impl Stream<Item = Option<NodeProbe>> + use<> {
    let config = watcher::Config::default().fields(&format!("metadata.name={node}"));
    let mut listed = None;
    watcher(api, config)
        .backoff(ExponentialBackoff::from(backoff(WATCH_AGAIN)))
        .filter_map(move |event| {
            let order = match event {
                Ok(watcher::Event::Init) => {
                    listed = None;
                    None
                }
                Ok(watcher::Event::InitApply(order)) => {
                    listed = Some(order);
                    None
                }
                Ok(watcher::Event::InitDone) => Some(listed.take()),
                Ok(watcher::Event::Apply(order)) => Some(Some(order)),
                Ok(watcher::Event::Delete(_)) => Some(None),
                Err(error) => {
                    warn!(%error, "cannot watch the NodeProbe; the orders of before hold");
                    None
                }
            };
            std::future::ready(order)
        })
}

/// Writes the latest report whenever there is a new one. A slow API server delays reports, never the engine.
pub async fn write_reports(
    api: Api<NodeProbe>,
    node: String,
    mut latest: watch::Receiver<Option<NodeProbeStatus>>,
) {
    let parameters = PatchParams::apply(FIELD_MANAGER).force();
    let mut pauses = backoff(WRITE_AGAIN).build();
    while latest.changed().await.is_ok() {
        loop {
            let Some(status) = latest.borrow_and_update().clone() else {
                break;
            };
            // The name goes along: server-side apply wants the whole identity.
            let report = json!({
                "apiVersion": NodeProbe::api_version(&()),
                "kind": NodeProbe::kind(&()),
                "metadata": { "name": node },
                "status": status,
            });
            match api
                .patch_status(&node, &parameters, &Patch::Apply(&report))
                .await
            {
                Ok(_) => {
                    pauses = backoff(WRITE_AGAIN).build();
                    break;
                }
                // Withdrawn meanwhile: the watch will say so.
                Err(kube::Error::Api(error)) if error.is_not_found() => break,
                Err(error) => {
                    let pause = pauses.next().unwrap_or(WRITE_AGAIN.1);
                    warn!(%error, ?pause, "cannot write the report; trying again with the newest");
                    sleep(pause).await;
                }
            }
        }
    }
}

/// Pauses from the first to the longest, doubled each time, and up to doubled again at random, so that the agents of
/// a cluster do not come back all at once.
fn backoff((first, longest): (Duration, Duration)) -> ExponentialBuilder {
    ExponentialBuilder::default()
        .with_min_delay(first)
        .with_max_delay(longest)
        .without_max_times()
        .with_jitter()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retries_go_on_for_ever_with_pauses_that_stay_bounded() {
        let longest = WRITE_AGAIN.1;
        let pauses: Vec<Duration> = backoff(WRITE_AGAIN).build().take(1_000).collect();
        assert_eq!(pauses.len(), 1_000);
        assert!(
            pauses
                .iter()
                .all(|pause| (WRITE_AGAIN.0..=longest * 2).contains(pause))
        );
    }
}
