//! The books of one operation: what was counted, and for how much of the time it stands. No clock, no I/O.
//!
//! An operation that is measured all the time is entered as it is counted. One that is measured in slices is entered
//! when a slice ends. Each slice stands for the time that nobody saw up to half of the way to the slices before and after
//! it, and what it saw is scaled up accordingly: wherever a load changes, neither the old nor the new one is favoured. The
//! time from the last slice to the process's end is taken to have been like that slice.

use std::{collections::BTreeMap, time::Duration};

use ckb_probe_crds::{ColumnFamilyReport, Counters, Histogram, OperationReport, Window};

use crate::{
    kinds::{Slot, family_name},
    probe::{FamilyReading, Reading, SlotReading},
};

/// Less is not scaled up: a moment says nothing of the minute before it.
const LEAST_RECORDED: Duration = Duration::from_millis(10);

/// More column families of one operation than this are not told apart.
const MAX_FAMILIES: usize = 63;

/// Where the calls go whose column family is not known.
const OTHER: &str = "other";

/// One operation of a target.
#[derive(Clone, Debug)]
pub struct Series {
    /// What it is.
    pub slot: Slot,
    /// All of its calls.
    pub all: Tally,
    /// Its calls by column family, where that is asked for.
    pub families: BTreeMap<String, Tally>,
    /// What the column families of the process count under, by their place in its readings: once given, a name stays.
    names: BTreeMap<usize, String>,
    record: Record,
    window: Span,
    window_began: Duration,
    closed: Span,
    /// How long the target takes for as much as it did in the last slice, in seconds.
    last_slice: Option<f64>,
}

/// What was counted of an operation, or of an operation on one column family.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Since the first attach, over all of the target's processes.
    pub total: Counters,
    /// Durations, since the first attach.
    pub histogram: Histogram,
    /// Calls that were seen, since the first attach: what `total` was scaled up from.
    pub samples: u64,
    latest: SlotReading,
    pending: SlotReading,
    last_slice: SlotReading,
    rounded: Rounded,
    open: Window,
    closed: Window,
}

/// What rounding has left over, so that it is not lost again and again: a slice of one call may stand for one and a half.
#[derive(Clone, Copy, Debug, Default)]
struct Rounded {
    calls: f64,
    untimed: f64,
    slow: f64,
}

/// When calls were recorded since the last entry.
#[derive(Clone, Copy, Debug, Default)]
struct Record {
    entered: Duration,
    unrecorded: Duration,
    paused: Option<Duration>,
}

/// A stretch of time, and how much of it calls were recorded in.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Span {
    elapsed: Duration,
    recorded: Duration,
}

impl Series {
    /// An operation that nothing is known of.
    pub fn new(slot: Slot) -> Self {
        Self {
            slot,
            all: Tally::default(),
            families: BTreeMap::new(),
            names: BTreeMap::new(),
            record: Record::default(),
            window: Span::default(),
            window_began: Duration::ZERO,
            closed: Span::default(),
            last_slice: None,
        }
    }

    /// Probes are in place, on new maps: the kernel counts from zero, and everything from now on.
    pub fn attached(&mut self, now: Duration) {
        for tally in self.tallies() {
            tally.latest = SlotReading::default();
            tally.pending = SlotReading::default();
        }
        self.names.clear();
        self.record = Record {
            entered: now,
            ..Record::default()
        };
        self.window_began = now;
        self.last_slice = None;
    }

    /// Takes in what the kernel counted, and returns how many calls of it are new.
    pub fn observe(&mut self, index: usize, reading: &Reading, now: Duration) -> u64 {
        let own = reading.slots.get(index);
        let families = || {
            let families = reading.families.iter();
            families.filter(|family| family.slot as usize == index)
        };
        let mut all = own.cloned().unwrap_or_default();
        for family in families() {
            merge(&mut all, &family.reading);
        }
        let news = self.all.observe(&all);
        if self.slot.by_family {
            self.observe_families(index, reading);
        }
        if self.record.is_complete() {
            self.enter(now, 1.0);
        }
        news
    }

    fn observe_families(&mut self, index: usize, reading: &Reading) {
        let mut named: BTreeMap<String, SlotReading> = BTreeMap::new();
        if let Some(own) = reading.slots.get(index).filter(|own| calls(own) > 0) {
            merge(named.entry(OTHER.to_string()).or_default(), own);
        }
        for (place, family) in reading.families.iter().enumerate() {
            // Until its first call has returned, the kernel may still be at work on its name.
            if family.slot as usize == index && calls(&family.reading) > 0 {
                let name = self.name(place, family);
                merge(named.entry(name).or_default(), &family.reading);
            }
        }
        for (name, reading) in named {
            self.families.entry(name).or_default().observe(&reading);
        }
    }

    /// What a column family counts under. Two handles of one are two places in the reading.
    fn name(&mut self, place: usize, family: &FamilyReading) -> String {
        if let Some(name) = self.names.get(&place) {
            return name.clone();
        }
        let own = family_name(family.id, &family.name);
        let named = self.families.keys().filter(|name| *name != OTHER).count();
        let room = named < MAX_FAMILIES || self.families.contains_key(&own);
        let name = if room { own } else { OTHER.to_string() };
        self.families.entry(name.clone()).or_default();
        self.names.insert(place, name.clone());
        name
    }

    /// The operation's calls are not recorded from now on. What was observed up to now is entered: in it the target did
    /// the given part of what it does when it is not watched.
    pub fn pause(&mut self, now: Duration, part: f64) {
        if self.record.paused.is_none() {
            self.enter(now, part);
            self.record.paused = Some(now);
        }
    }

    /// They are, from now on.
    pub fn resume(&mut self, now: Duration) {
        if let Some(paused) = self.record.paused.take() {
            let since = paused.max(self.record.entered);
            self.record.unrecorded += now.saturating_sub(since);
        }
    }

    /// The process is gone, and all that it did was observed.
    pub fn end(&mut self, now: Duration) {
        self.enter(now, 1.0);
        // Once: what comes after this end is nobody's.
        if let Some(did) = self.last_slice.take() {
            let tail = now.saturating_sub(self.record.entered);
            self.record.entered = now;
            self.record.unrecorded = Duration::ZERO;
            self.window.elapsed += tail;
            for tally in self.tallies() {
                tally.stretch(tail.as_secs_f64() / did);
            }
        }
    }

    /// Ends an interval: what was entered in it becomes the figures of the next reports. `sliced` operations are entered
    /// at the end of their slices only.
    pub fn close_window(&mut self, now: Duration, sliced: bool) {
        if !sliced {
            self.enter(now, 1.0);
        }
        let mut span = std::mem::take(&mut self.window);
        if span.elapsed.is_zero() {
            // Without a slice, all that is known of the interval is its length.
            span.elapsed = now.saturating_sub(self.window_began);
        }
        span.leave_out(self.record.pending(now));
        self.window_began = now;
        self.closed = span;
        let (elapsed, recorded) = span.milliseconds();
        for tally in self.tallies() {
            tally.closed = std::mem::take(&mut tally.open);
            tally.closed.milliseconds = elapsed;
            tally.closed.recorded_milliseconds = recorded;
        }
    }

    /// The part of the last interval in which calls were recorded; None before one has ended.
    pub fn share(&self) -> Option<f64> {
        let Span { elapsed, recorded } = self.closed;
        (!elapsed.is_zero()).then(|| recorded.as_secs_f64() / elapsed.as_secs_f64())
    }

    /// The operation as it stands in a report.
    pub fn report(&self) -> OperationReport {
        OperationReport {
            probe: self.slot.probe.clone(),
            operation: self.slot.operation.to_string(),
            has_bytes: self.slot.has_bytes(),
            total: self.all.total,
            window: self.all.closed.clone(),
            column_families: self
                .families
                .iter()
                .filter(|(_, tally)| tally.total.count > 0)
                .map(|(name, tally)| ColumnFamilyReport {
                    name: name.clone(),
                    total: tally.total,
                    window: tally.closed.clone(),
                })
                .collect(),
        }
    }

    /// Enters what was observed since the last entry, and what is to be thought of the time since then that nobody saw.
    fn enter(&mut self, now: Duration, part: f64) {
        let Some(span) = self.record.take(now) else {
            return;
        };
        self.window.elapsed += span.elapsed;
        self.window.recorded += span.recorded;
        let unseen = (span.elapsed - span.recorded).as_secs_f64();
        // A slice of calls that were slowed down stands for less time than it lasted.
        let does = span.recorded.as_secs_f64() * part;
        let before = self.last_slice.map(|did| unseen / 2.0 / did);
        let since = if before.is_some() {
            unseen / 2.0
        } else {
            unseen
        };
        self.last_slice = (unseen > 0.0).then_some(does);
        for tally in self.tallies() {
            if let Some(weight) = before {
                tally.stretch(weight);
            }
            tally.enter(if unseen > 0.0 {
                1.0 + since / does
            } else {
                1.0
            });
        }
    }

    fn tallies(&mut self) -> impl Iterator<Item = &mut Tally> {
        std::iter::once(&mut self.all).chain(self.families.values_mut())
    }
}

impl Record {
    /// Whether calls were recorded all the time since the last entry.
    fn is_complete(&self) -> bool {
        self.paused.is_none() && self.unrecorded.is_zero()
    }

    /// How much of the time since the last entry, up to now, nobody has seen anything in.
    fn pending(&self, now: Duration) -> Duration {
        self.paused.map_or(Duration::ZERO, |paused| {
            now.saturating_sub(paused.max(self.entered))
        })
    }

    /// The time since the last entry, if enough of it was recorded to stand for the rest; the next entry begins.
    fn take(&mut self, now: Duration) -> Option<Span> {
        let elapsed = now.saturating_sub(self.entered);
        let recorded = elapsed.saturating_sub(self.unrecorded + self.pending(now));
        if recorded < elapsed && recorded < LEAST_RECORDED {
            return None;
        }
        self.entered = now;
        self.unrecorded = Duration::ZERO;
        Some(Span { elapsed, recorded })
    }
}

impl Tally {
    fn observe(&mut self, reading: &SlotReading) -> u64 {
        let news = SlotReading {
            sum_ns: reading.sum_ns.saturating_sub(self.latest.sum_ns),
            bytes: reading.bytes.saturating_sub(self.latest.bytes),
            slow: reading.slow.saturating_sub(self.latest.slow),
            untimed: reading.untimed.saturating_sub(self.latest.untimed),
            max_ns: reading.max_ns,
            histogram: reading.histogram.since(&self.latest.histogram),
        };
        self.open.max_nanoseconds = self.open.max_nanoseconds.max(reading.max_ns);
        merge(&mut self.pending, &news);
        self.latest = reading.clone();
        calls(&news)
    }

    /// Enters what is pending, as so many times what it is.
    fn enter(&mut self, weight: f64) {
        let pending = std::mem::take(&mut self.pending);
        let samples = calls(&pending);
        self.samples += samples;
        self.open.samples += samples;
        self.add(&pending, weight);
        self.last_slice = pending;
    }

    /// Has the last slice stand for so many times itself more.
    fn stretch(&mut self, weight: f64) {
        let slice = self.last_slice.clone();
        self.add(&slice, weight);
    }

    fn add(&mut self, seen: &SlotReading, weight: f64) {
        let (counters, histogram) = self.rounded.scale(seen, weight);
        // What stands for part of an interval has its longest call there, too.
        self.open.max_nanoseconds = self.open.max_nanoseconds.max(seen.max_ns);
        add(&mut self.total, counters);
        add(&mut self.open.counters, counters);
        self.histogram.merge(&histogram);
        self.open.histogram.merge(&histogram);
    }
}

impl Span {
    /// So much time came after it that nobody saw, and that is still to be entered. A span that would pass for all of the
    /// interval is only its part.
    fn leave_out(&mut self, pending: Duration) {
        if self.recorded >= self.elapsed && !pending.is_zero() {
            let part = self.elapsed.as_secs_f64() / (self.elapsed + pending).as_secs_f64();
            self.recorded = self.recorded.mul_f64(part);
        }
    }

    /// Elapsed and recorded: as many of both only where all of the time was recorded.
    fn milliseconds(&self) -> (u64, u64) {
        let (elapsed, recorded) = (self.elapsed.as_millis(), self.recorded.as_millis());
        let complete = self.recorded >= self.elapsed;
        let most = if complete {
            elapsed
        } else {
            elapsed.saturating_sub(1)
        };
        (elapsed as u64, recorded.min(most) as u64)
    }
}

impl Rounded {
    /// So many times what was seen; what is seen once is counted once, whatever was left over.
    fn scale(&mut self, seen: &SlotReading, weight: f64) -> (Counters, Histogram) {
        let mut other = Self::default();
        let left = if weight == 1.0 { &mut other } else { self };
        let scaled = |value: u64, left: &mut f64| {
            let due = value as f64 * weight + *left;
            let given = due.round().max(0.0);
            *left = due - given;
            given as u64
        };
        let histogram = scale_histogram(&seen.histogram, weight, &mut left.calls);
        let counters = Counters {
            count: histogram.count() + scaled(seen.untimed, &mut left.untimed),
            nanoseconds: scaled(seen.sum_ns, &mut 0.0),
            bytes: scaled(seen.bytes, &mut 0.0),
            slow: scaled(seen.slow, &mut left.slow),
        };
        (counters, histogram)
    }
}

/// Rounds the running sum and not each bucket, so that the number of calls is off by less than one. What rounding leaves
/// over is handed on.
fn scale_histogram(histogram: &Histogram, weight: f64, left: &mut f64) -> Histogram {
    let (mut seen, mut given) = (0, 0);
    let before = *left;
    let scaled = histogram
        .iter()
        .map(|(bucket, count)| {
            seen += count;
            let due = (seen as f64 * weight + before).round().max(0.0) as u64;
            (bucket, due - std::mem::replace(&mut given, due))
        })
        .collect();
    *left += seen as f64 * weight - given as f64;
    scaled
}

fn calls(reading: &SlotReading) -> u64 {
    reading.histogram.count() + reading.untimed
}

fn merge(into: &mut SlotReading, more: &SlotReading) {
    let SlotReading {
        sum_ns,
        bytes,
        slow,
        untimed,
        max_ns,
        histogram,
    } = more;
    into.sum_ns += sum_ns;
    into.bytes += bytes;
    into.slow += slow;
    into.untimed += untimed;
    into.max_ns = into.max_ns.max(*max_ns);
    into.histogram.merge(histogram);
}

fn add(to: &mut Counters, more: Counters) {
    let Counters {
        count,
        nanoseconds,
        bytes,
        slow,
    } = more;
    to.count += count;
    to.nanoseconds += nanoseconds;
    to.bytes += bytes;
    to.slow += slow;
}

#[cfg(test)]
mod tests;
