//! The report: a row for each figure, printed as it is measured, and written as Markdown and as JSON.

use std::fmt::Write as _;

use k8s_openapi::jiff::Timestamp;
use serde::Serialize;

use super::{machine::Machine, prelude::*, reasons::reason, statistics::Summary};
use crate::report::Value;

/// One figure.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Row {
    /// The family, and what was measured.
    pub name: String,
    /// The figure: a median where there are several values. Unset when it could not be measured, or is not there.
    pub value: Option<f64>,
    /// The unit of the figure.
    pub unit: String,
    /// What it must be; unset where it is there for comparison only.
    pub bound: Option<String>,
    /// Whether it is.
    pub met: Option<bool>,
    /// The least and the greatest of the values.
    pub spread: Option<[f64; 2]>,
    /// How many values there are.
    pub values: usize,
    /// Why it is not as it must be, as far as that has been found out.
    pub why: Option<String>,
}

/// All rows so far.
#[derive(Debug)]
pub struct Report {
    title: &'static str,
    method: &'static str,
    start: Instant,
    rows: Vec<Row>,
}

impl Default for Report {
    fn default() -> Self {
        Self::new(
            "What probing costs, and how true its figures are",
            "Measured by `make bench`. The method is in docs/performance.md.",
        )
    }
}

/// What report.json holds.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Document<'a> {
    measured_at: String,
    seconds: u64,
    machine: &'a Machine,
    rows: &'a [Row],
    #[serde(skip)]
    title: &'static str,
    #[serde(skip)]
    method: &'static str,
}

impl Report {
    /// One with this title, and a sentence on how its figures come about.
    pub fn new(title: &'static str, method: &'static str) -> Self {
        Self {
            title,
            method,
            start: Instant::now(),
            rows: Vec::new(),
        }
    }

    /// All rows so far.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// Since the report was begun.
    pub fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// Adds a figure, with a bound or for comparison, and prints it.
    pub fn figure(
        &mut self,
        name: impl Into<String>,
        figure: Summary,
        unit: &str,
        bound: Option<Bound>,
    ) {
        let name = name.into();
        let met = bound.map(|bound| bound.is_met_by(figure.median));
        let spread = (figure.values > 1).then(|| [rounded(figure.least), rounded(figure.most)]);
        self.add(Row {
            value: Some(rounded(figure.median)),
            unit: unit.to_string(),
            bound: bound.map(|bound| bound.to_string()),
            met,
            spread,
            values: figure.values,
            why: (met == Some(false))
                .then(|| reason(&name).map(str::to_string))
                .flatten(),
            name,
        });
    }

    /// Adds a figure of a single value.
    pub fn value(
        &mut self,
        name: impl Into<String>,
        value: impl Value,
        unit: &str,
        bound: Option<Bound>,
    ) {
        self.figure(name, Summary::of_one(value.value()), unit, bound);
    }

    /// Adds what could not be measured, and prints it.
    pub fn failure(&mut self, name: impl Into<String>, why: impl Into<String>) {
        self.add(Row {
            name: name.into(),
            bound: Some("measured".to_string()),
            met: Some(false),
            why: Some(why.into()),
            ..Row::default()
        });
    }

    /// Adds what this machine does not have, so that there is nothing to be measured, and prints it.
    pub fn absent(&mut self, name: impl Into<String>, why: impl Into<String>) {
        self.add(Row {
            name: name.into(),
            why: Some(why.into()),
            ..Row::default()
        });
    }

    fn add(&mut self, row: Row) {
        let seconds = self.elapsed().as_secs_f64();
        println!("{seconds:7.1} s  {}", line(&row));
        self.rows.push(row);
    }

    /// Whether everything could be measured that there is.
    pub fn is_complete(&self) -> bool {
        let failed = |row: &Row| row.value.is_none() && row.met.is_some();
        !self.rows.iter().any(failed)
    }

    /// How many rows are as they must be, and how many are not.
    pub fn tally(&self) -> (usize, usize) {
        let count = |met| self.rows.iter().filter(|row| row.met == Some(met)).count();
        (count(true), count(false))
    }

    /// Writes report.md and report.json into a folder.
    pub fn write(&self, folder: &Path, machine: &Machine) -> Result<()> {
        let document = Document {
            measured_at: Timestamp::now().strftime("%Y-%m-%d %H:%M UTC").to_string(),
            seconds: self.elapsed().as_secs(),
            machine,
            rows: &self.rows,
            title: self.title,
            method: self.method,
        };
        let json =
            serde_json::to_string_pretty(&document).map_err(Failure::format("the report"))?;
        fs::create_dir_all(folder)
            .and_then(|()| fs::write(folder.join("report.json"), json + "\n"))
            .and_then(|()| fs::write(folder.join("report.md"), markdown(&document)))
            .map_err(Failure::system(format!(
                "cannot write to {}",
                folder.display()
            )))
    }
}

/// A row for a terminal.
fn line(row: &Row) -> String {
    let verdict = match row.met {
        Some(true) => "met   ",
        Some(false) => "MISSED",
        None => "      ",
    };
    let mut line = format!("{verdict}  {}: {}", row.name, value(row));
    if let Some(bound) = &row.bound {
        let _ = write!(line, " ({bound})");
    }
    if let Some([least, most]) = row.spread {
        let _ = write!(line, ", from {least} to {most} in {}", row.values);
    }
    if let Some(why) = &row.why {
        let _ = write!(line, "\n                   {why}");
    }
    line
}

fn value(row: &Row) -> String {
    match row.value {
        Some(value) => format!("{value} {}", row.unit).trim_end().to_string(),
        None if row.met.is_none() => "not there".to_string(),
        None => "not measured".to_string(),
    }
}

fn markdown(document: &Document<'_>) -> String {
    let Machine {
        cpu,
        cores,
        memory_bytes,
        kernel,
        ckb_probe,
        ckb,
        bpftrace,
        rustc,
    } = document.machine;
    let mut text = format!(
        "# {}\n\n{} This was on {} ({} s).\n\n\
         | | |\n| --- | --- |\n\
         | CPU | {cpu}, {cores} cores |\n\
         | memory | {:.1} GiB |\n\
         | kernel | {kernel} |\n\
         | ckb-probe | {ckb_probe} |\n",
        document.title,
        document.method,
        document.measured_at,
        document.seconds,
        *memory_bytes as f64 / f64::from(1 << 30),
        cpu = cell(cpu),
    );
    let versions = [("CKB", ckb), ("bpftrace", bpftrace)];
    for (name, version) in versions {
        if let Some(version) = version {
            let _ = writeln!(text, "| {name} | {version} |");
        }
    }
    let _ = write!(
        text,
        "| rustc | {rustc} |\n\n\
         | what | value | bound | met | spread | values | why |\n\
         | --- | ---: | --- | --- | --- | ---: | --- |\n",
    );
    for row in document.rows {
        let met = match row.met {
            Some(true) => "yes",
            Some(false) => "**no**",
            None => "",
        };
        let spread = row
            .spread
            .map_or_else(String::new, |[least, most]| format!("{least} to {most}"));
        let cells = [
            row.name.as_str(),
            &value(row),
            row.bound.as_deref().unwrap_or_default(),
            met,
            &spread,
            &row.values.to_string(),
            row.why.as_deref().unwrap_or_default(),
        ];
        let _ = writeln!(text, "| {} |", cells.map(cell).join(" | "));
    }
    text
}

/// What may stand between two bars of a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

#[cfg(test)]
mod tests;
