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
pub struct CkbProbeSpec {
    /// The processes to measure.
    pub target: Target,

    /// What measuring may cost them.
    #[serde(default)]
    pub overhead: Overhead,

    /// How often figures are reported, at the most: less often where the API server is slow to take them. Rates and quantiles in
    /// the status are those of one such interval.
    #[serde(default = "default_report_interval")]
    #[x_kube(validation = Rule::new(
        "self.matches('^([0-9]+([.][0-9]+)?(ns|us|µs|ms|s|m|h))+$') && duration(self) >= duration('1s') && duration(self) <= duration('1h')"
    ).message("reportInterval must be a duration from 1s to 1h, such as 10s or 1m"))]
    pub report_interval: Duration,

    /// Detaches everything while true, and keeps the resource.
    #[serde(default)]
    pub paused: bool,

    /// Detaches everything once this long has passed since the resource was created. Unset: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Duration")]
    #[x_kube(validation = Rule::new(
        "self.matches('^([0-9]+([.][0-9]+)?(ns|us|µs|ms|s|m|h))+$') && duration(self) >= duration('1s') && duration(self) <= duration('8760h')"
    ).message("duration must be a duration from 1s to 8760h, such as 10m or 24h"))]
    pub duration: Option<Duration>,

    /// What to measure: a list keyed by name, exactly one kind each.
    #[schemars(length(min = 1, max = 16))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".to_string()]))]
    pub probes: Vec<Probe>,
}

/// Which processes of this namespace to measure.
#[derive(Clone, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Target {
    /// The pods, by their labels. At least one label or expression; only pods of this namespace can match.
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

    /// The base name of the executable of the process to probe. It need not be the first process of its container.
    #[serde(default = "default_executable")]
    #[schemars(length(max = 255))]
    #[x_kube(validation = Rule::new("size(self) > 0 && !self.contains('/')")
        .message("target.executable must be a base name without '/', such as ckb"))]
    pub executable: String,
}

/// How many labels and expressions a selector has at the most, and how many values each of them.
const MAX_EXPRESSIONS: u64 = 64;

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

/// A ceiling on what measuring costs the targets.
#[derive(Clone, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Overhead {
    /// The ceiling, in percent of the CPU time that the target itself uses. What all CkbProbes together cost a target stays
    /// below the greatest that any of them asks, and below the ceiling of the installation (`agent.maxOverheadPercent`).
    #[serde(default = "default_max_percent")]
    #[x_kube(validation = Rule::new("double(self) >= 0.01 && double(self) <= 50.0")
        .message("overhead.maxPercent must be from 0.01 to 50: it is the share of the target's CPU time that measuring may cost"))]
    pub max_percent: f64,

    /// How the ceiling is kept. `Sample` measures the busy operations for a part of the time and scales their figures up,
    /// with the share beside them; `Detach` detaches a target that stays above, until the spec changes; `Report` measures
    /// all of the time and says so in the condition WithinBudget.
    #[serde(default)]
    pub on_breach: Breach,
}

impl Default for Overhead {
    fn default() -> Self {
        Self {
            max_percent: default_max_percent(),
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

/// What the operator found, did, and was told by the agents.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CkbProbeStatus {
    /// The generation of the spec that this status answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// Ready, Progressing, Degraded, WithinBudget, Supported.
    #[serde(default)]
    #[schemars(length(max = 8), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,

    /// How many processes match, are attached, and are seen to do what is measured.
    #[serde(default)]
    pub targets: TargetCounts,

    /// How much of what is asked the kernels of the targets' nodes support.
    #[serde(default)]
    pub support: SupportStatus,

    /// What measuring is estimated to cost the targets.
    #[serde(default)]
    pub overhead: OverheadStatus,

    /// What is most worth knowing of each probe, in a line.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub headline: String,

    /// What each probe gives, in the order of the spec.
    #[serde(default)]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub probes: Vec<ProbeStatus>,

    /// The targets, the worst first; at most 50 are listed.
    #[serde(default)]
    #[schemars(length(max = 50))]
    pub instances: Vec<InstanceStatus>,

    /// How many targets the list above leaves out.
    #[serde(default)]
    pub instances_omitted: u32,

    /// When the newest report that this status rests on was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_report_time: Option<Time>,
}

/// Ground truth of coverage.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TargetCounts {
    /// Targets that the spec selects: pods (or containers, once their processes are known).
    pub matched: u32,
    /// Targets with probes in place.
    pub attached: u32,
    /// Targets each of whose probes counted something within the last three report intervals, or is of a kind that may have
    /// nothing to tell, but for those that their node's kernel does not support. Of a probe: those on which it counted something.
    pub firing: u32,
    /// `attached/matched`.
    pub summary: String,
}

/// How many of the spec's probes can be measured in full, as far as kernels are concerned.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SupportStatus {
    /// Probes of the spec.
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
    /// Percent of the targets' own CPU time, for all CkbProbes that measure them; of the target that pays most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimated_percent: Option<String>,
    /// What of that is for what this CkbProbe asks, whoever else asks for it too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own_percent: Option<String>,
    /// What it may be in all: the greatest maxPercent that any CkbProbe asks of that target, or the ceiling of the
    /// installation, where that is lower.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget_percent: Option<String>,
    /// Percent of the last report interval in which calls were recorded; of the row that is sampled most sparsely.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sampling_percent: Option<String>,
    /// The estimate as the printer column shows it, for example `0.4%`; with the share where calls are sampled, for
    /// example `0.9% (4.6% sampled)`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
}

/// One probe, over all targets: the same shape for every kind. Rates and quantiles are those of the last report interval;
/// counts are since the agents attached.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ProbeStatus {
    /// Its name in the spec.
    pub name: String,
    /// Its kind: the name of its field in the spec.
    pub kind: String,
    /// How many targets it is attached to, and of how many something was counted. A quiet kind, such as one that tells of
    /// processes' ends, is well without.
    #[serde(default)]
    pub targets: TargetCounts,
    /// What is most worth knowing of it, in a few words.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub headline: String,
    /// Percent of the last report interval in which was recorded what happened; of the row that is sampled most sparsely.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sampling_percent: Option<String>,
    /// What could not be recorded since the agents attached, by what it was: `calls` are in no figure, `events` are counted
    /// and not listed, `lines` are not in the agents' log, `sizes` are counted without their bytes. 0 means none, not unknown.
    #[serde(default)]
    #[schemars(extend("maxProperties" = 8))]
    pub lost: BTreeMap<String, u64>,
    /// What is not measured, or not fully, of what was asked for, and why; of one target, if several differ.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Each operation, function, peer, …: merged over all targets, exactly, and not averages of quantiles. The busiest first,
    /// at most 64.
    #[serde(default)]
    #[schemars(length(max = 64))]
    pub rows: Vec<RowStatus>,
    /// How many rows the list above leaves out.
    #[serde(default)]
    pub rows_omitted: u32,
    /// The weightiest events of the last report interval, such as slow calls, the weightiest first; at most 10. The agents'
    /// logs list them all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10))]
    pub events: Vec<EventStatus>,
    /// The newest CkbProfile of each mode, by its name: of `profile`, and of slow calls with `stacks: true`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    pub profiles: Vec<String>,
}

/// One row of a probe: an operation, a function, a peer.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RowStatus {
    /// Its name. `other` holds what the agents do not tell apart for want of room.
    pub key: String,
    /// What was measured, by name: for example `perSecond`, `p99`, `count`. What is not known is not there.
    #[serde(default)]
    #[schemars(extend("maxProperties" = 32))]
    pub figures: BTreeMap<String, String>,
    /// How much the figures of the last report interval rest on.
    #[serde(default)]
    pub samples: u64,
    /// Percent of the last report interval in which was recorded what happened, over all targets. `100` stands for all of it
    /// and is never the result of rounding. Unset when no interval has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sampling_percent: Option<String>,
    /// The same by part, the busiest first, at most 64: of an operation of RocksDB, its column families.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub parts: Vec<PartStatus>,
}

/// A part of a row: an operation on one column family.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PartStatus {
    /// Its name: of a column family, what it is for, where CKB's schema says so (for example `CELL`), else as RocksDB knows it.
    /// `other` holds what is not known, or not told apart.
    pub key: String,
    /// As for the row.
    #[serde(default)]
    #[schemars(extend("maxProperties" = 32))]
    pub figures: BTreeMap<String, String>,
}

/// One thing that happened and is worth telling by itself: a slow call, the end of a process.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EventStatus {
    /// When.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<MicroTime>,
    /// The pod.
    pub pod: String,
    /// The container.
    pub container: String,
    /// The row that it counts in.
    pub row: String,
    /// The part, where it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<String>,
    /// The name of the thread that it happened on.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub thread: String,
    /// What happened, in a few words: of a slow call, how long it took, and what ran in the background meanwhile.
    pub text: String,
    /// The same by name: `duration`, `bytes`, `during`, …
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 16))]
    pub details: BTreeMap<String, String>,
}

/// One target.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct InstanceStatus {
    /// The pod.
    pub pod: String,
    /// The container, once known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    /// The node it runs on, once scheduled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// How far it is.
    pub state: crate::InstanceState,
    /// Why.
    pub reason: Reason,
    /// What happened and what to do, for a person.
    pub message: String,
    /// How often the process was found anew after it had gone.
    #[serde(default)]
    pub reattaches: u64,
    /// Seconds, in all, between the end of a process and the attach to its successor, and while probes failed or were replaced.
    #[serde(default)]
    pub gap_seconds: String,
    /// Estimated percent of the target's CPU time that measuring costs it, for all CkbProbes that do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overhead_percent: Option<String>,
    /// What of that is for what this CkbProbe asks, whoever else asks for it too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own_overhead_percent: Option<String>,
    /// How its probes are attached: `session`, `uprobe-multi` or `perf-event`, the fastest that its node has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tier: Option<String>,
}

fn default_report_interval() -> Duration {
    std::time::Duration::from_secs(10).into()
}

fn default_executable() -> String {
    "ckb".to_string()
}

fn default_max_percent() -> f64 {
    1.0
}
