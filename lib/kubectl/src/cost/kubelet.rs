//! What containers have used, as the kubelets tell it through the API server: `/stats/summary`.
//!
//! A kubelet looks at a container every ten seconds or so, and says when it did. A window is what lies between two such looks: the first after
//! it began, and one that is far enough behind that. So no clock but the node's is asked.

use std::{collections::BTreeMap, time::Duration};

use ckb_probe_views::cost::Reading;
use futures::future::join_all;
use k8s_openapi::{
    api::core::v1::Node,
    apimachinery::pkg::apis::meta::v1::{MicroTime, Time},
    jiff::Timestamp,
};
use kube::{Client, Resource, core::Request};
use serde::Deserialize;

use crate::{VerbError, error::sentence};

/// A container of a CkbProbe's.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Target {
    pub namespace: String,
    pub pod: String,
    pub container: String,
    pub node: String,
}

/// What a kubelet says.
#[derive(Debug, Deserialize)]
pub struct Summary {
    #[serde(default)]
    pods: Vec<PodStats>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodStats {
    pod_ref: PodReference,
    #[serde(default)]
    containers: Vec<ContainerStats>,
    #[serde(default)]
    network: Option<NetworkStats>,
}

#[derive(Debug, Deserialize)]
struct PodReference {
    name: String,
    namespace: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ContainerStats {
    name: String,
    start_time: Time,
    #[serde(default)]
    cpu: Option<CpuStats>,
}

#[derive(Debug, Deserialize)]
struct CpuStats {
    time: Time,
    #[serde(rename = "usageCoreNanoSeconds", default)]
    used: Option<u64>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct NetworkStats {
    time: Time,
    #[serde(default)]
    rx_bytes: u64,
    #[serde(default)]
    tx_bytes: u64,
}

/// What something had come to by a time.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Sample {
    time: Timestamp,
    total: u64,
}

/// Samples of one thing in a window: the first that was taken in it, and the last.
#[derive(Clone, Debug, Default, PartialEq)]
struct Series {
    /// That which was there when the window began: it was taken before.
    stale: Option<Timestamp>,
    ends: Option<(Sample, Sample)>,
}

impl Series {
    fn see(&mut self, sample: Sample) {
        match &mut self.ends {
            _ if self.stale == Some(sample.time) => {}
            None => self.ends = Some((sample, sample)),
            Some((_, last)) if sample.time > last.time => *last = sample,
            Some(_) => {}
        }
    }

    fn seconds(&self) -> f64 {
        let between = |(first, last): (Sample, Sample)| last.time.duration_since(first.time);
        self.ends.map_or(0.0, |ends| between(ends).as_secs_f64())
    }

    /// How much of it there was a second.
    fn rate(&self) -> Option<f64> {
        let (first, last) = self.ends?;
        let rate = last.total.checked_sub(first.total)? as f64 / self.seconds();
        rate.is_finite().then_some(rate)
    }
}

/// What is known of a target in a window.
#[derive(Debug)]
struct Gauge {
    started: Option<Timestamp>,
    cpu: Series,
    network: Series,
}

/// A window while it lasts.
#[derive(Debug)]
pub struct Watch(BTreeMap<Target, Gauge>);

/// Why a window is worth nothing.
#[derive(Debug, Eq, PartialEq, thiserror::Error)]
pub enum Lost {
    #[error("the kubelet of node {node} tells nothing of the CPU time of {pod}/{container}")]
    Untold {
        node: String,
        pod: String,
        container: String,
    },
    #[error("container {container} of pod {pod} was started anew meanwhile")]
    Restarted { pod: String, container: String },
}

impl Watch {
    /// Begins after what these say.
    pub fn begin(targets: &[Target], said: &BTreeMap<String, Summary>) -> Result<Self, Lost> {
        let gauges = targets.iter().map(|target| {
            let (started, cpu, network) = find(target, said)?;
            let after = |stale: Option<Sample>| Series {
                stale: stale.map(|stale| stale.time),
                ends: None,
            };
            let gauge = Gauge {
                started: Some(started),
                cpu: after(Some(cpu)),
                network: after(network),
            };
            Ok((target.clone(), gauge))
        });
        gauges.collect::<Result<_, Lost>>().map(Self)
    }

    /// Takes what these say.
    pub fn see(&mut self, said: &BTreeMap<String, Summary>) -> Result<(), Lost> {
        for (target, gauge) in &mut self.0 {
            let (started, cpu, network) = find(target, said)?;
            if gauge.started != Some(started) {
                return Err(Lost::Restarted {
                    pod: target.pod.clone(),
                    container: target.container.clone(),
                });
            }
            gauge.cpu.see(cpu);
            if let Some(network) = network {
                gauge.network.see(network);
            }
        }
        Ok(())
    }

    /// Whether each has a first sample.
    pub fn has_begun(&self) -> bool {
        self.0.values().all(|gauge| gauge.cpu.ends.is_some())
    }

    /// Whether each lasts that long.
    pub fn lasts(&self, window: Duration) -> bool {
        let mut gauges = self.0.values();
        gauges.all(|gauge| gauge.cpu.seconds() >= window.as_secs_f64())
    }

    /// Nanoseconds of CPU time a second, of all together.
    pub fn cpu(&self) -> Option<f64> {
        self.0.values().map(|gauge| gauge.cpu.rate()).sum()
    }

    /// Bytes that their pods sent and received, a second. Containers of one pod have them together. None where a pod uses its node's network,
    /// or nothing was sent.
    pub fn network(&self) -> Option<f64> {
        let pods: BTreeMap<(&str, &str), &Gauge> = self
            .0
            .iter()
            .map(|(target, gauge)| ((&*target.namespace, &*target.pod), gauge))
            .collect();
        let all: Option<f64> = pods.values().map(|gauge| gauge.network.rate()).sum();
        all.filter(|bytes| *bytes > 0.0)
    }

    /// Mean of what is estimated of each, in percent of what it uses itself, by how much that is.
    pub fn weighted(&self, estimate: impl Fn(&Target) -> Option<f64>) -> Option<f64> {
        let (mut cost, mut all) = (0.0, 0.0);
        for (target, gauge) in &self.0 {
            let percent = estimate(target)?;
            let own = gauge.cpu.rate()? / (1.0 + percent / 100.0);
            cost += percent * own;
            all += own;
        }
        let mean = cost / all;
        mean.is_finite().then_some(mean)
    }

    /// What all of it was reckoned from.
    pub fn readings(&self) -> Vec<Reading> {
        let told = self.0.iter().filter_map(|(target, gauge)| {
            let (first, last) = gauge.cpu.ends?;
            Some(Reading {
                pod: target.pod.clone(),
                container: target.container.clone(),
                from: MicroTime(first.time),
                to: MicroTime(last.time),
                cpu_from: first.total,
                cpu_to: last.total,
            })
        });
        told.collect()
    }
}

/// When it started, what CPU time it has used, and what its pod has sent and received.
fn find(
    target: &Target,
    said: &BTreeMap<String, Summary>,
) -> Result<(Timestamp, Sample, Option<Sample>), Lost> {
    let of_pods = said.get(&target.node).into_iter();
    let mut pods = of_pods.flat_map(|summary| &summary.pods);
    let pod = pods
        .find(|pod| pod.pod_ref.name == target.pod && pod.pod_ref.namespace == target.namespace);
    let found = pod.and_then(|pod| {
        let mut containers = pod.containers.iter();
        let container = containers.find(|one| one.name == target.container)?;
        let cpu = container.cpu.as_ref()?;
        let cpu = Sample {
            time: cpu.time.0,
            total: cpu.used?,
        };
        let network = pod.network.as_ref().map(|network| Sample {
            time: network.time.0,
            total: network.rx_bytes.saturating_add(network.tx_bytes),
        });
        Some((container.start_time.0, cpu, network))
    });
    found.ok_or_else(|| Lost::Untold {
        node: target.node.clone(),
        pod: target.pod.clone(),
        container: target.container.clone(),
    })
}

/// Asks each node of these targets.
pub async fn ask(
    client: &Client,
    targets: &[Target],
) -> Result<BTreeMap<String, Summary>, VerbError> {
    let mut nodes: Vec<&str> = targets.iter().map(|target| target.node.as_str()).collect();
    nodes.sort_unstable();
    nodes.dedup();
    let answers = nodes.iter().map(|node| async move {
        let request = Request::new(Node::url_path(&(), None));
        let request = request.get_subresource("proxy/stats/summary", node);
        let request = request.map_err(kube::Error::BuildRequest);
        let answer = match request {
            Ok(request) => client.request::<Summary>(request).await,
            Err(error) => Err(error),
        };
        let failed = |error| match error {
            kube::Error::Api(status) if status.code == 403 => VerbError::Kubelet {
                node: (*node).to_owned(),
                message: status.message.clone(),
            },
            error => VerbError::Unanswered {
                node: (*node).to_owned(),
                said: sentence(&error),
            },
        };
        answer
            .map(|answer| ((*node).to_owned(), answer))
            .map_err(failed)
    });
    join_all(answers).await.into_iter().collect()
}

#[cfg(test)]
mod tests;
