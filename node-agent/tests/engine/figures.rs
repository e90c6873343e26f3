//! Figures as OTLP's metrics, at a real Collector: each series as the page of metrics has it, and distributions as they were counted.

use std::collections::{BTreeMap, BTreeSet};

use ckb_probe_agent::export::{exposition::Format, metric_sink::MetricSink};
use ckb_probe_crds::histogram::bounds;
use ckb_probe_testkit::{CollectedPoint, Collector};
use ckb_probe_traces::{Limits, Settings, Signal as Exported};
use k8s_openapi::jiff::Timestamp;

use super::{
    slow_calls::{attached, order, program, run},
    *,
};

const LONG: Duration = Duration::from_secs(30);

/// Buckets of 2^(1/32).
const BASE: f64 = 1.0218971486541166;

/// The name of a series, and its labels.
type Key = (String, BTreeMap<String, String>);

fn sink(endpoint: &str, protocol: &str) -> MetricSink {
    let settings = Settings::of(Exported::Metrics, Some(endpoint), &|name| match name {
        "OTEL_METRICS_EXPORTER" => Some("otlp".to_string()),
        "OTEL_EXPORTER_OTLP_PROTOCOL" => Some(protocol.to_string()),
        _ => None,
    });
    let who = vec![("service.name".into(), "ckb-probe".into())];
    MetricSink::start(settings.unwrap().unwrap(), Limits::DEFAULT, who).unwrap()
}

/// To as many figures as whoever reads JSON keeps: the last bit of a number is not one of them.
fn read(value: f64) -> f64 {
    format!("{value:.14e}").parse().unwrap()
}

/// Series of a page in the text format, but for buckets. Labels without a value are none.
fn series(page: &str) -> BTreeMap<Key, f64> {
    let lines = page.lines().filter(|line| !line.starts_with('#'));
    let lines = lines.filter(|line| !line.contains("le=\""));
    lines
        .map(|line| {
            let (series, value) = line.rsplit_once(' ').unwrap();
            let (name, labels) = series.split_once('{').unwrap_or((series, ""));
            let labels = labels.trim_end_matches('}').split("\",");
            let labels = labels.filter_map(|pair| {
                let (name, value) = pair.split_once("=\"")?;
                let value = value.trim_end_matches('"');
                (!value.is_empty()).then(|| (name.to_string(), value.to_string()))
            });
            (
                (name.to_string(), labels.collect()),
                read(value.parse().unwrap()),
            )
        })
        .collect()
}

fn key(point: &CollectedPoint, ending: &str) -> Key {
    let labels = point.attributes.iter();
    let labels = labels.map(|(name, value)| (name.clone(), value.as_str().unwrap().to_string()));
    (format!("{}{ending}", point.name), labels.collect())
}

/// The same, of what arrived.
fn arrived(points: &[CollectedPoint]) -> BTreeMap<Key, f64> {
    let all = points.iter().flat_map(|point| match point.kind.as_str() {
        "exponentialHistogram" => vec![
            (key(point, "_sum"), read(point.value)),
            (key(point, "_count"), point.count as f64),
        ],
        _ => vec![(key(point, ""), read(point.value))],
    });
    let all: Vec<_> = all.collect();
    let by_key: BTreeMap<Key, f64> = all.iter().cloned().collect();
    assert_eq!(by_key.len(), all.len(), "none came twice");
    by_key
}

async fn called(agent: &mut Agent, target: &Container, calls: u64) {
    kill_process(Pid::from_raw(target.pid() as i32).unwrap(), Signal::USR1).unwrap();
    let name = "ckb_probe_function_calls_total";
    agent
        .until(PATIENCE, |agent| {
            agent.events();
            let page = series(&agent.page(Format::Text));
            let counted = page.iter().filter(|((one, _), _)| one == name);
            counted.map(|(_, value)| *value).sum::<f64>() >= calls as f64
        })
        .await;
}

#[tokio::test]
async fn each_series_arrives_as_the_page_has_it_and_each_bucket_as_it_was_counted() {
    let folder = Folder::new();
    for (number, protocol) in [(91, "http/protobuf"), (92, "grpc")] {
        let collector = Collector::start();
        let endpoint = match protocol {
            "grpc" => collector.grpc(),
            _ => collector.http(),
        };
        let began = Timestamp::now().as_nanosecond() as u64;
        let mut sink = sink(&endpoint, protocol);
        let target = run(&program(&folder), number);
        let mut agent = Agent::start();
        agent.assign(vec![without_budget(order(&target, false))]);
        attached(&mut agent, &target).await;
        called(&mut agent, &target, 30).await;

        let (page, instances) = agent.export(&mut sink);
        let expected = series(&page);
        let histograms = expected.keys().filter(|(name, _)| name.ends_with("_count"));
        let count = expected.len() - histograms.count();
        let points = collector.wait_for_points(count);
        assert_eq!(arrived(&points), expected, "{protocol}");
        let error = |(name, _): &&Key| name == "ckb_probe_relative_error_ratio";
        assert!(expected.keys().any(|key| error(&key)), "{page}");

        // In buckets as fine as they were counted, each by itself.
        let times: Vec<&CollectedPoint> = points
            .iter()
            .filter(|point| point.kind == "exponentialHistogram")
            .collect();
        assert!(!times.is_empty());
        for point in times {
            assert_eq!(point.unit, "s");
            let row = point.attributes["function"].as_str().unwrap();
            let series = instances[0].probes[0].series.iter();
            let tally = series
                .flat_map(|one| &one.rows)
                .find(|(name, _)| *name == row);
            let (_, tally) = tally.unwrap();
            let counted = &tally.all.total.distributions["duration"].histogram;
            let counted: Vec<(u32, u64)> = counted.iter().collect();
            assert_eq!(point.buckets.len(), counted.len(), "{point:?}");
            for ((upper, arrived), (bucket, count)) in point.buckets.iter().zip(counted) {
                assert_eq!(*arrived, count);
                let std::ops::Range { start, end } = bounds(bucket);
                let middle = (start + (end - 1 - start) / 2) as f64 / 1e9;
                assert!(middle <= upper * 1.000001 && upper / BASE < middle * 1.000001);
            }
        }

        // They go on counting since the same time.
        called(&mut agent, &target, 60).await;
        let (page, _) = agent.export(&mut sink);
        let said = sink.end(LONG);
        let all = collector.wait_for_points(count + series(&page).len() - (expected.len() - count));
        assert!(
            said.starts_with(&format!(
                "of {0} points of metrics {0} were exported",
                all.len()
            )),
            "{said}"
        );
        assert_eq!(arrived(&all[count..]), series(&page), "{protocol}");
        let counting = all.iter().filter(|point| point.kind != "gauge");
        let starts: BTreeSet<u64> = counting.map(|point| point.start_ns).collect();
        assert_eq!(starts.len(), 1, "{starts:?}");
        let start = starts.into_iter().next().unwrap();
        assert!((began..all[0].time_ns).contains(&start));
        for point in &all {
            assert_eq!(point.resource["service.name"], "ckb-probe");
        }
    }
}
