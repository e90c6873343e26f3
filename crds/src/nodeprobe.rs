//! `NodeProbe`: the work order of one node, and its agent's report.
//!
//! Only the operator writes `spec`; only that node's agent writes `status`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Contention, Duration, Overhead, Probe, ProbeReport, Reason, SpanCounts, Traces};

/// What the agent of the node of this name is to measure. Written by the operator, not by people.
#[expect(
    clippy::duplicated_attributes,
    reason = "two columns may well be of one type"
)]
#[derive(Clone, CustomResource, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[kube(
    group = "ckbprobe.dev",
    version = "v1alpha1",
    kind = "NodeProbe",
    plural = "nodeprobes",
    category = "ckb",
    namespaced,
    status = "NodeProbeStatus",
    derive = "PartialEq",
    doc = "What the agent of the node of this name is to measure. Written by the operator, not by people.",
    printcolumn(name = "Tier", type_ = "string", json_path = ".status.agent.tier"),
    printcolumn(
        name = "Version",
        type_ = "string",
        json_path = ".status.agent.version"
    ),
    printcolumn(name = "Reported", type_ = "date", json_path = ".status.reportedAt"),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    ),
    printcolumn(
        name = "Kernel",
        type_ = "string",
        json_path = ".status.agent.kernel",
        priority = 1
    ),
    printcolumn(
        name = "Failure",
        type_ = "string",
        json_path = ".status.agent.failure",
        priority = 1
    )
)]
#[serde(rename_all = "camelCase")]
pub struct NodeProbeSpec {
    /// One entry for each pod on this node and each distinct thing to measure of it: CkbProbes that ask for the same share an
    /// entry.
    #[serde(default)]
    #[schemars(length(max = 1024))]
    pub assignments: Vec<Assignment>,
}

/// Measure this pod on behalf of this CkbProbe.
#[derive(Clone, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Assignment {
    /// The CkbProbe on whose behalf this is measured: the oldest of those that ask for the same of this pod. Metrics and log
    /// lines carry its name.
    pub probe: ProbeReference,
    /// A hash of what is asked for. CkbProbes that ask for the same have the same hash, and their statuses are based on one
    /// report.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 16))]
    pub asks: String,
    /// The pod to measure.
    pub pod: PodReference,
    /// The containers to look in, with the ids that the API server knew when this was written.
    #[schemars(length(max = 64))]
    pub containers: Vec<Container>,
    /// The base name of the executable to look for.
    pub executable: String,
    /// How often to report, at most: see `status.reportInterval`.
    pub report_interval: Duration,
    /// How much CPU time measuring may cost the target.
    pub overhead: Overhead,
    /// What to measure, as the CkbProbe says.
    #[schemars(length(max = 16))]
    pub probes: Vec<Probe>,
    /// Where what is listed individually is exported to; unset: nowhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traces: Option<Traces>,
    /// When to detach.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Time>,
}

/// A CkbProbe, told apart from a later one of the same name by its uid.
#[derive(
    Clone, Debug, Default, Deserialize, Eq, Hash, JsonSchema, Ord, PartialEq, PartialOrd, Serialize,
)]
#[serde(rename_all = "camelCase")]
pub struct ProbeReference {
    /// The namespace of the CkbProbe, which is also the pods'.
    pub namespace: String,
    /// The name of the CkbProbe.
    pub name: String,
    /// The uid of the CkbProbe.
    pub uid: String,
}

/// A pod, told apart from a later one of the same name by its uid.
#[derive(
    Clone, Debug, Default, Deserialize, Eq, Hash, JsonSchema, Ord, PartialEq, PartialOrd, Serialize,
)]
#[serde(rename_all = "camelCase")]
pub struct PodReference {
    /// The namespace of the pod.
    #[schemars(length(max = 63))]
    pub namespace: String,
    /// The name of the pod.
    #[schemars(length(max = 253))]
    pub name: String,
    /// The uid of the pod.
    #[schemars(length(max = 63))]
    pub uid: String,
}

/// A container of the pod.
#[derive(
    Clone, Debug, Default, Deserialize, Eq, Hash, JsonSchema, Ord, PartialEq, PartialOrd, Serialize,
)]
#[serde(rename_all = "camelCase")]
pub struct Container {
    /// The name of the container in the pod.
    pub name: String,
    /// The id of the container, without the runtime's prefix; unset until the kubelet has reported one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
}

/// What the agent did, found and counted.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeProbeStatus {
    /// The generation of the spec that the agent works on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// When this report was written. It is the agent's heartbeat.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reported_at: Option<MicroTime>,
    /// The current time between reports, if it is longer than any assignment asks for: while the API server is slow to accept
    /// reports, its agents report less often. Unset if reports are written as often as asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report_interval: Option<Duration>,
    /// The agent that reports, and how it measures.
    #[serde(default)]
    pub agent: AgentStatus,
    /// At least one entry for each assignment.
    #[serde(default)]
    #[schemars(length(max = 4096))]
    pub instances: Vec<InstanceReport>,
    /// How many entries are missing from `instances`, because one object cannot hold them all.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub instances_omitted: u32,
}

/// Who reports, and by what means it measures.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentStatus {
    /// The name of the agent pod.
    pub pod: String,
    /// The agent's version.
    pub version: String,
    /// The node's kernel release.
    pub kernel: String,
    /// How probes are attached on this kernel.
    pub tier: String,
    /// What one probed call costs the target, in nanoseconds, as calibrated on this node when the agent started.
    pub cost_per_call_ns: u64,
    /// What one probed call costs if the kernel must single-step the function's first instruction, in nanoseconds.
    #[serde(default)]
    pub single_step_cost_ns: u64,
    /// The most that measuring may cost any process of this node, whatever is asked for, in thousandths of a percent of its CPU
    /// time. Unset: no such ceiling.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ceiling_millipercent: Option<u64>,
    /// What was checked before anything was attached: the kernel, capabilities, and each way to attach.
    #[serde(default)]
    #[schemars(length(max = 32))]
    pub preflight: Vec<Check>,
    /// Why nothing can be measured on this node; unset if something can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// Why the API server refused the full report, in its own words; unset if it did not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report_refused: Option<String>,
    /// When this agent process started. Its counters start there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<MicroTime>,
}

/// One thing that was checked before anything was attached.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Check {
    /// The name of the check: `Kernel`, `PidNamespace`, `Btf`, `Capabilities`, `PerfEventParanoid`, `Lockdown`, `UprobePmu`,
    /// `SeccompReturn`, or a way to attach: `session`, `uprobe-multi`, `perf-event`.
    pub name: String,
    /// Whether the fastest and most complete way of measuring is possible, as far as this check goes.
    pub passed: bool,
    /// What was found; if it is not as needed, what follows from it and what to do.
    pub detail: String,
}

/// How far measuring a target has got.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    Deserialize,
    Eq,
    Hash,
    JsonSchema,
    Ord,
    PartialEq,
    PartialOrd,
    Serialize,
)]
pub enum InstanceState {
    /// Nothing is attached, and a person must act.
    Failed,
    /// Nothing is attached yet, or not any more; the agent goes on looking.
    #[default]
    Waiting,
    /// Nothing is attached, on purpose: as the spec wants it (paused, expired, over budget with onBreach: Detach), or
    /// since the target died after each attach.
    Detached,
    /// Probes are in place.
    Attached,
}

/// One target on this node: a process in a container of an assigned pod, or the lack of one.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct InstanceReport {
    /// The CkbProbe on whose behalf the target is measured.
    pub probe: ProbeReference,
    /// The hash from the assignment: the report answers all CkbProbes that ask for the same.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 16))]
    pub asks: String,
    /// The pod of the target.
    pub pod: PodReference,
    /// The container, once a process was found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    /// The process id in the host's pid namespace, for people to look at. It never identifies a target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// How far measuring has got.
    pub state: InstanceState,
    /// Why the target is in this state, in one word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// What happened and what to do about it.
    #[serde(default)]
    pub message: String,
    /// True if each of the probes counted something within the last three report intervals, is of a kind that may have nothing to
    /// report, or is not supported by this node's kernel.
    #[serde(default)]
    pub firing: bool,
    /// How often a successor of the process was attached to after the process had ended.
    #[serde(default)]
    pub reattaches: u64,
    /// For how many milliseconds in total nothing was measured: between the end of a process and the attach to its successor,
    /// and while probes failed or were replaced.
    #[serde(default)]
    pub gap_milliseconds: u64,
    /// Estimated cost in thousandths of a percent of the target's CPU time, for everybody who asks for anything of it together;
    /// unset until the first interval has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overhead_millipercent: Option<u64>,
    /// The share of `overheadMillipercent` that is due to this assignment, including what others ask for as well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own_overhead_millipercent: Option<u64>,
    /// The budget of the target: the highest maxPercent that anybody asks for, or the agent's ceiling if that is lower.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget_millipercent: Option<u64>,
    /// What `overhead.floor` granted besides in the last interval, in thousandths of a percent of the CPU time that the target used
    /// itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub floor_millipercent: Option<u64>,
    /// What probing cost in the last minute, or in the last interval where that is longer, in thousandths of a percent of what the
    /// budget and the floor granted in it: 100000 is all of that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget_used_millipercent: Option<u64>,
    /// What its container waited for in the last interval, whatever is measured; unset until an interval has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contention: Option<Contention>,
    /// What became of its spans; unset where none are exported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spans: Option<SpanCounts>,
    /// The results of each probe.
    #[serde(default)]
    #[schemars(length(max = 16))]
    pub probes: Vec<ProbeReport>,
}

fn is_zero(count: &u32) -> bool {
    *count == 0
}
