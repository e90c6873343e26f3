//! Pages of metrics, in the two formats that Prometheus reads: its own text format, which the crate `prometheus` writes, and OpenMetrics
//! 1.0, which it does not. Only OpenMetrics has exemplars: beside a figure the trace of one thing that is in it.

use std::{collections::BTreeMap, fmt::Write as _};

use ckb_probe_crds::Distribution;
use ckb_probe_traces::{SpanId, TraceId};
use k8s_openapi::jiff::Timestamp;
use prometheus::{
    TextEncoder,
    proto::{LabelPair, Metric, MetricFamily, MetricType},
};

/// Media types, as answers name them.
const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// How a page is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Prometheus' text format.
    Text,
    /// OpenMetrics.
    OpenMetrics,
}

impl Format {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Text, Self::OpenMetrics];

    /// What whoever asks would rather have, by the header `Accept` (RFC 9110, 12.5.1). The text format, where it does not say.
    pub fn accepted(accept: &str) -> Self {
        let weight = |is: &dyn Fn(&str) -> bool| {
            let ranges = accept.split(',').filter_map(|range| {
                let mut parts = range.split(';').map(str::trim);
                let media = parts.next()?.to_ascii_lowercase();
                let weight = parts.find_map(|part| part.strip_prefix("q="));
                let weight = weight.map_or(Some(1.0), |text| text.parse::<f64>().ok())?;
                is(&media).then_some(weight)
            });
            ranges.fold(0.0, f64::max)
        };
        let open = weight(&|media| media == "application/openmetrics-text");
        let text = weight(&|media| media == "text/plain" || media == "text/*" || media == "*/*");
        match open > 0.0 && open >= text {
            true => Self::OpenMetrics,
            false => Self::Text,
        }
    }

    /// The media type.
    pub fn media_type(self) -> &'static str {
        match self {
            Self::Text => TEXT,
            Self::OpenMetrics => OPEN_METRICS,
        }
    }
}

/// One thing that is in a figure, and its trace.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Exemplar {
    /// The trace.
    pub trace: TraceId,
    /// The span in it.
    pub span: SpanId,
    /// How long it took.
    pub nanoseconds: u64,
    /// When it ended.
    pub time: Timestamp,
}

/// Metrics of one name, and what links some of them to traces.
#[derive(Clone, Debug)]
pub struct Family<'a> {
    pub(super) metrics: MetricFamily,
    /// By the place of the metric, and of a histogram by that of the bucket: one past the last is the one without a bound.
    pub(super) exemplars: BTreeMap<(usize, usize), Exemplar>,
    /// By the place of the metric, what was counted of a histogram: in finer buckets than a page has.
    pub(super) distributions: BTreeMap<usize, &'a Distribution>,
}

impl From<MetricFamily> for Family<'_> {
    fn from(metrics: MetricFamily) -> Self {
        Self {
            metrics,
            exemplars: BTreeMap::new(),
            distributions: BTreeMap::new(),
        }
    }
}

/// A page of all that has any metric.
pub fn page(families: &[Family<'_>], format: Format) -> Result<String, prometheus::Error> {
    let mut page = String::new();
    let families = families
        .iter()
        .filter(|family| !family.metrics.get_metric().is_empty());
    for family in families {
        match format {
            Format::Text => {
                let family = std::slice::from_ref(&family.metrics);
                TextEncoder::new().encode_utf8(family, &mut page)?;
            }
            Format::OpenMetrics => write_family(&mut page, family),
        }
    }
    if format == Format::OpenMetrics {
        page.push_str("# EOF\n");
    }
    Ok(page)
}

/// What a counter's samples end with, and its family's name does not.
const TOTAL: &str = "_total";

fn write_family(page: &mut String, family: &Family<'_>) {
    let metrics = &family.metrics;
    let (kind, name) = match metrics.get_field_type() {
        MetricType::COUNTER => {
            let name = metrics.name();
            ("counter", name.strip_suffix(TOTAL).unwrap_or(name))
        }
        MetricType::HISTOGRAM => ("histogram", metrics.name()),
        MetricType::GAUGE => ("gauge", metrics.name()),
        MetricType::SUMMARY | MetricType::UNTYPED => ("unknown", metrics.name()),
    };
    // Writing to a text never fails.
    let _ = writeln!(page, "# TYPE {name} {kind}");
    let _ = writeln!(page, "# HELP {name} {}", escaped(metrics.help()));
    for (place, metric) in metrics.get_metric().iter().enumerate() {
        let exemplar = |bucket| family.exemplars.get(&(place, bucket));
        let sample = |page: &mut String, ending: &str, bound: Option<f64>, value: f64, link| {
            let _ = write!(page, "{name}{ending}");
            write_labels(page, metric, bound);
            let _ = write!(page, " {}", number(value));
            write_exemplar(page, link);
            page.push('\n');
        };
        match metrics.get_field_type() {
            MetricType::COUNTER => {
                let value = metric.get_counter().get_value();
                sample(page, TOTAL, None, value, exemplar(0));
            }
            MetricType::HISTOGRAM => {
                let all = metric.get_histogram();
                let buckets = all.get_bucket();
                for (index, bucket) in buckets.iter().enumerate() {
                    let count = bucket.cumulative_count() as f64;
                    let bound = Some(bucket.upper_bound());
                    sample(page, "_bucket", bound, count, exemplar(index));
                }
                let count = all.get_sample_count() as f64;
                let last = exemplar(buckets.len());
                sample(page, "_bucket", Some(f64::INFINITY), count, last);
                sample(page, "_sum", None, all.get_sample_sum(), None);
                sample(page, "_count", None, count, None);
            }
            MetricType::GAUGE => sample(page, "", None, metric.get_gauge().get_value(), None),
            MetricType::SUMMARY | MetricType::UNTYPED => {}
        }
    }
}

fn write_labels(page: &mut String, metric: &Metric, bound: Option<f64>) {
    let mut separator = '{';
    let mut pair = |page: &mut String, name: &str, value: &str| {
        let _ = write!(page, "{separator}{name}=\"{}\"", escaped(value));
        separator = ',';
    };
    let labels: &[LabelPair] = metric.get_label();
    for label in labels {
        pair(page, label.name(), label.value());
    }
    if let Some(bound) = bound {
        pair(page, "le", &number(bound));
    }
    if separator == ',' {
        page.push('}');
    }
}

fn write_exemplar(page: &mut String, exemplar: Option<&Exemplar>) {
    let Some(one) = exemplar else {
        return;
    };
    let _ = write!(
        page,
        " # {{trace_id=\"{}\",span_id=\"{}\"}} {} {}",
        one.trace,
        one.span,
        number(one.nanoseconds as f64 / 1e9),
        seconds(one.time)
    );
}

/// Seconds since 1970, all of its digits.
fn seconds(time: Timestamp) -> String {
    let nanos = u64::try_from(time.as_nanosecond()).unwrap_or_default();
    format!("{}.{:09}", nanos / 1_000_000_000, nanos % 1_000_000_000)
}

/// A number as OpenMetrics has it, which has a point in it. For bounds the text format's digits, so that a scraper's series are the same
/// by either.
fn number(value: f64) -> String {
    match value {
        f64::INFINITY => "+Inf".to_string(),
        f64::NEG_INFINITY => "-Inf".to_string(),
        value if value.fract() == 0.0 => format!("{value}.0"),
        value => value.to_string(),
    }
}

/// A label's value, or a help text.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '\\' => escaped.push_str("\\\\"),
            '"' => escaped.push_str("\\\""),
            '\n' => escaped.push_str("\\n"),
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests;
