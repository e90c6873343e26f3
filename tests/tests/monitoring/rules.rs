//! Each alert is raised by what it is about, and not by what comes close to it: by `promtool`, with the rules as the chart renders them.

use std::{collections::BTreeSet, fs, process::Command};

use ckb_probe_tests::{
    chart::{named, rendered},
    monitoring,
};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::cases::{ALL, Case, Expected};

/// Every part switched on.
pub const EVERYTHING: [&str; 4] = [
    "alerts.enabled=true",
    "profiles.push.url=http://pyroscope.monitoring:4040",
    "otlp.endpoint=http://collector.observability:4318",
    "otlp.metrics.enabled=true",
];

/// The spec of the PrometheusRule that the chart makes with these values.
pub fn groups(values: &[&str]) -> Value {
    let objects = rendered(values).unwrap();
    let rule = named(&objects, "PrometheusRule", "ckb-probe");
    rule.map_or(Value::Null, |rule| rule["spec"].clone())
}

/// What promtool says; None where it has nothing to say.
fn promtool(folder: &TempDir, arguments: &[&str]) -> Option<String> {
    let output = Command::new("promtool")
        .args(arguments)
        .current_dir(folder.path())
        .output()
        .expect("promtool: scripts/setup.sh installs it");
    let told = [output.stdout, output.stderr].concat();
    (!output.status.success()).then(|| String::from_utf8_lossy(&told).into_owned())
}

fn with_rules(values: &[&str]) -> TempDir {
    let folder = TempDir::new().unwrap();
    let rules = serde_yaml::to_string(&groups(values)).unwrap();
    fs::write(folder.path().join("rules.yaml"), rules).unwrap();
    folder
}

#[test]
fn prometheus_reads_the_rules() {
    let folder = with_rules(&EVERYTHING);
    assert_eq!(
        promtool(&folder, &["check", "rules", "--lint-fatal", "rules.yaml"]),
        None
    );
}

#[test]
fn each_alert_is_raised_by_what_it_is_about_and_not_by_what_comes_close() {
    for expected in [Expected::Raised, Expected::Quiet] {
        let tried: BTreeSet<&str> = ALL
            .iter()
            .filter(|case| case.expected == expected)
            .map(|case| case.alert)
            .collect();
        let rules = monitoring::rules();
        let all: BTreeSet<&str> = rules.iter().map(|rule| rule.alert.as_str()).collect();
        assert_eq!(tried, all, "{expected:?}");
    }
    let folder = with_rules(&EVERYTHING);
    let tests: Vec<Value> = ALL.iter().map(test).collect();
    let file = json!({ "rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": tests });
    let file = serde_yaml::to_string(&file).unwrap();
    fs::write(folder.path().join("tests.yaml"), file).unwrap();
    if let Some(told) = promtool(&folder, &["test", "rules", "tests.yaml"]) {
        panic!("{told}");
    }
}

/// As promtool has it.
fn test(case: &Case) -> Value {
    let rules = monitoring::rules();
    let rule = rules.iter().find(|rule| rule.alert == case.alert).unwrap();
    let mut series: Vec<Value> = case
        .series
        .iter()
        .map(|(series, values)| json!({ "series": series.replace("TARGET", TARGET), "values": values }))
        .collect();
    if case.series.is_empty() {
        series.push(json!({ "series": "something_else", "values": "1x200" }));
    }
    let one = |is_so: bool| match is_so {
        true => json!([{ "labels": "{}", "value": 1 }]),
        false => json!([]),
    };
    let raised = format!(
        "max(ALERTS{{alertname=\"{}\", alertstate=\"firing\"}})",
        case.alert
    );
    let has_data = format!("count({}) > bool 0", rule.value);
    json!({
        "name": format!("{} {:?} at {}: {}", case.alert, case.expected, case.at, case.about),
        "interval": "1m",
        "input_series": series,
        "promql_expr_test": [
            { "expr": raised, "eval_time": case.at, "exp_samples": one(case.expected == Expected::Raised) },
            // What is quiet for there is nothing to look at shows nothing.
            { "expr": has_data, "eval_time": case.at, "exp_samples": one(case.has_data) },
        ],
    })
}

/// The labels of every target.
const TARGET: &str = "namespace=\"ckb\", pod=\"ckb-0\", container=\"ckb\", ckbprobe=\"ckb\"";
