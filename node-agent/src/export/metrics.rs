//! What the targets did, for Prometheus: base units, bounded labels, never a PID.

use std::{collections::BTreeMap, time::Duration};

use ckb_probe_crds::{
    Distribution as Values, Figures, Histogram, IntervalFigures, Kind, Share,
    descriptor::{Export, Metric as Told, Unit},
    metrics::{self, label},
};
use prometheus::proto::{
    Bucket, Counter, Gauge, Histogram as Distribution, LabelPair, Metric, MetricFamily, MetricType,
};

use super::{
    exemplars::Exemplars,
    exposition::{Exemplar, Family},
};
use crate::{
    kernel::CalibratedTier,
    mechanism,
    state::{instance::Instance, probe::ProbeState, series::Series},
};

/// Bucket bounds are powers of two from 512 ns to 17 s: where the kernel's buckets end too, so that every
/// count below a bound is exact.
const BOUNDS: std::ops::RangeInclusive<u32> = 9..=34;

/// The measure that says how many were slow.
const SLOW: &str = "slow";

/// Rows and parts of rows in one page: some twelve megabytes where each has all that there may be.
pub(super) const MOST_ROWS: usize = 2048;

/// What is told of the targets, and of this node's means; with which traces there are of it.
pub fn families<'a>(
    means: Option<CalibratedTier>,
    now: Duration,
    instances: impl IntoIterator<Item = &'a Instance>,
    exemplars: &Exemplars,
) -> Vec<Family<'a>> {
    let instances: Vec<&Instance> = instances.into_iter().collect();
    let (told, left_out) = that_fit(&instances, MOST_ROWS);
    let mut families = kind_families(&told, exemplars);
    let others = load_families(&told).into_iter();
    let others = others.chain(instance_families(&instances, now));
    families.extend(others.map(Family::from));
    families.push(self::left_out(&left_out).into());
    let of_node = means.into_iter().flat_map(node_families);
    families.extend(of_node.map(Family::from));
    families
}

/// Those that are not told, with how many rows they have.
pub(super) fn left_out(left_out: &[(&Instance, usize)]) -> MetricFamily {
    let rows = left_out.iter();
    family(
        metrics::ROWS_LEFT_OUT,
        "Rows of a target that are not among these metrics, since those of all targets are too many.",
        MetricType::GAUGE,
        rows.map(|(instance, rows)| gauge(instance_labels(instance), *rows as f64)),
    )
}

/// The targets whose rows and parts of rows are so many together at most: those with few first, so that nobody's many keep out others. And
/// those that are left out, with how many they have.
pub(super) fn that_fit<'a>(
    instances: &[&'a Instance],
    most: usize,
) -> (Vec<&'a Instance>, Vec<(&'a Instance, usize)>) {
    let rows = |instance: &Instance| {
        let series = instance.probes.iter().flat_map(|book| &book.series);
        let rows = series.flat_map(|series| series.rows.values());
        rows.map(|row| 1 + row.parts.len()).sum::<usize>()
    };
    let mut counts: Vec<usize> = instances.iter().map(|instance| rows(instance)).collect();
    counts.sort_unstable();
    let mut all = 0;
    let fit = counts.iter().take_while(|count| {
        all += **count;
        all <= most
    });
    let mut room = fit.count();
    let limit = counts.get(room.wrapping_sub(1)).copied();
    let (mut told, mut left_out) = (Vec::new(), Vec::new());
    for &instance in instances {
        let count = rows(instance);
        // Of several with as many, those that come first.
        if room > 0 && limit.is_some_and(|limit| count <= limit) {
            room -= 1;
            told.push(instance);
        } else {
            left_out.push((instance, count));
        }
    }
    (told, left_out)
}

fn node_families(means: CalibratedTier) -> [MetricFamily; 3] {
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

/// What the kinds' descriptors say.
fn kind_families<'a>(instances: &[&'a Instance], exemplars: &Exemplars) -> Vec<Family<'a>> {
    let kinds = Kind::ALL.iter();
    let told = kinds.flat_map(|kind| {
        kind.descriptor()
            .metrics
            .iter()
            .map(move |told| (*kind, told))
    });
    told.map(|(kind, told)| kind_family(kind, told, instances, exemplars))
        .collect()
}

fn kind_family<'a>(
    kind: Kind,
    told: &Told,
    instances: &[&'a Instance],
    exemplars: &Exemplars,
) -> Family<'a> {
    let descriptor = kind.descriptor();
    let unit = descriptor.unit(told.export.measure());
    let mut metrics = Vec::new();
    let (mut links, mut distributions) = (BTreeMap::new(), BTreeMap::new());
    for (instance, book) in books(instances).filter(|(_, book)| book.probe.kind() == kind) {
        for (name, row) in book.series.iter().flat_map(|series| &series.rows) {
            let mut add = |part: Option<&str>, figures: &'a Figures| {
                let mut labels = row_labels(instance, book, name);
                if let Some(part) = part {
                    let name = told.part.or(descriptor.part).unwrap_or_default();
                    labels.push(label(name, part));
                }
                let Some(metric) = metric(labels, told.export, unit, figures) else {
                    return;
                };
                let place = metrics.len();
                metrics.push(metric);
                let of_row = exemplars.of(&instance.key, &book.probe.name, name, part);
                let at = at_their_place(told.export, of_row);
                links.extend(at.map(|(bucket, one)| ((place, bucket), one)));
                if let Export::Histogram(measure) = told.export {
                    let values = figures.distributions.get(measure);
                    distributions.extend(values.map(|values| (place, values)));
                }
            };
            match told.of_parts {
                false => add(None, &row.all.total),
                true => row
                    .parts
                    .iter()
                    .for_each(|(part, tally)| add(Some(part), &tally.total)),
            }
        }
    }
    let of_type = match told.export {
        Export::Histogram(_) => MetricType::HISTOGRAM,
        Export::Counter(_) => MetricType::COUNTER,
        Export::Gauge(_) => MetricType::GAUGE,
    };
    Family {
        metrics: family(told.name, told.help, of_type, metrics),
        exemplars: links,
        distributions,
    }
}

/// Traces of what took a time stand at the bucket that it is counted in, and the last of them at how many were slow.
fn at_their_place(
    export: Export,
    links: impl Iterator<Item = (u32, Exemplar)>,
) -> impl Iterator<Item = (usize, Exemplar)> {
    let (mut of_buckets, mut last) = (Vec::new(), None);
    match export {
        Export::Histogram(mechanism::DURATION) => of_buckets.extend(links.map(|(power, one)| {
            let power = power.clamp(*BOUNDS.start(), *BOUNDS.end() + 1);
            ((power - BOUNDS.start()) as usize, one)
        })),
        Export::Counter(SLOW) => last = links.map(|(_, one)| one).max_by_key(|one| one.time),
        _ => {}
    }
    let last = last.map(|one| (0, one));
    of_buckets.into_iter().chain(last)
}

/// A measure of a row as a metric, if the row has it.
fn metric(labels: Vec<LabelPair>, export: Export, unit: Unit, figures: &Figures) -> Option<Metric> {
    let scaled = |value: u64| match unit {
        Unit::Nanoseconds => value as f64 / 1e9,
        Unit::Count | Unit::Bytes => value as f64,
    };
    match export {
        Export::Histogram(measure) => {
            let values = figures.distributions.get(measure)?;
            Some(distribution(labels, values, scaled))
        }
        Export::Counter(measure) => {
            let sum = figures.sums.get(measure).map(|sum| scaled(*sum));
            let count = figures.distributions.get(measure);
            let count = count.map(|values| values.count() as f64);
            Some(counter(labels, count.or(sum)?))
        }
        Export::Gauge(measure) => {
            let level = figures.levels.get(measure)?;
            Some(gauge(labels, scaled(*level)))
        }
    }
}

fn books<'a>(instances: &[&'a Instance]) -> impl Iterator<Item = (&'a Instance, &'a ProbeState)> {
    let instances = instances.iter().copied();
    instances.flat_map(|instance| instance.probes.iter().map(move |book| (instance, book)))
}

/// How much each row rests on, whatever its kind.
fn load_families(instances: &[&Instance]) -> Vec<MetricFamily> {
    let rows = || {
        books(instances).flat_map(|(instance, book)| {
            book.series.iter().flat_map(move |series| {
                series
                    .rows
                    .iter()
                    .map(move |(name, row)| (instance, book, series, name, row))
            })
        })
    };
    let share = |instance: &Instance, series: &Series| {
        if instance.is_attached() && series.live {
            series.share()
        } else {
            None
        }
    };
    vec![
        family(
            metrics::SAMPLES,
            "What was seen of the row, such as calls: what its other figures are scaled up from where they were sampled.",
            MetricType::COUNTER,
            rows().map(|(instance, book, _, name, row)| {
                counter(row_labels(instance, book, name), row.all.samples as f64)
            }),
        ),
        family(
            metrics::SAMPLING,
            "The part of the target's own time in the last report interval in which was recorded what happened in the row: 1 means all of it.",
            MetricType::GAUGE,
            rows().filter_map(|(instance, book, series, name, _)| {
                Some(gauge(
                    row_labels(instance, book, name),
                    share(instance, series)?,
                ))
            }),
        ),
        family(
            metrics::RELATIVE_ERROR,
            "The standard error of what was counted of the row in the last report interval, as a part of it: 0 where nothing is sampled.",
            MetricType::GAUGE,
            rows().filter_map(|(instance, book, series, name, row)| {
                share(instance, series)?;
                let counted = book.probe.kind().descriptor().counted(false)?;
                let error = relative_error(row.all.window(), counted.measure())?;
                Some(gauge(row_labels(instance, book, name), error))
            }),
        ),
    ]
}

/// How far off a count may be, as a part of it; None where no slice saw anything of it.
fn relative_error(window: &IntervalFigures, measure: &str) -> Option<f64> {
    match Share::of(window).is_sampled() {
        true => window.figures.relative_error(measure),
        false => Some(0.0),
    }
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
    let lost = instances.iter().flat_map(|instance| {
        instance.lost.iter().map(|(what, count)| {
            let mut labels = instance_labels(instance);
            labels.push(label(label::WHAT, what));
            counter(labels, *count as f64)
        })
    });
    let flag = |yes: bool| Some(f64::from(u8::from(yes)));
    let probes = books(instances).map(|(instance, book)| {
        let mut labels = instance_labels(instance);
        labels.push(label(label::PROBE, &book.probe.name));
        labels.push(label(label::KIND, book.probe.kind().as_str()));
        gauge(
            labels,
            f64::from(u8::from(instance.is_attached() && book.sees())),
        )
    });
    vec![
        family(
            metrics::ATTACHED,
            "1 while the probe is in place on the target, whether or not anything happens that it counts.",
            MetricType::GAUGE,
            probes,
        ),
        each(
            metrics::TARGET_ATTACHED,
            "1 while probes are in place on the target.",
            MetricType::GAUGE,
            &|instance| flag(instance.is_attached()),
        ),
        each(
            metrics::TARGET_FIRING,
            "1 while the kernel counted a call of the target within the last three report intervals.",
            MetricType::GAUGE,
            &|instance| flag(instance.is_firing(now)),
        ),
        family(
            metrics::LOST,
            "What could not be recorded, listed or written, by what it is.",
            MetricType::COUNTER,
            lost,
        ),
        each(
            metrics::OVERHEAD,
            "Estimated share of the target's CPU time that measuring cost in the last report interval.",
            MetricType::GAUGE,
            &|instance| instance.overhead_ratio,
        ),
        each(
            metrics::OVERHEAD_GRANTED,
            "Share of the target's CPU time that measuring might have cost in the last report interval: the budget, and what its floor was of that time.",
            MetricType::GAUGE,
            &Instance::granted_ratio,
        ),
        each(
            metrics::ENTRY_ONLY,
            "1 where calls are counted and not timed, since a probe at their return would kill the confined target.",
            MetricType::GAUGE,
            &|instance| flag(instance.is_entry_only()),
        ),
        each(
            metrics::REATTACHES,
            "How often the target's process was found anew after it had gone.",
            MetricType::COUNTER,
            &|instance| Some(instance.reattaches as f64),
        ),
        each(
            metrics::GAP,
            "Time without a probe: between the end of a process and the attach to its successor, while one could not be measured, and while what measures it was replaced.",
            MetricType::COUNTER,
            &|instance| Some((instance.gap + instance.open_gap(now)).as_secs_f64()),
        ),
    ]
}

pub(super) fn family(
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
        label(label::NAMESPACE, &key.pod.namespace),
        label(label::POD, &key.pod.name),
        label(label::CONTAINER, &key.container),
        label(label::CKBPROBE, &key.probe.name),
    ]
}

fn row_labels(instance: &Instance, book: &ProbeState, row: &str) -> Vec<LabelPair> {
    let mut labels = instance_labels(instance);
    labels.push(label(label::PROBE, &book.probe.name));
    labels.push(label(book.probe.kind().descriptor().row, row));
    labels
}

pub(super) fn label(name: &str, value: &str) -> LabelPair {
    let mut label = LabelPair::default();
    label.set_name(name.to_string());
    label.set_value(value.to_string());
    label
}

pub(super) fn counter(labels: Vec<LabelPair>, value: f64) -> Metric {
    let mut counter = Counter::default();
    counter.set_value(value);
    let mut metric = Metric::from_label(labels);
    metric.set_counter(counter);
    metric
}

pub(super) fn gauge(labels: Vec<LabelPair>, value: f64) -> Metric {
    let mut gauge = Gauge::default();
    gauge.set_value(value);
    let mut metric = Metric::from_label(labels);
    metric.set_gauge(gauge);
    metric
}

fn distribution(labels: Vec<LabelPair>, values: &Values, scaled: impl Fn(u64) -> f64) -> Metric {
    let mut distribution = Distribution::default();
    distribution.set_sample_count(values.histogram.count());
    distribution.set_sample_sum(scaled(values.sum));
    distribution.set_bucket(buckets(&values.histogram, scaled));
    let mut metric = Metric::from_label(labels);
    metric.set_histogram(distribution);
    metric
}

fn buckets(histogram: &Histogram, scaled: impl Fn(u64) -> f64) -> Vec<Bucket> {
    BOUNDS
        .map(|power| {
            let bound = 1u64 << power;
            let mut bucket = Bucket::default();
            bucket.set_upper_bound(scaled(bound));
            bucket.set_cumulative_count(histogram.count_below(bound));
            bucket
        })
        .collect()
}

#[cfg(test)]
mod tests;
