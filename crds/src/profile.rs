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

pub use labels::{PartLabels, label, part_name, part_place};

/// What stacks are weighted by.
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
pub enum ProfileMode {
    /// Time on a CPU.
    #[default]
    Cpu,
    /// Time that threads waited.
    OffCpu,
    /// Memory that was touched for the first time.
    Memory,
    /// What each thread does at one moment.
    Threads,
    /// Time of calls that were slow: of probes with `stacks: true`.
    SlowCalls,
}

impl ProfileMode {
    /// All there are.
    pub const ALL: [Self; 5] = [
        Self::Cpu,
        Self::OffCpu,
        Self::Memory,
        Self::Threads,
        Self::SlowCalls,
    ];

    /// Its name in specs, statuses and the names of objects.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Cpu => "Cpu",
            Self::OffCpu => "OffCpu",
            Self::Memory => "Memory",
            Self::Threads => "Threads",
            Self::SlowCalls => "SlowCalls",
        }
    }
}

/// The most bytes of pprof, gzipped, in one object: in base64 two thirds of what the API server takes.
pub const PPROF_LIMIT: usize = 512 << 10;

/// A time that stacks were sampled in. Agents begin theirs at the same moments of the clock, so that what they find can be
/// added up.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ProfileWindow {
    /// Which: how many times `every`, or of slow calls ten minutes, had passed since 1970 when it began; 0 of a probe that profiles
    /// once.
    pub number: u64,
    /// When the first of them began.
    pub began_at: MicroTime,
    /// How long the longest of them was, in milliseconds.
    pub milliseconds: u64,
}

/// How many stacks there are, and what is known to be missing.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ProfileCounts {
    /// Stacks that were taken.
    pub samples: u64,
    /// Those of them that reach to where the thread began.
    pub complete: u64,
    /// What was to be taken and could not be.
    pub lost: u64,
    /// How often was looked in fact, in thousandths of a time per second: of each CPU for Cpu, of all threads for OffCpu.
    pub millihertz: u64,
    /// Resident memory of the process as the window began, in bytes; for Memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resident_before: Option<u64>,
    /// And as it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resident_after: Option<u64>,
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
    /// The word of the order for what is asked: it answers all CkbProbes that ask the same of this pod.
    #[schemars(length(max = 16))]
    pub asks: String,
    /// The probe's name in them.
    #[schemars(length(max = 63))]
    pub probe: String,
    /// The pod.
    pub pod: PodReference,
    /// The container.
    pub container: String,
    /// What stacks are weighted by.
    pub mode: ProfileMode,
    /// When.
    pub window: ProfileWindow,
    /// How much.
    pub counts: ProfileCounts,
    /// The stacks: pprof, gzipped. None where sampling failed, and `failure` says why.
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
    /// The CkbProbe that asked.
    pub ckb_probe: String,
    /// The name of its probe.
    pub probe: String,
    /// What stacks are weighted by.
    pub mode: ProfileMode,
    /// When.
    pub window: ProfileWindow,
    /// Whose stacks these are, and how many there are of each.
    #[schemars(length(max = 256))]
    pub targets: Vec<ProfileTarget>,
    /// How many more there are, that the list has no room for.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub targets_omitted: u32,
    /// The sums of all of them; the rate is the lowest.
    pub counts: ProfileCounts,
    /// Complete stacks as a part of all, in percent with one decimal.
    pub complete_percent: String,
    /// The split by part of CKB: `scripts 41 %, rocksdb read 22 %`.
    pub headline: String,
    /// The same, part by part.
    #[schemars(length(max = 16))]
    pub headings: Vec<ProfileShare>,
    /// The functions with the largest shares, by their share with all that they call.
    #[schemars(length(max = 20))]
    pub functions: Vec<FunctionShare>,
    /// The weight of what was too light to be kept, in percent of all with one decimal; unset where all is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pruned_percent: Option<String>,
    /// How long `pprof` is.
    pub bytes: u64,
    /// The stacks: pprof, gzipped, each sample with the labels `target` and `thread`.
    #[schemars(with = "Base64")]
    pub pprof: ByteString,
}

/// One process of a profile.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ProfileTarget {
    /// Its pod.
    pub pod: String,
    /// Its container.
    pub container: String,
    /// Its node.
    pub node: String,
    /// How many stacks.
    pub counts: ProfileCounts,
    /// Why there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

/// A part of CKB, and its share.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ProfileShare {
    /// Its name (`rocksdb read`).
    pub name: String,
    /// Percent of all, with one decimal.
    pub percent: String,
}

/// A function, and its shares.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FunctionShare {
    /// Its name.
    pub name: String,
    /// Its file; empty where that is not known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub module: String,
    /// What it has itself, in percent of all, with one decimal.
    pub self_percent: String,
    /// What it has with all that it calls.
    pub total_percent: String,
}

/// How JSON has bytes.
#[derive(JsonSchema)]
#[schemars(extend("format" = "byte"))]
#[expect(dead_code, reason = "a schema is made of it, and nothing else")]
struct Base64(#[schemars(length(max = 699_052))] String);

fn is_zero(count: &u32) -> bool {
    *count == 0
}
