//! Each figure of a CkbProbe against its own past: which of them is not as it usually is.

use std::collections::BTreeMap;

use ckb_probe_crds::{
    AnomalyStatus, Descriptor, Summary, Value,
    anomaly::{Anomaly, Course, Known},
    contention::{Told, Waits, Work},
    descriptor::Column,
    numbers,
};
use k8s_openapi::jiff::Timestamp;

/// How many anomalies of a probe a status lists.
const MAX_ANOMALIES: usize = 10;

/// Figures of a CkbProbe whose past is known, at most: some 600 bytes each.
const MAX_COURSES: usize = 512;

/// What shows that calls are slow: what nine of ten do not.
const TAIL: f64 = 0.99;

/// A figure: of a probe, a row, and a column.
type Figure = (String, String, &'static str);

/// The past of a CkbProbe's figures, as long as this operator knows them.
#[derive(Debug, Default)]
pub struct Past {
    courses: BTreeMap<Figure, Course>,
    /// When the last report came whose figures are in it.
    reported: Option<Timestamp>,
    /// How many targets it was of.
    targets: usize,
    /// What the figures that are not as usual were as they began.
    begun: BTreeMap<Figure, Begun>,
    /// What the targets usually wait for, and how that was in the last interval.
    waits: Waits,
    beside: String,
}

/// An anomaly as it began: in a message that is to stand as long as it lasts.
#[derive(Clone, Debug)]
struct Begun {
    since: Timestamp,
    anomaly: Anomaly,
    /// What the targets waited for then.
    beside: String,
}

/// A report interval of all targets together.
#[derive(Clone, Copy, Debug)]
pub struct Interval {
    /// When the last of its reports came.
    pub reported: Timestamp,
    /// How long it is.
    pub length: std::time::Duration,
    /// How many targets are measured.
    pub targets: usize,
}

impl Past {
    /// Whether this interval is another than the last one.
    pub fn is_next(&self, interval: &Interval) -> bool {
        let Some(before) = self.reported else {
            return true;
        };
        // Agents report a little sooner or later than they are asked to, and no report is two.
        let least = interval.length.mul_f64(0.75);
        interval.reported.duration_since(before).unsigned_abs() >= least
            && interval.reported > before
    }

    /// An interval begins: what is known of each of its rows is [seen](Self::see) next.
    pub fn begin(&mut self, interval: &Interval) {
        if self.targets != interval.targets {
            // What targets that come or go do to the figures is not unusual.
            self.courses.clear();
            self.begun.clear();
            self.waits = Waits::default();
        }
        (self.reported, self.targets) = (Some(interval.reported), interval.targets);
    }

    /// What its targets waited for, and did on their own account, in the interval that began last.
    pub fn look_beside(&mut self, told: &[Told], work: &Work) {
        self.beside = self.waits.beside(told, work);
        match self.begun.is_empty() {
            true => self.waits.learn(told, work),
            false => self.waits.hold(),
        }
    }

    /// What a row of a probe was in the interval that began last.
    pub fn see(&mut self, probe: &str, descriptor: &Descriptor, row: &str, summary: &Summary) {
        let Some(now) = self.reported else {
            return;
        };
        for column in descriptor.columns.iter().filter(is_watched) {
            let figure = (probe.to_owned(), row.to_owned(), column.name);
            let known = Known::of(summary, column.value, self.targets);
            if !self.courses.contains_key(&figure)
                && (known.is_none() || self.courses.len() >= MAX_COURSES)
            {
                continue;
            }
            let course = self.courses.entry(figure.clone()).or_default();
            match course.observe(known) {
                Some(anomaly) => {
                    let begun = || Begun {
                        since: now,
                        anomaly,
                        beside: self.beside.clone(),
                    };
                    self.begun.entry(figure).or_insert_with(begun);
                }
                None => drop(self.begun.remove(&figure)),
            }
        }
    }

    /// Keeps nothing of probes that are not asked any more, and nothing unusual of rows that are not there.
    pub fn keep(&mut self, is_asked: impl Fn(&str) -> bool, is_there: impl Fn(&str, &str) -> bool) {
        let (courses, begun) = (&mut self.courses, &mut self.begun);
        begun.retain(|figure, _| {
            let kept = is_there(&figure.0, &figure.1);
            if !kept {
                courses.remove(figure);
            }
            kept
        });
        courses.retain(|(probe, ..), _| is_asked(probe));
    }

    /// Nothing is known of it any more, and nothing is unusual.
    pub fn forget(&mut self) {
        *self = Self::default();
    }

    /// The figures of a probe that are not as usual, those that differ most first.
    pub fn anomalies(&self, probe: &str, descriptor: &Descriptor) -> Vec<AnomalyStatus> {
        let mut found: Vec<(&Figure, Anomaly, &Begun)> = self
            .begun
            .iter()
            .filter(|((of, ..), _)| of == probe)
            .filter_map(|(figure, begun)| {
                Some((figure, self.courses.get(figure)?.anomaly()?, begun))
            })
            .collect();
        found.sort_by(|(_, a, _), (_, b, _)| distance(b).total_cmp(&distance(a)));
        let listed = found.into_iter().take(MAX_ANOMALIES);
        listed
            .filter_map(|((_, row, name), anomaly, begun)| {
                let column = column(descriptor, name)?;
                let written = |number| descriptor.written(column.value, number);
                Some(AnomalyStatus {
                    row: row.clone(),
                    figure: (*name).to_owned(),
                    value: written(anomaly.value),
                    usual: written(anomaly.usual),
                    times: numbers::rate(anomaly.times()),
                    intervals: anomaly.lasted,
                    beside: begun.beside.clone(),
                })
            })
            .collect()
    }

    /// The same in sentences that stay the same while they are so.
    pub fn sentences(&self, probe: &str, descriptor: &Descriptor) -> Vec<String> {
        let mut found: Vec<(&Figure, &Begun)> = self
            .begun
            .iter()
            .filter(|((of, ..), _)| of == probe)
            .collect();
        found.sort_by(|(_, a), (_, b)| distance(&b.anomaly).total_cmp(&distance(&a.anomaly)));
        let mut said: Vec<&str> = Vec::new();
        let told = found.into_iter().filter_map(|(figure, begun)| {
            // What began in one interval has the same beside it.
            let is_new = !said.contains(&&*begun.beside);
            said.push(&begun.beside);
            let told = sentence(figure, begun, descriptor)?;
            Some(match is_new {
                true => with_evidence(told, begun),
                false => told,
            })
        });
        told.collect()
    }

    /// That of the figure of all probes that differed most as it began to be unusual; `descriptor` is that of a probe.
    pub fn gravest(
        &self,
        descriptor: impl Fn(&str) -> Option<&'static Descriptor>,
    ) -> Option<String> {
        let far = |(_, begun): &(&Figure, &Begun)| distance(&begun.anomaly);
        let most = self.begun.iter().max_by(|a, b| far(a).total_cmp(&far(b)));
        let (figure, begun) = most?;
        let told = sentence(figure, begun, descriptor(&figure.0)?)?;
        Some(with_evidence(told, begun))
    }

    /// How many figures are not as usual.
    pub fn count(&self) -> usize {
        self.begun.len()
    }
}

/// What is said of a figure as long as it is unusual.
fn sentence(figure: &Figure, begun: &Begun, descriptor: &Descriptor) -> Option<String> {
    let (probe, row, name) = figure;
    let value = column(descriptor, name)?.value;
    let Begun {
        since,
        anomaly,
        beside: _,
    } = begun;
    Some(format!(
        "probe {probe}: {name} of {row} is not as usual since {since:.0}: it was {}, and is usually {}",
        descriptor.written(value, anomaly.value),
        descriptor.written(value, anomaly.usual),
    ))
}

/// The same with what was beside it, of which it is not known what that has to do with it.
fn with_evidence(sentence: String, begun: &Begun) -> String {
    match begun.beside.is_empty() {
        true => sentence,
        false => format!(
            "{sentence}. In the same interval, which need not be why: {}",
            begun.beside
        ),
    }
}

/// How far it is from what is usual, whichever way.
fn distance(anomaly: &Anomaly) -> f64 {
    anomaly.times().max(1e-9).ln().abs()
}

fn is_watched(column: &&Column) -> bool {
    match column.value {
        Value::Rate(_) => true,
        Value::Quantile(_, quantile) => quantile == TAIL,
        _ => false,
    }
}

fn column<'a>(descriptor: &'a Descriptor, name: &str) -> Option<&'a Column> {
    let mut columns = descriptor.columns.iter().filter(is_watched);
    columns.find(|column| column.name == name)
}

#[cfg(test)]
mod tests;
