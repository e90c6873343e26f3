//! The report: one row for each figure, printed as it is measured and written as JSON at the end.

use std::{
    fmt,
    path::Path,
    time::{Duration, Instant},
};

use serde::Serialize;

use crate::failure::{Failure, Result};

/// What a figure must be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bound {
    /// This or less.
    AtMost(f64),
    /// This or more.
    AtLeast(f64),
    /// More than this.
    Above(f64),
    /// Exactly this.
    Exactly(f64),
    /// No further from zero than this.
    Within(f64),
}

impl Bound {
    /// Whether a figure is as it must be.
    pub fn is_met_by(self, value: f64) -> bool {
        match self {
            Self::AtMost(most) => value <= most,
            Self::AtLeast(least) => value >= least,
            Self::Above(limit) => value > limit,
            Self::Exactly(wanted) => value == wanted,
            Self::Within(most) => value.abs() <= most,
        }
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtMost(bound) => write!(f, "<= {bound}"),
            Self::AtLeast(bound) => write!(f, ">= {bound}"),
            Self::Above(bound) => write!(f, "> {bound}"),
            Self::Exactly(bound) => write!(f, "= {bound}"),
            Self::Within(bound) => write!(f, "±{bound}"),
        }
    }
}

/// One figure.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The scenario, and what was measured.
    pub name: String,
    /// The figure; unset when it could not be measured.
    pub value: Option<f64>,
    /// Its unit.
    pub unit: String,
    /// What it must be.
    pub bound: String,
    /// Whether it is.
    pub met: bool,
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.value {
            Some(value) => write!(f, "{}: {value} {} ({})", self.name, self.unit, self.bound),
            None => write!(f, "{}: not measured ({})", self.name, self.bound),
        }
    }
}

/// All rows so far.
#[derive(Debug)]
pub struct Report {
    start: Instant,
    rows: Vec<Row>,
}

impl Default for Report {
    fn default() -> Self {
        Self {
            start: Instant::now(),
            rows: Vec::new(),
        }
    }
}

impl Report {
    /// Since the report was begun.
    pub fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// Adds a figure and prints it.
    pub fn figure(&mut self, name: String, value: f64, unit: &str, bound: Bound) {
        self.add(Row {
            name,
            value: Some((value * 1000.0).round() / 1000.0),
            unit: unit.to_string(),
            bound: bound.to_string(),
            met: bound.is_met_by(value),
        });
    }

    /// Adds a figure that could not be measured and prints it.
    pub fn failure(&mut self, name: String) {
        self.add(Row {
            name,
            value: None,
            unit: String::new(),
            bound: "measured".to_string(),
            met: false,
        });
    }

    fn add(&mut self, row: Row) {
        let verdict = if row.met { "ok  " } else { "FAIL" };
        println!("{:6.1} s  {verdict}  {row}", self.elapsed().as_secs_f64());
        self.rows.push(row);
    }

    /// Prints once more, where it is not overlooked, what is not as it must be.
    pub fn repeat_failures(&self) {
        for row in self.rows.iter().filter(|row| !row.met) {
            println!("FAILED  {row}");
        }
    }

    /// How many rows are as they must be, and how many are not.
    pub fn tally(&self) -> (usize, usize) {
        let passed = self.rows.iter().filter(|row| row.met).count();
        (passed, self.rows.len() - passed)
    }

    /// Writes the rows.
    pub fn write(&self, path: &Path) -> Result<()> {
        let text =
            serde_json::to_string_pretty(&self.rows).map_err(Failure::format("the report"))?;
        let folder = path.parent().unwrap_or(Path::new("."));
        std::fs::create_dir_all(folder)
            .and_then(|()| std::fs::write(path, text + "\n"))
            .map_err(Failure::system(format!("cannot write {}", path.display())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_is_met_by_what_its_sign_says() {
        for (bound, text, met, missed) in [
            (Bound::AtMost(2.0), "<= 2", 2.0, 2.1),
            (Bound::AtLeast(2.0), ">= 2", 2.0, 1.9),
            (Bound::Above(0.0), "> 0", 0.1, 0.0),
            (Bound::Exactly(3.0), "= 3", 3.0, 2.0),
            (Bound::Within(2.0), "±2", -2.0, -2.1),
        ] {
            assert_eq!(bound.to_string(), text);
            assert!(bound.is_met_by(met) && !bound.is_met_by(missed), "{text}");
        }
    }

    #[test]
    fn what_is_missed_or_not_measured_has_failed() {
        let mut report = Report::default();
        report.figure("a".to_string(), 1.0, "s", Bound::AtMost(2.0));
        report.figure("b".to_string(), 3.0, "s", Bound::AtMost(2.0));
        report.failure("c".to_string());
        assert_eq!(report.tally(), (1, 2));
    }
}
