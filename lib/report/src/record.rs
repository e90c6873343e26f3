//! What a record holds: who was measured, what each interval told, and how it ended.

use std::collections::BTreeMap;

use ckb_probe_crds::{
    Contention, EventReport, Figures, InstanceReport, InstanceState, IntervalFigures, RowReport,
    contention::Resource,
};
use serde::{Deserialize, Serialize};

/// The version of the form. What is added within one may be left unread.
pub const SCHEMA: &str = "ckbprobe.dev/record/v1";

/// So many events are kept of a probe in one interval, whatever it is merged from: the weightiest.
pub const MAX_EVENTS: usize = 10;

/// A line of a segment.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(tag = "line", rename_all = "camelCase")]
pub enum Line {
    /// The first of each segment.
    Header(Header),
    /// What one interval told.
    Interval(Interval),
    /// Recording ended in good order.
    End(End),
}

/// Who is measured, and how. Each segment begins with one, so that it can be read without those before it.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Header {
    /// The version of the form.
    pub schema: String,
    /// The version of the program that wrote it.
    pub version: String,
    /// When this run of the recorder began, in milliseconds since 1970: segments of one run have the same.
    pub run: u64,
    /// The process that is measured, for people.
    pub target: String,
    /// The kernel's release.
    pub kernel: String,
    /// How probes are attached.
    pub tier: String,
    /// What a probed call costs, in nanoseconds, as it was calibrated.
    pub cost_per_call_ns: u64,
    /// How often it is told, in milliseconds.
    pub interval_milliseconds: u64,
    /// How much CPU time measuring may cost, for people.
    pub budget: String,
    /// The same in thousandths of a percent.
    pub budget_millipercent: u64,
    /// Each probe's name and kind.
    pub probes: Vec<Asked>,
    /// What of it is not measured, as a sentence; empty where all is.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub lacks: String,
}

/// A probe's name, and the kind that it is of.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Asked {
    /// The name.
    pub name: String,
    /// The kind, as a CkbProbe spells it.
    pub kind: String,
}

/// One interval, or several that followed each other.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Interval {
    /// When it ended, in milliseconds since 1970, by the wall clock.
    pub at: u64,
    /// How long it lasted.
    pub milliseconds: u64,
    /// What measuring is estimated to have cost, in thousandths of a percent of the CPU time of the target; unset where it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<u64>,
    /// What `overhead.floor` granted besides, likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub floor: Option<u64>,
    /// What its container waited for; of intervals that were put together the mean over those of which it is known. Unset where nothing
    /// of it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contention: Option<Contention>,
    /// Of intervals that were put together: for how many of their milliseconds it is not known what was waited for of a resource, by its key. What
    /// `contention` has of it is the mean of the rest. One that is not here is known for all of them, or for none where `contention` lacks it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub contention_unknown: BTreeMap<String, u64>,
    /// CPU time of the recorder itself, in milliseconds.
    #[serde(default)]
    pub own_cpu: u64,
    /// How often the process was measured anew: it executed another program, or opened another file in place of a library.
    #[serde(default, skip_serializing_if = "is_none")]
    pub renewed: u64,
    /// What each probe told.
    #[serde(default)]
    pub probes: Vec<ProbeInterval>,
}

/// What a probe told of an interval.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ProbeInterval {
    /// The probe's name.
    pub name: String,
    /// Why nothing is known of this interval; unset where it was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unmeasured: Option<String>,
    /// What could not be recorded, by category, since the run began.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub lost: BTreeMap<String, u64>,
    /// Rows of which something happened, or of which it is not known for all of the time. Of those that are not here nothing happened,
    /// and they were watched.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rows: Vec<Row>,
    /// What is listed individually: the weightiest.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<EventReport>,
}

/// A row, or a part of one.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    /// Its name.
    pub key: String,
    /// Since the run began; of distributions only how many values there were, and their sum.
    #[serde(default)]
    pub total: Figures,
    /// In the interval.
    #[serde(default)]
    pub window: IntervalFigures,
    /// For how many milliseconds more nothing was seen of it, of intervals that were put together: a rate is of the time of which something is
    /// known.
    #[serde(default, skip_serializing_if = "is_none")]
    pub unseen: u64,
    /// How many of these are at the end: what sees something afterwards may reach back over them.
    #[serde(default, skip_serializing_if = "is_none")]
    pub unseen_last: u64,
    /// Its parts; a part has none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<Row>,
}

fn is_none(number: &u64) -> bool {
    *number == 0
}

/// How a run ended.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct End {
    /// When, in milliseconds since 1970.
    pub at: u64,
    /// Why that was.
    pub reason: String,
}

impl Interval {
    /// What a probe of this name told, if it is known.
    pub fn probe(&self, name: &str) -> Option<&ProbeInterval> {
        self.probes.iter().find(|probe| probe.name == name)
    }

    /// What a report tells of an interval that ended at this time.
    pub fn of(report: InstanceReport, at: u64, milliseconds: u64) -> Self {
        let probes = report.probes.into_iter().map(|probe| {
            let unmeasured = (probe.state != InstanceState::Attached).then(|| {
                let reason = probe.reason.map(|reason| reason.as_str());
                reason.unwrap_or("not attached").to_owned()
            });
            ProbeInterval {
                name: probe.name,
                unmeasured,
                lost: probe.lost,
                rows: probe.rows.into_iter().filter_map(Row::of).collect(),
                events: probe.events,
            }
        });
        Self {
            at,
            milliseconds,
            cost: report.overhead_millipercent,
            floor: report.floor_millipercent,
            contention: report.contention,
            contention_unknown: BTreeMap::new(),
            own_cpu: 0,
            renewed: 0,
            probes: probes.collect(),
        }
    }

    /// What was waited for of a resource, in thousandths of a percent, and for how many milliseconds that is known; None and 0 where nothing is.
    pub fn waited(&self, resource: &Resource) -> (Option<u64>, u64) {
        let part = self.contention.as_ref().and_then(resource.part);
        let unknown = self.contention_unknown.get(resource.key);
        let known = self
            .milliseconds
            .saturating_sub(unknown.copied().unwrap_or_default());
        (part, part.map_or(0, |_| known))
    }

    /// When it began, in milliseconds since 1970.
    pub fn began(&self) -> u64 {
        self.at.saturating_sub(self.milliseconds)
    }
}

impl Row {
    /// None where nothing happened, and it was watched.
    fn of(row: RowReport) -> Option<Self> {
        let parts = row.parts.into_iter();
        let parts =
            parts.filter_map(|part| Self::told(part.key, part.total, part.window, Vec::new()));
        let parts = parts.collect();
        Self::told(row.key, row.total, row.window, parts)
    }

    fn told(
        key: String,
        mut total: Figures,
        window: IntervalFigures,
        parts: Vec<Self>,
    ) -> Option<Self> {
        total.forget_distribution();
        let watched = window.recorded_milliseconds >= window.milliseconds;
        let told = !window.figures.is_idle() || !watched || !parts.is_empty();
        told.then_some(Self {
            key,
            total,
            window,
            unseen: 0,
            unseen_last: 0,
            parts,
        })
    }
}
