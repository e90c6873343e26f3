//! What was measured, and how truly; and what it cost.

use std::collections::BTreeMap;

use ckb_probe_crds::{Duration, numbers};

use super::{Across, Block, Lines, Scale, Section, Table};
use crate::{
    history::{Gap, History, ProbeHistory},
    record::Interval,
    times::{clock, lasted},
};

/// The first section.
pub fn section(history: &History, probes: &[ProbeHistory]) -> Section {
    let mut blocks = Vec::new();
    let Some((from, to)) = history.span() else {
        blocks.push(Block::Text(
            "Nothing: the record has no interval that is whole.".to_owned(),
        ));
        blocks.extend(damage(history));
        return Section {
            title: "What was measured".to_owned(),
            blocks,
        };
    };
    let known = history.known();
    blocks.push(Block::Text(format!(
        "From {} to {} (UTC), {}; of {} it is known what happened ({}).",
        clock(from),
        clock(to),
        lasted(to - from),
        lasted(known),
        percent(known, to - from),
    )));
    let runs = history.runs.iter().map(|run| {
        let of = &run.header;
        let shown = |text: &str| {
            if text.is_empty() {
                "-".to_owned()
            } else {
                text.to_owned()
            }
        };
        vec![
            clock(of.run),
            shown(&of.target),
            format!(
                "Linux {}, {}, {} ns a call",
                shown(&of.kernel),
                shown(&of.tier),
                of.cost_per_call_ns
            ),
            shown(&of.budget),
            Duration::from(std::time::Duration::from_millis(of.interval_milliseconds)).to_string(),
            shown(&of.version),
            run.how_it_ended(),
        ]
    });
    blocks.push(table(
        &[
            "RUN",
            "TARGET",
            "ATTACHED ON",
            "BUDGET",
            "INTERVAL",
            "VERSION",
            "END",
        ],
        runs.collect(),
    ));
    let lacks = history
        .runs
        .iter()
        .filter(|run| !run.header.lacks.is_empty());
    blocks.extend(lacks.map(|run| Block::Text(format!("Attached{}.", run.header.lacks))));
    blocks.push(truth(probes));
    blocks.extend(gaps(history));
    Section {
        title: "What was measured, and how truly".to_owned(),
        blocks,
    }
}

/// Shares, errors, losses and what was not measured, of each probe.
fn truth(probes: &[ProbeHistory]) -> Block {
    let rows = probes.iter().map(|probe| {
        let [share, error, unmeasured] = trust(probe);
        vec![
            probe.asked.name.clone(),
            probe.asked.kind.clone(),
            share,
            error,
            lost(&probe.lost),
            unmeasured,
        ]
    });
    table(
        &[
            "PROBE",
            "KIND",
            "LEAST SHARE RECORDED",
            "GREATEST STANDARD ERROR",
            "LOST",
            "NOT MEASURED",
        ],
        rows.collect(),
    )
}

/// How far to trust what a probe told: the least share of its rows that was recorded, the greatest error, and what was not measured.
pub(super) fn trust(probe: &ProbeHistory) -> [String; 3] {
    let rows = || probe.series.iter().filter(|one| one.part.is_none());
    let summaries: Vec<_> = rows().map(|one| one.summary()).collect();
    let shares = rows().map(|one| one.share());
    let least = shares.min_by(ckb_probe_crds::Share::sparseness);
    let errors = summaries
        .iter()
        .filter_map(|of| probe.descriptor.count_error(of, false));
    // Of a row of which nothing was recorded it is not known how much there was.
    let shares = summaries
        .iter()
        .filter_map(|of| of.share().of_an_interval());
    let blind = shares.filter(|share| !share.is_known());
    let worst = errors
        .chain(blind.map(|_| f64::INFINITY))
        .max_by(f64::total_cmp);
    let error = match worst {
        Some(worst) => numbers::plus_or_minus(worst),
        None if summaries.is_empty() && !probe.unmeasured.is_empty() => "-".to_owned(),
        None => "all was seen".to_owned(),
    };
    let unmeasured = probe
        .unmeasured
        .iter()
        .map(|(why, time)| format!("{} {why}", lasted(*time)));
    [
        least
            .and_then(|share| share.percent())
            .map_or_else(|| "-".to_owned(), |share| format!("{share}%")),
        error,
        or_none(unmeasured.collect()),
    ]
}

/// What could not be recorded.
pub(super) fn lost(lost: &BTreeMap<String, u64>) -> String {
    let lost = lost.iter().filter(|(_, count)| **count > 0);
    or_none(
        lost.map(|(what, count)| format!("{count} {what}"))
            .collect(),
    )
}

fn or_none(all: Vec<String>) -> String {
    match all.is_empty() {
        true => "none".to_owned(),
        false => all.join(", "),
    }
}

/// What of the record could not be read.
fn damage(history: &History) -> Vec<Block> {
    let mut blocks = Vec::new();
    let damage = history.damage;
    if damage.cut {
        blocks.push(Block::Text("A last line has no end: it was discarded. The recorder was killed as it wrote, or writes.".to_owned()));
    }
    let lines = match damage.lines {
        0 => None,
        1 => Some("1 line is not what was written".to_owned()),
        lines => Some(format!("{lines} lines are not what was written")),
    };
    let packed = damage
        .packed
        .then(|| "a segment could not be unpacked to its end".to_owned());
    let told: Vec<String> = lines.into_iter().chain(packed).collect();
    if !told.is_empty() {
        blocks.push(Block::Text(format!(
            "The record is damaged: {}. What is not whole is in no figure.",
            told.join(", and ")
        )));
    }
    blocks
}

fn gaps(history: &History) -> Vec<Block> {
    let mut blocks = damage(history);
    blocks.extend(renewed(history));
    if history.gaps.is_empty() {
        blocks.push(Block::Text(
            "Nothing is missing between the first interval and the last.".to_owned(),
        ));
        return blocks;
    }
    let rows = history.gaps.iter().map(gap);
    blocks.push(table(
        &["NOTHING IS KNOWN FROM", "FOR", "WHY"],
        rows.map(Vec::from).collect(),
    ));
    blocks
}

/// When the process was measured anew: to what it ran by then nothing was attached before.
fn renewed(history: &History) -> Option<Block> {
    let when = history.intervals().filter(|one| one.renewed > 0);
    let when: Vec<String> = when
        .map(|one| match one.renewed {
            1 => format!("until {}", clock(one.at)),
            times => format!("until {} ({times} times)", clock(one.at)),
        })
        .collect();
    (!when.is_empty()).then(|| {
        Block::Text(format!(
            "The process executed another program, or opened another file in place of a library, and was measured anew, in the interval that lasted \
             {}: what it called there before that was attached to is in no figure.",
            when.join(", in that which lasted ")
        ))
    })
}

/// When it began, how long it lasted, and why.
pub(super) fn gap(gap: &Gap) -> [String; 3] {
    let length = gap.to.map_or_else(
        || "not known".to_owned(),
        |to| lasted(to.saturating_sub(gap.from)),
    );
    [clock(gap.from), length, gap.why.clone()]
}

/// What measuring cost.
pub fn cost(history: &History, columns: &[Interval]) -> Section {
    let own: u64 = history.intervals().map(|one| one.own_cpu).sum();
    let budget = history
        .runs
        .last()
        .map_or(0, |run| run.header.budget_millipercent);
    let said = match estimate(history) {
        None => "What measuring cost is not known.".to_owned(),
        Some([mean, most]) => format!(
            "Measuring is estimated to have cost {mean} % of the CPU time of the target, {most} % in the interval in which it was most; the budget was {} %, and what the floor granted. The recorder itself used {} of CPU time in {}, {} of a core.",
            numbers::percent(budget),
            lasted(own),
            lasted(history.known()),
            percent(own, history.known()),
        ),
    };
    let title = "Estimated cost, in percent of the CPU time of the target";
    Section {
        title: "What measuring cost".to_owned(),
        blocks: vec![Block::Text(said), costs(title.to_owned(), columns, budget)],
    }
}

/// What it is estimated to have cost, in percent of the CPU time of the target: on the average, and at the most.
pub(super) fn estimate(history: &History) -> Option<[String; 2]> {
    Some(estimated(history)?.map(numbers::rate))
}

/// The same as numbers.
pub fn estimated(history: &History) -> Option<[f64; 2]> {
    let known = || {
        let all = history.intervals();
        all.filter_map(|one| Some((one.cost?, one.milliseconds)))
    };
    let time: u64 = known().map(|(_, time)| time).sum();
    let sum: f64 = known().map(|(cost, time)| cost as f64 * time as f64).sum();
    let most = known().map(|(cost, _)| cost).max()?;
    let percents = [sum / time.max(1) as f64, most as f64];
    Some(percents.map(|cost| cost / 1000.0))
}

/// The same over time, with what was granted besides this budget.
pub(super) fn costs(title: String, columns: &[Interval], budget: u64) -> Block {
    let cost = columns
        .iter()
        .map(|one| Some(one.cost? as f64 / 1000.0))
        .collect();
    let granted = columns.iter().map(|one| {
        one.cost?;
        Some((budget + one.floor.unwrap_or_default()) as f64 / 1000.0)
    });
    Block::Lines(Lines {
        title,
        across: Across::Time,
        scale: Scale::Percent,
        places: columns.iter().map(|one| one.began() as f64).collect(),
        lines: vec![
            ("cost".to_owned(), cost),
            ("granted".to_owned(), granted.collect()),
        ],
    })
}

pub(super) fn table(head: &[&str], rows: Vec<Vec<String>>) -> Block {
    Block::Table(Table {
        head: head.iter().map(|one| (*one).to_owned()).collect(),
        rows,
        numbers: false,
    })
}

pub(super) fn percent(part: u64, whole: u64) -> String {
    format!(
        "{} %",
        numbers::share(part.min(whole.max(1)), whole.max(1), 3)
    )
}
