//! What values of the chart make of rules and dashboards; and that values, schema, rules and runbooks know the same alerts.

use std::{collections::BTreeSet, fs};

use ckb_probe_crds::Kind;
use ckb_probe_tests::{
    chart::{named, rendered, root},
    fixture::repository,
    monitoring,
};
use serde_json::{Value, json};

use crate::rules::{EVERYTHING, groups};

fn alerts(spec: &Value) -> Vec<Value> {
    let groups = monitoring::list(&spec["groups"]).into_iter();
    groups
        .flat_map(|group| monitoring::list(&group["rules"]))
        .collect()
}

fn names(spec: &Value) -> BTreeSet<String> {
    let alerts = alerts(spec).into_iter();
    alerts
        .map(|alert| alert["alert"].as_str().unwrap().to_string())
        .collect()
}

fn with(more: &[&str]) -> Value {
    groups(&[&EVERYTHING, more].concat())
}

fn one(spec: &Value, name: &str) -> Value {
    let mut alerts = alerts(spec).into_iter();
    alerts.find(|alert| alert["alert"] == name).unwrap()
}

fn all() -> BTreeSet<String> {
    monitoring::rules()
        .into_iter()
        .map(|rule| rule.alert)
        .collect()
}

#[test]
fn nothing_is_made_unless_somebody_asks() {
    let objects = rendered(&[]).unwrap();
    assert!(named(&objects, "PrometheusRule", "ckb-probe").is_none());
    assert!(named(&objects, "ConfigMap", "ckb-probe-dashboard-overview").is_none());
}

#[test]
fn everything_that_is_switched_on_has_its_alerts_with_the_defaults_that_are_documented() {
    let spec = with(&[]);
    assert_eq!(names(&spec), all());
    for rule in monitoring::rules() {
        let alert = one(&spec, &rule.alert);
        let expression = format!("({}) {} {}", rule.value, rule.sign, rule.threshold);
        assert_eq!(alert["expr"], expression);
        assert_eq!(alert["for"], rule.lasts.as_str());
        assert_eq!(alert["labels"], json!({ "severity": rule.severity }));
        let link = alert["annotations"]["runbook_url"].as_str().unwrap();
        assert!(
            link.ends_with(&format!("/docs/runbooks/{}.md", rule.alert)),
            "{link}"
        );
    }
}

#[test]
fn one_alert_is_switched_off_and_no_other() {
    let mut others = all();
    assert!(others.remove("CkbReorganisations"));
    assert_eq!(
        names(&with(&["alerts.disabled={CkbReorganisations}"])),
        others
    );
    let refused = rendered(&["alerts.disabled={CkbReorganisation}"]).unwrap_err();
    assert!(refused.contains("/alerts/disabled/0"), "{refused}");
}

#[test]
fn a_part_that_is_switched_off_has_no_alert() {
    let kinds: BTreeSet<&str> = Kind::ALL.iter().map(|kind| kind.as_str()).collect();
    for needs in monitoring::rules()
        .into_iter()
        .filter_map(|rule| rule.needs)
    {
        let is_part = ["push", "traces", "otlpMetrics"].contains(&needs.as_str());
        assert!(is_part || kinds.contains(needs.as_str()), "{needs}");
    }
    let of = |wanted: &[Option<&str>]| -> BTreeSet<String> {
        let rules = monitoring::rules().into_iter();
        let wanted = rules.filter(|rule| wanted.contains(&rule.needs.as_deref()));
        wanted.map(|rule| rule.alert).collect()
    };
    let values = ["alerts.enabled=true", "kinds.admitted={rocksdb,tcp}"];
    assert_eq!(
        names(&groups(&values)),
        of(&[None, Some("rocksdb"), Some("tcp")])
    );
    let values = [
        "otlp.endpoint=http://x:4318",
        "kinds.admitted={chain}",
        "alerts.enabled=true",
    ];
    assert_eq!(
        names(&groups(&values)),
        of(&[None, Some("chain"), Some("traces")])
    );
}

#[test]
fn thresholds_times_severities_and_labels_are_values() {
    let spec = with(&[
        "alerts.thresholds.CkbCommitsSlow=0.2",
        "alerts.for.CkbCommitsSlow=1h",
        "alerts.severities.CkbCommitsSlow=critical",
        "alerts.ruleLabels.team=chain",
        "alerts.runbookBaseUrl=https://wiki.example/ckb/",
    ]);
    let changed = one(&spec, "CkbCommitsSlow");
    assert!(
        changed["expr"].as_str().unwrap().ends_with(") > 0.2"),
        "{changed}"
    );
    assert_eq!(changed["for"], "1h");
    assert_eq!(
        changed["labels"],
        json!({ "severity": "critical", "team": "chain" })
    );
    assert_eq!(
        changed["annotations"]["runbook_url"],
        "https://wiki.example/ckb/CkbCommitsSlow.md"
    );
    let other = one(&spec, "CkbBlocksSlow");
    assert!(
        other["expr"].as_str().unwrap().ends_with(") > 4"),
        "{other}"
    );
    assert_eq!(
        other["labels"],
        json!({ "severity": "warning", "team": "chain" })
    );

    // None is a threshold too, and no address no link.
    let spec = with(&["alerts.thresholds.CkbNoBlocks=0", "alerts.runbookBaseUrl="]);
    let changed = one(&spec, "CkbNoBlocks");
    assert!(
        changed["expr"].as_str().unwrap().ends_with(") < 0"),
        "{changed}"
    );
    assert_eq!(changed["annotations"]["runbook_url"], Value::Null);

    for (value, refused) in [
        ("alerts.thresholds.CkbNoBlock=1", "CkbNoBlock"),
        ("alerts.thresholds.CkbNoBlocks=many", "CkbNoBlocks"),
        ("alerts.for.CkbNoBlocks=long", "CkbNoBlocks"),
        ("alerts.severities.CkbNoBlocks=page", "CkbNoBlocks"),
    ] {
        let told = rendered(&[value]).unwrap_err();
        assert!(told.contains(refused), "{value}: {told}");
    }
}

#[test]
fn labels_are_what_a_prometheus_selects_rules_by_and_a_grafana_dashboards() {
    let objects = rendered(&[
        "alerts.enabled=true",
        "alerts.labels.release=stack",
        "dashboards.enabled=true",
        "dashboards.labels.team=chain",
        "dashboards.annotations.grafana_folder=CKB",
        "dashboards.namespace=grafana",
    ])
    .unwrap();
    let rule = named(&objects, "PrometheusRule", "ckb-probe").unwrap();
    assert_eq!(rule["metadata"]["labels"]["release"], "stack");
    for (file, dashboard) in monitoring::dashboards() {
        let name = format!("ckb-probe-dashboard-{}", file.trim_end_matches(".json"));
        let map = named(&objects, "ConfigMap", &name).unwrap();
        let metadata = &map["metadata"];
        assert_eq!(metadata["namespace"], "grafana");
        assert_eq!(metadata["labels"]["grafana_dashboard"], "1");
        assert_eq!(metadata["labels"]["team"], "chain");
        assert_eq!(metadata["annotations"], json!({ "grafana_folder": "CKB" }));
        // As it was made: nothing of it is a template of Helm's.
        let text = map["data"][format!("ckb-probe-{file}")].as_str().unwrap();
        assert_eq!(serde_json::from_str::<Value>(text).unwrap(), dashboard);
    }
}

#[test]
fn values_and_schema_know_each_alert_with_its_default() {
    let values = fs::read_to_string(root().join("values.yaml")).unwrap();
    let values: Value = serde_yaml::from_str(&values).unwrap();
    let defaults = values["alerts"]["thresholds"].as_object().unwrap();
    let rules = monitoring::rules();
    assert_eq!(defaults.len(), rules.len());
    for rule in rules {
        assert_eq!(
            defaults[&rule.alert].as_f64(),
            Some(rule.threshold),
            "{}",
            rule.alert
        );
    }
    let schema = fs::read_to_string(root().join("values.schema.json")).unwrap();
    let schema: Value = serde_json::from_str(&schema).unwrap();
    let known = monitoring::list(&schema["definitions"]["alert"]["enum"]);
    let known: BTreeSet<String> = known
        .iter()
        .map(|name| name.as_str().unwrap().to_string())
        .collect();
    assert_eq!(known, all());
}

/// What a runbook answers, in this order.
const HEADINGS: [&str; 4] = [
    "## What it means",
    "## Is it real?",
    "## What to type next",
    "## What mends it",
];

#[test]
fn each_alert_has_a_runbook_and_each_runbook_an_alert() {
    let folder = repository().join("docs/runbooks");
    let pages = fs::read_dir(&folder).unwrap();
    let pages = pages.map(|page| page.unwrap().file_name().into_string().unwrap());
    let pages: BTreeSet<String> = pages
        .filter_map(|page| page.strip_suffix(".md").map(str::to_string))
        .collect();
    assert_eq!(pages, all());
    for name in pages {
        let text = fs::read_to_string(folder.join(format!("{name}.md"))).unwrap();
        assert_eq!(text.lines().next(), Some(format!("# {name}").as_str()));
        let headings: Vec<&str> = text
            .lines()
            .filter(|line| line.starts_with("## "))
            .collect();
        assert_eq!(headings, HEADINGS, "{name}");
        let sections = text.split("\n## ").skip(1);
        for section in sections {
            let body = section.split_once('\n').map_or("", |(_, body)| body.trim());
            assert!(body.len() > 60, "{name}: {section}");
        }
        let (_, next) = text.split_once(HEADINGS[2]).unwrap();
        let (next, _) = next.split_once(HEADINGS[3]).unwrap();
        assert!(next.contains("```"), "{name}: nothing to type");
    }
}
