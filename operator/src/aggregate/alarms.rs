//! What a person must see to in the targets themselves, by what is measured of them.

use ckb_probe_crds::{
    Descriptor, IntervalFigures, ProbeReport, Reason, RowReport, Summary,
    descriptor::{Alarm, Borne},
};

use super::{
    conditions::{Answer, no, yes},
    targets::{self, Target},
};

/// How many a message tells of.
const TOLD: usize = 3;

/// What a row of a target alarms about. The gravest is the least.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Alarmed {
    /// Its place among the alarms of its kind.
    rank: usize,
    message: String,
    reason: Reason,
}

impl Alarmed {
    /// That a figure is not as usual, which is less grave than all that is known to be wrong.
    pub fn unusual(message: String) -> Self {
        Self {
            rank: usize::MAX,
            message,
            reason: Reason::Unusual,
        }
    }
}

/// What the rows of a target alarm about: of each alarm, the first row.
pub fn of(
    descriptor: &Descriptor,
    target: &Target,
    report: &ProbeReport,
    rows: &[RowReport],
) -> Vec<Alarmed> {
    let alarms = descriptor.alarms.iter().enumerate();
    let told = alarms.filter_map(|(rank, alarm)| {
        let (row, part) = rows.iter().find_map(|row| raised(alarm, row))?;
        let what = match part {
            Some(part) => format!("{row}: {part}"),
            None => row.to_owned(),
        };
        // What was told of it by itself, of the last interval.
        let mut events = report.events.iter();
        let said = events.find(|event| event.row == row);
        let said = said.map(|event| format!(": {}", event.text));
        Some(Alarmed {
            rank,
            reason: alarm.reason,
            message: format!(
                "{}: {} ({what}){}",
                targets::name(target.pod),
                alarm.says,
                said.unwrap_or_default()
            ),
        })
    });
    told.collect()
}

/// The row and the part of it that an alarm is about.
fn raised<'a>(alarm: &Alarm, row: &'a RowReport) -> Option<(&'a str, Option<&'a str>)> {
    let is_raised = |total, window: &IntervalFigures| {
        let borne = match alarm.borne {
            Borne::PerSecond(borne) => borne * window.milliseconds as f64 / 1000.0,
            Borne::Always(borne) => borne,
        };
        let of = Summary::of(total, window, true);
        let is_enough = |(value, least)| of.value(value).is_some_and(|value| value >= least);
        alarm.rests_on.is_none_or(is_enough)
            && of.value(alarm.value).is_some_and(|value| value > borne)
    };
    if !(alarm.rows)(&row.key) || !is_raised(&row.total, &row.window) {
        return None;
    }
    let mut parts = row.parts.iter();
    let part = parts.find(|part| is_raised(&part.total, &part.window));
    Some((&row.key, part.map(|part| part.key.as_str())))
}

/// Whether there is anything to see to.
pub fn answer(alarms: &[Alarmed]) -> Answer {
    let Some(gravest) = alarms.first() else {
        return yes(
            Reason::Done,
            "what is measured tells of nothing that is wrong in the targets",
        );
    };
    let mut told: Vec<&str> = Vec::new();
    for alarm in alarms {
        if !told.contains(&&*alarm.message) {
            told.push(&alarm.message);
        }
    }
    let more = told.len().saturating_sub(TOLD);
    told.truncate(TOLD);
    let mut message = told.join("; ");
    if more > 0 {
        message += &format!("; and {more} more");
    }
    no(gravest.reason, message)
}

#[cfg(test)]
mod tests;
