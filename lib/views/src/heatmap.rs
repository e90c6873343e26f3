//! How long a row took, over time: a column for each report interval, a line for each range of latency, and in each cell the share of the
//! interval's calls that took so long.

use std::{collections::BTreeMap, fmt::Write as _, time::Duration};

use ckb_probe_crds::{
    CkbProbe, Histogram, Kind, NodeProbe, Probe, ProbeReport, descriptor::Merge, display_nanos,
};

use crate::{
    document::{Bar, Distribution},
    figures::cut,
    histogram::{self, Shown, Which, bars, unit, window},
    news::News,
    text::{WIDTH, one_line},
};

/// Before the cells: a bound, and the edge.
const LABEL: usize = 9;

/// So many intervals have room.
pub const COLUMNS: usize = WIDTH - LABEL - 2;

/// So many lines, from the slowest call on: what was quicker is together in the last.
const LINES: usize = 18;

/// The least percent of calls that a cell has which is drawn like this; any call at all is a dot.
const LEVELS: [(u64, char); 9] = [
    (75, '@'),
    (50, '%'),
    (35, '#'),
    (20, '*'),
    (10, '+'),
    (5, '='),
    (2, '-'),
    (1, ':'),
    (0, '.'),
];

/// What is drawn.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Heatmap {
    subject: String,
    probe: String,
    row: String,
    part: Option<String>,
    measure: String,
    unit: String,
    columns: Vec<Column>,
    /// How many intervals have left on the left.
    left: u64,
    targets: BTreeMap<String, News<Option<Histogram>>>,
    /// The column that is still to be completed: who is in it, and since when.
    open: Option<(Vec<String>, Duration)>,
}

/// An interval.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Column {
    /// When it was told, as `HH:MM:SS`.
    pub time: String,
    /// All targets together; None where nothing was told, which is not the same as no call.
    pub histogram: Option<Histogram>,
}

/// What a target told of its last interval.
#[derive(Clone, Debug, PartialEq)]
pub struct Told {
    /// Which target.
    pub target: String,
    /// Of another report, another number.
    pub stamp: u64,
    /// How long the interval was.
    pub interval: Duration,
    /// None where none of it was recorded.
    pub histogram: Option<Histogram>,
}

impl Heatmap {
    /// Of a row of this probe, of which nothing was told yet. None where there is no probe of that name with distributions.
    pub fn of(subject: &str, probes: &[Probe], which: Which<'_>) -> Option<Self> {
        let shown = Shown::of(probes, which.probe)?;
        Some(Self {
            subject: subject.to_owned(),
            probe: shown.name.to_owned(),
            row: which.row.unwrap_or_default().to_owned(),
            part: which.part.map(str::to_owned),
            measure: shown.measure.name.to_owned(),
            unit: unit(shown.measure.unit).to_owned(),
            ..Self::default()
        })
    }

    /// The row is the busiest, where nobody named one: from the first time that there is any.
    pub fn choose(&mut self, busiest: impl FnOnce() -> Option<String>) {
        if self.row.is_empty() {
            self.row = busiest().unwrap_or_default();
        }
    }

    /// What is shown.
    pub fn which(&self) -> Which<'_> {
        Which {
            probe: Some(&self.probe),
            row: Some(&self.row),
            part: self.part.as_deref(),
        }
    }

    /// How many intervals it has.
    pub fn len(&self) -> usize {
        self.columns.len()
    }

    /// Whether no call was told of yet.
    pub fn is_empty(&self) -> bool {
        let mut known = self.columns.iter().filter_map(|one| one.histogram.as_ref());
        known.all(|histogram| histogram.count() == 0)
    }

    /// Takes what is told now, at this time of the day. Returns the columns that are complete by that. What several targets tell one
    /// after the other, each once, is one column.
    pub fn take(&mut self, told: &[Told], now: Duration, time: &str) -> Vec<Distribution> {
        let mut complete = Vec::new();
        for one in told {
            let Told {
                target,
                stamp,
                interval,
                histogram,
            } = one;
            let is_new = match self.targets.get_mut(target) {
                Some(news) => news.take(*stamp, histogram.clone(), *interval, now),
                None => {
                    let news = News::first(*stamp, histogram.clone(), now);
                    self.targets.insert(target.clone(), news);
                    true
                }
            };
            if !is_new {
                continue;
            }
            if let Some((members, _)) = &self.open
                && members.contains(target)
            {
                complete.extend(self.close());
            }
            let (members, _) = self.open.get_or_insert_with(|| (Vec::new(), now));
            if members.is_empty() {
                self.columns.push(Column {
                    time: time.to_owned(),
                    histogram: None,
                });
            }
            members.push(target.clone());
            if let (Some(column), Some(histogram)) = (self.columns.last_mut(), histogram) {
                column.histogram.get_or_insert_default().merge(histogram);
            }
        }
        let interval = told.iter().map(|one| one.interval).max();
        complete.extend(self.gaps(interval.unwrap_or_default(), now, time));
        let over = self.columns.len().saturating_sub(COLUMNS);
        self.left += over as u64;
        self.columns.drain(..over);
        complete
    }

    /// Columns of which nobody tells anything.
    fn gaps(&mut self, interval: Duration, now: Duration, time: &str) -> Vec<Distribution> {
        let each = self.targets.values_mut();
        let missed = each.map(|news| news.missed(interval, now)).min();
        let missed = missed.unwrap_or_default();
        if missed == 0 {
            return Vec::new();
        }
        let complete = self.close();
        let gap = Column {
            time: time.to_owned(),
            histogram: None,
        };
        let gaps = usize::try_from(missed).unwrap_or(COLUMNS);
        self.columns.extend(vec![gap; gaps.min(COLUMNS)]);
        complete.into_iter().collect()
    }

    /// The last column is complete: nobody tells more of it.
    pub fn close(&mut self) -> Option<Distribution> {
        self.open.take()?;
        let Column { time, histogram } = self.columns.last()?;
        let histogram = histogram.as_ref()?;
        Some(Distribution {
            subject: self.subject.clone(),
            time: Some(time.clone()),
            probe: self.probe.clone(),
            row: self.row.clone(),
            part: self.part.clone(),
            measure: self.measure.clone(),
            unit: self.unit.clone(),
            count: histogram.count(),
            bars: bars(histogram),
        })
    }

    /// The picture, in 80 columns.
    pub fn text(&self) -> String {
        let part = self.part.as_deref();
        let part = part.map_or_else(String::new, |part| format!(" {part}"));
        let head = format!(
            "{} {}: {}{part}: {}, by report interval",
            self.subject, self.probe, self.row, self.measure
        );
        let mut text = cut(&one_line(&head), WIDTH) + "\n";
        let cells: Vec<Option<Vec<Bar>>> = self
            .columns
            .iter()
            .map(|column| column.histogram.as_ref().map(bars))
            .collect();
        let ranges = ranges(&cells);
        let quickest = quickest(&cells);
        for (place, (from, to)) in ranges.iter().enumerate() {
            let is_last = place + 1 == ranges.len();
            // What is quicker than the last line is in it.
            let least = if is_last { 0 } else { *from };
            let line: String = cells
                .iter()
                .map(|bars| match bars {
                    None => ' ',
                    Some(bars) => cell(bars, least, *to),
                })
                .collect();
            let label = match is_last && quickest < *from {
                true => format!("<{}", self.written(*to)),
                false if is_last || is_round(*from) => self.written(*from),
                false => String::new(),
            };
            let line = format!("{label:>LABEL$} |{line}");
            let _ = writeln!(text, "{}", line.trim_end());
        }
        let axis: String = self
            .columns
            .iter()
            .map(|column| match column.histogram {
                Some(_) => '-',
                None => '?',
            })
            .collect();
        let _ = writeln!(text, "{:LABEL$} +{axis}", "");
        if let (Some(first), Some(last)) = (self.columns.first(), self.columns.last()) {
            let gap = self
                .columns
                .len()
                .saturating_sub(first.time.len() + last.time.len());
            let last = match self.columns.len() > first.time.len() + 1 + last.time.len() {
                true => format!("{}{}", " ".repeat(gap), last.time),
                false => format!(" to {}", last.time),
            };
            let _ = writeln!(text, "{:LABEL$}  {}{last}", "", first.time);
        }
        text + &legend()
    }

    fn written(&self, bound: u64) -> String {
        match self.unit.as_str() {
            "nanoseconds" => display_nanos(bound),
            _ => bound.to_string(),
        }
    }
}

/// What characters mean.
fn legend() -> String {
    let mut text = "share of calls:".to_owned();
    for (percent, sign) in LEVELS.iter().rev() {
        let _ = match percent {
            0 => write!(text, " {sign} any"),
            _ => write!(text, " {sign} {percent}%"),
        };
    }
    text + "   ? not seen\n"
}

/// From the slowest call to the quickest, or as many as have room.
fn ranges(cells: &[Option<Vec<Bar>>]) -> Vec<(u64, u64)> {
    let all = || cells.iter().flatten().flatten().filter(|bar| bar.count > 0);
    let Some(most) = all().map(|bar| bar.from).max() else {
        return Vec::new();
    };
    let least = quickest(cells);
    let mut next = most;
    let mut ranges = Vec::new();
    while ranges.len() < LINES {
        let range = histogram::around(next);
        ranges.push(range);
        if range.0 <= least || range.0 == 0 {
            break;
        }
        next = range.0 - 1;
    }
    ranges
}

/// The bound below the quickest call.
fn quickest(cells: &[Option<Vec<Bar>>]) -> u64 {
    let bars = cells.iter().flatten().flatten();
    let there = bars.filter(|bar| bar.count > 0).map(|bar| bar.from);
    there.min().unwrap_or_default()
}

/// Whether a bound is a power of ten, which people find their way by.
fn is_round(bound: u64) -> bool {
    bound > 0 && 10_u64.pow(bound.ilog10()) == bound
}

fn cell(bars: &[Bar], from: u64, to: u64) -> char {
    let all = bars.iter().map(|bar| u128::from(bar.count)).sum::<u128>();
    let within = bars.iter().filter(|bar| bar.from >= from && bar.to <= to);
    let count: u128 = within.map(|bar| u128::from(bar.count)).sum();
    if count == 0 {
        return ' ';
    }
    let percent = count * 100 / all.max(1);
    let mut levels = LEVELS.iter();
    let level = levels.find(|(least, _)| percent >= u128::from(*least));
    level.map_or('.', |(_, sign)| *sign)
}

/// What each target of a CkbProbe told of this row.
pub fn told(probe: &CkbProbe, orders: &[NodeProbe], which: Which<'_>) -> Vec<Told> {
    let reports = histogram::reports(probe, orders, which.probe.unwrap_or_default());
    let each = reports.filter_map(|(instance, report)| {
        let container = instance.container.as_deref().unwrap_or_default();
        let target = format!("{}/{container}", instance.pod.name);
        let stamp = orders.iter().filter_map(|one| one.status.as_ref());
        let mut own =
            stamp.filter(|one| one.instances.iter().any(|one| std::ptr::eq(one, instance)));
        let time = own.next()?.reported_at.as_ref();
        let stamp = time.map_or(0, |time| time.0.as_microsecond().unsigned_abs());
        of_report(target, stamp, report, which)
    });
    each.collect()
}

/// What a process on a host told of it, by its books.
pub fn told_by(reports: &[ProbeReport], stamp: u64, which: Which<'_>) -> Vec<Told> {
    let own = reports
        .iter()
        .filter(|one| Some(one.name.as_str()) == which.probe);
    own.filter_map(|one| of_report(String::new(), stamp, one, which))
        .collect()
}

fn of_report(target: String, stamp: u64, report: &ProbeReport, which: Which<'_>) -> Option<Told> {
    let mut kinds = Kind::ALL.iter();
    let kind = kinds.find(|known| known.as_str() == report.kind)?;
    let mut measures = kind.descriptor().measures.iter();
    let measure = measures.find(|one| one.merge == Merge::Distribution)?;
    let mut windows = report.rows.iter().filter_map(|row| window(row, which));
    let window = windows.next()?;
    let values = window.figures.distributions.get(measure.name);
    let is_seen = window.recorded_milliseconds > 0;
    // A row that was watched all of the time and has no values had none.
    let histogram = values.map(|values| values.histogram.clone());
    Some(Told {
        target,
        stamp,
        interval: Duration::from_millis(window.milliseconds),
        histogram: is_seen.then(|| histogram.unwrap_or_default()),
    })
}

#[cfg(test)]
mod tests;
