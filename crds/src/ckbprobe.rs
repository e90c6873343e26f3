//! `CkbProbe`: what a user asks for, and the answer.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector, MicroTime, Time};
use kube::{CustomResource, KubeSchema};
use schemars::{JsonSchema, Schema};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Duration, Probe, Reason};

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

/// What the operator found and did, and what the agents reported.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CkbProbeStatus {
    /// The generation of the spec that this status answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// The conditions Ready, Progressing, Degraded, WithinBudget, Supported and TargetsHealthy.
    #[serde(default)]
    #[schemars(length(max = 8), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,

    /// How many processes match, how many are attached, and on how many of them something is being counted.
    #[serde(default)]
    pub targets: TargetCounts,

    /// How much of what is asked the kernels of the targets' nodes support.
    #[serde(default)]
    pub support: SupportStatus,

    /// The estimated cost of measuring.
    #[serde(default)]
    pub overhead: OverheadStatus,

    /// A one-line summary: the most important figures of each probe.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub headline: String,

    /// The results of each probe, in the order of the spec.
    #[serde(default)]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub probes: Vec<ProbeStatus>,

    /// What became of the spans that `spec.traces` has exported, over all targets; unset where nothing is exported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traces: Option<SpanCounts>,

    /// The targets, those with problems first; at most 50 are listed.
    #[serde(default)]
    #[schemars(length(max = 50))]
    pub instances: Vec<InstanceStatus>,

    /// How many targets are not listed in `instances`.
    #[serde(default)]
    pub instances_omitted: u32,

    /// When the newest report was made of those that this status is based on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_report_time: Option<Time>,
}

/// What became of spans: `started` is `exported` and `dropped` and `queued` together, always.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SpanCounts {
    /// All spans that there were since the agents attached.
    #[serde(default)]
    pub started: u64,
    /// Those that the receiver took.
    #[serde(default)]
    pub exported: u64,
    /// Those that were given up: the queue was full, the receiver refused them, or they were sent and not answered. The agents' metrics
    /// tell these apart.
    #[serde(default)]
    pub dropped: u64,
    /// Those that wait, or are under way.
    #[serde(default)]
    pub queued: u64,
    /// What is in the way of exporting, if anything is.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 512))]
    pub message: String,
}

/// How many targets are matched, attached and firing.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TargetCounts {
    /// How many targets the spec selects: pods, or containers once their processes are known.
    pub matched: u32,
    /// How many targets have probes in place.
    pub attached: u32,
    /// How many targets are firing: each of their probes counted something within the last three report intervals, is of a
    /// kind that may have nothing to report, or is not supported by the node's kernel. For a single probe: the targets on which
    /// it counted something.
    pub firing: u32,
    /// The counts as the printer column shows them, `attached/matched`.
    pub summary: String,
}

/// How many of the spec's probes can be measured in full, as far as kernels are concerned.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SupportStatus {
    /// Probes of the spec, but for profiles that wait for an anomaly: what has not been tried is not known.
    pub asked: u32,
    /// Those of them that the kernel of every target's node supports in full; unset until the agents have told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub supported: Option<u32>,
    /// `supported/asked`, unset until the agents have told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
}

/// The cost of measuring, as estimated from calls per second and the calibrated cost of one.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OverheadStatus {
    /// Estimated cost in percent of the target's own CPU time, for all CkbProbes that measure it together; for the target that
    /// pays the most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimated_percent: Option<String>,
    /// The share of `estimatedPercent` that is due to this CkbProbe, including what other CkbProbes ask for as well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own_percent: Option<String>,
    /// The budget of that target: the highest maxPercent that any CkbProbe asks for, or the ceiling of the installation if that
    /// is lower.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget_percent: Option<String>,
    /// What `overhead.floor` granted besides in the last report interval, in percent of that target's own CPU time: the less it
    /// works, the more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub floor_percent: Option<String>,
    /// Percent of the last report interval in which calls were recorded; for the row that is sampled least.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sampling_percent: Option<String>,
    /// The estimate as the printer column shows it, for example `0.4%`; if calls are sampled, with the sampled share, for
    /// example `0.9% (4.6% sampled)`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
}

/// The results of one probe over all targets, in the same shape for every kind. Rates and quantiles are those of the last
/// report interval; counts start when the agents attached.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ProbeStatus {
    /// The name of the probe in the spec.
    pub name: String,
    /// The kind of the probe: the name of its field in the spec.
    pub kind: String,
    /// How many targets the probe is attached to, and on how many of them it counted something. For a kind that may be quiet,
    /// such as one that reports the ends of processes, zero is healthy.
    #[serde(default)]
    pub targets: TargetCounts,
    /// A summary of the most important figures of this probe.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub headline: String,
    /// Percent of the last report interval in which calls were recorded; for the row that is sampled least.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sampling_percent: Option<String>,
    /// How much could not be recorded since the agents attached, by category: `calls` are missing from all figures, `events`
    /// are counted but not listed, `lines` are missing from the agents' log, `sizes` are counted without their bytes,
    /// `arguments` without the argument that was asked for, `cut` without their durations, since they had not ended when the
    /// slice that saw them begin closed. 0 means none, not unknown.
    #[serde(default)]
    #[schemars(extend("maxProperties" = 8))]
    pub lost: BTreeMap<String, u64>,
    /// What is not measured, or only in part, and why; for one of the targets if they differ.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// One entry for each operation, function, peer, …, the busiest first, at most 64. Targets are merged exactly: quantiles
    /// are those of all calls together, not averages of quantiles.
    #[serde(default)]
    #[schemars(length(max = 64))]
    pub rows: Vec<RowStatus>,
    /// How many rows are not listed in `rows`.
    #[serde(default)]
    pub rows_omitted: u32,
    /// The most important events of the last report interval, such as the slowest calls, most important first; at most 10. The
    /// agents' logs have all of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10))]
    pub events: Vec<EventStatus>,
    /// The targets that set themselves apart from the others, by the row and figure in which they do so most; at most 10, those that differ most first. One
    /// is listed whose rate or p99 in the last report interval is at least twice or at most half the median of all targets, by more than targets differ otherwise,
    /// and by more than it may be off: among targets that are alike there is one in about one of 100 intervals at most. Fewer than 6 targets are not compared.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10))]
    pub outliers: Vec<OutlierStatus>,
    /// The figures that are not as they usually are, by their own past: at most 10, those that differ most first. One is listed once its rate (of a target) or p99
    /// has been at least 1.4 times, or at most 0.7 times, what is usual for three report intervals, and further from that than it has been for as long in a day.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10))]
    pub anomalies: Vec<AnomalyStatus>,
    /// The names of the newest CkbProfiles, one for each mode: of a probe of kind `profile`, or of slow calls with `stacks:
    /// true`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    pub profiles: Vec<String>,
    /// Of a profile with `captureOnAnomaly: true`: whether it waits, and what it was taken of last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capture: Option<CaptureStatus>,
}

/// A profile that is taken only while something is not as usual.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CaptureStatus {
    /// `Waiting` for an anomaly; `Capturing`, since there is one; `Captured`, while it lasts and its windows are taken.
    #[serde(default)]
    pub state: CaptureState,
    /// When it was last begun; unset until then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
    /// The anomaly for which it was last begun: of several, the one that differed most.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 512))]
    pub anomaly: String,
    /// The CkbProfiles that there are of it, the oldest first; at most 16.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub profiles: Vec<String>,
}

/// How far it has got.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum CaptureState {
    /// Nothing is sampled: all is as usual.
    #[default]
    Waiting,
    /// Stacks are sampled.
    Capturing,
    /// Its windows are taken, and something is not as usual yet.
    Captured,
}

/// One row of a probe: an operation, a function, a peer.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RowStatus {
    /// The name of the row. `other` collects what the agents could not keep apart.
    pub key: String,
    /// What was measured, by name, for example `perSecond`, `p99`, `count`. A figure that is not known is absent.
    #[serde(default)]
    #[schemars(extend("maxProperties" = 32))]
    pub figures: BTreeMap<String, String>,
    /// How many calls the figures of the last report interval are based on.
    #[serde(default)]
    pub samples: u64,
    /// Percent of the last report interval in which calls were recorded, over all targets. `100` means all of it and is never
    /// the result of rounding. Unset until the first interval has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sampling_percent: Option<String>,
    /// The standard error of the sampled figures, for example `±4.1%` of the count of the last report interval: the truth is within twice that in 95 of 100
    /// intervals. Unset where all was seen, and where nothing was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The standard error of `count` since the agents attached, likewise; or `at least`, where some of the time nobody watched, and
    /// too few slices stand for it to know. Unset where all was seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count_error: Option<String>,
    /// The same figures broken down, the busiest part first, at most 64: for an operation of RocksDB, by column family.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub parts: Vec<PartStatus>,
}

/// A part of a row: an operation on one column family.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PartStatus {
    /// The name of the part. A column family has the name of its purpose in CKB's schema (for example `CELL`) if there is one,
    /// else the name that RocksDB has for it. `other` collects what is unknown or could not be kept apart.
    pub key: String,
    /// What was measured, by name, as for the row.
    #[serde(default)]
    #[schemars(extend("maxProperties" = 32))]
    pub figures: BTreeMap<String, String>,
    /// The standard error of the sampled figures, as for the row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The standard error of `count`, as for the row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count_error: Option<String>,
}

/// One event that is reported individually: a slow call, or the end of a process.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EventStatus {
    /// When the event happened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<MicroTime>,
    /// The pod in which it happened.
    pub pod: String,
    /// The container in which it happened.
    pub container: String,
    /// The row in which the event is counted.
    pub row: String,
    /// The part in which the event is counted, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<String>,
    /// The name of the thread on which it happened.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub thread: String,
    /// What happened, in a few words: for a slow call, how long it took and what ran in the background meanwhile.
    pub text: String,
    /// The details by name: `duration`, `bytes`, `during`, …
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 16))]
    pub details: BTreeMap<String, String>,
}

/// A target that sets itself apart from the others.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OutlierStatus {
    /// The name of the pod.
    pub pod: String,
    /// The name of the container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    /// The row in which it differs.
    pub row: String,
    /// The name of the figure, such as `p99`.
    pub figure: String,
    /// What it has.
    pub value: String,
    /// The median of all targets that have the row.
    pub median: String,
    /// How many times the median it has: `8.3`, or `0.12`.
    pub times: String,
}

/// A figure that is not as it usually is.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AnomalyStatus {
    /// The row.
    pub row: String,
    /// The name of the figure, such as `p99`.
    pub figure: String,
    /// What it was in the last report interval.
    pub value: String,
    /// What it usually is.
    pub usual: String,
    /// How many times that it is: `8.3`, or `0.12`.
    pub times: String,
    /// For how many report intervals it has not been as usual.
    pub intervals: u32,
}

/// One target.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct InstanceStatus {
    /// The name of the pod.
    pub pod: String,
    /// The name of the container, once it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    /// The node on which the pod runs, once it is scheduled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// How far measuring has got: see `reason` and `message` for why.
    pub state: crate::InstanceState,
    /// Why the target is in this state, in one word.
    pub reason: Reason,
    /// What happened and what to do about it.
    pub message: String,
    /// How often a successor of the process was attached to after the process had ended.
    #[serde(default)]
    pub reattaches: u64,
    /// For how many seconds in total nothing was measured: between the end of a process and the attach to its successor, and
    /// while probes failed or were replaced.
    #[serde(default)]
    pub gap_seconds: String,
    /// Estimated cost in percent of the target's CPU time, for all CkbProbes that measure it together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overhead_percent: Option<String>,
    /// The share of `overheadPercent` that is due to this CkbProbe, including what other CkbProbes ask for as well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own_overhead_percent: Option<String>,
    /// How its probes are attached: `session`, `uprobe-multi` or `perf-event`, the fastest that its node supports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tier: Option<String>,
    /// When the agent started that measures the target. Its counts begin there: a later time than before means that `count` and
    /// `lost` have begun anew, and that calls may be missing that were made between the two agents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counted_since: Option<Time>,
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
