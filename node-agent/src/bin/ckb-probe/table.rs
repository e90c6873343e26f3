//! The figures of an interval, as a table or as lines of JSON: what they are, the kind's descriptor says.

use std::{
    io::{self, Write},
    time::SystemTime,
};

use ckb_probe_agent::host::Session;
use ckb_probe_crds::{Descriptor, RowReport, Summary, descriptor::Column, numbers};
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

/// How wide a column is where nobody minds, and how wide those of shares and errors are.
const WIDE: usize = 11;
const SHARE: usize = 8;

/// How wide the names of rows are at least, likewise.
const NAMES: usize = 24;

/// The table of the last interval, in a terminal of so many columns; without one it is as wide as it is.
pub fn print(
    out: &mut impl Write,
    descriptor: &Descriptor,
    session: &Session,
    width: Option<usize>,
) -> io::Result<()> {
    let report = session.instance().report(session.now());
    let rows = report.probes.iter().flat_map(|probe| &probe.rows);
    print_rows(out, descriptor, rows, width)?;
    if let Some(ratio) = report.overhead_millipercent {
        writeln!(
            out,
            "estimated cost: {:.2}% of the process's CPU time",
            ratio as f64 / 1000.0
        )?;
    }
    writeln!(out)
}

/// A column: its head, what it has of each row, how wide it is, and whether it says how much there was, or how truly that is known.
struct Cells {
    head: String,
    cells: Vec<String>,
    width: usize,
    stays: bool,
}

impl Cells {
    fn of(head: &str, cells: Vec<Option<String>>, width: usize, stays: bool) -> Self {
        let cells = cells.into_iter();
        Self {
            head: head.to_owned(),
            cells: cells
                .map(|cell| cell.unwrap_or_else(|| "-".to_owned()))
                .collect(),
            width,
            stays,
        }
    }

    /// No wider than what is in it.
    fn tighten(&mut self) {
        let cells = self.cells.iter().chain([&self.head]);
        self.width = cells
            .map(|cell| cell.chars().count())
            .max()
            .unwrap_or_default();
    }
}

fn print_rows<'a>(
    out: &mut impl Write,
    descriptor: &Descriptor,
    rows: impl Iterator<Item = &'a RowReport>,
    terminal: Option<usize>,
) -> io::Result<()> {
    let lines: Vec<(String, Summary, bool)> = rows.flat_map(lines_of).collect();
    let known = |column: &Column| {
        lines
            .iter()
            .any(|(_, of, _)| of.value(column.value).is_some())
    };
    let name = descriptor.row.to_uppercase().replace('_', " ");
    let widest = lines.iter().map(|(key, ..)| key.chars().count()).max();
    let widest = widest.unwrap_or_default().max(name.len());
    let mut names = widest.max(NAMES);
    let counted = descriptor.counted(false);
    let known = descriptor.columns.iter().filter(|one| known(one));
    let mut columns: Vec<Cells> = known
        .map(|column| {
            let cells = lines.iter().map(|(_, of, part)| {
                let shown = descriptor.shown(column.value, of);
                let shown = shown.filter(|_| column.of_parts || !part);
                shown.map(|shown| match is_the_least(of.error(column.value)) {
                    true => format!("≥{shown}"),
                    false => shown,
                })
            });
            let stays = Some(column.value) == counted || column.name == "count";
            Cells::of(column.head, cells.collect(), WIDE, stays)
        })
        .collect();
    let shares = lines.iter().map(|(_, of, _)| of.share().percent());
    let shares = shares.map(|share| share.map(|share| format!("{share}%")));
    columns.push(Cells::of("SAMPLED", shares.collect(), SHARE, true));
    if lines.iter().any(|(_, of, _)| of.share().is_sampled()) {
        let errors = lines
            .iter()
            .map(|(_, of, part)| descriptor.error(of, *part).map(numbers::plus_or_minus));
        columns.push(Cells::of("ERROR", errors.collect(), SHARE, true));
    }
    let left_out = match terminal {
        Some(terminal) => fit(terminal, widest, &mut names, &mut columns),
        None => Vec::new(),
    };
    write!(out, "{name:<names$}")?;
    for Cells { head, width, .. } in &columns {
        write!(out, " {head:>width$}")?;
    }
    writeln!(out)?;
    for (place, (key, ..)) in lines.iter().enumerate() {
        write!(out, "{key:<names$}")?;
        for Cells { cells, width, .. } in &columns {
            let cell = cells.get(place).map_or("-", String::as_str);
            write!(out, " {cell:>width$}")?;
        }
        writeln!(out)?;
    }
    if !left_out.is_empty() {
        writeln!(out, "in a wider terminal: {}", left_out.join(", "))?;
    }
    Ok(())
}

/// Makes a table as wide as a terminal at the most: columns as narrow as what is in them, and where that is not enough without the last of those
/// that need not stay, whose heads are the answer.
fn fit(terminal: usize, widest: usize, names: &mut usize, columns: &mut Vec<Cells>) -> Vec<String> {
    let width = |names: usize, columns: &[Cells]| {
        let columns = columns.iter().map(|column| column.width + 1);
        names + columns.sum::<usize>()
    };
    if width(*names, columns) <= terminal {
        return Vec::new();
    }
    *names = widest;
    columns.iter_mut().for_each(Cells::tighten);
    let mut left_out = Vec::new();
    while width(*names, columns) > terminal
        && let Some(place) = columns.iter().rposition(|column| !column.stays)
    {
        left_out.push(columns.remove(place).head);
    }
    left_out.reverse();
    left_out
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
    use ckb_probe_crds::{
        Distribution, Figures, IntervalFigures, Kind, Variance, histogram::bucket,
    };

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
        print_rows(&mut out, kind.unwrap().descriptor(), rows.iter(), None).unwrap();
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
            print_rows(
                &mut out,
                kind.unwrap().descriptor(),
                [row].into_iter(),
                None,
            )
            .unwrap();
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
    fn in_a_terminal_it_is_no_wider_and_says_what_is_left_out() {
        let kind = Kind::ALL.iter().find(|kind| kind.as_str() == "rocksdb");
        let rows = ["Get", "IteratorNext"].map(|key| {
            let mut row = row(key, 0, 336, 0.0);
            let values = Distribution {
                histogram: [(bucket(1_800), 7000)].into_iter().collect(),
                sum: 7000 * 1_800,
                unmeasured: 0,
            };
            let figures = &mut row.window.figures;
            figures.distributions = [("duration".into(), values)].into();
            figures.maxima = [("duration".into(), 1_810)].into();
            figures.sums = [
                ("slow".into(), 3),
                ("bytes".into(), 300),
                ("written".into(), 400),
            ]
            .into();
            row.total = figures.clone();
            row
        });
        let print = |width| {
            let mut out = Vec::new();
            print_rows(&mut out, kind.unwrap().descriptor(), rows.iter(), width).unwrap();
            String::from_utf8(out).unwrap()
        };
        let wide = print(None);
        let most = |text: &str| text.lines().map(|line| line.chars().count()).max().unwrap();
        assert!(most(&wide) > 100, "{wide}");
        assert_eq!(print(Some(200)), wide, "there is room");
        for width in [80, 60] {
            let text = print(Some(width));
            assert!(most(&text) <= width, "{width}: {text}");
            let head = text.lines().next().unwrap();
            for stays in ["OPERATION", "PER SECOND", "COUNT", "SAMPLED", "ERROR"] {
                assert!(head.contains(stays), "{width}: {text}");
            }
            let last = text.lines().last().unwrap();
            assert!(last.starts_with("in a wider terminal: "), "{text}");
        }
        assert!(print(Some(80)).contains("P99"));
    }

    #[test]
    fn errors_are_numbers_of_percent() {
        assert_eq!(percent(Some(0.0412)), Some(4.1));
        assert_eq!(percent(None), None);
        assert_eq!(percent(Some(f64::INFINITY)), None);
    }
}
