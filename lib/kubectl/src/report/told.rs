//! What a record, or what a Prometheus kept, says over all of its time, in the form of `-o json`: figures as numbers, and not as people read them.

use std::collections::BTreeMap;

use ckb_probe_figures::comparison::Comparison;
use ckb_probe_report::{
    History, Interval,
    content::{
        Change, Unusual, Waited, confidence, counterpart, estimated, ordered, unit, unusual, waited,
    },
    history::{Gap, ProbeHistory, Run, Series},
    prometheus::Kept,
};
use ckb_probe_views::records::{
    Changes, FigureChange, RecordFigure, RecordGap, RecordProbe, RecordReport, RecordRow,
    RecordRun, RecordUnusual, RecordWait,
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
        lost: BTreeMap::new(),
        is_cut: history.damage.cut,
        damaged_lines: history.damage.lines,
        probes: history.probes(&columns).iter().map(probe).collect(),
        waits: waited(history).iter().map(wait).collect(),
        unusual: unusual(history).into_iter().map(told_unusual).collect(),
        estimated_percent: estimated(history).map(|[mean, _]| mean),
        recorder_cpu_milliseconds: intervals().map(|one: &Interval| one.own_cpu).sum(),
        changes,
    }
}

/// Each target of what a Prometheus kept, and how it differs from what was kept of an earlier time, where one was named. Nobody recorded it, so it
/// has no runs; and what was lost is known of a target alone.
pub fn of_prometheus(kept: &Kept, baseline: Option<&Kept>) -> Vec<RecordReport> {
    let targets = kept.targets.iter();
    let told = targets.map(|target| {
        let named = |of: &str| format!("{} {of}", kept.subject);
        let name = named(&target.name);
        let before = baseline.and_then(|baseline| counterpart(&target.name, kept, baseline));
        let changes = before.map(|before| {
            let earlier = named(&before.name);
            between((&earlier, &before.history), (&name, &target.history))
        });
        RecordReport {
            runs: Vec::new(),
            lost: target.facts.lost.clone(),
            ..of(&name, &target.history, changes)
        }
    });
    told.collect()
}

/// What has changed from a record to another.
pub fn between(before: (&str, &History), after: (&str, &History)) -> Changes {
    let (changes, few) = ordered(before.1, after.1);
    Changes {
        before: before.0.to_owned(),
        after: after.0.to_owned(),
        confidence: confidence(changes.len()),
        too_few: few as u64,
        figures: changes.iter().map(of_figure).collect(),
        ..Changes::default()
    }
}

fn of_figure(change: &Change) -> FigureChange {
    FigureChange {
        probe: Some(change.probe.clone()),
        row: Some(change.row.clone()),
        part: change.part.clone(),
        figure: change.name.to_owned(),
        unit: change.unit(),
        statistic: change.statistic().as_str().to_owned(),
        is: change.word().to_owned(),
        ..compared(&change.comparison)
    }
}

/// What two sides come to, of whatever it is.
pub fn compared(of: &Comparison) -> FigureChange {
    FigureChange {
        before: of.before,
        after: of.after,
        change: of.change(),
        low: of.low,
        high: of.high,
        ..FigureChange::default()
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

fn wait(of: &Waited) -> RecordWait {
    let percent = |part: u64| part as f64 / 1000.0;
    RecordWait {
        resource: of.key.to_owned(),
        mean_percent: of.told.map(|[mean, _]| percent(mean)),
        most_percent: of.told.map(|[_, most]| percent(most)),
        known_milliseconds: of.known,
    }
}

fn told_unusual(of: Unusual) -> RecordUnusual {
    RecordUnusual {
        figure: of.column.name.to_owned(),
        unit: unit(of.descriptor, of.column.value),
        from: time(of.from).unwrap_or_default(),
        milliseconds: of.to.saturating_sub(of.from),
        value: of.most.value,
        usual: of.most.usual,
        probe: of.probe,
        row: of.row,
        beside: of.beside,
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
