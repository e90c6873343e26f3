//! What the targets did, for Prometheus: base units, bounded labels, never a PID.

use std::time::Duration;

use ckb_probe_crds::Histogram;
use prometheus::{
    Encoder, TextEncoder,
    proto::{
        Bucket, Counter, Gauge, Histogram as Distribution, LabelPair, Metric, MetricFamily,
        MetricType,
    },
};

use crate::{
    instance::Instance,
    probe::Means,
    series::{Series, Tally},
};

/// Bucket bounds are powers of two from 512 ns to 17 s: where the kernel's buckets end too, so that every
/// count below a bound is exact.
const BOUNDS: std::ops::RangeInclusive<u32> = 9..=34;

/// The text of `/metrics`.
pub fn render<'a>(
    means: Means,
    now: Duration,
    instances: impl IntoIterator<Item = &'a Instance>,
) -> Result<String, prometheus::Error> {
    let instances: Vec<&Instance> = instances.into_iter().collect();
    let mut families = operation_families(&instances);
    families.extend(instance_families(&instances, now));
    families.extend(node_families(means));
    families.retain(|family| !family.get_metric().is_empty());
    let mut text = Vec::new();
    TextEncoder::new().encode(&families, &mut text)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

fn node_families(means: Means) -> [MetricFamily; 3] {
    let gauge_of = |name, help, labels, value| {
        let metrics = [gauge(labels, value)];
        family(name, help, MetricType::GAUGE, metrics)
    };
    let seconds = |nanos: u64| nanos as f64 / 1e9;
    [
        gauge_of(
            "ckb_probe_cost_per_call_seconds",
            "What one probed call costs the target, as calibrated on this node at start.",
            vec![],
            seconds(means.calibration.cost_per_call_ns),
        ),
        gauge_of(
            "ckb_probe_single_step_cost_seconds",
            "What one probed call costs where the kernel must single-step the function's first instruction.",
            vec![],
            seconds(means.calibration.single_step_cost_ns),
        ),
        gauge_of(
            "ckb_probe_tier_info",
            "How probes are attached on this node. Always 1.",
            vec![label("tier", means.tier.as_str())],
            1.0,
        ),
    ]
}

fn operation_families(instances: &[&Instance]) -> Vec<MetricFamily> {
    let series = || {
        instances
            .iter()
            .flat_map(|instance| instance.measured().map(move |series| (*instance, series)))
    };
    let each = |name, help, value: &dyn Fn(&Series) -> Option<f64>| {
        let metrics = series().filter_map(|(instance, series)| {
            Some(counter(operation_labels(instance, series), value(series)?))
        });
        family(name, help, MetricType::COUNTER, metrics)
    };
    vec![
        family(
            "ckb_probe_operation_duration_seconds",
            "Duration of the operation's calls since the agent first attached to the target; scaled up where they were sampled.",
            MetricType::HISTOGRAM,
            series().map(|(instance, series)| {
                distribution(operation_labels(instance, series), &series.all)
            }),
        ),
        family(
            "ckb_probe_column_family_operation_duration_seconds",
            "The same by column family, where byColumnFamily asks for it and the operation is on one.",
            MetricType::HISTOGRAM,
            series().flat_map(|(instance, series)| {
                series.families.iter().map(move |(name, tally)| {
                    let mut labels = operation_labels(instance, series);
                    labels.push(label("column_family", name));
                    distribution(labels, tally)
                })
            }),
        ),
        each(
            "ckb_probe_operation_bytes_total",
            "Payload bytes of the operation's calls, where they are known; scaled up where they were sampled.",
            &|series| {
                series
                    .slot
                    .has_bytes()
                    .then_some(series.all.total.bytes as f64)
            },
        ),
        each(
            "ckb_probe_operation_calls_total",
            "The operation's calls, also those that are counted and not timed; scaled up where they were sampled.",
            &|series| Some(series.all.total.count as f64),
        ),
        each(
            "ckb_probe_samples_total",
            "Calls of the operation that were seen: what the other figures are scaled up from where they were sampled.",
            &|series| Some(series.all.samples as f64),
        ),
        each(
            "ckb_probe_slow_operations_total",
            "Calls at or above the probe's slowThreshold; scaled up where they were sampled.",
            &|series| Some(series.all.total.slow as f64),
        ),
        family(
            "ckb_probe_sampling_ratio",
            "The part of the last report interval in which the operation's calls were recorded: 1 means all of them.",
            MetricType::GAUGE,
            series()
                .filter(|(instance, _)| instance.is_attached())
                .filter_map(|(instance, series)| {
                    Some(gauge(operation_labels(instance, series), series.share()?))
                }),
        ),
    ]
}

fn instance_families(instances: &[&Instance], now: Duration) -> Vec<MetricFamily> {
    let each = |name, help, kind, value: &dyn Fn(&Instance) -> Option<f64>| {
        let metrics = instances.iter().filter_map(|instance| {
            let (labels, value) = (instance_labels(instance), value(instance)?);
            Some(match kind {
                MetricType::COUNTER => counter(labels, value),
                _ => gauge(labels, value),
            })
        });
        family(name, help, kind, metrics)
    };
    let flag = |yes: bool| Some(f64::from(u8::from(yes)));
    vec![
        each(
            "ckb_probe_target_attached",
            "1 while probes are in place on the target.",
            MetricType::GAUGE,
            &|instance| flag(instance.is_attached()),
        ),
        each(
            "ckb_probe_target_firing",
            "1 while the kernel counted a call of the target within the last three report intervals.",
            MetricType::GAUGE,
            &|instance| flag(instance.is_firing(now)),
        ),
        each(
            "ckb_probe_events_lost_total",
            "Slow-call events that the ring buffer could not take. Their calls are counted all the same.",
            MetricType::COUNTER,
            &|instance| Some(instance.events_lost as f64),
        ),
        each(
            "ckb_probe_calls_lost_total",
            "Calls not recorded, since too many were in flight.",
            MetricType::COUNTER,
            &|instance| Some(instance.calls_lost as f64),
        ),
        each(
            "ckb_probe_overhead_ratio",
            "Estimated share of the target's CPU time that measuring cost in the last report interval.",
            MetricType::GAUGE,
            &|instance| instance.overhead_ratio,
        ),
        each(
            "ckb_probe_sizes_lost_total",
            "Calls whose payload bytes could not be counted, since too many were in flight. The calls are counted.",
            MetricType::COUNTER,
            &|instance| Some(instance.sizes_lost as f64),
        ),
        each(
            "ckb_probe_entry_only",
            "1 where calls are counted and not timed, since a probe at their return would kill the confined target.",
            MetricType::GAUGE,
            &|instance| flag(instance.is_entry_only()),
        ),
        each(
            "ckb_probe_reattaches_total",
            "How often the target's process was found anew after it had gone.",
            MetricType::COUNTER,
            &|instance| Some(instance.reattaches as f64),
        ),
        each(
            "ckb_probe_gap_seconds_total",
            "Time without a probe between the end of a process and the attach to its successor.",
            MetricType::COUNTER,
            &|instance| Some((instance.gap + instance.open_gap(now)).as_secs_f64()),
        ),
    ]
}

fn family(
    name: &str,
    help: &str,
    kind: MetricType,
    metrics: impl IntoIterator<Item = Metric>,
) -> MetricFamily {
    let mut family = MetricFamily::default();
    family.set_name(name.to_string());
    family.set_help(help.to_string());
    family.set_field_type(kind);
    family.set_metric(metrics.into_iter().collect());
    family
}

fn instance_labels(instance: &Instance) -> Vec<LabelPair> {
    let key = &instance.key;
    vec![
        label("namespace", &key.pod.namespace),
        label("pod", &key.pod.name),
        label("container", &key.container),
        label("ckbprobe", &key.probe.name),
    ]
}

fn operation_labels(instance: &Instance, series: &Series) -> Vec<LabelPair> {
    let mut labels = instance_labels(instance);
    labels.push(label("probe", &series.slot.probe));
    labels.push(label("operation", series.slot.operation));
    labels
}

fn label(name: &str, value: &str) -> LabelPair {
    let mut label = LabelPair::default();
    label.set_name(name.to_string());
    label.set_value(value.to_string());
    label
}

fn counter(labels: Vec<LabelPair>, value: f64) -> Metric {
    let mut counter = Counter::default();
    counter.set_value(value);
    let mut metric = Metric::from_label(labels);
    metric.set_counter(counter);
    metric
}

fn gauge(labels: Vec<LabelPair>, value: f64) -> Metric {
    let mut gauge = Gauge::default();
    gauge.set_value(value);
    let mut metric = Metric::from_label(labels);
    metric.set_gauge(gauge);
    metric
}

fn distribution(labels: Vec<LabelPair>, tally: &Tally) -> Metric {
    let mut distribution = Distribution::default();
    distribution.set_sample_count(tally.histogram.count());
    distribution.set_sample_sum(tally.total.nanoseconds as f64 / 1e9);
    distribution.set_bucket(buckets(&tally.histogram));
    let mut metric = Metric::from_label(labels);
    metric.set_histogram(distribution);
    metric
}

fn buckets(histogram: &Histogram) -> Vec<Bucket> {
    BOUNDS
        .map(|power| {
            let bound = 1u64 << power;
            let mut bucket = Bucket::default();
            bucket.set_upper_bound(bound as f64 / 1e9);
            bucket.set_cumulative_count(histogram.count_below(bound));
            bucket
        })
        .collect()
}

#[cfg(test)]
mod tests;
