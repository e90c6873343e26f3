//! `NodeProbe`: the work order of one node, and its agent's report.
//!
//! Only the operator writes `spec`; only that node's agent writes `status`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Duration, Overhead, Probe, ProbeReport, Reason};

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
    /// One entry for each pod on this node and each thing that is asked of it, however many CkbProbes ask the same.
    #[serde(default)]
    #[schemars(length(max = 1024))]
    pub assignments: Vec<Assignment>,
}

/// Measure this pod on behalf of this CkbProbe.
#[derive(Clone, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Assignment {
    /// On whose behalf: of those that ask the same of this pod, the oldest. Metrics and log lines carry its name.
    pub probe: ProbeReference,
    /// A word for what is asked, which is the same for all CkbProbes that ask the same: their statuses rest on one report.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 16))]
    pub asks: String,
    /// The pod to measure.
    pub pod: PodReference,
    /// The containers to look in, with the ids that the API server knew when this was written.
    #[schemars(length(max = 64))]
    pub containers: Vec<Container>,
    /// Base name of the executable to look for.
    pub executable: String,
    /// How often to report, at the most: see `status.reportInterval`.
    pub report_interval: Duration,
    /// What measuring may cost.
    pub overhead: Overhead,
    /// What to measure, as the CkbProbe says.
    #[schemars(length(max = 16))]
    pub probes: Vec<Probe>,
    /// Detach at this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Time>,
}

/// A CkbProbe, told apart from a later one of the same name by its uid.
#[derive(
    Clone, Debug, Default, Deserialize, Eq, Hash, JsonSchema, Ord, PartialEq, PartialOrd, Serialize,
)]
#[serde(rename_all = "camelCase")]
pub struct ProbeReference {
    /// Its namespace, which is also the pods'.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
}

/// A pod, told apart from a later one of the same name by its uid.
#[derive(
    Clone, Debug, Default, Deserialize, Eq, Hash, JsonSchema, Ord, PartialEq, PartialOrd, Serialize,
)]
#[serde(rename_all = "camelCase")]
pub struct PodReference {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
}

/// A container of the pod.
#[derive(
    Clone, Debug, Default, Deserialize, Eq, Hash, JsonSchema, Ord, PartialEq, PartialOrd, Serialize,
)]
#[serde(rename_all = "camelCase")]
pub struct Container {
    /// Its name in the pod.
    pub name: String,
    /// Its id, without the runtime's prefix; unset while the kubelet has not reported one.
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
    /// When this was written: the agent's heartbeat.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reported_at: Option<MicroTime>,
    /// How far apart reports are for now, where that is farther than anybody asks: the API server is slow to take them, and its
    /// agents write less until it is not. Unset where reports come as they are asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report_interval: Option<Duration>,
    /// The agent itself.
    #[serde(default)]
    pub agent: AgentStatus,
    /// At least one entry for each assignment.
    #[serde(default)]
    #[schemars(length(max = 4096))]
    pub instances: Vec<InstanceReport>,
    /// How many entries the list lacks, since they are more than one object holds.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub instances_omitted: u32,
}

/// Who reports, and by what means it measures.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentStatus {
    /// The agent pod.
    pub pod: String,
    /// The agent's version.
    pub version: String,
    /// The node's kernel release.
    pub kernel: String,
    /// How probes are attached on this kernel.
    pub tier: String,
    /// What one probed call costs the target, in nanoseconds, as calibrated on this node at start.
    pub cost_per_call_ns: u64,
    /// What one probed call costs where the kernel must single-step the function's first instruction, in nanoseconds.
    #[serde(default)]
    pub single_step_cost_ns: u64,
    /// What measuring may cost any process of this node, whatever is asked, in thousandths of a percent of its CPU time;
    /// unset where there is no such ceiling.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ceiling_millipercent: Option<u64>,
    /// What was looked at before anything was attached: kernel, capabilities, each way to attach, and what stands in the way.
    #[serde(default)]
    #[schemars(length(max = 32))]
    pub preflight: Vec<Check>,
    /// Why nothing can be measured on this node; unset when something can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// Why the API server did not take the report that should stand here, in its own words; unset when it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report_refused: Option<String>,
    /// When this agent process started: its counters count from there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<MicroTime>,
}

/// One thing that was looked at before anything was attached.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Check {
    /// What: `Kernel`, `Btf`, `Capabilities`, `PerfEventParanoid`, `Lockdown`, `UprobePmu`, `SeccompReturn`, or a way to
    /// attach, `session`, `uprobe-multi`, `perf-event`.
    pub name: String,
    /// Whether it is as the fastest and fullest way of measuring needs it.
    pub passed: bool,
    /// What was found, and where it is not as needed, what follows from it and what to do.
    pub detail: String,
}

/// How far a target is.
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
    /// On whose behalf.
    pub probe: ProbeReference,
    /// The word of the order for what is asked: the report answers all CkbProbes that ask the same.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 16))]
    pub asks: String,
    /// The pod.
    pub pod: PodReference,
    /// The container, once a process was found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    /// The process, in the host's pid namespace. For a person's eyes: never an identity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// How far it is.
    pub state: InstanceState,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// What happened and what to do.
    #[serde(default)]
    pub message: String,
    /// True when each of its probes counted something within the last three report intervals, or is of a kind that may have
    /// nothing to tell, but for those that this node's kernel does not support.
    #[serde(default)]
    pub firing: bool,
    /// How often the process was found anew after it had gone.
    #[serde(default)]
    pub reattaches: u64,
    /// Milliseconds, in all, between the end of a process and the attach to its successor, and while probes failed or were replaced.
    #[serde(default)]
    pub gap_milliseconds: u64,
    /// Thousandths of a percent of the target's CPU time that measuring is estimated to cost, for all that ask anything of
    /// it; unset before the first interval ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overhead_millipercent: Option<u64>,
    /// What of that is for what is asked here, whoever else asks for it too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own_overhead_millipercent: Option<u64>,
    /// What it may be in all: the greatest maxPercent that anybody asks of the process, or the agent's ceiling, where that is
    /// lower.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget_millipercent: Option<u64>,
    /// What each probe measured.
    #[serde(default)]
    #[schemars(length(max = 16))]
    pub probes: Vec<ProbeReport>,
}

fn is_zero(count: &u32) -> bool {
    *count == 0
}
