use std::collections::BTreeMap;

use prometheus::proto::{Bucket, Histogram};
use proptest::{collection::vec, prelude::*};

use super::{
    super::metrics::{counter, family, gauge, label},
    *,
};

#[test]
fn whoever_would_rather_have_openmetrics_gets_it() {
    // What Prometheus 2.42 and 2.54 send, a browser, curl, and who says that it takes none of it.
    for (accept, format) in [
        (
            "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
            Format::OpenMetrics,
        ),
        (
            "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.6,application/openmetrics-text;\
             version=1.0.0;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2",
            Format::OpenMetrics,
        ),
        ("text/html,application/xhtml+xml,*/*;q=0.8", Format::Text),
        ("*/*", Format::Text),
        ("", Format::Text),
        ("application/openmetrics-text;q=0,text/plain", Format::Text),
        (
            "application/openmetrics-text;q=0.3,text/plain;q=0.5",
            Format::Text,
        ),
    ] {
        assert_eq!(Format::accepted(accept), format, "{accept}");
    }
}

fn exemplar(nanoseconds: u64) -> Exemplar {
    Exemplar {
        trace: TraceId::from_bytes([0xab; 16]),
        span: SpanId::from_bytes([0xcd; 8]),
        nanoseconds,
        time: Timestamp::new(1_700_000_000, 123_456_789).unwrap(),
    }
}

fn histogram(labels: Vec<LabelPair>, bounds: &[f64], counts: &[u64], sum: f64) -> Metric {
    let buckets = bounds.iter().zip(counts).map(|(bound, count)| {
        let mut bucket = Bucket::default();
        bucket.set_upper_bound(*bound);
        bucket.set_cumulative_count(*count);
        bucket
    });
    let mut histogram = Histogram::default();
    histogram.set_bucket(buckets.collect());
    histogram.set_sample_count(*counts.last().unwrap());
    histogram.set_sample_sum(sum);
    let mut metric = Metric::from_label(labels);
    metric.set_histogram(histogram);
    metric
}

/// The same, with these exemplars.
fn linked(
    metrics: prometheus::proto::MetricFamily,
    exemplars: BTreeMap<(usize, usize), Exemplar>,
) -> Family<'static> {
    Family {
        exemplars,
        ..metrics.into()
    }
}

#[test]
fn a_page_of_openmetrics_has_exemplars_where_there_are_traces() {
    let times = [histogram(
        vec![label("operation", "Get")],
        &[0.001, 1.0],
        &[2, 3, 4],
        2.5,
    )];
    let slow = [
        counter(vec![label("operation", "Get")], 2.0),
        counter(vec![label("operation", "a\"b\\c\nd")], 1e21),
    ];
    let families = [
        linked(
            family("x_seconds", "How long.", MetricType::HISTOGRAM, times),
            [
                ((0, 1), exemplar(2_000_000)),
                ((0, 2), exemplar(5_000_000_000)),
            ]
            .into(),
        ),
        linked(
            family("slow_total", "How many.", MetricType::COUNTER, slow),
            [((0, 0), exemplar(5_000_000_000))].into(),
        ),
        Family::from(family("none_total", "None.", MetricType::COUNTER, [])),
        Family::from(family(
            "up",
            "Whether.",
            MetricType::GAUGE,
            [gauge(vec![], 1.0)],
        )),
    ];
    let trace = "trace_id=\"abababababababababababababababab\",span_id=\"cdcdcdcdcdcdcdcd\"";
    let expected = format!(
        r##"# TYPE x_seconds histogram
# HELP x_seconds How long.
x_seconds_bucket{{operation="Get",le="0.001"}} 2.0
x_seconds_bucket{{operation="Get",le="1.0"}} 3.0 # {{{trace}}} 0.002 1700000000.123456789
x_seconds_bucket{{operation="Get",le="+Inf"}} 4.0 # {{{trace}}} 5.0 1700000000.123456789
x_seconds_sum{{operation="Get"}} 2.5
x_seconds_count{{operation="Get"}} 4.0
# TYPE slow counter
# HELP slow How many.
slow_total{{operation="Get"}} 2.0 # {{{trace}}} 5.0 1700000000.123456789
slow_total{{operation="a\"b\\c\nd"}} 1000000000000000000000.0
# TYPE up gauge
# HELP up Whether.
up 1.0
# EOF
"##
    );
    assert_eq!(page(&families, Format::OpenMetrics).unwrap(), expected);
    // The text format has none, and the counter's whole name.
    let text = page(&families, Format::Text).unwrap();
    assert!(text.contains("# TYPE slow_total counter\n"), "{text}");
    assert!(
        !text.contains("trace_id") && !text.contains("EOF"),
        "{text}"
    );
}

/// A sample as it is read again: name, labels, value, and the numbers of its exemplar.
type Sample = (String, Vec<(String, String)>, f64, Option<(f64, f64)>);

/// A reader of OpenMetrics as small as it may be, which takes nothing else.
fn read(page: &str) -> Vec<Sample> {
    let body = page.strip_suffix("# EOF\n").unwrap();
    let lines = body.lines().filter(|line| !line.starts_with("# "));
    lines
        .map(|line| {
            let end = line.find(['{', ' ']).unwrap();
            let (name, mut rest) = line.split_at(end);
            let labels = labels(&mut rest);
            let (value, exemplar) = match rest.trim_start().split_once(" # ") {
                None => (rest.trim_start(), None),
                Some((value, mut exemplar)) => {
                    let ids = self::labels(&mut exemplar);
                    let names: Vec<&str> = ids.iter().map(|(name, _)| name.as_str()).collect();
                    assert_eq!(names, ["trace_id", "span_id"]);
                    let (duration, time) = exemplar.trim_start().split_once(' ').unwrap();
                    (value, Some((parsed(duration), parsed(time))))
                }
            };
            (name.to_string(), labels, parsed(value), exemplar)
        })
        .collect()
}

fn parsed(text: &str) -> f64 {
    text.replace("Inf", "inf").parse().unwrap()
}

fn labels(rest: &mut &str) -> Vec<(String, String)> {
    let mut all = Vec::new();
    let Some(mut text) = rest.strip_prefix('{') else {
        return all;
    };
    while !text.starts_with('}') {
        let (name, value) = text.trim_start_matches(',').split_once("=\"").unwrap();
        let (mut plain, mut letters) = (String::new(), value.char_indices());
        let end = loop {
            match letters.next().unwrap() {
                (end, '"') => break end,
                (_, '\\') => plain.push(match letters.next().unwrap().1 {
                    'n' => '\n',
                    other => other,
                }),
                (_, letter) => plain.push(letter),
            }
        };
        all.push((name.to_string(), plain));
        text = &value[end + 1..];
    }
    *rest = &text[1..];
    all
}

proptest! {
    #[test]
    fn whatever_labels_and_values_are_they_are_read_as_they_were_written(
        values in vec((any::<String>(), -1e300f64..1e300, any::<bool>()), 1..8),
        whole in any::<u64>(),
        nanoseconds in any::<u64>(),
    ) {
        let metrics = values.iter().map(|(text, value, _)| {
            counter(vec![label("a", text), label("b", "x")], *value)
        });
        let counters = family("n_total", "\\ \"\n", MetricType::COUNTER, metrics);
        let linked: BTreeMap<_, _> = values
            .iter()
            .enumerate()
            .filter(|(_, (_, _, linked))| *linked)
            .map(|(place, _)| ((place, 0), exemplar(nanoseconds)))
            .collect();
        let times = family("t", "t", MetricType::HISTOGRAM, [
            histogram(vec![], &[0.000000512, 512.0], &[whole / 2, whole], 1e-9),
        ]);
        let families = [self::linked(counters, linked), times.into()];
        let page = page(&families, Format::OpenMetrics).unwrap();
        let samples = read(&page);
        prop_assert_eq!(samples.len(), values.len() + 5);
        for ((name, labels, value, link), (text, expected, linked)) in samples.iter().zip(&values) {
            prop_assert_eq!(name, "n_total");
            let pairs = [("a".to_string(), text.clone()), ("b".to_string(), "x".to_string())];
            prop_assert_eq!(&labels[..], &pairs[..]);
            prop_assert_eq!(value, expected);
            prop_assert_eq!(link.is_some(), *linked);
            prop_assert!(link.is_none_or(|(seconds, _)| seconds == nanoseconds as f64 / 1e9));
        }
        let of_times: Vec<(&str, f64)> = samples[values.len()..]
            .iter()
            .map(|(name, labels, value, _)| {
                let bound = labels.first().map_or(name.as_str(), |(_, bound)| bound.as_str());
                (bound, *value)
            })
            .collect();
        let expected = [
            ("0.000000512", (whole / 2) as f64),
            ("512.0", whole as f64),
            ("+Inf", whole as f64),
            ("t_sum", 1e-9),
            ("t_count", whole as f64),
        ];
        prop_assert_eq!(&of_times[..], &expected[..]);
    }
}

#[test]
fn no_two_families_have_one_name_once_totals_are_cut() {
    let kinds = ckb_probe_crds::Kind::ALL.iter();
    let mut names: Vec<&str> = kinds
        .flat_map(|kind| kind.descriptor().metrics)
        .map(|metric| metric.name.strip_suffix(TOTAL).unwrap_or(metric.name))
        .collect();
    names.sort_unstable();
    let all = names.len();
    names.dedup();
    assert_eq!(names.len(), all);
}
