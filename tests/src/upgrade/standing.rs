//! How all that was asked stands: what CkbProbes say, what their conditions are, and which counters there are.

use std::collections::{BTreeMap, BTreeSet};

use ckb_probe_crds::{CkbProbe, condition};
use kube::ResourceExt as _;
use serde_json::Value;

use crate::{
    cluster::SYSTEM,
    failure::{Failure, Result, expect},
    metrics::Metrics,
    soak::stage::{STEADY, Stage},
};

/// How it stands at one time.
#[derive(Debug)]
pub struct Standing {
    probes: BTreeMap<String, Asked>,
    /// The counters of the CkbProbes.
    counters: BTreeSet<String>,
}

/// A CkbProbe.
#[derive(Debug)]
struct Asked {
    uid: Option<String>,
    generation: Option<i64>,
    spec: Value,
    /// Types of conditions with their statuses; none of what does something now and then, and is silent in between.
    conditions: BTreeMap<String, String>,
}

impl Standing {
    /// Looks at these CkbProbes.
    pub async fn of(stage: &Stage, names: &[String]) -> Result<Self> {
        let api = stage.cluster.api::<CkbProbe>(&stage.namespace);
        let mut probes = BTreeMap::new();
        for name in names {
            let probe = api.get(name).await?;
            let spec = serde_json::to_value(&probe.spec).map_err(Failure::format("a spec"))?;
            let status = stage.cluster.status(&stage.namespace, name).await?;
            let conditions = status
                .conditions
                .into_iter()
                .filter(|_| name != STEADY)
                .map(|one| (one.type_, one.status));
            let asked = Asked {
                uid: probe.uid(),
                generation: probe.metadata.generation,
                spec,
                conditions: conditions.collect(),
            };
            probes.insert(name.to_string(), asked);
        }
        let metrics = stage.cluster.agent().await?.scrape().await?;
        Ok(Self {
            probes,
            counters: counters(&metrics, names),
        })
    }

    /// The names of the CkbProbes.
    pub fn names(&self) -> Vec<String> {
        self.probes.keys().cloned().collect()
    }

    /// Succeeds when each condition is well that was well, and there is each counter that there was: others may have come.
    pub fn expect_like(&self, before: &Self) -> Result<()> {
        for (name, was) in &before.probes {
            let is = self.probes.get(name).map(|is| &is.conditions);
            let same = is.is_some_and(|is| {
                let mut well = was.conditions.iter().filter(is_well);
                well.all(|(type_, status)| is.get(type_) == Some(status))
            });
            expect(same, format!("{name}: {:?}", was.conditions), || {
                format!("{is:?}")
            })?;
        }
        let lost: Vec<&String> = before.counters.difference(&self.counters).collect();
        expect(
            lost.is_empty(),
            format!("{} counters", before.counters.len()),
            || format!("not {lost:?}"),
        )
    }

    /// The CkbProbes of this that are others now, or ask something else.
    pub fn others(&self, now: &Self) -> Vec<String> {
        let differs = |(name, was): &(&String, &Asked)| {
            let same = |is: &Asked| {
                is.uid == was.uid && is.generation == was.generation && is.spec == was.spec
            };
            !now.probes.get(*name).is_some_and(same)
        };
        self.probes
            .iter()
            .filter(differs)
            .map(|(name, was)| format!("{name} was {was:?} and is {:?}", now.probes.get(name)))
            .collect()
    }
}

/// Whether a condition of this type with this status says that nothing is wrong.
fn is_well((type_, status): &(&String, &String)) -> bool {
    let is_trouble = [condition::DEGRADED, condition::PROGRESSING].contains(&type_.as_str());
    *status == if is_trouble { "False" } else { "True" }
}

/// Counters of these CkbProbes, with their labels. Of what targets do now and then, such as a system call that fails, a label says what it
/// was: of the CkbProbe whose target does the same all the time each counter counts, of others each metric of a probe.
fn counters(metrics: &Metrics, names: &[String]) -> BTreeSet<String> {
    let is_counter = |name: &str| name.ends_with("_total") || name.ends_with("_count");
    let samples = metrics
        .samples
        .iter()
        .filter(|sample| is_counter(&sample.name));
    samples
        .filter_map(|sample| {
            let ckbprobe = sample.labels.get("ckbprobe")?;
            let of = |label| sample.labels.get(label).map_or("", String::as_str);
            match &**ckbprobe {
                STEADY => Some(format!("{}{:?}", sample.name, sample.labels)),
                other if names.iter().any(|name| name == other) => Some(format!(
                    "{} {other} {} {}",
                    sample.name,
                    of("probe"),
                    of("what")
                )),
                _ => None,
            }
        })
        .collect()
}

/// How often containers of agent and operator, as they are, have restarted.
pub async fn restarts(stage: &Stage) -> Result<i32> {
    let pods = stage.cluster.api::<k8s_openapi::api::core::v1::Pod>(SYSTEM);
    let pods = pods.list(&kube::api::ListParams::default()).await?;
    let statuses = pods
        .iter()
        .filter_map(|pod| pod.status.as_ref()?.container_statuses.as_ref())
        .flatten();
    Ok(statuses.map(|status| status.restart_count).sum())
}
