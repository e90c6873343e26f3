//! What an agent tells of one probe on one target: the same shape for every kind, whose descriptor says what it means.

use std::{collections::BTreeMap, iter};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{EventStatus, Figures, InstanceState, IntervalFigures, Reason};

mod rows;

/// Rows that an agent tells apart of one probe on one target. What comes after them counts in [`OTHER`].
pub const MAX_ROWS: usize = 128;

/// Parts of one row that an agent tells apart. What comes after them counts in [`OTHER`].
pub const MAX_PARTS: usize = 64;

/// Events that are told of one probe in one report interval: the weightiest.
pub const MAX_EVENTS: usize = 10;

/// The name of the detail that says of an event, by `true`, that it is for whoever reads the Events of the CkbProbe.
pub const NOTABLE: &str = "notable";

/// What is lost where a target makes more events than are written into the agent's log: lines of it. Nothing else of them is.
pub const LINES: &str = "lines";

/// Beside what is lost: calls whose beginning was seen and not their end, as the slice that saw them closed or their probe went. They
/// are counted, and not timed.
pub const CUT: &str = "cut";

/// The row, or the part of a row, of what is not told apart.
pub const OTHER: &str = "other";

/// One probe of a CkbProbe on one target.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ProbeReport {
    /// The name of the probe in the spec.
    pub name: String,
    /// The kind of the probe.
    pub kind: String,
    /// How far measuring has got.
    pub state: InstanceState,
    /// Why the probe is in this state, in one word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// What happened and what to do about it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// True if something was counted within the last three report intervals.
    #[serde(default)]
    pub firing: bool,
    /// What is not measured as asked for, although the rest is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    pub lacks: Vec<Lack>,
    /// How much could not be recorded since the agent attached, by category: `events` are counted but not listed; `lines` are
    /// counted and listed but missing from the agent's log; `sizes` are calls that were counted without their bytes; `arguments`
    /// are hits that were counted without the argument that was asked for; `stacks` are slow calls that are reported without
    /// their callers; `frames` are those whose outer callers are missing; `cut` are calls that had not ended when the slice that
    /// saw them begin closed: counted, and not timed; everything else (`calls`, `requests`, …) is missing from all figures. The
    /// numbers are those of the process, whoever asked; `lines` those of this probe.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 8))]
    pub lost: BTreeMap<String, u64>,
    /// What was measured: a list of rows as JSON, in one string; `jq '.rowsJson | fromjson'` unpacks it. It is a string because
    /// the API server looks at every field of an object a dozen times whenever the object is written, and a report has hundreds
    /// of them.
    #[serde(
        default,
        rename = "rowsJson",
        with = "rows",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[schemars(with = "String")]
    pub rows: Vec<RowReport>,
    /// The most important events of the last report interval, most important first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10))]
    pub events: Vec<EventReport>,
    /// What is missing from the lists above, because one object cannot hold all reports of this node.
    #[serde(default, skip_serializing_if = "Omitted::is_nothing")]
    pub omitted: Omitted,
}

/// What a report leaves out for want of room.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Omitted {
    /// How many events are counted but not listed.
    #[serde(default)]
    pub events: u32,
    /// How many parts count in the part `other` of their row, or only in their row.
    #[serde(default)]
    pub parts: u32,
    /// How many rows count in the row `other`.
    #[serde(default)]
    pub rows: u32,
    /// How many rows are missing altogether: the totals lack them until there is room.
    #[serde(default)]
    pub untold_rows: u32,
}

/// Something that was asked for and is not measured, or only in part.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Lack {
    /// Why it is not measured.
    pub reason: Reason,
    /// The names of the rows or functions that are not measured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub items: Vec<String>,
}

/// One row: an operation, a function, a peer.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RowReport {
    /// The name of the row.
    pub key: String,
    /// The figures since the agent first attached to this target; they never decrease while the agent lives. In a NodeProbe,
    /// distributions have only their number of values and their sum here: how values are distributed is reported for the last
    /// interval only.
    #[serde(default)]
    pub total: Figures,
    /// The figures of the last report interval.
    #[serde(default)]
    pub window: IntervalFigures,
    /// The same figures by part, if that was asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 65))]
    pub parts: Vec<PartReport>,
}

/// A part of a row: an operation on one column family.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PartReport {
    /// The name of the part.
    pub key: String,
    /// The figures since the agent first attached, as for the row.
    #[serde(default)]
    pub total: Figures,
    /// The figures of the last report interval, as for the row.
    #[serde(default)]
    pub window: IntervalFigures,
}

/// One event that is reported individually: a slow call, or the end of a process.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EventReport {
    /// When the event happened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<MicroTime>,
    /// The row in which the event is counted.
    pub row: String,
    /// The part in which the event is counted, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<String>,
    /// The name of the thread on which it happened.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub thread: String,
    /// How important the event is compared to others: for a slow call, its duration in nanoseconds.
    pub weight: u64,
    /// What happened, in a few words.
    pub text: String,
    /// The details by name: `duration`, `bytes`, `during`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 16))]
    pub details: BTreeMap<String, String>,
}

impl EventReport {
    /// As a status has it, of this pod and container.
    pub fn told_of(self, pod: String, container: String) -> EventStatus {
        let Self {
            time,
            row,
            part,
            thread,
            weight: _,
            text,
            details,
        } = self;
        EventStatus {
            time,
            pod,
            container,
            row,
            part,
            thread,
            text,
            details,
        }
    }
}

impl Omitted {
    /// Whether the report is complete.
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}

impl ProbeReport {
    /// Whether something is not measured, or not fully, for this reason.
    pub fn lacks(&self, reason: Reason) -> bool {
        self.lacks.iter().any(|lack| lack.reason == reason)
    }

    /// Forgets how all that the target ever did was distributed: nobody asks, and it is a quarter of a report.
    pub fn forget_distributions(&mut self) {
        for row in &mut self.rows {
            let parts = row.parts.iter_mut().map(|part| &mut part.total);
            for total in iter::once(&mut row.total).chain(parts) {
                total.forget_distribution();
            }
        }
    }
}

#[cfg(test)]
mod tests;
