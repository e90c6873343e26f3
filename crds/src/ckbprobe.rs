//! `CkbProbe`: what a user asks for; and the [answer](status).

mod status;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::{CustomResource, KubeSchema};
use schemars::{JsonSchema, Schema};
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use status::*;

use crate::{Duration, Probe};

/// Measures CKB nodes that run in pods of this namespace, with eBPF, from outside the process.
#[derive(Clone, CustomResource, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
#[kube(
    group = "ckbprobe.dev",
    version = "v1alpha1",
    kind = "CkbProbe",
    plural = "ckbprobes",
    shortname = "ckbp",
    category = "ckb",
    namespaced,
    status = "CkbProbeStatus",
    derive = "PartialEq",
    doc = "Measures CKB nodes that run in pods of this namespace, with eBPF, from outside the process.",
    validation = Rule::new("self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$') && size(self.metadata.name) <= 63")
        .message("metadata.name must be a label: at most 63 of a-z, 0-9 and '-', beginning and ending with a letter or digit"),
    printcolumn(name = "Ready", type_ = "string", json_path = r#".status.conditions[?(@.type=="Ready")].status"#),
    printcolumn(name = "Targets", type_ = "string", json_path = ".status.targets.summary", description = "attached/matched"),
    printcolumn(name = "Probes", type_ = "string", json_path = ".status.support.summary", description = "supported by the kernels of the targets' nodes/asked"),
    printcolumn(name = "Headline", type_ = "string", json_path = ".status.headline", description = "of each probe, over the last report interval"),
    printcolumn(name = "Overhead", type_ = "string", json_path = ".status.overhead.summary", description = "estimated share of the targets' CPU time; and of the time, in which calls are recorded, where they are sampled"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Firing", type_ = "integer", json_path = ".status.targets.firing", priority = 1),
    printcolumn(name = "Reason", type_ = "string", json_path = r#".status.conditions[?(@.type=="Ready")].reason"#, priority = 1)
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("(has(self.detectAnomalies) && self.detectAnomalies) || !self.probes.exists(p, has(p.profile) && has(p.profile.captureOnAnomaly) && p.profile.captureOnAnomaly)")
    .message("profile.captureOnAnomaly waits for an anomaly, and detectAnomalies is false: there would be none"))]
#[x_kube(validation = Rule::new("!self.probes.all(p, has(p.profile) && has(p.profile.captureOnAnomaly) && p.profile.captureOnAnomaly)")
    .message("profile.captureOnAnomaly waits until a figure of another probe is not as usual: add one that is measured all of the time, such as {name: storage, rocksdb: {}}"))]
pub struct CkbProbeSpec {
    /// The processes to measure.
    pub target: Target,

    /// How much CPU time measuring may cost the targets.
    #[serde(default)]
    pub overhead: Overhead,

    /// How often figures are reported, at most, but no more often than the installation admits (`limits.minReportInterval`); agents
    /// report less often while the API server is slow to accept reports, or their reports are large. Rates and quantiles in the
    /// status cover one such interval.
    #[serde(default = "default_report_interval")]
    #[x_kube(validation = crate::rules::duration("reportInterval", "1s", "1h", "10s or 1m"))]
    pub report_interval: Duration,

    /// While true, everything is detached and the resource is kept.
    #[serde(default)]
    pub paused: bool,

    /// Whether what is not as it usually is, is told: in `status.probes[].anomalies`, and as `Unusual` of the condition TargetsHealthy. What is usual is learned
    /// from the figures of this CkbProbe alone, for 720 report intervals before anything is said.
    #[serde(default = "yes")]
    pub detect_anomalies: bool,

    /// Detaches everything when this much time has passed since the resource was created. Unset: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Duration")]
    #[x_kube(validation = crate::rules::duration("duration", "1s", "8760h", "10m or 24h"))]
    pub duration: Option<Duration>,

    /// Exports what probes list individually (slow calls, blocks) as traces, by OTLP: see docs/tracing.md. Unset: nothing is exported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traces: Option<Traces>,

    /// What to measure: a list keyed by name. Each entry has exactly one kind.
    #[schemars(length(min = 1, max = 16))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".to_string()]))]
    pub probes: Vec<Probe>,
}

fn yes() -> bool {
    true
}

/// Which processes of this namespace to measure.
#[derive(Clone, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Target {
    /// Selects pods of this namespace by their labels. At least one label or expression is required.
    #[x_kube(validation = Rule::new(
        "(has(self.matchLabels) && size(self.matchLabels) > 0) || (has(self.matchExpressions) && size(self.matchExpressions) > 0)"
    ).message("target.selector is empty and would match every pod of the namespace: name at least one label, for example matchLabels: {app: ckb}"))]
    #[x_kube(validation = Rule::new(
        "!has(self.matchExpressions) || self.matchExpressions.all(e, e.operator in ['In', 'NotIn'] ? has(e.values) && size(e.values) > 0 : e.operator in ['Exists', 'DoesNotExist'] && (!has(e.values) || size(e.values) == 0))"
    ).message("target.selector.matchExpressions: In and NotIn need values, Exists and DoesNotExist take none, and there is no other operator"))]
    #[x_kube(validation = Rule::new(
        "!has(self.matchLabels) || self.matchLabels.all(key, key.matches('^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$') && self.matchLabels[key].matches('^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$'))"
    ).message("target.selector.matchLabels: no pod can have such a label: keys and values are letters, digits, '-', '_' and '.', beginning and ending with a letter or digit, and a key may have a domain and '/' before it"))]
    #[x_kube(validation = Rule::new(
        "!has(self.matchExpressions) || self.matchExpressions.all(e, e.key.matches('^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$') && (!has(e.values) || e.values.all(value, value.matches('^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$'))))"
    ).message("target.selector.matchExpressions: no pod can have such a label: keys and values are letters, digits, '-', '_' and '.', beginning and ending with a letter or digit, and a key may have a domain and '/' before it"))]
    #[schemars(transform = bound_selector)]
    pub selector: LabelSelector,

    /// The container to look in. Unset: every container of the pod that runs the executable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(max = 63))]
    #[x_kube(validation = Rule::new("self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')")
        .message("target.container must be the name of a container: a-z, 0-9 and '-', beginning and ending with a letter or digit"))]
    pub container: Option<String>,

    /// The base name of the executable of the process to probe. The process need not be the first of its container.
    #[serde(default = "default_executable")]
    #[schemars(length(max = 255))]
    #[x_kube(validation = Rule::new("size(self) > 0 && !self.contains('/')")
        .message("target.executable must be a base name without '/', such as ckb"))]
    pub executable: String,
}

/// How many labels and expressions a selector has at the most, and how many values each of them.
/// So matching one against a pod takes little, and the largest is 17 KB of values.
const MAX_EXPRESSIONS: u64 = 16;

/// How long a label's value is at the most, and its key with a domain: Kubernetes' own bounds.
const MAX_VALUE: u64 = 63;
const MAX_KEY: u64 = 253 + 1 + 63;

/// Kubernetes' own type has no bounds, and nothing that a user can multiply is without one.
fn bound_selector(schema: &mut Schema) {
    for list in [
        "/properties/matchExpressions",
        "/properties/matchExpressions/items/properties/values",
    ] {
        if let Some(Value::Object(list)) = schema.pointer_mut(list) {
            list.insert("maxItems".to_owned(), MAX_EXPRESSIONS.into());
        }
    }
    for (place, bound, most) in [
        ("/properties/matchLabels", "maxProperties", MAX_EXPRESSIONS),
        (
            "/properties/matchLabels/additionalProperties",
            "maxLength",
            MAX_VALUE,
        ),
        (
            "/properties/matchExpressions/items/properties/key",
            "maxLength",
            MAX_KEY,
        ),
        (
            "/properties/matchExpressions/items/properties/values/items",
            "maxLength",
            MAX_VALUE,
        ),
    ] {
        if let Some(Value::Object(place)) = schema.pointer_mut(place) {
            place.insert(bound.to_owned(), most.into());
        }
    }
}

/// The exporter that is meant where none is named, which everybody may name.
pub const DEFAULT_EXPORTER: &str = "default";

/// Where traces go.
#[derive(Clone, Debug, Deserialize, Eq, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Traces {
    /// The exporter, of those that the installation has and this namespace may name: where they go, and with which credentials, is the
    /// installation's to say (`otlp.exporters` of its chart). `default` is `otlp.endpoint`.
    #[serde(default = "default_exporter")]
    #[schemars(length(max = 40))]
    #[x_kube(validation = Rule::new("self.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')")
        .message("traces.exporter must be the name of an exporter of this installation, such as default: where traces go is the installation's to say"))]
    pub exporter: String,
}

impl Default for Traces {
    fn default() -> Self {
        Self {
            exporter: default_exporter(),
        }
    }
}

/// A ceiling on what measuring costs the targets.
#[derive(Clone, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Overhead {
    /// The ceiling, in percent of the CPU time that the target itself uses. All CkbProbes that measure a target share one
    /// budget: the highest maxPercent that any of them asks for, but never more than the ceiling of the installation
    /// (`agent.maxOverheadPercent`).
    #[serde(default = "default_max_percent")]
    #[x_kube(validation = Rule::new("double(self) >= 0.01 && double(self) <= 50.0")
        .message("overhead.maxPercent must be from 0.01 to 50: it is the share of the target's CPU time that measuring may cost"))]
    pub max_percent: f64,

    /// What measuring may cost the target besides, in percent of one core, however little it uses: a share of what an idle
    /// process uses is nothing. The highest that any CkbProbe asks for, but never more than the floor that the installation
    /// grants (`agent.maxOverheadFloor`).
    #[serde(default = "default_floor")]
    #[x_kube(validation = Rule::new("double(self) >= 0.0 && double(self) <= 10.0")
        .message("overhead.floor must be from 0 to 10: it is the share of one core that measuring may cost besides maxPercent"))]
    pub floor: f64,

    /// What to do when measuring everything would exceed the ceiling. `Sample` measures the busy operations for a part of the
    /// time, scales their figures up, and reports which share was sampled; `Detach` detaches a target that stays above the
    /// ceiling, until the spec changes; `Report` measures all of the time and reports the excess in the condition WithinBudget.
    #[serde(default)]
    pub on_breach: Breach,
}

impl Default for Overhead {
    fn default() -> Self {
        Self {
            max_percent: default_max_percent(),
            floor: default_floor(),
            on_breach: Breach::default(),
        }
    }
}

/// What happens when measuring everything, all of the time, would cost more than the budget.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, Hash, JsonSchema, PartialEq, Serialize)]
pub enum Breach {
    /// The busy operations are attached for a part of the time only, so that the budget is kept: their counts and rates
    /// are scaled up, their quantiles are those of the calls that were seen, and each figure says its sampling share.
    /// Rare operations stay attached all of the time.
    #[default]
    Sample,
    /// Everything is measured all of the time, up to the ceiling of the installation; the condition WithinBudget turns
    /// false, and an Event says so.
    Report,
    /// As Report, and the target is detached until the spec changes.
    Detach,
}

fn default_report_interval() -> Duration {
    std::time::Duration::from_secs(10).into()
}

fn default_executable() -> String {
    "ckb".to_string()
}

fn default_exporter() -> String {
    DEFAULT_EXPORTER.to_string()
}

fn default_max_percent() -> f64 {
    1.0
}

fn default_floor() -> f64 {
    0.1
}
