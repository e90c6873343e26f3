//! What a record says over all of its time, and how two of them, or two runs of blocks, differ.

use std::collections::BTreeMap;

use ckb_probe_crds::EventStatus;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What was recorded of a process, over all of the time.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RecordReport {
    /// The folder of the record; of what a Prometheus kept the CkbProbe and the target, `namespace/name pod/container`.
    pub record: String,
    /// When the first interval began; unset where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub began_at: Option<String>,
    /// When the last one ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<String>,
    /// How long it is from the one to the other.
    pub milliseconds: u64,
    /// Of how much of that it is known what happened.
    pub known_milliseconds: u64,
    /// Each run of the recorder, the first one first; none of what a Prometheus kept.
    pub runs: Vec<RecordRun>,
    /// Stretches of which nothing is known.
    pub gaps: Vec<RecordGap>,
    /// How often the process was measured anew: it executed another program, or opened another file in place of a library.
    pub renewed: u64,
    /// What could not be recorded, where it is not known of which probe.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub lost: BTreeMap<String, u64>,
    /// Whether a last line had no end, and was discarded.
    pub is_cut: bool,
    /// How many lines are not what was written, and in no figure.
    pub damaged_lines: u64,
    /// What each probe told.
    pub probes: Vec<RecordProbe>,
    /// What its container waited for, by resource.
    #[serde(default)]
    pub waits: Vec<RecordWait>,
    /// Figures that were not as they usually are, what differed most first.
    #[serde(default)]
    pub unusual: Vec<RecordUnusual>,
    /// What measuring is estimated to have cost on the average, in percent of the CPU time of the process; unset where that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimated_percent: Option<f64>,
    /// CPU time of the recorder itself.
    pub recorder_cpu_milliseconds: u64,
    /// How it differs from another record, where one was named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changes: Option<Changes>,
}

/// From one start of the recorder to its end.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RecordRun {
    /// When it began.
    pub began_at: String,
    /// The process, `process 1234 (ckb)`.
    pub target: String,
    /// The release of the kernel.
    pub kernel: String,
    /// How probes were attached.
    pub tier: String,
    /// What a probed call cost.
    pub call_nanoseconds: u64,
    /// How often it was told.
    pub interval_milliseconds: u64,
    /// How much measuring might cost, in percent of the CPU time of the process.
    pub max_percent: f64,
    /// The version of the recorder.
    pub version: String,
    /// What was not measured, as the end of a sentence; empty where all was.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub lacks: String,
    /// Why it ended; unset where the recorder was killed, or goes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<String>,
}

/// A stretch of which nothing is known.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RecordGap {
    /// When it began.
    pub from: String,
    /// When it ended; unset where nobody knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// Why there is nothing.
    pub why: String,
}

/// What a probe told.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RecordProbe {
    /// The name of the probe.
    pub name: String,
    /// Its kind.
    pub kind: String,
    /// Rows and their parts, the weightiest first, each followed by its parts.
    pub rows: Vec<RecordRow>,
    /// What could not be recorded, by what it is.
    pub lost: BTreeMap<String, u64>,
    /// For how many milliseconds it was not measured, by why.
    pub unmeasured_milliseconds: BTreeMap<String, u64>,
    /// What was listed individually, the weightiest first.
    pub events: Vec<EventStatus>,
}

/// A row, or a part of one, over all of the time.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RecordRow {
    /// The row.
    pub row: String,
    /// The part of it; unset: all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<String>,
    /// For how long it was measured.
    pub milliseconds: u64,
    /// For how much of that it was recorded: less where it is sampled.
    pub recorded_milliseconds: u64,
    /// The standard error of its numbers, as a part: 0.01 is 1 %; unset where all was seen, and where nothing was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<f64>,
    /// Its figures, of those that are known.
    pub figures: Vec<RecordFigure>,
}

/// A figure of a row.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RecordFigure {
    /// Its key among the figures of a status, such as `p99`.
    pub figure: String,
    /// In what: `nanoseconds`, `bytes`, `count`, or one of these `PerSecond`; `percent` of shares.
    pub unit: String,
    /// How much.
    pub value: f64,
}

/// What a container waited for of one resource.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RecordWait {
    /// `throttled`: of the periods of its CPU limit those in which it was throttled. `cpuWait`, `diskWait`: the time in which at least one thread
    /// waited. `retransmitted`: of TCP segments those that were sent again.
    pub resource: String,
    /// The mean of the intervals of which it is known; unset of none, which is not zero.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mean_percent: Option<f64>,
    /// That of the interval in which it was most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub most_percent: Option<f64>,
    /// For how long it is known.
    pub known_milliseconds: u64,
}

/// A figure that was not as it usually is for a while.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RecordUnusual {
    /// The name of the probe.
    pub probe: String,
    /// The row.
    pub row: String,
    /// Its key among the figures of a status, such as `p99`.
    pub figure: String,
    /// In what: `nanoseconds`, `bytes` or `count`, or one of these `PerSecond`.
    pub unit: String,
    /// From when it was told.
    pub from: String,
    /// For how long.
    pub milliseconds: u64,
    /// What it was when it differed most.
    pub value: f64,
    /// What it was usually.
    pub usual: f64,
    /// What its container waited for in the interval in which it was first told, which need not be why; empty where that was not recorded.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub beside: String,
}

/// How figures of two records, or of two runs of blocks, differ.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Changes {
    /// The first: a folder, or a file.
    pub before: String,
    /// The second.
    pub after: String,
    /// How many blocks there are of the first; unset of records.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocks_before: Option<u64>,
    /// How many there are of the second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocks_after: Option<u64>,
    /// Whether both are of the same heights, and each block is compared with itself.
    pub paired: bool,
    /// How likely the bounds of each figure are to hold, so that those of all hold together in 95 of 100 cases.
    pub confidence: f64,
    /// How many figures are in too few intervals of either side to be compared.
    pub too_few: u64,
    /// Each figure; of records what changed by more than noise first, and of these the greatest change.
    pub figures: Vec<FigureChange>,
}

/// How a figure differs.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FigureChange {
    /// The name of the probe; unset of blocks, and so are the row and its part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probe: Option<String>,
    /// The row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub row: Option<String>,
    /// The part of the row; unset: all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<String>,
    /// Which figure: its key among those of a status, such as `p99`; of blocks as `chain --events` has it.
    pub figure: String,
    /// In what: `nanoseconds`, `bytes`, `count`, or one of these `PerSecond`.
    pub unit: String,
    /// What is compared of all values: `mean` or `median`.
    pub statistic: String,
    /// What it was.
    pub before: f64,
    /// What it is.
    pub after: f64,
    /// After, less before.
    pub change: f64,
    /// The least that the change may be.
    pub low: f64,
    /// The most.
    pub high: f64,
    /// `more`, `less` or `noise`.
    pub is: String,
}
