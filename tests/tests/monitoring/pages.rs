//! The reference of metrics: which there are, of what type, with which labels.

use std::{collections::BTreeMap, fs};

use ckb_probe_tests::fixture::repository;

/// What every metric of a target has.
const TARGET: [&str; 4] = ["namespace", "pod", "container", "ckbprobe"];

/// A metric.
#[derive(Debug)]
pub struct Metric {
    pub kind: String,
    pub labels: Vec<String>,
}

impl Metric {
    /// The names of its samples.
    pub fn samples(&self, name: &str) -> Vec<String> {
        match self.kind.as_str() {
            "histogram" => ["_bucket", "_sum", "_count"]
                .map(|end| format!("{name}{end}"))
                .into(),
            _ => vec![name.to_string()],
        }
    }
}

/// All of the two pages, which `make lint` holds to the code.
pub fn reference() -> BTreeMap<String, Metric> {
    let mut all = BTreeMap::new();
    let text = page("reference/kinds.md");
    for (name, cells) in rows(&text) {
        let own = quoted(cells[1]).into_iter();
        let labels = TARGET
            .iter()
            .chain(&["probe"])
            .map(|label| (*label).to_string());
        let (kind, labels) = (cells[0].to_string(), labels.chain(own).collect());
        all.insert(name, Metric { kind, labels });
    }
    let text = page("reference/metrics.md");
    let (of_targets, others) = text.split_once("### Traces").unwrap();
    for (part, is_of_targets) in [(of_targets, true), (others, false)] {
        for (name, cells) in rows(part) {
            let about = cells[0];
            // Those of an agent, or of its node, say that they have no labels, or have another alone.
            let of_agent = ["no labels", "label `tier`", "label `result`"]
                .iter()
                .any(|words| about.contains(words));
            let mut labels: Vec<String> = match is_of_targets && !of_agent {
                true => TARGET.map(str::to_string).into(),
                false => vec![],
            };
            // Of a row of whichever kind: its label is among these.
            if about.contains("per row") {
                labels.extend(["probe", "operation", "outcome"].map(str::to_string));
            }
            labels.extend(quoted(about));
            let kind = about.split([',', ' ']).next().unwrap().to_string();
            all.insert(name, Metric { kind, labels });
        }
    }
    assert!(all.len() > 100, "{all:?}");
    all
}

/// The rows that begin with the name of a metric: it, and the other cells.
fn rows(text: &str) -> impl Iterator<Item = (String, Vec<&str>)> {
    text.lines().filter_map(|line| {
        let mut cells = line
            .strip_prefix("| `ckb_probe_")?
            .split('|')
            .map(str::trim);
        let name = cells.next()?.strip_suffix('`')?;
        Some((format!("ckb_probe_{name}"), cells.collect()))
    })
}

fn quoted(text: &str) -> Vec<String> {
    let words = text.split('`').skip(1).step_by(2);
    words.map(str::to_string).collect()
}

fn page(name: &str) -> String {
    fs::read_to_string(repository().join("docs").join(name)).unwrap()
}
