//! What is asked of each dashboard and panel, beside Grafana's schema (`make lint`).

use std::collections::BTreeSet;

use ckb_probe_tests::monitoring::{dashboards, list};
use serde_json::{Value, json};

/// What links, bookmarks and folders go by: none of them changes.
const NAMES: [&str; 6] = ["blocks", "cost", "node", "operator", "overview", "storage"];

const UNITS: [&str; 7] = ["short", "cps", "cpm", "s", "bytes", "Bps", "percentunit"];

/// So many questions are few.
const MOST_PANELS: usize = 18;

#[test]
fn names_are_those_that_links_go_by() {
    let uids: Vec<String> = dashboards()
        .iter()
        .map(|(file, dashboard)| {
            let uid = dashboard["uid"].as_str().unwrap();
            assert_eq!(format!("{uid}.json"), format!("ckb-probe-{file}"));
            uid.to_string()
        })
        .collect();
    assert_eq!(uids, NAMES.map(|name| format!("ckb-probe-{name}")));
}

#[test]
fn each_panel_asks_one_question_and_says_in_what_unit_and_in_a_sentence_what_it_shows() {
    for (name, dashboard) in dashboards() {
        let panels = list(&dashboard["panels"]);
        assert!(panels.len() <= MOST_PANELS, "{name} has {}", panels.len());
        let titles: BTreeSet<String> = panels
            .iter()
            .map(|panel| panel["title"].to_string())
            .collect();
        assert_eq!(titles.len(), panels.len(), "{name} asks something twice");
        for panel in &panels {
            let title = panel["title"].as_str().unwrap();
            let about = panel["description"].as_str().unwrap();
            assert!(title.ends_with('?'), "{title}");
            assert!(about.ends_with('.'), "{title}: {about}");
            let unit = panel["fieldConfig"]["defaults"]["unit"].as_str().unwrap();
            assert!(UNITS.contains(&unit), "{title}: {unit}");
            for target in list(&panel["targets"]) {
                assert_ne!(target["legendFormat"], "", "{title}");
            }
        }
    }
}

#[test]
fn panels_lie_beside_each_other_and_not_on_one_another() {
    for (name, dashboard) in dashboards() {
        let mut taken = BTreeSet::new();
        let mut ids = BTreeSet::new();
        for panel in list(&dashboard["panels"]) {
            assert!(ids.insert(panel["id"].as_u64()), "{name}: {panel}");
            let [x, y, width, height] =
                ["x", "y", "w", "h"].map(|side| panel["gridPos"][side].as_u64().unwrap());
            assert!(x + width <= 24, "{name}: {panel}");
            for column in x..x + width {
                for row in y..y + height {
                    assert!(taken.insert((column, row)), "{name}: {}", panel["title"]);
                }
            }
        }
    }
}

/// Of whichever Prometheus is chosen, and of whichever cluster.
#[test]
fn source_and_cluster_are_chosen_and_each_query_heeds_it() {
    let source = json!({ "type": "prometheus", "uid": "${datasource}" });
    for (name, dashboard) in dashboards() {
        let variables = list(&dashboard["templating"]["list"]);
        let variables: Vec<&str> = variables
            .iter()
            .map(|one| one["name"].as_str().unwrap())
            .collect();
        assert_eq!(variables[..2], ["datasource", "cluster"], "{name}");
        for panel in list(&dashboard["panels"]) {
            assert_eq!(panel["datasource"], source, "{name}: {}", panel["title"]);
            for target in list(&panel["targets"]) {
                assert_eq!(target["datasource"], source);
                heeds(&target, &variables);
            }
        }
    }
}

fn heeds(target: &Value, variables: &[&str]) {
    let query = target["expr"].as_str().unwrap();
    let metrics = query.matches("ckb_probe_").count();
    assert!(metrics > 0, "{query}");
    for variable in &variables[1..] {
        let matcher = format!("{variable}=~\"${variable}\"");
        let heeded = query.matches(&matcher).count();
        // What is of agents and of the operator is of no pod that is measured.
        let may_be_none = *variable != "cluster";
        assert!(
            heeded == metrics || may_be_none && heeded == 0,
            "{query} heeds no {variable}"
        );
    }
    let used = query.split('$').skip(1).map(|rest| {
        let end = rest.find(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
        &rest[..end.unwrap_or(rest.len())]
    });
    for name in used {
        let is_known = name.starts_with("__") || variables.contains(&name);
        assert!(is_known, "{query}: there is no {name}");
    }
}

#[test]
fn what_may_be_sampled_is_shown_with_its_error() {
    for (name, dashboard) in dashboards() {
        let text = dashboard.to_string();
        let is_of_targets = text.contains("_duration_seconds") && name != "operator.json";
        if is_of_targets {
            assert!(text.contains("ckb_probe_relative_error_ratio"), "{name}");
        }
    }
}
