//! What targets waited for in an interval, and what they did on their own account, beside what is usual of that: evidence of what else was so while a
//! figure was not as usual. Of causes it says nothing.
//!
//! Of several targets it is the one that waited most, in each interval: one node of many that is throttled is not seen in a mean.

use std::collections::BTreeMap;

use super::{Baseline, Beside, Contention};
use crate::numbers;

/// How much of what was beside an anomaly a status has room for.
const MAX_BESIDE: usize = 512;

/// Something that is waited for.
pub struct Resource {
    /// What it is called by programs.
    pub key: &'static str,
    /// What it is called in a list.
    pub name: &'static str,
    /// The part of the interval, in thousandths of a percent.
    pub part: fn(&Contention) -> Option<u64>,
    /// The same to be set.
    pub part_mut: fn(&mut Contention) -> &mut Option<u64>,
    /// More by less than this part is nothing.
    least: f64,
    /// What is said after the part where it is more than usual.
    said: &'static str,
}

/// Threads of a node that does what it should wait for CPUs and disks now and then; throttled it is not at all, and segments are hardly ever lost.
pub const RESOURCES: [Resource; 4] = [
    Resource {
        key: "throttled",
        part: |told| told.throttled_millipercent,
        part_mut: |told| &mut told.throttled_millipercent,
        least: 0.01,
        name: "throttling by the CPU limit",
        said: "of the CPU limit's periods throttled",
    },
    Resource {
        key: "cpuWait",
        part: |told| told.cpu_wait_millipercent,
        part_mut: |told| &mut told.cpu_wait_millipercent,
        least: 0.05,
        name: "waiting for a CPU",
        said: "of the time a thread waited for a CPU",
    },
    Resource {
        key: "diskWait",
        part: |told| told.disk_wait_millipercent,
        part_mut: |told| &mut told.disk_wait_millipercent,
        least: 0.05,
        name: "waiting for a disk",
        said: "of the time a thread waited for a disk",
    },
    Resource {
        key: "retransmitted",
        part: |told| told.retransmitted_millipercent,
        part_mut: |told| &mut told.retransmitted_millipercent,
        least: 0.005,
        name: "TCP segments sent again",
        said: "of TCP segments sent again",
    },
];

/// A target, which has no name where there is no other, and what it told of the interval.
pub type Told<'a> = (&'a str, Option<Contention>);

/// Work on the target's own account, such as a compaction, and for which part of the interval it was under way, where two at a time are 2; None
/// where that is not known.
pub type Work = BTreeMap<String, Option<f64>>;

/// More of it by less than this part of an interval is nothing.
const LEAST_WORK: f64 = 0.05;

/// So many sorts of work are known.
const MOST_WORK: usize = 16;

/// What targets usually wait for, and do on their own account.
#[derive(Debug, Default)]
pub struct Waits {
    baselines: [Baseline; RESOURCES.len()],
    work: BTreeMap<String, Baseline>,
}

/// What is said of resources that one thing can be said of.
#[derive(Default)]
struct Sorted<'a> {
    more: Vec<String>,
    unknown: Vec<String>,
    new: Vec<&'a str>,
    usual: Vec<&'a str>,
}

impl Waits {
    /// What the targets told of an interval, in words, beside what is usual.
    pub fn beside(&self, told: &[Told], work: &Work) -> String {
        let mut sorted = Sorted::default();
        for (resource, baseline) in RESOURCES.iter().zip(&self.baselines) {
            let name = resource.name;
            let silent = told.iter().filter(|one| part(resource, one).is_none());
            match (silent.count(), told.len()) {
                (0, 1..) => {}
                (silent, all) if silent < all => {
                    let of = format!("{name} of {silent} of {all} targets");
                    sorted.unknown.push(of);
                }
                _ => sorted.unknown.push(name.to_owned()),
            }
            let Some((target, greatest)) = greatest(resource, told) else {
                continue;
            };
            match baseline.compare(Some(greatest), resource.least) {
                Beside::Unknown => {}
                Beside::New(_) => sorted.new.push(name),
                Beside::Usual(_) => sorted.usual.push(name),
                Beside::More { part, usual } => sorted.more.push(format!(
                    "{} {}, usually {}{}",
                    percent(part),
                    resource.said,
                    percent(usual),
                    named(target)
                )),
            }
        }
        let young = Baseline::default();
        for (name, part) in work.iter().take(MOST_WORK) {
            let baseline = self.work.get(name).unwrap_or(&young);
            match baseline.compare(*part, LEAST_WORK) {
                Beside::Unknown => sorted.unknown.push(name.clone()),
                Beside::New(_) => sorted.new.push(name),
                Beside::Usual(_) => sorted.usual.push(name),
                Beside::More { part, usual } => sorted.more.push(format!(
                    "{name} under way for {} of the time, usually {}",
                    percent(part),
                    percent(usual)
                )),
            }
        }
        sorted.sentence()
    }

    /// All was as usual in this interval.
    pub fn learn(&mut self, told: &[Told], work: &Work) {
        for (resource, baseline) in RESOURCES.iter().zip(&mut self.baselines) {
            baseline.learn(greatest(resource, told).map(|(_, part)| part));
        }
        for (name, part) in work.iter().take(MOST_WORK) {
            if self.work.len() < MOST_WORK || self.work.contains_key(name) {
                self.work.entry(name.clone()).or_default().learn(*part);
            }
        }
    }

    /// Something is not as usual.
    pub fn hold(&mut self) {
        let of_work = self.work.values_mut();
        self.baselines
            .iter_mut()
            .chain(of_work)
            .for_each(Baseline::hold);
    }
}

impl Sorted<'_> {
    /// What there is room for. Clauses are left out whole, from the end, but for what is unknown: where that is not named it is taken for nothing. There
    /// is always room for it by itself, as rows are called.
    fn sentence(mut self) -> String {
        loop {
            let said = self.clauses().join("; ");
            if said.chars().count() <= MAX_BESIDE {
                return said;
            }
            if !self.usual.is_empty() {
                self.usual.clear();
            } else if !self.new.is_empty() {
                self.new.clear();
            } else if self.more.pop().is_none() {
                self.unknown.pop();
            }
        }
    }

    /// What is more than usual first: it is what is looked for.
    fn clauses(&self) -> Vec<String> {
        let listed = |head: &str, names: String| {
            let is_any = !names.is_empty();
            is_any.then(|| format!("{head}: {names}"))
        };
        let lists = [
            listed("unknown", self.unknown.join(", ")),
            listed("not measured for long enough to say", self.new.join(", ")),
            listed("as usual", self.usual.join(", ")),
        ];
        let more = self.more.iter().cloned();
        more.chain(lists.into_iter().flatten()).collect()
    }
}

/// The target that waited most, and for how much of the interval; None where nobody tells.
fn greatest<'a>(resource: &Resource, told: &[Told<'a>]) -> Option<(&'a str, f64)> {
    let parts = told.iter();
    let parts = parts.filter_map(|one| Some((one.0, part(resource, one)?)));
    // Of equals the first by name: it is the same however reports come.
    let most = parts.min_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(b.0)))?;
    Some((most.0, most.1 as f64 / 100_000.0))
}

fn part(resource: &Resource, told: &Told) -> Option<u64> {
    // An agent that reports more than all is no reason to.
    Some((resource.part)(told.1.as_ref()?)?.min(100_000))
}

/// Which of several it is.
fn named(target: &str) -> String {
    match target.is_empty() {
        true => String::new(),
        false => format!(" (pod {target})"),
    }
}

fn percent(part: f64) -> String {
    numbers::percent_summary((part * 100_000.0).round() as u64)
}

#[cfg(test)]
mod tests;
