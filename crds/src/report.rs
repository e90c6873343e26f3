//! What an agent tells of one probe on one target: the same shape for every kind, whose descriptor says what it means.

use std::{collections::BTreeMap, iter};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Figures, InstanceState, Reason, Window};

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

/// The row, or the part of a row, of what is not told apart.
pub const OTHER: &str = "other";

/// One probe of a CkbProbe on one target.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ProbeReport {
    /// Its name in the spec.
    pub name: String,
    /// Its kind.
    pub kind: String,
    /// How far it is.
    pub state: InstanceState,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// What happened and what to do.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// True when something was counted within the last three report intervals.
    #[serde(default)]
    pub firing: bool,
    /// What of it is not measured as asked for, though the rest is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    pub lacks: Vec<Lack>,
    /// What could not be recorded since the agent attached, by what it was: `events` are counted and not listed, `lines` are
    /// counted and listed and not in the agent's log, `sizes` are of calls that were counted without their bytes, `stacks` are of
    /// slow calls that are told without who called, `frames` of those whose outer callers are not told, and the rest (`calls`,
    /// `requests`, …) is in no figure. Of the process, whoever asked; `lines` of this probe.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 8))]
    pub lost: BTreeMap<String, u64>,
    /// What was measured: rows, as the JSON of their list in one text. `jq '.rowsJson | fromjson'` takes it apart. Whenever an
    /// object is written the API server looks at each of its fields a dozen times, and there are hundreds of them in a report.
    #[serde(
        default,
        rename = "rowsJson",
        with = "rows",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[schemars(with = "String")]
    pub rows: Vec<RowReport>,
    /// The weightiest events of the last report interval, the weightiest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10))]
    pub events: Vec<EventReport>,
    /// What the lists above leave out, since the reports of this node are more than one object holds.
    #[serde(default, skip_serializing_if = "Omitted::is_nothing")]
    pub omitted: Omitted,
}

/// What a report leaves out for want of room.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Omitted {
    /// Events that are counted and not listed.
    #[serde(default)]
    pub events: u32,
    /// Parts that count in the part `other` of their row, or in their row alone.
    #[serde(default)]
    pub parts: u32,
    /// Rows that count in the row `other`.
    #[serde(default)]
    pub rows: u32,
    /// Rows that are told of nowhere: the totals lack them until there is room.
    #[serde(default)]
    pub untold_rows: u32,
}

/// Something that was asked for and is not measured, or not fully.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Lack {
    /// Why.
    pub reason: Reason,
    /// What: rows, or functions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub items: Vec<String>,
}

/// One row: an operation, a function, a peer.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RowReport {
    /// Its name.
    pub key: String,
    /// Since the agent first attached to this target; never goes backwards while the agent lives. In a NodeProbe, of distributions
    /// only how many values there were, and their sum: how they were distributed is told of the last interval.
    #[serde(default)]
    pub total: Figures,
    /// The last report interval.
    #[serde(default)]
    pub window: Window,
    /// The same by part, where that was asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 65))]
    pub parts: Vec<PartReport>,
}

/// A part of a row: an operation on one column family.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PartReport {
    /// Its name.
    pub key: String,
    /// As for the row.
    #[serde(default)]
    pub total: Figures,
    /// As for the row.
    #[serde(default)]
    pub window: Window,
}

/// One thing that happened and is worth telling by itself: a slow call, the end of a process.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EventReport {
    /// When.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<MicroTime>,
    /// The row that it counts in.
    pub row: String,
    /// The part, where it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<String>,
    /// The name of the thread that it happened on.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub thread: String,
    /// By what it comes before others: of a slow call, its nanoseconds.
    pub weight: u64,
    /// What happened, in a few words.
    pub text: String,
    /// The same by name: `duration`, `bytes`, `during`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 16))]
    pub details: BTreeMap<String, String>,
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
