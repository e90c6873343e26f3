//! The figures of an interval, as a table or as lines of JSON: what they are, the kind's descriptor says.

use std::{
    io::{self, Write},
    time::SystemTime,
};

use ckb_probe_agent::host::Session;
use ckb_probe_crds::{Descriptor, RowReport, Summary, descriptor::Column};
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

/// The table of the last interval.
pub fn print(out: &mut impl Write, descriptor: &Descriptor, session: &Session) -> io::Result<()> {
    let report = session.instance().report(session.now());
    let rows: Vec<&RowReport> = report.probes.iter().flat_map(|probe| &probe.rows).collect();
    let lines: Vec<(String, Summary, bool)> = rows.iter().flat_map(|row| lines_of(row)).collect();
    let known = |column: &Column| {
        lines
            .iter()
            .any(|(_, of, _)| of.value(column.value).is_some())
    };
    let columns: Vec<&Column> = descriptor.columns.iter().filter(|one| known(one)).collect();
    let name = descriptor.row.to_uppercase().replace('_', " ");
    let widest = lines.iter().map(|(key, ..)| key.chars().count()).max();
    let width = widest.unwrap_or_default().max(name.len()).max(24);
    write!(out, "{name:<width$}")?;
    for column in &columns {
        write!(out, " {:>11}", column.head)?;
    }
    writeln!(out, " {:>8}", "SAMPLED")?;
    for (key, of, part) in &lines {
        write!(out, "{key:<width$}")?;
        for column in &columns {
            let shown = descriptor
                .shown(column.value, of)
                .filter(|_| column.of_parts || !part);
            write!(out, " {:>11}", shown.as_deref().unwrap_or("-"))?;
        }
        let share = of.share().percent();
        let share = share.map_or_else(|| "-".to_string(), |share| format!("{share}%"));
        writeln!(out, " {share:>8}")?;
    }
    if let Some(ratio) = report.overhead_millipercent {
        writeln!(
            out,
            "estimated cost: {:.2}% of the process's CPU time",
            ratio as f64 / 1000.0
        )?;
    }
    writeln!(out)
}

/// A row, and its parts below it.
fn lines_of(row: &RowReport) -> Vec<(String, Summary, bool)> {
    let whole = Summary::of(&row.total, &row.window, true);
    let parts = row.parts.iter().map(|part| {
        let of = Summary::of(&part.total, &part.window, true);
        (format!("  {}", part.key), of, true)
    });
    std::iter::once((row.key.clone(), whole, false))
        .chain(parts)
        .collect()
}

/// A line for each row of the last interval: what was counted, and the figures that the table would show.
pub fn lines(descriptor: &Descriptor, session: &Session) -> Vec<Value> {
    let now = Timestamp::try_from(SystemTime::now()).unwrap_or_default();
    let report = session.instance().report(session.now());
    let probes = report.probes.iter();
    probes
        .flat_map(|probe| &probe.rows)
        .map(|row| {
            let of = Summary::of(&row.total, &row.window, true);
            let parts = row.parts.iter().map(|part| {
                let of = Summary::of(&part.total, &part.window, true);
                json!({
                    "key": part.key,
                    "figures": descriptor.figures(&of, true),
                    "total": part.total,
                    "window": part.window,
                })
            });
            json!({
                "time": format!("{now:.6}"),
                "pid": session.process.id.pid,
                "executable": session.process.executable,
                "kind": session.instance().probes.first().map(|book| book.probe.kind().as_str()),
                "row": row.key,
                "figures": descriptor.figures(&of, false),
                "samplingPercent": of.share().percent(),
                "total": row.total,
                "window": row.window,
                "parts": parts.collect::<Vec<_>>(),
            })
        })
        .collect()
}
