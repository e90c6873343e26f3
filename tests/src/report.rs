//! The report: one row for each figure, printed as it is measured and written as JSON at the end.

use std::{
    fmt,
    path::Path,
    sync::{Mutex, MutexGuard, PoisonError},
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

/// What a figure may be: a number; a time, in seconds; or whether something is so, which is 1 or 0.
pub trait Value {
    /// The figure.
    fn value(self) -> f64;
}

macro_rules! values {
    ($($number:ty),*) => {
        $(impl Value for $number {
            fn value(self) -> f64 {
                self as f64
            }
        })*
    };
}

values!(u8, u32, u64, usize, i32);

impl Value for f64 {
    fn value(self) -> f64 {
        self
    }
}

impl Value for Duration {
    fn value(self) -> f64 {
        self.as_secs_f64()
    }
}

impl Value for bool {
    fn value(self) -> f64 {
        f64::from(u8::from(self))
    }
}

/// One figure.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The scenario, and what was measured.
    pub name: String,
    /// The figure; unset when it could not be measured.
    pub value: Option<f64>,
    /// The unit of the figure.
    pub unit: String,
    /// What it must be; of what could not be measured, why not.
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

/// All rows so far, of all that play at the same time.
#[derive(Debug)]
pub struct Report {
    start: Instant,
    rows: Mutex<Vec<(usize, Row)>>,
}

/// Where a scenario's rows go: to its place in the report, whoever else plays meanwhile.
#[derive(Clone, Copy, Debug)]
pub struct Rows<'a> {
    report: &'a Report,
    scenario: &'static str,
    place: usize,
}

impl Default for Report {
    fn default() -> Self {
        Self {
            start: Instant::now(),
            rows: Mutex::default(),
        }
    }
}

impl Report {
    /// Since the report was begun.
    pub fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// Where the rows of a scenario go whose place among all of them is this.
    pub fn rows_of(&self, scenario: &'static str, place: usize) -> Rows<'_> {
        Rows {
            report: self,
            scenario,
            place,
        }
    }

    /// Prints once more, where it is not overlooked, what is not as it must be.
    pub fn repeat_failures(&self) {
        for row in self.sorted().iter().filter(|row| !row.met) {
            println!("FAILED  {row}");
        }
    }

    /// How many rows are as they must be, and how many are not.
    pub fn tally(&self) -> (usize, usize) {
        let rows = self.lock();
        let passed = rows.iter().filter(|(_, row)| row.met).count();
        (passed, rows.len() - passed)
    }

    /// Writes the rows, in the order of the scenarios.
    pub fn write(&self, path: &Path) -> Result<()> {
        let text =
            serde_json::to_string_pretty(&self.sorted()).map_err(Failure::format("the report"))?;
        let folder = path.parent().unwrap_or(Path::new("."));
        std::fs::create_dir_all(folder)
            .and_then(|()| std::fs::write(path, text + "\n"))
            .map_err(Failure::system(format!("cannot write {}", path.display())))
    }

    fn sorted(&self) -> Vec<Row> {
        let mut rows = self.lock().clone();
        rows.sort_by_key(|(place, _)| *place);
        rows.into_iter().map(|(_, row)| row).collect()
    }

    /// What a thread that panicked left behind is as good as any: a row is added whole.
    fn lock(&self) -> MutexGuard<'_, Vec<(usize, Row)>> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Rows<'_> {
    /// The scenario's name.
    pub fn scenario(&self) -> &'static str {
        self.scenario
    }

    /// Since the report was begun.
    pub fn elapsed(&self) -> Duration {
        self.report.elapsed()
    }

    /// Adds a figure and prints it.
    pub fn figure(&self, name: &str, value: impl Value, unit: &str, bound: Bound) {
        let value = value.value();
        self.add(Row {
            name: format!("{}: {name}", self.scenario),
            value: Some((value * 1000.0).round() / 1000.0),
            unit: unit.to_string(),
            bound: bound.to_string(),
            met: bound.is_met_by(value),
        });
    }

    /// Adds the scenario itself as what could not be measured, and prints that, and why.
    pub fn failure(&self, why: &str) {
        self.add(Row {
            name: self.scenario.to_string(),
            value: None,
            unit: String::new(),
            bound: why.to_string(),
            met: false,
        });
    }

    /// How many of them have failed so far.
    pub fn failed(&self) -> usize {
        let rows = self.report.lock();
        let own = rows.iter().filter(|(place, _)| *place == self.place);
        own.filter(|(_, row)| !row.met).count()
    }

    fn add(&self, row: Row) {
        let verdict = if row.met { "ok  " } else { "FAIL" };
        println!(
            "{:6.1} s  {verdict}  {row}",
            self.report.elapsed().as_secs_f64()
        );
        self.report.lock().push((self.place, row));
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
        let report = Report::default();
        let rows = report.rows_of("a", 0);
        rows.figure("b", 1.0, "s", Bound::AtMost(2.0));
        rows.figure("c", 3.0, "s", Bound::AtMost(2.0));
        rows.failure("the node went");
        assert_eq!(report.tally(), (1, 2));
        let told = report.sorted().pop().map(|row| row.to_string());
        assert_eq!(told.as_deref(), Some("a: not measured (the node went)"));
    }

    #[test]
    fn rows_are_in_the_order_of_scenarios_whoever_plays_first_and_failures_are_their_own() {
        let report = Report::default();
        let (first, second) = (report.rows_of("first", 0), report.rows_of("second", 1));
        second.failure("the node went");
        first.figure("a", 1.0, "s", Bound::AtMost(2.0));
        second.figure("b", 1.0, "s", Bound::AtMost(2.0));
        first.figure("c", 1.0, "s", Bound::AtMost(2.0));
        let names: Vec<String> = report.sorted().into_iter().map(|row| row.name).collect();
        assert_eq!(names, ["first: a", "first: c", "second", "second: b"]);
        assert_eq!((first.failed(), second.failed()), (0, 1));
    }
}
