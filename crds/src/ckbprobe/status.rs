//! The answer to a `CkbProbe`.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, MicroTime, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Reason;

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
    /// What probing cost in the last minute, or in the last report interval where that is longer, in percent of what `budgetPercent`
    /// and the floor granted in it; for the target that used the most of that. `WithinBudget` goes by it: an interval is a handful
    /// of slices, and one that is long is paid for by those after it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget_used_percent: Option<String>,
    /// Percent of the targets' own time in the last report interval in which calls were recorded; for the row that is sampled least.
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
    /// Percent of the targets' own time in the last report interval in which calls were recorded; for the row that is sampled least.
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
    /// Percent of the targets' own time in the last report interval in which calls were recorded. `100` means all of it and is never
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
    /// What the targets waited for in the interval in which this was first told, against what is usual of it: CPUs, the CPU limit, disks, TCP segments sent
    /// again; and of which of these nothing is known. What was beside it need not be its cause.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 512))]
    pub beside: String,
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
