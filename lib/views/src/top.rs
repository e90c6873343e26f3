//! What `top` shows of a moment: each probe of each target, with its rows. A figure that was not seen is not there, which is not zero.

mod gathered;
#[cfg(test)]
mod tests;

pub use gathered::{of_cluster, of_reports};

use ckb_probe_crds::{
    Descriptor, IntervalFigures, RowReport, RowStatus, Summary, Value, descriptor::Unit, numbers,
};

use crate::{
    document::{Top, TopRow, TopTarget},
    text::neutral,
};

/// All that is shown of a moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Moment {
    /// What measuring is estimated to cost, as a status says it.
    pub cost: Option<String>,
    /// Each probe of each target.
    pub targets: Vec<Target>,
}

/// A probe of a target.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Target {
    /// The CkbProbe, `namespace/name`; on a host the process.
    pub subject: String,
    /// What people call it: the pod and its container.
    pub name: String,
    /// The name of the probe; empty of a target of which no probe tells anything.
    pub probe: String,
    /// Its kind.
    pub kind: String,
    /// Why there are no figures of it, in a word and a sentence; None where it is measured.
    pub lost: Option<(String, String)>,
    /// Of another report, another number.
    pub stamp: u64,
    /// How long its last report interval was, in milliseconds; 0 where that is not known.
    pub interval_ms: u64,
    /// All rows together that are part of the whole.
    pub all: Row,
    /// Its rows, the busiest first.
    pub rows: Vec<Row>,
}

/// Figures of the last report interval.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Row {
    /// What the row is called; empty of all rows together.
    pub key: String,
    /// How many a second.
    pub rate: Option<Figure>,
    /// All but one of a hundred took no longer.
    pub p99: Option<Figure>,
    /// For how much of the time calls were under way, in percent; of two at a time, 200.
    pub time: Option<Figure>,
    /// The standard error of the rate, such as `±4.1%`, or `at least`; None where all was seen.
    pub error: Option<String>,
    /// In how many percent of the targets' own time calls were recorded.
    pub sampled: Option<String>,
}

/// A number, and how people read it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figure {
    /// To order by.
    pub number: f64,
    /// To read: with `≥` before it where it is the least that there was.
    pub shown: String,
}

impl Figure {
    fn new(number: f64, shown: String, is_the_least: bool) -> Self {
        let shown = match is_the_least {
            true => format!("≥{shown}"),
            false => shown,
        };
        Self { number, shown }
    }
}

/// What its kind says a row is shown by.
struct Shown {
    descriptor: &'static Descriptor,
    rate: Option<Value>,
    p99: Option<Value>,
    duration: Option<&'static str>,
}

impl Shown {
    fn of(descriptor: &'static Descriptor) -> Self {
        let rate = descriptor.counted(false);
        let mut columns = descriptor.columns.iter().map(|one| one.value);
        let is_p99 =
            |value: &Value| matches!(value, Value::Quantile(_, quantile) if *quantile == 0.99);
        let duration = rate
            .map(Value::measure)
            .filter(|name| descriptor.unit(name) == Unit::Nanoseconds);
        Self {
            descriptor,
            rate,
            p99: columns.find(is_p99),
            duration,
        }
    }

    fn row(&self, key: &str, of: &Summary, time: Option<Figure>) -> Row {
        let figure = |value: Value| {
            let least = of.error(value).is_some_and(f64::is_infinite);
            let shown = self.descriptor.shown(value, of)?;
            Some(Figure::new(of.value(value)?, shown, least))
        };
        Row {
            key: key.to_owned(),
            rate: self.rate.and_then(figure),
            p99: self.p99.and_then(figure),
            time,
            error: self.descriptor.error(of, false).map(numbers::plus_or_minus),
            sampled: of.share().percent(),
        }
    }
}

/// Milliseconds, and the time of calls within them.
#[derive(Clone, Copy, Default)]
struct Busy {
    nanos: u128,
    is_the_least: bool,
}

impl Busy {
    /// None where that was not seen.
    fn of(window: &IntervalFigures, measure: Option<&str>) -> Option<Self> {
        let values = window.figures.distributions.get(measure?)?;
        let sampled = window.recorded_milliseconds < window.milliseconds;
        let is_seen = window.recorded_milliseconds > 0 && (values.count() > 0 || !sampled);
        is_seen.then(|| Self {
            nanos: values.sum.into(),
            // Of what was counted and not timed, nobody knows how long it took.
            is_the_least: values.unmeasured > 0
                || window
                    .figures
                    .relative_error(measure.unwrap_or_default())
                    .is_some_and(f64::is_infinite),
        })
    }

    fn figure(self, milliseconds: u64) -> Option<Figure> {
        let whole = (milliseconds > 0).then_some(milliseconds as f64 * 1e6)?;
        let percent = self.nanos as f64 * 100.0 / whole;
        let shown = format!("{}%", numbers::rate(percent));
        Some(Figure::new(percent, shown, self.is_the_least))
    }
}

/// All rows of a probe together, and each.
fn rows(descriptor: &'static Descriptor, reports: &[RowReport]) -> (Row, Vec<Row>, u64) {
    let shown = Shown::of(descriptor);
    let interval = reports.iter().map(|one| one.window.milliseconds).max();
    let interval = interval.unwrap_or_default();
    let mut whole = Summary::default();
    let mut all: Option<Busy> = None;
    let mut any_unseen = false;
    let mut each: Vec<(Summary, Row)> = Vec::new();
    for report in reports {
        let RowReport {
            key, total, window, ..
        } = report;
        let busy = Busy::of(window, shown.duration);
        let of = Summary::of(total, window, true);
        if !(descriptor.apart)(key) {
            whole.merge(&of);
            if let Some(busy) = busy {
                let all = all.get_or_insert_default();
                all.nanos += busy.nanos;
                all.is_the_least |= busy.is_the_least;
            }
            any_unseen |= shown.duration.is_some_and(|name| of.is_unseen(name));
        }
        let time = busy.and_then(|busy| busy.figure(window.milliseconds));
        let row = shown.row(key, &of, time);
        each.push((of, row));
    }
    each.sort_by(|(a, a_row), (b, b_row)| descriptor.order((&a_row.key, a), (&b_row.key, b)));
    let time = all.and_then(|mut all| {
        all.is_the_least |= any_unseen;
        all.figure(interval)
    });
    let all = shown.row("", &whole, time);
    (
        all,
        each.into_iter().map(|(_, row)| row).collect(),
        interval,
    )
}

/// A row as a status has it: all targets together. For how much of the time calls were under way a status does not say.
fn of_status(descriptor: &'static Descriptor, row: &RowStatus) -> Row {
    let Shown { rate, p99, .. } = Shown::of(descriptor);
    let figure = |wanted: Option<Value>, least: bool| {
        let mut columns = descriptor.columns.iter();
        let column = columns.find(|column| Some(column.value) == wanted)?;
        let shown = row.figures.get(column.name)?;
        let number = nanos(shown).map_or_else(|| shown.parse().ok(), |nanos| Some(nanos as f64));
        Some(Figure::new(number?, shown.clone(), least))
    };
    Row {
        key: row.key.clone(),
        rate: figure(rate, row.error.as_deref() == Some("at least")),
        p99: figure(p99, false),
        time: None,
        error: row.error.clone(),
        sampled: row.sampling_percent.clone(),
    }
}

/// What [`ckb_probe_crds::display_nanos`] wrote, in nanoseconds.
pub fn nanos(text: &str) -> Option<u64> {
    let digits = text.find(|one: char| !one.is_ascii_digit() && one != '.')?;
    let (number, unit) = text.split_at(digits);
    let scale = match unit {
        "ns" => 1.0,
        "us" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        _ => return None,
    };
    let number: f64 = number.parse().ok()?;
    Some((number * scale).round() as u64)
}

impl Moment {
    /// For programs.
    pub fn document(&self) -> Top {
        Top {
            cost: self.cost.clone(),
            targets: self.targets.iter().map(Target::document).collect(),
        }
    }

    /// Without what could move a cursor, or change what others wrote beside it: names are a tenant's.
    #[must_use]
    pub fn neutral(mut self) -> Self {
        let clean = |text: &mut String| *text = neutral(text);
        self.cost.iter_mut().for_each(clean);
        for target in &mut self.targets {
            clean(&mut target.subject);
            clean(&mut target.name);
            clean(&mut target.probe);
            if let Some((reason, message)) = &mut target.lost {
                clean(reason);
                clean(message);
            }
            for row in &mut target.rows {
                clean(&mut row.key);
                let figures = [&mut row.rate, &mut row.p99, &mut row.time];
                for figure in figures.into_iter().flatten() {
                    clean(&mut figure.shown);
                }
                row.error.iter_mut().for_each(clean);
            }
        }
        self
    }
}

impl Target {
    fn document(&self) -> TopTarget {
        let Self {
            subject,
            name,
            probe,
            kind,
            lost,
            stamp: _,
            interval_ms,
            all: _,
            rows,
        } = self;
        TopTarget {
            subject: subject.clone(),
            target: name.clone(),
            probe: probe.clone(),
            kind: kind.clone(),
            reason: lost.as_ref().map(|(reason, _)| reason.clone()),
            message: lost.as_ref().map(|(_, message)| message.clone()),
            interval_milliseconds: *interval_ms,
            rows: rows.iter().map(Row::document).collect(),
        }
    }
}

impl Row {
    fn document(&self) -> TopRow {
        let Self {
            key,
            rate,
            p99,
            time,
            error,
            sampled,
        } = self;
        let bare = |figure: &Option<Figure>| {
            let shown = &figure.as_ref()?.shown;
            Some(shown.trim_start_matches('≥').to_owned())
        };
        let is_the_least = |figure: &Option<Figure>| {
            figure
                .as_ref()
                .is_some_and(|one| one.shown.starts_with('≥'))
        };
        TopRow {
            row: key.clone(),
            per_second: bare(rate),
            p99: bare(p99),
            time_percent: bare(time).map(|shown| shown.trim_end_matches('%').to_owned()),
            error: error.clone(),
            sampling_percent: sampled.clone(),
            rate_is_at_least: is_the_least(rate),
            time_is_at_least: is_the_least(time),
        }
    }
}
