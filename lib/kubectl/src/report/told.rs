//! What a record says over all of its time, in the form of `-o json`: figures as numbers, and not as people read them.

use ckb_probe_report::{
    History, Interval,
    content::{estimated, unit},
    history::{Gap, ProbeHistory, Run, Series},
};
use ckb_probe_views::records::{
    Changes, RecordFigure, RecordGap, RecordProbe, RecordReport, RecordRow, RecordRun,
};
use k8s_openapi::jiff::Timestamp;

/// A record of that name, and how it differs from another, where one was named.
pub fn of(name: &str, history: &History, changes: Option<Changes>) -> RecordReport {
    let columns = history.columns();
    let span = history.span();
    let intervals = || history.intervals();
    RecordReport {
        record: name.to_owned(),
        began_at: span.and_then(|(from, _)| time(from)),
        ended_at: span.and_then(|(_, to)| time(to)),
        milliseconds: span.map_or(0, |(from, to)| to - from),
        known_milliseconds: history.known(),
        runs: history.runs.iter().map(run).collect(),
        gaps: history.gaps.iter().map(gap).collect(),
        renewed: intervals().map(|one| one.renewed).sum(),
        is_cut: history.damage.cut,
        damaged_lines: history.damage.lines,
        probes: history.probes(&columns).iter().map(probe).collect(),
        estimated_percent: estimated(history).map(|[mean, _]| mean),
        recorder_cpu_milliseconds: intervals().map(|one: &Interval| one.own_cpu).sum(),
        changes,
    }
}

/// As RFC 3339 has it.
fn time(milliseconds: u64) -> Option<String> {
    let time = Timestamp::from_millisecond(i64::try_from(milliseconds).ok()?);
    Some(time.ok()?.to_string())
}

fn run(of: &Run) -> RecordRun {
    let header = &of.header;
    RecordRun {
        began_at: time(header.run).unwrap_or_default(),
        target: header.target.clone(),
        kernel: header.kernel.clone(),
        tier: header.tier.clone(),
        call_nanoseconds: header.cost_per_call_ns,
        interval_milliseconds: header.interval_milliseconds,
        max_percent: header.budget_millipercent as f64 / 1000.0,
        version: header.version.clone(),
        lacks: header.lacks.clone(),
        ended: of.end.as_ref().map(|end| end.reason.clone()),
    }
}

fn gap(of: &Gap) -> RecordGap {
    RecordGap {
        from: time(of.from).unwrap_or_default(),
        to: of.to.and_then(time),
        why: of.why.clone(),
    }
}

fn probe(of: &ProbeHistory) -> RecordProbe {
    let target = String::new;
    let events = of.events.iter().cloned();
    RecordProbe {
        name: of.asked.name.clone(),
        kind: of.asked.kind.clone(),
        rows: of.series.iter().map(|one| row(of, one)).collect(),
        lost: of.lost.clone(),
        unmeasured_milliseconds: of.unmeasured.clone(),
        events: events.map(|one| one.told_of(target(), target())).collect(),
    }
}

fn row(of: &ProbeHistory, series: &Series) -> RecordRow {
    let summary = series.summary();
    let is_part = series.part.is_some();
    let descriptor = of.descriptor;
    let columns = descriptor.columns.iter();
    let columns = columns.filter(|one| one.of_parts || !is_part);
    let figures = columns.filter_map(|column| {
        let value = summary.value(column.value)?;
        value.is_finite().then(|| RecordFigure {
            figure: column.name.to_owned(),
            unit: unit(descriptor, column.value),
            value,
        })
    });
    let error = descriptor.count_error(&summary, is_part);
    RecordRow {
        row: series.row.clone(),
        part: series.part.clone(),
        milliseconds: series.window.milliseconds + series.unseen,
        recorded_milliseconds: series.window.recorded_milliseconds,
        error: error.filter(|error| error.is_finite()),
        figures: figures.collect(),
    }
}
