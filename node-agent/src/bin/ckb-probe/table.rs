//! The figures of an interval, as a table or as lines of JSON: what they are, the kind's descriptor says.

use std::{
    io::{self, Write},
    time::SystemTime,
};

use ckb_probe_agent::host::Session;
use ckb_probe_crds::{Descriptor, RowReport, Summary, descriptor::Column, numbers};
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

/// The table of the last interval.
pub fn print(out: &mut impl Write, descriptor: &Descriptor, session: &Session) -> io::Result<()> {
    let report = session.instance().report(session.now());
    let rows = report.probes.iter().flat_map(|probe| &probe.rows);
    print_rows(out, descriptor, rows)?;
    if let Some(ratio) = report.overhead_millipercent {
        writeln!(
            out,
            "estimated cost: {:.2}% of the process's CPU time",
            ratio as f64 / 1000.0
        )?;
    }
    writeln!(out)
}

fn print_rows<'a>(
    out: &mut impl Write,
    descriptor: &Descriptor,
    rows: impl Iterator<Item = &'a RowReport>,
) -> io::Result<()> {
    let lines: Vec<(String, Summary, bool)> = rows.flat_map(lines_of).collect();
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
    let sampled = lines.iter().any(|(_, of, _)| of.share().is_sampled());
    write!(out, " {:>8}", "SAMPLED")?;
    if sampled {
        write!(out, " {:>8}", "ERROR")?;
    }
    writeln!(out)?;
    for (key, of, part) in &lines {
        write!(out, "{key:<width$}")?;
        for column in &columns {
            let shown = descriptor
                .shown(column.value, of)
                .filter(|_| column.of_parts || !part)
                .map(|shown| match is_the_least(of.error(column.value)) {
                    true => format!("≥{shown}"),
                    false => shown,
                });
            write!(out, " {:>11}", shown.as_deref().unwrap_or("-"))?;
        }
        let share = of.share().percent();
        let share = share.map_or_else(|| "-".to_string(), |share| format!("{share}%"));
        write!(out, " {share:>8}")?;
        if sampled {
            let error = descriptor.error(of, *part).map(numbers::plus_or_minus);
            write!(out, " {:>8}", error.as_deref().unwrap_or("-"))?;
        }
        writeln!(out)?;
    }
    Ok(())
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

/// Whether a figure with this standard error is the least that there was.
fn is_the_least(error: Option<f64>) -> bool {
    error.is_some_and(f64::is_infinite)
}

/// A standard error as a number of percent, where it is known.
fn percent(error: Option<f64>) -> Option<f64> {
    let error = error.filter(|error| error.is_finite())?;
    numbers::error(error).parse().ok()
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
                    "error": percent(descriptor.error(&of, true)),
                    "countError": percent(descriptor.count_error(&of, true)),
                    "atLeast": is_the_least(descriptor.count_error(&of, true)),
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
                "error": percent(descriptor.error(&of, false)),
                "countError": percent(descriptor.count_error(&of, false)),
                "atLeast": is_the_least(descriptor.count_error(&of, false)),
                "total": row.total,
                "window": row.window,
                "parts": parts.collect::<Vec<_>>(),
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use ckb_probe_crds::{Figures, IntervalFigures, Kind, Variance};

    use super::*;

    /// So many executions in a second, of which so many milliseconds were recorded, with this standard error.
    fn row(key: &str, count: u64, recorded_milliseconds: u64, error: f64) -> RowReport {
        let mut figures = Figures {
            sums: [("execs".into(), count)].into(),
            ..Figures::default()
        };
        if error > 0.0 {
            figures.variances = [("execs".into(), Variance::new(error * error))].into();
        }
        RowReport {
            key: key.to_owned(),
            total: figures.clone(),
            window: IntervalFigures {
                milliseconds: 1000,
                recorded_milliseconds,
                samples: count,
                figures,
            },
            parts: Vec::new(),
        }
    }

    /// The last two words of each line.
    fn ends(rows: &[RowReport]) -> Vec<Vec<String>> {
        let kind = Kind::ALL.iter().find(|kind| kind.as_str() == "processes");
        let mut out = Vec::new();
        print_rows(&mut out, kind.unwrap().descriptor(), rows.iter()).unwrap();
        let text = String::from_utf8(out).unwrap();
        let lines = text.lines().map(|line| {
            let words: Vec<_> = line.split_whitespace().map(str::to_owned).collect();
            words[words.len() - 2..].to_vec()
        });
        lines.collect()
    }

    #[test]
    fn the_error_stands_beside_the_share_only_where_anything_is_sampled() {
        let rows = [
            row("a", 1000, 336, 41.0),
            row("b", 3, 1000, 0.0),
            row("c", 0, 336, 0.0),
        ];
        assert_eq!(
            ends(&rows),
            [
                ["SAMPLED", "ERROR"],
                ["33.6%", "±4.1%"],
                ["100%", "-"],
                ["33.6%", "-"]
            ]
        );
        assert_eq!(ends(&rows[1..2])[0][1], "SAMPLED");
    }

    #[test]
    fn a_count_that_leaves_something_out_is_the_least_that_there_was() {
        let mut row = row("a", 15_384, 336, 0.0);
        let print = |row: &RowReport| {
            let kind = Kind::ALL.iter().find(|kind| kind.as_str() == "processes");
            let mut out = Vec::new();
            print_rows(&mut out, kind.unwrap().descriptor(), [row].into_iter()).unwrap();
            String::from_utf8(out).unwrap()
        };
        assert!(!print(&row).contains('≥'));
        row.total.leave_out();
        let shown = print(&row);
        assert!(shown.contains(" ≥15384 "), "{shown}");
        assert_eq!(
            shown.matches('≥').count(),
            1,
            "the interval is known: {shown}"
        );
    }

    #[test]
    fn errors_are_numbers_of_percent() {
        assert_eq!(percent(Some(0.0412)), Some(4.1));
        assert_eq!(percent(None), None);
        assert_eq!(percent(Some(f64::INFINITY)), None);
    }
}
