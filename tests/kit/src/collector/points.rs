//! Points of metrics, as the Collector wrote them down.

use std::{collections::BTreeMap, fs, path::Path};

use serde_json::Value;

use super::{attributes, items, text_of};

/// One point of one series.
#[derive(Clone, Debug, PartialEq)]
pub struct CollectedPoint {
    /// The name of the metric.
    pub name: String,
    /// `sum`, `gauge` or `exponentialHistogram`.
    pub kind: String,
    /// As UCUM has it.
    pub unit: String,
    /// Its labels.
    pub attributes: BTreeMap<String, Value>,
    /// What is said of where it is from.
    pub resource: BTreeMap<String, Value>,
    /// Since when it counts, in nanoseconds since 1970.
    pub start_ns: u64,
    /// When it was so.
    pub time_ns: u64,
    /// The number; of a distribution the sum of its values.
    pub value: f64,
    /// Of a distribution how many values there are, and how many in each bucket by the upper bound of that; zero is a bound too.
    pub buckets: Vec<(f64, u64)>,
    /// How many it says itself that there are.
    pub count: u64,
    /// Numbers of the spans that it names.
    pub exemplars: Vec<String>,
}

/// Points of a file of JSON lines; a last line that is not whole is none yet.
pub(super) fn read(file: &Path) -> Vec<CollectedPoint> {
    let text = fs::read_to_string(file).unwrap_or_default();
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let mut points = Vec::new();
    for line in whole.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        for place in items(&line["resourceMetrics"]) {
            let resource = attributes(&place["resource"]["attributes"]);
            for metric in items(&place["scopeMetrics"])
                .iter()
                .flat_map(|scope| items(&scope["metrics"]))
            {
                for kind in ["sum", "gauge", "exponentialHistogram"] {
                    let all = items(&metric[kind]["dataPoints"]).iter();
                    points.extend(all.map(|point| collected(metric, kind, point, &resource)));
                }
            }
        }
    }
    points
}

fn collected(
    metric: &Value,
    kind: &str,
    point: &Value,
    resource: &BTreeMap<String, Value>,
) -> CollectedPoint {
    let number = |value: &Value| text_of(value).parse().unwrap_or_default();
    if kind != "gauge" {
        assert_eq!(metric[kind]["aggregationTemporality"], 2, "{metric}");
    }
    if kind == "sum" {
        assert_eq!(metric[kind]["isMonotonic"], true, "{metric}");
    }
    let value = match kind {
        "exponentialHistogram" => &point["sum"],
        _ => &point["asDouble"],
    };
    let exemplars = items(&point["exemplars"]).iter();
    CollectedPoint {
        name: text_of(&metric["name"]),
        kind: kind.to_string(),
        unit: text_of(&metric["unit"]),
        attributes: attributes(&point["attributes"]),
        resource: resource.clone(),
        start_ns: number(&point["startTimeUnixNano"]),
        time_ns: number(&point["timeUnixNano"]),
        // What is zero is left out of JSON.
        value: value.as_f64().unwrap_or_default(),
        buckets: buckets(point),
        count: number(&point["count"]),
        exemplars: exemplars.map(|one| text_of(&one["spanId"])).collect(),
    }
}

fn buckets(point: &Value) -> Vec<(f64, u64)> {
    let number = |value: &Value| text_of(value).parse::<u64>().unwrap_or_default();
    let base = (-point["scale"].as_f64().unwrap_or_default()).exp2().exp2();
    let offset = point["positive"]["offset"].as_i64().unwrap_or_default();
    let counts = items(&point["positive"]["bucketCounts"]).iter();
    let positive = (offset..)
        .zip(counts)
        .map(|(index, count)| (base.powf((index + 1) as f64), number(count)));
    let zero = (0.0, number(&point["zeroCount"]));
    let all = std::iter::once(zero).chain(positive);
    all.filter(|(_, count)| *count > 0).collect()
}
