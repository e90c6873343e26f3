//! Each query of each rule and panel names what there is, and a real Prometheus that scraped all of it has an answer that is a number.

use std::{
    collections::BTreeSet,
    fmt::Write as _,
    thread::sleep,
    time::{Duration, Instant},
};

use ckb_probe_tests::{
    fixture::{PATIENCE, Prometheus},
    monitoring,
};

use crate::pages::{Metric, reference};

/// What a label's values are, as far as queries choose among them. The words are those of the references and of RocksDB's operations.
const VALUES: [(&str, &[&str]); 5] = [
    (
        "operation",
        &["TxnCommit", "Get", "NoRoomForCompaction", "FailedFlush"],
    ),
    ("what", &["calls", "events"]),
    ("result", &["written", "failed"]),
    ("outcome", &["Attached"]),
    ("kind", &["chain"]),
];

/// So many scrapes, a second apart, make every rate one of something.
const SCRAPES: f64 = 5.0;

#[test]
fn queries_name_only_what_there_is() {
    let known: BTreeSet<String> = reference()
        .iter()
        .flat_map(|(name, metric)| metric.samples(name))
        .collect();
    for query in monitoring::queries() {
        let metrics = monitoring::metrics(&query.text);
        let unknown: Vec<_> = metrics.difference(&known).collect();
        assert!(
            unknown.is_empty(),
            "{}: there is no {unknown:?}",
            query.place
        );
        assert!(!metrics.is_empty(), "{} asks of nothing", query.place);
    }
}

/// Of every metric that is documented, with the labels that are: a label that is not there makes an empty answer.
#[test]
fn a_real_prometheus_that_scraped_every_metric_answers_every_query() {
    let metrics = reference();
    let page = move |scrape| page(metrics.iter(), scrape);
    let prometheus = Prometheus::of_pages(page, "text/plain; version=0.0.4");
    let until = Instant::now() + PATIENCE;
    let scraped = "min(count_over_time(ckb_probe_samples_total[1m]))";
    while prometheus
        .query(scraped)
        .unwrap()
        .iter()
        .all(|(_, times)| *times < SCRAPES)
    {
        assert!(Instant::now() < until, "it scrapes once a second");
        sleep(Duration::from_millis(200));
    }
    let mut wrong = Vec::new();
    for query in monitoring::queries() {
        match prometheus.query(&query.text) {
            Ok(answer) if answer.iter().any(|(_, number)| number.is_finite()) => {}
            answer => wrong.push(format!("{}: {}\n  {answer:?}", query.place, query.text)),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A page with all of them: counters grow by one with each scrape, and everything else is 1.
fn page<'a>(metrics: impl Iterator<Item = (&'a String, &'a Metric)>, scrape: u64) -> String {
    let mut page = String::new();
    for (name, metric) in metrics {
        for labels in labels(metric) {
            let now = scrape + 1;
            let mut line = |name: &str, labels: &str, value: u64| {
                let _ = writeln!(page, "{name}{{{labels}}} {value}");
            };
            match metric.kind.as_str() {
                "histogram" => {
                    for (bound, count) in [("0.001", now), ("1", 2 * now), ("+Inf", 2 * now)] {
                        let labels = format!("{labels}le=\"{bound}\"");
                        line(&format!("{name}_bucket"), &labels, count);
                    }
                    line(&format!("{name}_sum"), &labels, now);
                    line(&format!("{name}_count"), &labels, 2 * now);
                }
                "counter" => line(name, &labels, now),
                "gauge" => line(name, &labels, 1),
                other => panic!("{name}: {other}"),
            }
        }
    }
    page
}

/// Every series that a metric has here, by its labels.
fn labels(metric: &Metric) -> Vec<String> {
    let none = vec![String::new()];
    metric.labels.iter().fold(none, |all, label| {
        let values = VALUES.iter().find(|(name, _)| name == label);
        let values = values.map_or(&["x"][..], |(_, values)| values);
        let each = all.iter().flat_map(|before| {
            values
                .iter()
                .map(move |value| format!("{before}{label}=\"{value}\","))
        });
        each.collect()
    })
}
