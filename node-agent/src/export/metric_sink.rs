//! Figures of the targets as OTLP's metrics: the same series as on a page of metrics, under the same names and labels, but distributions in buckets
//! as fine as they were counted.

use std::{collections::BTreeMap, time::Duration};

use ckb_probe_otlp::{Exporter, ExporterError};
use ckb_probe_traces::{
    Attributes, Counts, Distribution, Example, Group, Limits, Metric, Points, Resource, Scope,
    Settings,
};
use k8s_openapi::jiff::Timestamp;
use prometheus::proto::{LabelPair, MetricType};

use super::{
    exemplars::Exemplars,
    exposition::{Exemplar, Family},
    metrics,
    span_sink::{overridden, sentence},
};
use crate::{observe, state::instance::Instance, target::InstanceKey};

/// Exports what was counted.
#[derive(Debug)]
pub struct MetricSink {
    exporter: Exporter,
    resource: Resource,
    /// Since when what each target counts is told, in nanoseconds since 1970.
    began: BTreeMap<InstanceKey, u64>,
    /// When figures were last exported: what was not known then has counted nothing before.
    last: u64,
}

impl MetricSink {
    /// Begins to export to whom the settings name, on behalf of `who`. Before anything is counted.
    pub fn start(
        settings: Settings,
        limits: Limits,
        who: Attributes,
    ) -> Result<Self, ExporterError> {
        let mut known = who;
        known.push(("host.name".into(), observe::host_name().into()));
        let resource = Resource::new(&overridden(known, &settings.resource));
        let scope = Scope {
            name: "ckb-probe".to_string(),
            version: env!("CARGO_PKG_VERSION").to_string(),
        };
        Ok(Self {
            exporter: Exporter::start(settings, scope, limits)?,
            resource,
            began: BTreeMap::new(),
            last: nanoseconds(Timestamp::now()),
        })
    }

    /// Takes what all targets have counted up to now: `now` by their books, `time` by the wall.
    pub fn offer<'a>(
        &mut self,
        now: Duration,
        time: Timestamp,
        instances: impl IntoIterator<Item = &'a Instance>,
        exemplars: &Exemplars,
    ) {
        let time = nanoseconds(time);
        let instances: Vec<&Instance> = instances.into_iter().collect();
        let (told, left_out) = metrics::that_fit(&instances, metrics::MOST_ROWS);
        self.began
            .retain(|key, _| instances.iter().any(|instance| instance.key == *key));
        for instance in told {
            let key = instance.key.clone();
            let began = *self.began.entry(key).or_insert(self.last);
            let families = metrics::families(None, now, [instance], exemplars);
            for metric in families.iter().filter_map(metric) {
                for piece in metric.written(began, time) {
                    let group = Group::of_metrics(&self.resource, vec![piece]);
                    self.exporter.offer(group);
                }
            }
        }
        let left_out = metrics::left_out(&left_out).into();
        for piece in metric(&left_out)
            .iter()
            .flat_map(|one| one.written(time, time))
        {
            self.exporter
                .offer(Group::of_metrics(&self.resource, vec![piece]));
        }
        self.last = time;
    }

    /// What became of all points up to now.
    pub fn counts(&self) -> Counts {
        self.exporter.counts()
    }

    /// Sends what there is, for no longer than this, and says what became of all.
    pub fn end(self, within: Duration) -> String {
        let receiver = self.exporter.receiver().to_string();
        let items = self.exporter.items();
        let (counts, problem) = self.exporter.end(within);
        sentence(items, &receiver, &counts, problem.as_deref())
    }
}

fn nanoseconds(time: Timestamp) -> u64 {
    u64::try_from(time.as_nanosecond()).unwrap_or_default()
}

/// A family as OTLP has it; None of one without series.
fn metric(family: &Family<'_>) -> Option<Metric> {
    let all = &family.metrics;
    let unit = unit(all.name());
    let each = all.get_metric().iter();
    let each = each.map(|one| (attributes(one.get_label()), one));
    let points = match all.get_field_type() {
        MetricType::COUNTER => {
            let counted = each.map(|(labels, one)| (labels, one.get_counter().get_value()));
            Points::Counters(counted.collect())
        }
        MetricType::HISTOGRAM => {
            let distributed = each.enumerate().filter_map(|(place, (labels, one))| {
                let values = family.distributions.get(&place)?;
                let buckets = values.histogram.iter();
                let links = family.exemplars.range((place, 0)..(place + 1, 0));
                let distribution = Distribution {
                    sum: one.get_histogram().get_sample_sum(),
                    buckets: buckets
                        .map(|(bucket, count)| (scaled(middle(bucket), unit), count))
                        .collect(),
                    exemplars: links.map(|(_, link)| example(link)).collect(),
                };
                Some((labels, distribution))
            });
            Points::Distributions(distributed.collect())
        }
        MetricType::GAUGE | MetricType::SUMMARY | MetricType::UNTYPED => {
            let levels = each.map(|(labels, one)| (labels, one.get_gauge().get_value()));
            Points::Gauges(levels.collect())
        }
    };
    (!all.get_metric().is_empty()).then(|| Metric {
        name: all.name().to_string(),
        help: all.help().to_string(),
        unit,
        points,
    })
}

/// Labels; a host without Kubernetes has no names for some of them.
fn attributes(labels: &[LabelPair]) -> Attributes {
    let named = labels.iter().filter(|label| !label.value().is_empty());
    named
        .map(|label| (label.name().to_string().into(), label.value().into()))
        .collect()
}

fn example(link: &Exemplar) -> Example {
    Example {
        trace: link.trace,
        span: link.span,
        value: link.nanoseconds as f64 / 1e9,
        time_ns: nanoseconds(link.time),
    }
}

/// As UCUM has it, by what a name ends with.
fn unit(name: &str) -> &'static str {
    let name = name.strip_suffix("_total").unwrap_or(name);
    match name.rsplit('_').next() {
        Some("seconds") => "s",
        Some("bytes") => "By",
        Some("ratio") => "1",
        _ => "",
    }
}

fn scaled(value: u64, unit: &str) -> f64 {
    match unit {
        "s" => value as f64 / 1e9,
        _ => value as f64,
    }
}

/// What stands for all that is in a bucket: what quantiles are told by, too.
fn middle(bucket: u32) -> u64 {
    let std::ops::Range { start, end } = ckb_probe_crds::histogram::bounds(bucket);
    start + (end - 1 - start) / 2
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use ckb_probe_crds::histogram::BUCKETS;

    use super::*;

    #[test]
    fn no_two_of_our_buckets_become_one() {
        // What a bucket of the exported scale holds: see ckb-probe-traces, metric.
        let index = |bucket| (scaled(middle(bucket), "s").log2() * 32.0).ceil() as i32;
        let all: BTreeSet<i32> = (1..BUCKETS).map(index).collect();
        assert_eq!(all.len() as u32, BUCKETS - 1);
        assert_eq!(middle(0), 0);
    }

    #[test]
    fn units_are_those_of_the_names() {
        for (name, expected) in [
            ("ckb_probe_operation_duration_seconds", "s"),
            ("ckb_probe_block_cpu_seconds_total", "s"),
            ("ckb_probe_operation_bytes_total", "By"),
            ("ckb_probe_relative_error_ratio", "1"),
            ("ckb_probe_slow_operations_total", ""),
        ] {
            assert_eq!(unit(name), expected, "{name}");
        }
    }
}
