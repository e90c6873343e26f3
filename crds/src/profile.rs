//! `CkbProfile`: stacks of a window of time, as a user has them; and `ProfilePart`: what one agent found of them, on its way to
//! the operator.
//!
//! Both hold gzipped pprof, and are too large for a status. Agents write parts into the operator's namespace, by the names of
//! their nodes. The operator merges the parts of one window into one CkbProfile, in the CkbProbe's namespace and owned by it,
//! and deletes them.

use k8s_openapi::{ByteString, apimachinery::pkg::apis::meta::v1::MicroTime};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::PodReference;

mod labels;

pub use ckb_probe_profiles::ProfileMode;
pub use labels::{PART_SLOTS, PartLabels, label, part_name, part_place};

/// How long a window of slow calls is, and the time from one to the next.
pub const SLOW_CALLS_WINDOW: std::time::Duration = std::time::Duration::from_secs(600);

/// How many windows an agent keeps at most while the API server takes none.
pub const WINDOWS_KEPT: usize = 64;

/// The most bytes of pprof, gzipped, in one object: in base64 two thirds of what the API server takes.
pub const PPROF_LIMIT: usize = 512 << 10;

/// The time in which stacks were sampled. All agents start a window at the same moment, so that their stacks can be added up.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ProfileWindow {
    /// The number of the window: how many times `every` (for slow calls: ten minutes; with `captureOnAnomaly` alone: `window`) had passed since 1970 when it began; 0 if
    /// the probe profiles once.
    pub number: u64,
    /// When the window began; if the agents' windows differ, the earliest.
    pub began_at: MicroTime,
    /// How long the window was, in milliseconds; if the agents' windows differ, the longest.
    pub milliseconds: u64,
}

/// How many stacks there are, and how many are known to be missing.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ProfileCounts {
    /// How many stacks were taken.
    pub samples: u64,
    /// How many of the stacks reach to where the thread began.
    pub complete: u64,
    /// In how many of the stacks a caller was guessed: where nothing says how to unwind, it is the first word on the stack that looks like
    /// a return address.
    #[serde(default, skip_serializing_if = "is_none")]
    pub guessed: u64,
    /// How many stacks should have been taken and could not be.
    pub lost: u64,
    /// How often samples were in fact taken, in thousandths of a hertz: of each CPU for `Cpu`, of all threads for `OffCpu`.
    pub millihertz: u64,
    /// Whether the kernel's tick was not found, so that samples were taken whenever any timer expired. Timers of the process itself are
    /// among those: what they start is sampled more often than it runs.
    #[serde(default, skip_serializing_if = "is_false")]
    pub by_any_timer: bool,
    /// CPU time that the process used in the window by its own clock, in microseconds; for `Cpu`. The weights add up to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_microseconds: Option<u64>,
    /// CPU time that the samples stand for by themselves, in microseconds; for `Cpu`. If this is far from `cpuMicroseconds`,
    /// samples were lost, or the kernel's tick did not come as often as it should.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sampled_microseconds: Option<u64>,
    /// Resident memory of the process when the window began, in bytes; for `Memory`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resident_before: Option<u64>,
    /// Resident memory of the process when the window ended, in bytes; for `Memory`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resident_after: Option<u64>,
    /// How much of `residentBefore` belongs to no file, in bytes; for `Memory`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub anonymous_before: Option<u64>,
    /// How much of `residentAfter` belongs to no file, in bytes; for `Memory`. What it grew by beyond the weights came in without being
    /// touched: with MAP_POPULATE or mlock, or as huge pages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub anonymous_after: Option<u64>,
    /// How many of the stacks came in step with the allocator, to the byte as the one before on their thread did; for `Allocations`. If that
    /// is most of them, callers that take turns with those that are told may be missing.
    #[serde(default, skip_serializing_if = "is_none")]
    pub in_step: u64,
}

/// What one agent found of one process in one window.
#[expect(
    clippy::duplicated_attributes,
    reason = "two columns may well be of one type"
)]
#[derive(Clone, CustomResource, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
#[kube(
    group = "ckbprobe.dev",
    version = "v1alpha1",
    kind = "ProfilePart",
    plural = "profileparts",
    category = "ckb",
    namespaced,
    derive = "PartialEq",
    doc = "What one agent found of one process in one window, on its way to the operator. Its name is that of the node, a dot and a number.",
    printcolumn(name = "Pod", type_ = "string", json_path = ".spec.pod.name"),
    printcolumn(name = "Mode", type_ = "string", json_path = ".spec.mode"),
    printcolumn(
        name = "Samples",
        type_ = "integer",
        json_path = ".spec.counts.samples"
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct ProfilePartSpec {
    /// The hash from the assignment: the part answers all CkbProbes that ask for the same of this pod.
    #[schemars(length(max = 16))]
    pub asks: String,
    /// The name of the probe in those CkbProbes.
    #[schemars(length(max = 63))]
    pub probe: String,
    /// The pod of the process.
    pub pod: PodReference,
    /// The container of the process.
    #[schemars(length(max = 63))]
    pub container: String,
    /// By what the stacks are weighted.
    pub mode: ProfileMode,
    /// The time in which stacks were sampled.
    pub window: ProfileWindow,
    /// How many stacks there are.
    pub counts: ProfileCounts,
    /// The stacks, as gzipped pprof. Unset if sampling failed; `failure` says why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Base64>")]
    pub pprof: Option<ByteString>,
    /// Why there are no stacks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub failure: Option<String>,
}

/// Stacks of one window.
#[expect(
    clippy::duplicated_attributes,
    reason = "two columns may well be of one type"
)]
#[derive(Clone, CustomResource, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
#[kube(
    group = "ckbprobe.dev",
    version = "v1alpha1",
    kind = "CkbProfile",
    plural = "ckbprofiles",
    shortname = "ckbprof",
    category = "ckb",
    namespaced,
    derive = "PartialEq",
    doc = "Stacks of one window of a CkbProbe's probe: of kind profile, or of slow calls with `stacks: true`. Written by the operator, and deleted with the CkbProbe.",
    printcolumn(name = "CkbProbe", type_ = "string", json_path = ".spec.ckbProbe"),
    printcolumn(name = "Probe", type_ = "string", json_path = ".spec.probe"),
    printcolumn(name = "Mode", type_ = "string", json_path = ".spec.mode"),
    printcolumn(name = "Window", type_ = "date", json_path = ".spec.window.beganAt"),
    printcolumn(
        name = "Samples",
        type_ = "integer",
        json_path = ".spec.counts.samples"
    ),
    printcolumn(
        name = "Complete",
        type_ = "string",
        json_path = ".spec.completePercent"
    ),
    printcolumn(name = "Bytes", type_ = "integer", json_path = ".spec.bytes"),
    printcolumn(
        name = "Headline",
        type_ = "string",
        json_path = ".spec.headline",
        priority = 1
    )
)]
#[serde(rename_all = "camelCase")]
pub struct CkbProfileSpec {
    /// The name of the CkbProbe that asked for the profile.
    pub ckb_probe: String,
    /// The name of the probe in that CkbProbe.
    pub probe: String,
    /// By what the stacks are weighted.
    pub mode: ProfileMode,
    /// The time in which stacks were sampled.
    pub window: ProfileWindow,
    /// The processes whose stacks these are, and how many there are of each.
    #[schemars(length(max = 256))]
    pub targets: Vec<ProfileTarget>,
    /// How many processes are not listed in `targets`.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub targets_omitted: u32,
    /// The counts of all processes together; of the rate, the lowest.
    pub counts: ProfileCounts,
    /// How many of the stacks are complete, in percent with one decimal.
    pub complete_percent: String,
    /// How much CPU time the samples stand for by themselves, in percent of what the clocks of the processes say, with one decimal;
    /// for `Cpu`. The weights were scaled to the clocks; the nearer to 100, the less that changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sampled_percent: Option<String>,
    /// How the profile divides among the parts of CKB, for example `scripts 41 %, rocksdb read 22 %`.
    pub headline: String,
    /// How the profile divides among the parts of CKB, one entry for each.
    #[schemars(length(max = 16))]
    pub headings: Vec<ProfileShare>,
    /// The functions with the largest shares, ordered by their share including all that they call.
    #[schemars(length(max = 20))]
    pub functions: Vec<FunctionShare>,
    /// The share of stacks that were left out because they were too light, in percent with one decimal; unset if none was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pruned_percent: Option<String>,
    /// The length of `pprof` in bytes.
    pub bytes: u64,
    /// The stacks, as gzipped pprof. Each sample has the labels `target` and `thread`.
    #[schemars(with = "Base64")]
    pub pprof: ByteString,
}

/// One process of a profile.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ProfileTarget {
    /// The pod of the process.
    pub pod: String,
    /// The container of the process.
    pub container: String,
    /// The node on which it runs.
    pub node: String,
    /// How many stacks there are of it.
    pub counts: ProfileCounts,
    /// Why there are no stacks of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

/// A part of CKB, and its share of a profile.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ProfileShare {
    /// The name of the part, for example `rocksdb read`.
    pub name: String,
    /// Its share in percent, with one decimal.
    pub percent: String,
}

/// A function, and its shares of a profile.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FunctionShare {
    /// The name of the function.
    pub name: String,
    /// The name of its file; empty if that is not known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub module: String,
    /// The share of the function itself, in percent with one decimal.
    pub self_percent: String,
    /// The share of the function including all that it calls, in percent with one decimal.
    pub total_percent: String,
}

/// Bytes, as JSON has them.
#[derive(JsonSchema)]
#[schemars(extend("format" = "byte"))]
#[expect(dead_code, reason = "a schema is made of it, and nothing else")]
struct Base64(#[schemars(length(max = 699_052))] String);

fn is_none(count: &u64) -> bool {
    *count == 0
}

fn is_false(said: &bool) -> bool {
    !*said
}

fn is_zero(count: &u32) -> bool {
    *count == 0
}
