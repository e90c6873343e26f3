//! The one form in which programs read what people are shown: `-o json` of each verb prints documents of it, one a line.
//!
//! Whoever reads one looks at `schema` first. What is added within a version may be left unread; what is taken away or means something
//! else makes another version.

use ckb_probe_crds::{EventStatus, ProbeStatus};
use schemars::{JsonSchema, Schema, schema_for};
use serde::{Deserialize, Serialize};

use crate::{
    cost::Cost,
    diagnosis::Diagnosis,
    records::{Changes, RecordReport},
    symbols::{Symbols, UsdtProbes},
    threads::Threads,
};

/// The version of the form.
pub const SCHEMA: &str = "ckbprobe.dev/view/v1";

/// A line of `-o json`.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct Document {
    /// The version of the form: `ckbprobe.dev/view/v1`.
    pub schema: String,
    /// What it tells.
    #[serde(flatten)]
    pub view: View,
}

/// What is told.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(tag = "view", rename_all = "camelCase")]
pub enum View {
    /// Where measuring is broken, if it is.
    Diagnosis(Diagnosis),
    /// What is measured now.
    Figures(Figures),
    /// Something that happened, as soon as it was told.
    Event(Event),
    /// How a measure of a row was distributed in the last report interval.
    Distribution(Distribution),
    /// What measuring costs, by windows without and with probes.
    Cost(Cost),
    /// The rows of each target, at one moment.
    Top(Top),
    /// Where the time or the memory went in one window.
    Profile(StackProfile),
    /// What became of one profile in another.
    Difference(Difference),
    /// Which functions could be attached to.
    Symbols(Symbols),
    /// Which USDT probes could be.
    Usdt(UsdtProbes),
    /// What each thread does now.
    Threads(Threads),
    /// What was recorded, over all of the time.
    Record(Box<RecordReport>),
    /// How two records, or two runs of blocks, differ.
    Changes(Changes),
}

/// Where the time or the memory went in one window.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StackProfile {
    /// The CkbProfile, `namespace/name`; of a host the process.
    pub subject: String,
    /// The target, where it is of one alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// By what stacks are weighted, such as `Cpu`.
    pub mode: String,
    /// When the window began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub began_at: Option<String>,
    /// How long it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub milliseconds: Option<u64>,
    /// What is told of each stack, such as `cpu`.
    pub sample_type: String,
    /// In what: `nanoseconds`, `bytes` or `count`.
    pub unit: String,
    /// How much of it there is in all.
    pub total: u64,
    /// How it divides by the parts of CKB, such as `scripts 41 %, rocksdb read 22 %`.
    pub headline: String,
    /// The functions with the largest shares, by what was seen of them and of all that they called.
    pub functions: Vec<ProfileFunction>,
}

/// A function of a profile.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ProfileFunction {
    /// What it is called.
    pub name: String,
    /// The file that it is in; empty where that is not known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub module: String,
    /// Its own share, in percent.
    pub self_percent: String,
    /// With all that it called.
    pub total_percent: String,
}

/// What became of one profile in another, function by function.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Difference {
    /// The first: a file, or a CkbProfile, `namespace/name`.
    pub before: String,
    /// The second.
    pub after: String,
    /// What is compared, such as `cpu`.
    pub sample_type: String,
    /// In what: `nanoseconds`, `bytes` or `count`.
    pub unit: String,
    /// How much of it there was in all.
    pub total_before: u64,
    /// How much there is.
    pub total_after: u64,
    /// How many samples the first is of; unset where they were not counted, and nothing can be called noise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub samples_before: Option<u64>,
    /// How many the second is of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub samples_after: Option<u64>,
    /// Each function: what changed by more than noise first, and of each the greatest change.
    pub functions: Vec<DifferenceFunction>,
}

/// A function of two profiles, with all that it called.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DifferenceFunction {
    /// What it is called.
    pub name: String,
    /// The file that it is in; empty where that is not known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub module: String,
    /// Its share before, in percent.
    pub before: String,
    /// Its share after.
    pub after: String,
    /// After, less before.
    pub change: String,
    /// By how much the shares may differ by chance alone; unset where samples were not counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within: Option<String>,
    /// `new`, `gone`, `more`, `less`, `same` or `noise`.
    pub is: String,
}

/// The rows of each target, at one moment.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Top {
    /// What measuring is estimated to cost, where one CkbProbe or process is shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<String>,
    /// Each probe of each target.
    pub targets: Vec<TopTarget>,
}

/// A probe of a target.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TopTarget {
    /// The CkbProbe, `namespace/name`; on a host the process.
    pub subject: String,
    /// The pod and its container; on a host the process. Of whoever may not list NodeProbes, all targets together.
    pub target: String,
    /// The name of the probe; empty of a target of which no probe tells anything.
    pub probe: String,
    /// The kind of the probe.
    pub kind: String,
    /// Why there are no figures, in one word; unset where it is measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The same in a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// How long the last report interval was; 0 where that is not known.
    pub interval_milliseconds: u64,
    /// The rows, the busiest first.
    pub rows: Vec<TopRow>,
}

/// Figures of the last report interval. One that was not seen is unset, which is not zero.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TopRow {
    /// The row.
    pub row: String,
    /// How many a second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_second: Option<String>,
    /// All but one of a hundred took no longer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99: Option<String>,
    /// For how many percent of the time calls were under way; of two at a time, 200.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_percent: Option<String>,
    /// The standard error of `perSecond`, such as `±4.1%`, or `at least`; unset where all was seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// In how many percent of the targets' own time calls were recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sampling_percent: Option<String>,
    /// Whether `perSecond` is the least that there was.
    #[serde(default)]
    pub rate_is_at_least: bool,
    /// Whether `timePercent` is.
    #[serde(default)]
    pub time_is_at_least: bool,
}

/// How a measure of a row was distributed.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Distribution {
    /// The CkbProbe, `namespace/name`; on a host the process.
    pub subject: String,
    /// When it was told, of one interval among others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<String>,
    /// The name of the probe.
    pub probe: String,
    /// The row.
    pub row: String,
    /// The part of the row; unset: all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<String>,
    /// What is distributed, such as `duration`.
    pub measure: String,
    /// `nanoseconds`, `bytes`, or nothing of what is only counted.
    pub unit: String,
    /// How many there were.
    pub count: u64,
    /// How many in each range, in ascending order.
    pub bars: Vec<Bar>,
}

/// A range, and how many are in it.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub struct Bar {
    /// The least that belongs to it.
    pub from: u64,
    /// The least that does not any more.
    pub to: u64,
    /// How many.
    pub count: u64,
}

/// What a CkbProbe tells at one moment.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Figures {
    /// The CkbProbe, `namespace/name`.
    pub subject: String,
    /// Whether all that is asked is measured, and counts something.
    pub ready: bool,
    /// All of it in a line.
    pub headline: String,
    /// What measuring is estimated to cost, and how much of the time is seen where it is sampled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overhead: Option<String>,
    /// The results of each probe, as the status of a CkbProbe has them.
    pub probes: Vec<ProbeStatus>,
}

/// Something that happened.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Event {
    /// The CkbProbe, `namespace/name`.
    pub subject: String,
    /// The name of the probe that tells of it.
    pub probe: String,
    /// What happened, as the status of a CkbProbe has it.
    pub event: EventStatus,
}

/// Why a text is not read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// It is none of these.
    #[error("this is no document of ckb-probe: {0}")]
    Json(#[from] serde_json::Error),
    /// Another version wrote it.
    #[error(
        "this document is of the form {0:?}, and {SCHEMA:?} alone is read here: use the ckb-probe that wrote it"
    )]
    Schema(String),
}

impl Document {
    /// Of this.
    pub fn of(view: View) -> Self {
        Self {
            schema: SCHEMA.to_owned(),
            view,
        }
    }

    /// The line.
    pub fn line(&self) -> String {
        // There is nothing in it that JSON cannot have.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Reads a line.
    pub fn read(line: &str) -> Result<Self, ReadError> {
        #[derive(Deserialize)]
        struct Head {
            schema: String,
        }
        let Head { schema } = serde_json::from_str(line)?;
        match schema == SCHEMA {
            true => Ok(serde_json::from_str(line)?),
            false => Err(ReadError::Schema(schema)),
        }
    }

    /// What docs/reference/view.schema.json says of it.
    pub fn json_schema() -> Schema {
        schema_for!(Document)
    }
}

#[cfg(test)]
mod tests {
    use ckb_probe_crds::Reason;

    use super::*;
    use crate::{
        cost::{Measure, Window},
        diagnosis::{Finding, Part, Place},
        records::{
            FigureChange, RecordFigure, RecordGap, RecordProbe, RecordRow, RecordRun,
            RecordUnusual, RecordWait,
        },
        symbols::{Symbol, SymbolPlace, UsdtFileProbes, UsdtPlace},
        threads::{Thread, ThreadCall},
    };

    fn diagnosis() -> Document {
        let part = Part {
            name: "operator".to_owned(),
            version: "0.1.0".to_owned(),
        };
        let finding = Finding {
            reason: Some(Reason::Silent),
            ..Finding::failed(Place::Figures, "attached, but nothing happened")
                .about("ckb/ckb")
                .next("kubectl -n ckb describe ckbprobe ckb")
                .see("silent")
        };
        Document::of(View::Diagnosis(Diagnosis::of(vec![part], vec![finding])))
    }

    #[test]
    fn what_is_written_is_read_back_and_is_the_documented_form() {
        let document = diagnosis();
        let line = document.line();
        assert_eq!(Document::read(&line).unwrap(), document);
        assert_eq!(
            line,
            "{\"schema\":\"ckbprobe.dev/view/v1\",\"view\":\"diagnosis\",\"ok\":false,\"parts\":[{\"name\":\"operator\",\
             \"version\":\"0.1.0\"}],\"findings\":[{\"place\":\"figures\",\"subject\":\"ckb/ckb\",\"mark\":\"failed\",\
             \"text\":\"attached, but nothing happened\",\"reason\":\"Silent\",\
             \"next\":[\"kubectl -n ckb describe ckbprobe ckb\"],\
             \"see\":\"https://github.com/ckb-probe/ckb-probe/blob/main/docs/troubleshooting.md#silent\"}]}"
        );
    }

    #[test]
    fn the_other_views_are_read_back_too() {
        let figures = Figures {
            subject: "ckb/ckb".to_owned(),
            ready: true,
            headline: "storage 733/s".to_owned(),
            probes: vec![ProbeStatus::default()],
            ..Figures::default()
        };
        let event = Event {
            subject: "ckb/ckb".to_owned(),
            probe: "storage".to_owned(),
            event: EventStatus::default(),
        };
        let distribution = Distribution {
            unit: "nanoseconds".to_owned(),
            bars: vec![Bar {
                from: 1,
                to: 2,
                count: 3,
            }],
            ..Distribution::default()
        };
        let cost = Cost {
            seed: 7,
            windows: vec![Window {
                account: [(Measure::CpuOfCount, 0.5)].into(),
                ..Window::default()
            }],
            ..Cost::default()
        };
        let row = TopRow {
            row: "Get".to_owned(),
            per_second: Some("733".to_owned()),
            ..TopRow::default()
        };
        let target = TopTarget {
            target: "ckb-0/ckb".to_owned(),
            reason: Some("AgentSilent".to_owned()),
            rows: vec![row],
            ..TopTarget::default()
        };
        let top = Top {
            targets: vec![target],
            ..Top::default()
        };
        let function = ProfileFunction {
            name: "main".to_owned(),
            ..ProfileFunction::default()
        };
        let profile = StackProfile {
            target: Some("default/ckb-0/ckb".to_owned()),
            functions: vec![function],
            ..StackProfile::default()
        };
        let function = DifferenceFunction {
            within: Some("1.20".to_owned()),
            ..DifferenceFunction::default()
        };
        let difference = Difference {
            samples_after: Some(1),
            functions: vec![function],
            ..Difference::default()
        };
        let changes = Changes {
            blocks_before: Some(40),
            figures: vec![FigureChange {
                low: -0.1,
                part: Some("0".to_owned()),
                ..FigureChange::default()
            }],
            ..Changes::default()
        };
        let record = RecordReport {
            probes: vec![RecordProbe {
                rows: vec![RecordRow {
                    figures: vec![RecordFigure::default()],
                    error: Some(0.1),
                    ..RecordRow::default()
                }],
                events: vec![EventStatus::default()],
                ..RecordProbe::default()
            }],
            runs: vec![RecordRun::default()],
            gaps: vec![RecordGap::default()],
            waits: vec![RecordWait {
                mean_percent: Some(0.5),
                ..RecordWait::default()
            }],
            unusual: vec![RecordUnusual {
                beside: "unknown: waiting for a disk".to_owned(),
                ..RecordUnusual::default()
            }],
            changes: Some(changes.clone()),
            ..RecordReport::default()
        };
        let symbols = Symbols {
            functions: vec![Symbol {
                places: vec![SymbolPlace::default()],
                ..Symbol::default()
            }],
            ..Symbols::default()
        };
        let usdt = UsdtProbes {
            files: vec![UsdtFileProbes {
                probes: vec![UsdtPlace {
                    offset: Some(u64::MAX),
                    ..UsdtPlace::default()
                }],
                ..UsdtFileProbes::default()
            }],
            ..UsdtProbes::default()
        };
        let threads = Threads {
            threads: vec![Thread {
                calls: vec![ThreadCall::default()],
                ..Thread::default()
            }],
            ..Threads::default()
        };
        for view in [
            View::Changes(changes),
            View::Record(Box::new(record)),
            View::Symbols(symbols),
            View::Usdt(usdt),
            View::Threads(threads),
            View::Profile(profile),
            View::Difference(difference),
            View::Figures(figures),
            View::Event(event),
            View::Distribution(distribution),
            View::Cost(cost),
            View::Top(top),
        ] {
            let document = Document::of(view);
            assert_eq!(Document::read(&document.line()).unwrap(), document);
        }
    }

    #[test]
    fn what_a_later_version_adds_is_left_unread_and_another_form_refused() {
        let line = diagnosis().line();
        let more = line.replacen("\"ok\":false", "\"ok\":false,\"colour\":\"red\"", 1);
        assert_eq!(Document::read(&more).unwrap(), diagnosis());
        let other = line.replacen("view/v1", "view/v2", 1);
        let error = Document::read(&other).unwrap_err();
        assert!(matches!(error, ReadError::Schema(of) if of == "ckbprobe.dev/view/v2"));
        assert!(matches!(
            Document::read("{}").unwrap_err(),
            ReadError::Json(_)
        ));
    }
}
