//! What targets waited for in an interval, beside what is usual of that: evidence of what else was so while a figure was not as usual. Of
//! causes it says nothing.
//!
//! Of several targets it is the one that waited most, in each interval: one node of many that is throttled is not seen in a mean.

use ckb_probe_crds::{
    Contention,
    contention::{Baseline, Beside},
    numbers,
};

/// How much of what was beside an anomaly a status has room for.
const MAX_BESIDE: usize = 512;

/// Something that is waited for.
struct Resource {
    /// The part of the interval, in thousandths of a percent.
    part: fn(&Contention) -> Option<u64>,
    /// More by less than this part is nothing.
    least: f64,
    /// What it is called in a list.
    name: &'static str,
    /// What is said after the part where it is more than usual.
    said: &'static str,
}

/// Threads of a node that does what it should wait for CPUs and disks now and then; throttled it is not at all, and segments are hardly ever lost.
const RESOURCES: [Resource; 4] = [
    Resource {
        part: |told| told.throttled_millipercent,
        least: 0.01,
        name: "throttling by the CPU limit",
        said: "of the CPU limit's periods throttled",
    },
    Resource {
        part: |told| told.cpu_wait_millipercent,
        least: 0.05,
        name: "waiting for a CPU",
        said: "of the time a thread waited for a CPU",
    },
    Resource {
        part: |told| told.disk_wait_millipercent,
        least: 0.05,
        name: "waiting for a disk",
        said: "of the time a thread waited for a disk",
    },
    Resource {
        part: |told| told.retransmitted_millipercent,
        least: 0.005,
        name: "TCP segments sent again",
        said: "of TCP segments sent again",
    },
];

/// A target, and what it told of the interval.
pub type Told<'a> = (&'a str, Option<Contention>);

/// What targets usually wait for.
#[derive(Debug, Default)]
pub struct Waits {
    baselines: [Baseline; RESOURCES.len()],
}

/// What is said of resources that one thing can be said of.
#[derive(Default)]
struct Sorted {
    more: Vec<String>,
    usual: Vec<&'static str>,
    new: Vec<&'static str>,
    unknown: Vec<String>,
}

impl Waits {
    /// What the targets told of an interval, in words, beside what is usual.
    pub fn beside(&self, told: &[Told]) -> String {
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
                    "{} {}, usually {} (pod {target})",
                    percent(part),
                    resource.said,
                    percent(usual)
                )),
            }
        }
        sorted.sentence()
    }

    /// All was as usual in this interval.
    pub fn learn(&mut self, told: &[Told]) {
        for (resource, baseline) in RESOURCES.iter().zip(&mut self.baselines) {
            baseline.learn(greatest(resource, told).map(|(_, part)| part));
        }
    }

    /// Something is not as usual.
    pub fn hold(&mut self) {
        self.baselines.iter_mut().for_each(Baseline::hold);
    }
}

impl Sorted {
    /// What is more than usual first: it is what is read where there is no room for all.
    fn sentence(self) -> String {
        let Self {
            more,
            usual,
            new,
            unknown,
        } = self;
        let listed = |head: &str, names: &[&str]| {
            (!names.is_empty()).then(|| format!("{head}: {}", names.join(", ")))
        };
        let unknown: Vec<&str> = unknown.iter().map(String::as_str).collect();
        let clauses = more.into_iter().chain(
            [
                listed("as usual", &usual),
                listed("not measured for long enough to say", &new),
                listed("unknown", &unknown),
            ]
            .into_iter()
            .flatten(),
        );
        let clauses: Vec<String> = clauses.collect();
        clauses.join("; ").chars().take(MAX_BESIDE).collect()
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

fn percent(part: f64) -> String {
    numbers::percent_summary((part * 100_000.0).round() as u64)
}

#[cfg(test)]
mod tests;
