//! What the chart has to watch with: the rules of alerts and the dashboards, and each query in them.

use std::{collections::BTreeSet, fs};

use serde::Deserialize;
use serde_json::Value;

use crate::chart;

/// What an alert is made of, as the chart has it.
#[derive(Clone, Debug, Deserialize)]
pub struct Rule {
    /// Its name.
    pub alert: String,
    /// The part without which there is nothing to tell.
    pub needs: Option<String>,
    /// The number that is looked at.
    pub value: String,
    /// Whether it must be above the threshold, or below.
    pub sign: String,
    /// By default.
    pub threshold: f64,
    /// For how long.
    #[serde(rename = "for")]
    pub lasts: String,
    /// Who is to be told.
    pub severity: String,
}

/// What Prometheus is asked.
#[derive(Clone, Debug)]
pub struct Query {
    /// Who asks.
    pub place: String,
    /// The query, with something in place of each of Grafana's variables.
    pub text: String,
}

/// What stands for Grafana's variables. Of a Prometheus that scrapes each second.
const VARIABLES: [(&str, &str); 5] = [
    ("$__rate_interval", "30s"),
    ("$__range", "1h"),
    ("$cluster", ".*"),
    ("$namespace", ".*"),
    ("$pod", ".*"),
];

/// All alerts.
///
/// # Panics
/// Where the file cannot be read.
pub fn rules() -> Vec<Rule> {
    #[derive(Deserialize)]
    struct Group {
        rules: Vec<Rule>,
    }
    #[derive(Deserialize)]
    struct File {
        groups: Vec<Group>,
    }
    let file: File = serde_yaml::from_str(&read("alerts.yaml"))
        .unwrap_or_else(|error| panic!("alerts.yaml: {error}"));
    file.groups
        .into_iter()
        .flat_map(|group| group.rules)
        .collect()
}

/// All dashboards, each with the name of its file.
///
/// # Panics
/// Where one cannot be read.
pub fn dashboards() -> Vec<(String, Value)> {
    let folder = chart::root().join("monitoring/dashboards");
    let entries =
        fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .collect();
    names.sort();
    let all = names.into_iter().map(|name| {
        let text = read(&format!("dashboards/{name}"));
        let dashboard =
            serde_json::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
        (name, dashboard)
    });
    all.collect()
}

/// Every query: the value of each alert, and each of each panel.
pub fn queries() -> Vec<Query> {
    let of_rules = rules().into_iter().map(|rule| Query {
        place: rule.alert,
        text: rule.value,
    });
    let of_panels = dashboards().into_iter().flat_map(|(name, dashboard)| {
        let panels = list(&dashboard["panels"]);
        let asked = panels.into_iter().flat_map(|panel| {
            let targets = list(&panel["targets"]);
            targets
                .into_iter()
                .map(move |target| (panel["title"].clone(), target["expr"].clone()))
        });
        asked
            .map(|(title, expression)| Query {
                place: format!("{name}: {}", title.as_str().unwrap_or_default()),
                text: without_variables(expression.as_str().unwrap_or_default()),
            })
            .collect::<Vec<_>>()
    });
    of_rules.chain(of_panels).collect()
}

/// The members of a list; none where it is no list.
pub fn list(value: &Value) -> Vec<Value> {
    value.as_array().cloned().unwrap_or_default()
}

/// A query that Prometheus reads.
pub fn without_variables(text: &str) -> String {
    let mut text = text.to_string();
    for (name, stand_in) in VARIABLES {
        text = text.replace(name, stand_in);
    }
    text
}

/// The metrics that a query names, as samples have them: with `_bucket`, `_sum` and `_count`.
pub fn metrics(query: &str) -> BTreeSet<String> {
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '_' || letter == ':';
    let words = query.split(|letter| !is_part(letter));
    words
        .filter(|word| word.starts_with("ckb_probe_"))
        .map(str::to_string)
        .collect()
}

fn read(file: &str) -> String {
    let path = chart::root().join("monitoring").join(file);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_names_its_metrics_and_not_its_labels() {
        let query =
            "max by (ckbprobe, pod) (rate(ckb_probe_a_total{pod=~\".*\"}[5m])) / ckb_probe_b";
        let named = metrics(query);
        let names: Vec<&str> = named.iter().map(String::as_str).collect();
        assert_eq!(names, ["ckb_probe_a_total", "ckb_probe_b"]);
    }

    #[test]
    fn there_is_a_query_for_each_alert_and_more_for_panels_and_none_has_a_variable() {
        let all = queries();
        assert!(all.len() > rules().len() + 50, "{}", all.len());
        for query in all {
            assert!(!query.text.is_empty(), "{}", query.place);
            assert!(!query.text.contains('$'), "{}: {}", query.place, query.text);
        }
    }
}
