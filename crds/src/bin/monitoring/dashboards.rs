//! Dashboards for Grafana. A panel answers one question, which is its title; a sentence says what is drawn.

use serde_json::{Value, json};

mod blocks;
mod cost;
mod node;
mod operator;
mod overview;
mod storage;

/// Grafana's width.
const COLUMNS: u64 = 24;

/// What Grafana 10 and later read as it stands.
const SCHEMA: u64 = 39;

/// A dashboard.
pub struct Dashboard {
    /// The file's name; Grafana knows it by this with `ckb-probe-` before it, and so do links.
    pub name: &'static str,
    pub title: &'static str,
    pub about: &'static str,
    /// What is chosen of: every dashboard has the source and the cluster.
    variables: Variables,
    pub panels: Vec<Panel>,
}

/// What a person chooses of, beside the source and the cluster.
enum Variables {
    /// Nothing more.
    Cluster,
    /// Any number of namespaces and pods.
    Pods,
    /// One pod.
    OnePod,
}

/// One question.
pub struct Panel {
    pub question: &'static str,
    pub about: &'static str,
    unit: Unit,
    shape: Shape,
    queries: Vec<(String, &'static str)>,
}

/// What the numbers are.
enum Unit {
    Number,
    PerSecond,
    PerMinute,
    Seconds,
    Bytes,
    BytesPerSecond,
    /// 1 is all of it.
    Ratio,
}

enum Shape {
    /// One number, of now.
    Figure,
    /// Lines over the time.
    Lines,
}

impl Unit {
    /// As Grafana has them.
    fn id(&self) -> &'static str {
        match self {
            Self::Number => "short",
            Self::PerSecond => "cps",
            Self::PerMinute => "cpm",
            Self::Seconds => "s",
            Self::Bytes => "bytes",
            Self::BytesPerSecond => "Bps",
            Self::Ratio => "percentunit",
        }
    }
}

impl Shape {
    fn size(&self) -> (u64, u64) {
        match self {
            Self::Figure => (6, 4),
            Self::Lines => (12, 8),
        }
    }
}

/// All of them.
pub fn all() -> [Dashboard; 6] {
    [
        overview::dashboard(),
        storage::dashboard(),
        blocks::dashboard(),
        node::dashboard(),
        cost::dashboard(),
        operator::dashboard(),
    ]
}

fn figure(
    question: &'static str,
    about: &'static str,
    unit: Unit,
    queries: Vec<(String, &'static str)>,
) -> Panel {
    Panel {
        question,
        about,
        unit,
        shape: Shape::Figure,
        queries,
    }
}

fn lines(
    question: &'static str,
    about: &'static str,
    unit: Unit,
    queries: Vec<(String, &'static str)>,
) -> Panel {
    Panel {
        shape: Shape::Lines,
        ..figure(question, about, unit, queries)
    }
}

/// Of every dashboard whose figures may be sampled.
fn how_uncertain(more: &str) -> Panel {
    let error = crate::query::chosen("ckb_probe_relative_error_ratio", more);
    lines(
        "How far off may sampled figures be?",
        "The standard error of what was counted in the last report interval, as a part of it: the truth is within twice that in 95 of 100 \
         intervals. 0: all was seen. The ten largest.",
        Unit::Ratio,
        vec![(
            format!(
                "topk(10, max by (namespace, pod, ckbprobe, probe, operation, outcome, syscall, function, disk) ({error}))"
            ),
            "{{pod}} {{probe}} {{operation}}{{outcome}}{{syscall}}{{function}}{{disk}}",
        )],
    )
}

fn source() -> Value {
    json!({ "type": "prometheus", "uid": "${datasource}" })
}

impl Dashboard {
    /// As Grafana imports it.
    pub fn json(&self) -> Value {
        json!({
            "uid": format!("ckb-probe-{}", self.name),
            "title": format!("ckb-probe / {}", self.title),
            "description": self.about,
            "tags": ["ckb-probe"],
            "schemaVersion": SCHEMA,
            "version": 1,
            "editable": true,
            "graphTooltip": 1,
            "timezone": "",
            "refresh": "30s",
            "time": { "from": "now-1h", "to": "now" },
            "timepicker": {},
            "fiscalYearStartMonth": 0,
            "annotations": { "list": [] },
            "links": [{
                "type": "dashboards", "title": "ckb-probe", "tags": ["ckb-probe"], "asDropdown": true, "includeVars": true,
                "keepTime": true, "icon": "external link", "tooltip": "", "url": "", "targetBlank": false,
            }],
            "templating": { "list": self.variables.json() },
            "panels": self.placed(),
        })
    }

    /// Panels from left to right and from top to bottom.
    fn placed(&self) -> Vec<Value> {
        let (mut x, mut y, mut row) = (0, 0, 0);
        let panels = self.panels.iter().zip(1..);
        let placed = panels.map(|(panel, id)| {
            let (width, height) = panel.shape.size();
            if x + width > COLUMNS || (x > 0 && height != row) {
                (x, y) = (0, y + row);
            }
            row = height;
            let place = json!({ "x": x, "y": y, "w": width, "h": height });
            x += width;
            panel.json(id, &place)
        });
        placed.collect()
    }
}

impl Panel {
    fn json(&self, id: u64, place: &Value) -> Value {
        let is_figure = matches!(self.shape, Shape::Figure);
        let letters = "ABCDEFGHIJ".chars();
        let targets: Vec<Value> = self
            .queries
            .iter()
            .zip(letters)
            .map(|((query, legend), letter)| {
                json!({
                    "refId": letter.to_string(), "datasource": source(), "editorMode": "code", "expr": query, "legendFormat": legend,
                    "instant": is_figure, "range": !is_figure,
                })
            })
            .collect();
        let (custom, options) = match self.shape {
            Shape::Figure => (
                json!({}),
                json!({
                    "colorMode": "none", "graphMode": "none", "justifyMode": "auto", "orientation": "auto", "textMode": "auto",
                    "wideLayout": true, "showPercentChange": false, "percentChangeColorMode": "standard",
                    "reduceOptions": { "calcs": ["lastNotNull"], "fields": "", "values": false },
                }),
            ),
            Shape::Lines => (
                json!({ "drawStyle": "line", "lineWidth": 1, "fillOpacity": 0, "showPoints": "auto", "spanNulls": false }),
                json!({
                    "legend": { "displayMode": "list", "placement": "bottom", "showLegend": true, "calcs": [] },
                    "tooltip": { "mode": "multi", "sort": "desc" },
                }),
            ),
        };
        json!({
            "id": id,
            "type": if is_figure { "stat" } else { "timeseries" },
            "title": self.question,
            "description": self.about,
            "datasource": source(),
            "gridPos": place,
            "fieldConfig": {
                "defaults": { "unit": self.unit.id(), "min": 0, "custom": custom },
                "overrides": [],
            },
            "options": options,
            "targets": targets,
        })
    }
}

impl Variables {
    fn json(&self) -> Vec<Value> {
        let mut list = vec![
            json!({
                "name": "datasource", "label": "Source", "type": "datasource", "query": "prometheus", "hide": 0, "refresh": 1,
                "regex": "", "multi": false, "includeAll": false, "options": [],
                "current": { "selected": false, "text": "default", "value": "default" },
            }),
            // Where nothing has the label, all of it is what has none.
            labels(
                "cluster",
                "Cluster",
                "cluster",
                "ckb_probe_operator_leader",
                true,
            ),
        ];
        let metric = |more: &str| format!("ckb_probe_target_attached{{{more}}}");
        let (namespaces, pods) = (
            metric("cluster=~\"$cluster\""),
            metric("cluster=~\"$cluster\", namespace=~\"$namespace\""),
        );
        let several = match self {
            Self::Cluster => return list,
            Self::Pods => true,
            Self::OnePod => false,
        };
        list.push(labels(
            "namespace",
            "Namespace",
            "namespace",
            &namespaces,
            true,
        ));
        list.push(labels("pod", "Pod", "pod", &pods, several));
        list
    }
}

/// A variable of what values a label has among some series: of several of them, or of one.
fn labels(name: &str, shown: &str, label: &str, series: &str, several: bool) -> Value {
    let query = format!("label_values({series}, {label})");
    let mut variable = json!({
        "name": name, "label": shown, "type": "query", "datasource": source(), "definition": query,
        "query": { "query": query, "refId": "labels" }, "hide": 0, "refresh": 2, "regex": "", "sort": 1, "skipUrlSync": false,
        "multi": several, "includeAll": several, "options": [],
        "current": { "selected": false, "text": "", "value": "" },
    });
    if several {
        variable["allValue"] = json!(".*");
        variable["current"] = json!({ "selected": true, "text": ["All"], "value": ["$__all"] });
    }
    variable
}
