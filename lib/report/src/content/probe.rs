//! What a probe told: figures of each row, rates and durations over time, how they are distributed, and what was slowest.

use ckb_probe_crds::{Summary, descriptor::Unit, numbers};
use ckb_probe_figures::Value;

use super::{Across, Block, Heat, Lines, Scale, Section, Table};
use crate::{
    history::{ProbeHistory, Series},
    merge::is_blind,
    record::Interval,
    times::lasted,
};

/// So many rows and parts are in the table.
const LISTED: usize = 60;

/// So many lines are in a chart: as many as can be told apart.
const DRAWN: usize = 6;

/// So many rows, and so many parts, have a heat map.
const HEATED: (usize, usize) = (12, 24);

/// The section of a probe.
pub fn section(probe: &ProbeHistory, columns: &[Interval]) -> Section {
    let mut blocks = Vec::new();
    let rows = whole_rows(probe).map(|one| (&*one.row, one.summary()));
    let headline = probe.descriptor.headline_of(rows);
    match (probe.series.is_empty(), headline.is_empty()) {
        (true, _) => blocks.push(Block::Text(nothing(probe, columns))),
        (false, false) => blocks.push(Block::Text(format!("Over all of the time: {headline}."))),
        _ => {}
    }
    if !probe.series.is_empty() {
        blocks.push(table(probe));
        if probe.series.len() > LISTED {
            let more = probe.series.len() - LISTED;
            blocks.push(Block::Text(format!("And {more} rows and parts more.")));
        }
        blocks.extend(rates(probe, columns));
        blocks.extend(quantiles(probe, columns));
        blocks.extend(heights(probe, columns));
        blocks.extend(heats(probe, columns));
    }
    blocks.extend(events(probe));
    Section {
        title: format!("{} ({})", probe.asked.name, probe.asked.kind),
        blocks,
    }
}

/// What is to say of a probe that told no row: that nothing happened only where somebody looked.
fn nothing(probe: &ProbeHistory, columns: &[Interval]) -> String {
    let time: u64 = columns.iter().map(|one| one.milliseconds).sum();
    let unmeasured: u64 = probe.unmeasured.values().sum();
    let why = || probe.unmeasured.keys().cloned().collect::<Vec<_>>();
    match unmeasured {
        _ if time == 0 => "Nothing is known of it.".to_owned(),
        0 => "Nothing of it happened.".to_owned(),
        _ if unmeasured >= time => format!(
            "It was not measured ({}): whether anything of it happened is not known.",
            why().join(", ")
        ),
        _ => format!(
            "Nothing of it happened while it was measured; for {} it was not ({}).",
            lasted(unmeasured),
            why().join(", ")
        ),
    }
}

fn whole_rows(probe: &ProbeHistory) -> impl Iterator<Item = &Series> {
    probe.series.iter().filter(|one| one.part.is_none())
}

fn table(probe: &ProbeHistory) -> Block {
    let descriptor = probe.descriptor;
    let listed: Vec<(&Series, Summary)> = probe
        .series
        .iter()
        .take(LISTED)
        .map(|one| (one, one.summary()))
        .collect();
    let known = |value| listed.iter().any(|(_, of)| of.value(value).is_some());
    let columns: Vec<_> = descriptor
        .columns
        .iter()
        .filter(|one| known(one.value))
        .collect();
    let mut head = vec![descriptor.row.to_uppercase().replace('_', " ")];
    head.extend(columns.iter().map(|column| column.head.to_owned()));
    head.extend(["SAMPLED".to_owned(), "ERROR".to_owned()]);
    let rows = listed.iter().map(|(one, of)| {
        let is_part = one.part.is_some();
        let mut cells = vec![match &one.part {
            Some(part) => format!("\u{a0}\u{a0}{part}"),
            None => one.row.clone(),
        }];
        cells.extend(columns.iter().map(|column| {
            let shown = descriptor
                .shown(column.value, of)
                .filter(|_| column.of_parts || !is_part);
            shown.unwrap_or_else(|| "-".to_owned())
        }));
        let share = one.share().percent();
        cells.push(share.map_or_else(|| "-".to_owned(), |share| format!("{share}%")));
        let error = descriptor.count_error(of, is_part);
        cells.push(error.map_or_else(|| "-".to_owned(), numbers::plus_or_minus));
        cells
    });
    Block::Table(Table {
        head,
        rows: rows.collect(),
        numbers: true,
    })
}

/// What a value was in each column. Nothing happened where the row is not there, but the column is known.
fn over_time(
    probe: &ProbeHistory,
    series: &Series,
    value: Value,
    columns: &[Interval],
) -> Vec<Option<f64>> {
    let columns = columns.iter().enumerate().map(|(place, column)| {
        let idle = || {
            let mut probes = column.probes.iter();
            let measured =
                probes.any(|one| one.name == probe.asked.name && one.unmeasured.is_none());
            (measured && matches!(value, Value::Rate(_))).then_some(0.0)
        };
        match series.column(place) {
            Some(of) => of.value(value),
            None => idle(),
        }
    });
    columns.collect()
}

fn lines(
    probe: &ProbeHistory,
    columns: &[Interval],
    title: String,
    scale: Scale,
    value: Value,
) -> Option<Block> {
    let lines: Vec<(String, Vec<Option<f64>>)> = whole_rows(probe)
        .map(|one| (one.name(), over_time(probe, one, value, columns)))
        .filter(|(_, values)| values.iter().flatten().any(|value| *value > 0.0))
        .take(DRAWN)
        .collect();
    (!lines.is_empty()).then(|| {
        Block::Lines(Lines {
            title,
            across: Across::Time,
            scale,
            places: columns.iter().map(|one| one.began() as f64).collect(),
            lines,
        })
    })
}

fn rates(probe: &ProbeHistory, columns: &[Interval]) -> Option<Block> {
    let value = probe.descriptor.counted(false)?;
    let column = probe
        .descriptor
        .columns
        .iter()
        .find(|one| one.value == value)?;
    let title = format!("{} of the {DRAWN} weightiest rows", column.head);
    lines(probe, columns, title, Scale::Number, value)
}

/// The measure whose distribution is drawn.
fn measure(probe: &ProbeHistory) -> Option<(&'static str, bool)> {
    let mut columns = probe.descriptor.columns.iter();
    let measure = columns.find_map(|column| match column.value {
        Value::Quantile(measure, _) => Some(measure),
        _ => None,
    })?;
    Some((measure, probe.descriptor.unit(measure) == Unit::Nanoseconds))
}

fn quantiles(probe: &ProbeHistory, columns: &[Interval]) -> Option<Block> {
    let (measure, time) = measure(probe)?;
    let scale = if time {
        Scale::Nanoseconds
    } else {
        Scale::Number
    };
    let title = format!("p99 of {measure} of the {DRAWN} weightiest rows");
    lines(probe, columns, title, scale, Value::Quantile(measure, 0.99))
}

/// What blocks cost as the chain grew, of what tells a height.
fn heights(probe: &ProbeHistory, columns: &[Interval]) -> Option<Block> {
    let height = Value::Maximum("height");
    let of = whole_rows(probe).find(|one| {
        one.summary()
            .value(height)
            .is_some_and(|height| height > 0.0)
    })?;
    let (measure, _) = measure(probe)?;
    let mut points: Vec<(f64, [Option<f64>; 3])> = (0..columns.len())
        .filter_map(|place| {
            let of = of.column(place)?;
            let height = of.value(height).filter(|height| *height > 0.0)?;
            let values = [
                Value::Quantile(measure, 0.5),
                Value::Quantile(measure, 0.99),
                Value::Maximum(measure),
            ];
            Some((height, values.map(|value| of.value(value))))
        })
        .collect();
    points.sort_by(|(one, _), (other, _)| one.total_cmp(other));
    points.dedup_by(|(one, _), (other, _)| one == other);
    let line = |place: usize| points.iter().map(|(_, values)| values[place]).collect();
    (points.len() > 1).then(|| {
        Block::Lines(Lines {
            title: format!("How long blocks took, by height ({})", of.name()),
            across: Across::Height,
            scale: Scale::Nanoseconds,
            places: points.iter().map(|(height, _)| *height).collect(),
            lines: ["p50", "p99", "longest"]
                .into_iter()
                .enumerate()
                .map(|(place, name)| (name.to_owned(), line(place)))
                .collect(),
        })
    })
}

fn heats(probe: &ProbeHistory, columns: &[Interval]) -> Vec<Block> {
    let Some((measure, time)) = measure(probe) else {
        return Vec::new();
    };
    let any = |one: &&Series| {
        let values = one.window.figures.distributions.get(measure);
        values.is_some_and(|values| values.histogram.iter().next().is_some())
    };
    let (rows, parts) = HEATED;
    let of_rows = probe
        .series
        .iter()
        .filter(|one| one.part.is_none())
        .filter(any)
        .take(rows);
    let mut of_parts: Vec<&Series> = probe
        .series
        .iter()
        .filter(|one| one.part.is_some())
        .filter(any)
        .collect();
    of_parts.sort_by_key(|one| std::cmp::Reverse(one.window.figures.count(measure)));
    of_parts.truncate(parts);
    let drawn = of_rows.chain(of_parts);
    let heat = |one: &Series| {
        let counts = columns.iter().enumerate().map(|(place, column)| {
            let mut probes = column.probes.iter();
            let known = probes.any(|of| of.name == probe.asked.name && of.unmeasured.is_none());
            let window = one.columns.get(place)?.as_ref();
            // What few slices saw is in the table, too, though it is not known yet in how much of the time.
            let known = window.map_or(known, |window| !is_blind(window));
            let values = window.and_then(|window| window.figures.distributions.get(measure));
            known.then(|| {
                values
                    .map(|values| values.histogram.iter().collect())
                    .unwrap_or_default()
            })
        });
        Block::Heat(Heat {
            title: format!("{measure} of {}", one.name()),
            columns: columns.iter().map(|one| (one.began(), one.at)).collect(),
            counts: counts.collect(),
            time,
        })
    };
    drawn.map(heat).collect()
}

fn events(probe: &ProbeHistory) -> Vec<Block> {
    if probe.events.is_empty() {
        return Vec::new();
    }
    let rows = probe.events.iter().map(|event| {
        let time = event.time.as_ref();
        vec![
            time.map_or_else(
                || "-".to_owned(),
                |time| time.0.strftime("%Y-%m-%d %H:%M:%S%.3f").to_string(),
            ),
            event.row.clone(),
            event.part.clone().unwrap_or_else(|| "-".to_owned()),
            event.thread.clone(),
            event.text.clone(),
        ]
    });
    let head = [
        "TIME",
        "ROW",
        "PART",
        "THREAD",
        "WHAT, AND WHAT RAN BESIDE IT",
    ];
    vec![
        Block::Text(
            "What was listed individually, the weightiest of all of the time first:".to_owned(),
        ),
        Block::Table(Table {
            head: head.map(str::to_owned).to_vec(),
            rows: rows.collect(),
            numbers: false,
        }),
    ]
}
