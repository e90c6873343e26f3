//! What a kind of probe gives: the names, units and meanings of its figures, said once. Metrics and their reference, the
//! columns of statuses and tables, and headlines are made from this.

pub mod calls;

use std::{borrow::Borrow, cmp::Ordering, collections::BTreeMap};

use crate::{Name, Reason, Summary, Value, display_nanos, numbers};

/// What a kind gives.
#[derive(Debug)]
pub struct Descriptor {
    /// What a row is, as a metric's label: `operation`.
    pub row: &'static str,
    /// What a row's parts are: `column_family`.
    pub part: Option<&'static str>,
    /// Its measures; at most [`crate::figures::MAX_MEASURES`].
    pub measures: &'static [Measure],
    /// What is shown of a row, the most important first: rows are listed by the first of them, the greatest first.
    pub columns: &'static [Column],
    /// Levels by whose parts a row is divided in the headline: by the first of them that it has. None: rows are not divided there.
    pub split: &'static [&'static str],
    /// What is said of all rows together.
    pub headline: &'static [Phrase],
    /// What Prometheus is told.
    pub metrics: &'static [Metric],
    /// What a person must see to in the target itself. The gravest first.
    pub alarms: &'static [Alarm],
    /// Rows that are no part of the whole: background work, or waiting that nobody waits for.
    pub apart: fn(row: &str) -> bool,
    /// Rows of what the target does on its own account, each of which takes its time: what ran beside whatever else was so.
    pub background: fn(row: &str) -> bool,
    /// Whether a probe that has nothing to tell is well all the same.
    pub quiet: bool,
}

/// One measure of a kind.
#[derive(Debug)]
pub struct Measure {
    /// The name of the measure.
    pub name: &'static str,
    /// What its numbers count.
    pub unit: Unit,
    /// How two of it become one.
    pub merge: Merge,
}

/// What a measure's numbers count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Numbers of things.
    Count,
    /// Nanoseconds.
    Nanoseconds,
    /// Bytes.
    Bytes,
}

/// How two figures of one measure become one: see [`crate::figures`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Merge {
    /// They add.
    Sum,
    /// The greater one stays.
    Maximum,
    /// The newest of each target; they add over targets.
    Level,
    /// Histograms.
    Distribution,
}

/// One figure of a row, as statuses and tables show it.
#[derive(Debug)]
pub struct Column {
    /// Its key among the figures of a status.
    pub name: &'static str,
    /// Its head in a table.
    pub head: &'static str,
    /// The value that the column shows.
    pub value: Value,
    /// Whether the parts of a row have it too.
    pub of_parts: bool,
}

/// A few words of a headline: `p99 41us`.
#[derive(Clone, Copy, Debug)]
pub struct Phrase {
    /// Before the value.
    pub before: &'static str,
    /// The value.
    pub value: Value,
    /// After it.
    pub after: &'static str,
    /// Whether it is said where the value is zero.
    pub of_zero: bool,
}

/// One family of metrics.
#[derive(Debug)]
pub struct Metric {
    /// The name of the metric.
    pub name: &'static str,
    /// What it means, in a sentence.
    pub help: &'static str,
    /// How the measure is exported.
    pub export: Export,
    /// Whether it is of the parts of rows instead of the rows.
    pub of_parts: bool,
    /// What these parts are, as the metric's label, where that is not what parts of the kind's rows are.
    pub part: Option<&'static str>,
}

/// Something that a person must see to in the target itself: a row of which a value is greater than this.
#[derive(Debug)]
pub struct Alarm {
    /// The word for it.
    pub reason: Reason,
    /// The rows that it is about.
    pub rows: fn(row: &str) -> bool,
    /// The value.
    pub value: Value,
    /// How much of it is no reason for alarm.
    pub borne: Borne,
    /// Of which there must be as much for the value to say anything.
    pub rests_on: Option<(Value, f64)>,
    /// What that means, as the end of a sentence.
    pub says: &'static str,
}

/// How much of a value is no reason for alarm.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Borne {
    /// As much as that for each second of the last report interval.
    PerSecond(f64),
    /// As much as that, however long the interval was.
    Always(f64),
}

/// How a measure becomes a metric. Each names the measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Export {
    /// A distribution, as a histogram: in seconds where the unit is nanoseconds.
    Histogram(&'static str),
    /// A sum or the number of a distribution's values, as a counter: in seconds where the unit is nanoseconds.
    Counter(&'static str),
    /// A level, as a gauge.
    Gauge(&'static str),
}

impl Export {
    /// Prometheus' word for the type.
    pub fn type_name(self) -> &'static str {
        match self {
            Self::Histogram(_) => "histogram",
            Self::Counter(_) => "counter",
            Self::Gauge(_) => "gauge",
        }
    }

    /// The measure.
    pub fn measure(self) -> &'static str {
        match self {
            Self::Histogram(measure) | Self::Counter(measure) | Self::Gauge(measure) => measure,
        }
    }
}

/// So many parts of a row are told in a headline.
const PARTS_TOLD: usize = 4;

impl Descriptor {
    /// Nothing: what a kind does not say of itself. No row is apart.
    pub const EMPTY: Self = Self {
        row: "",
        part: None,
        measures: &[],
        columns: &[],
        split: &[],
        headline: &[],
        metrics: &[],
        alarms: &[],
        apart: |_| false,
        background: |_| false,
        quiet: false,
    };

    /// For which part of so many milliseconds what a row times was under way, where two at a time are 2; None where that is not known, or it times
    /// nothing.
    pub fn part_of_time(&self, of: &Summary, milliseconds: u64) -> Option<f64> {
        let mut measures = self.measures.iter();
        let times =
            measures.find(|one| (one.unit, one.merge) == (Unit::Nanoseconds, Merge::Distribution));
        let part = of.sum(times?.name)? / (milliseconds as f64 * 1e6);
        Some(part).filter(|part| part.is_finite())
    }

    /// The unit of a measure.
    pub fn unit(&self, measure: &str) -> Unit {
        let mut measures = self.measures.iter();
        measures
            .find(|known| known.name == measure)
            .map_or(Unit::Count, |known| known.unit)
    }

    /// A value as people read it; None where it is not known.
    pub fn shown(&self, value: Value, of: &Summary) -> Option<String> {
        let number = of.value(value)?;
        Some(match (value, self.unit(value.measure())) {
            (Value::Total(_) | Value::Recent(_), Unit::Nanoseconds)
                if of.is_distribution(value.measure()) =>
            {
                format!("{}", number as u64)
            }
            _ => self.written(value, number),
        })
    }

    /// A number as people read it, that such a value has; but of how many values a distribution has.
    pub fn written(&self, value: Value, number: f64) -> String {
        match (value, self.unit(value.measure())) {
            (
                Value::Percent(..)
                | Value::Portion(..)
                | Value::Each(..)
                | Value::EachInAll(..)
                | Value::Rate(_),
                _,
            ) => numbers::rate(number),
            (_, Unit::Nanoseconds) => display_nanos(number as u64),
            (_, Unit::Count | Unit::Bytes) => format!("{}", number as u64),
        }
    }

    /// A row's figures by their keys, as a status shows them.
    pub fn figures(&self, of: &Summary, part: bool) -> BTreeMap<String, String> {
        self.shown_columns(part)
            .filter_map(|column| Some((column.name.to_string(), self.shown(column.value, of)?)))
            .collect()
    }

    fn shown_columns(&self, part: bool) -> impl Iterator<Item = &Column> {
        let columns = self.columns.iter();
        columns.filter(move |column| column.of_parts || !part)
    }

    /// What is counted of a row, or of its parts: the first of the rates that are shown of it.
    pub fn counted(&self, part: bool) -> Option<Value> {
        let mut values = self.shown_columns(part).map(|column| column.value);
        values.find(|value| matches!(value, Value::Rate(_)))
    }

    /// The standard error of that, as a part of it; None where all was seen, or nothing.
    pub fn error(&self, of: &Summary, part: bool) -> Option<f64> {
        of.error(self.counted(part)?).filter(|error| *error > 0.0)
    }

    /// The standard error of the `count` since the agent attached, likewise.
    pub fn count_error(&self, of: &Summary, part: bool) -> Option<f64> {
        let count = self
            .shown_columns(part)
            .find(|column| column.name == "count")?;
        of.error(count.value).filter(|error| *error > 0.0)
    }

    /// All rows in a few words, but for those that are no part of the whole; empty where nothing is known. Where some were sampled, and
    /// nothing was seen of them, there was more than that, and how many they are is said.
    pub fn headline_of<'a, S: Borrow<Summary>>(
        &self,
        rows: impl Iterator<Item = (&'a str, S)>,
    ) -> String {
        let counted = self.counted(false);
        let (mut whole, mut unseen) = (Summary::default(), 0_usize);
        for (_, row) in rows.filter(|(key, _)| !(self.apart)(key)) {
            let row = row.borrow();
            unseen += usize::from(counted.is_some_and(|value| row.is_unseen(value.measure())));
            whole.merge(row);
        }
        let headline = self.headline(&whole);
        match (headline.is_empty(), unseen) {
            (true, _) | (_, 0) => headline,
            (_, 1) => format!("{headline}, 1 row not seen"),
            (_, rows) => format!("{headline}, {rows} rows not seen"),
        }
    }

    /// All of it in a few words; empty where nothing is known. Before what is the least that there was is `≥`.
    fn headline(&self, of: &Summary) -> String {
        let mut words = Vec::new();
        for Phrase {
            before,
            value,
            after,
            of_zero,
        } in self.headline
        {
            if let Some(number) = of.value(*value)
                && (*of_zero || number > 0.0)
                && let Some(shown) = self.shown(*value, of)
            {
                let least = match of.error(*value) {
                    Some(error) if error.is_infinite() => "≥",
                    _ => "",
                };
                words.push(format!("{before}{least}{shown}{after}"));
            }
        }
        words.join(" ")
    }

    /// How rows divide, each given with its parts: `Cpu: scripts 41 %, rocksdb read 22 %`. Of a row the greatest parts are told, or that
    /// there is `nothing` to divide; empty where none has parts to tell.
    pub fn split<'a>(
        &self,
        rows: impl Iterator<Item = (&'a str, &'a Summary, Vec<(&'a str, &'a Summary)>)>,
    ) -> String {
        let rows = rows.filter_map(|(row, whole, parts)| {
            let level = |of: &Summary, measure| of.value(Value::Level(measure)).unwrap_or(0.0);
            let mut measures = self.split.iter();
            let measure = *measures.find(|measure| whole.value(Value::Level(measure)).is_some())?;
            let all = level(whole, measure);
            let mut parts: Vec<(f64, &str)> = parts
                .into_iter()
                .map(|(part, of)| (level(of, measure) * 100.0 / all, part))
                .filter(|(percent, _)| *percent >= 1.0 && percent.is_finite())
                .collect();
            parts.sort_by(|(a, a_name), (b, b_name)| b.total_cmp(a).then(a_name.cmp(b_name)));
            let told = parts.iter().take(PARTS_TOLD);
            let told: Vec<String> = told
                .map(|(percent, part)| format!("{part} {percent:.0} %"))
                .collect();
            match told.is_empty() {
                false => Some(format!("{row}: {}", told.join(", "))),
                true => (all == 0.0).then(|| format!("{row}: nothing")),
            }
        });
        rows.collect::<Vec<_>>().join("; ")
    }

    /// By how much a row comes before others.
    pub fn weight(&self, of: &Summary) -> f64 {
        let first = self.columns.first();
        first
            .and_then(|column| of.value(column.value))
            .unwrap_or(-1.0)
    }

    /// Orders rows, or parts: the weightier first, then the one of which there was more in all, then by name.
    pub fn order(&self, a: (&str, &Summary), b: (&str, &Summary)) -> Ordering {
        let total = |of: &Summary| {
            let measure = self.columns.first()?.value.measure();
            of.value(Value::Total(measure))
        };
        let ((a_name, a), (b_name, b)) = (a, b);
        self.weight(b)
            .total_cmp(&self.weight(a))
            .then_with(|| {
                let [a, b] = [a, b].map(|of| total(of).unwrap_or(-1.0));
                b.total_cmp(&a)
            })
            .then_with(|| a_name.cmp(b_name))
    }
}

impl Column {
    /// A figure of rows and of their parts.
    pub const fn new(name: &'static str, head: &'static str, value: Value) -> Self {
        Self {
            name,
            head,
            value,
            of_parts: true,
        }
    }

    /// The same of rows only.
    #[must_use]
    pub const fn of_rows(self) -> Self {
        Self {
            of_parts: false,
            ..self
        }
    }
}

impl Phrase {
    /// A few words.
    pub const fn new(before: &'static str, value: Value, after: &'static str) -> Self {
        Self {
            before,
            value,
            after,
            of_zero: true,
        }
    }

    /// The same, said only where the value is not zero.
    #[must_use]
    pub const fn unless_zero(self) -> Self {
        Self {
            of_zero: false,
            ..self
        }
    }
}

impl Metric {
    /// A distribution of rows, as a histogram.
    pub const fn histogram(name: &'static str, measure: &'static str, help: &'static str) -> Self {
        Self::new(name, Export::Histogram(measure), help)
    }

    /// A sum of rows, or how many values a distribution of theirs has.
    pub const fn counter(name: &'static str, measure: &'static str, help: &'static str) -> Self {
        Self::new(name, Export::Counter(measure), help)
    }

    /// A level of rows.
    pub const fn gauge(name: &'static str, measure: &'static str, help: &'static str) -> Self {
        Self::new(name, Export::Gauge(measure), help)
    }

    const fn new(name: &'static str, export: Export, help: &'static str) -> Self {
        Self {
            name,
            help,
            export,
            of_parts: false,
            part: None,
        }
    }

    /// The same, with this label for parts.
    #[must_use]
    pub const fn named(self, part: &'static str) -> Self {
        Self {
            part: Some(part),
            ..self
        }
    }

    /// The same of the parts of rows.
    #[must_use]
    pub const fn by_part(self) -> Self {
        Self {
            of_parts: true,
            ..self
        }
    }
}

/// Metrics, each by its type, its name and its measure. The comment above is what Prometheus is told it means, as that of a field is what
/// `kubectl explain` says.
macro_rules! metrics {
    ($($(#[doc = $help:literal])+ $export:ident($name:literal, $measure:literal)$(.$more:ident($($argument:literal)?))*,)*) => {
        &[$(
            $crate::descriptor::Metric::$export($name, $measure, concat!($($help),+).trim_ascii_start())$(.$more($($argument)?))*,
        )*]
    };
}
pub(crate) use metrics;

impl Measure {
    /// A measure.
    pub const fn new(name: &'static str, unit: Unit, merge: Merge) -> Self {
        Self { name, unit, merge }
    }

    /// Its name, as figures have it.
    pub const fn key(&self) -> Name {
        Name::Borrowed(self.name)
    }
}

#[cfg(test)]
mod tests;
