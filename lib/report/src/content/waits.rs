//! What the container waited for: by what the kernel counts of it anyway, whatever is measured.

use ckb_probe_crds::{contention::RESOURCES, numbers};

use super::{
    Across, Block, Lines, Scale, Section,
    measured::{percent, table},
};
use crate::{history::History, record::Interval, times::lasted};

/// What was waited for of one resource, in all of a record.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Waited {
    /// What it is called by programs.
    pub key: &'static str,
    /// What it is called by people.
    pub name: &'static str,
    /// In thousandths of a percent: the mean of the time for which it is known, and that in which it was most; None of none.
    pub told: Option<[u64; 2]>,
    /// For how many milliseconds it is known.
    pub known: u64,
}

/// Of each resource.
pub fn waited(history: &History) -> [Waited; RESOURCES.len()] {
    RESOURCES.each_ref().map(|resource| {
        let told = history.intervals().map(|one| one.waited(resource));
        let parts = told.filter_map(|(part, known)| Some((part?, known)));
        let (mut sum, mut most, mut known, mut count) = (0_u128, 0, 0, 0_usize);
        for (part, milliseconds) in parts {
            sum += u128::from(part) * u128::from(milliseconds);
            most = part.max(most);
            known += milliseconds;
            count += 1;
        }
        let mean = u64::try_from(sum / u128::from(known.max(1))).unwrap_or(u64::MAX);
        Waited {
            key: resource.key,
            name: resource.name,
            told: (count > 0).then_some([mean, most]),
            known,
        }
    })
}

/// The section.
pub fn section(history: &History, columns: &[Interval]) -> Section {
    let all = history.known();
    let rows = waited(history).map(|one| {
        let known = format!("{} ({})", lasted(one.known), percent(one.known, all));
        let [mean, most, known] = match one.told {
            Some(told) => {
                let [mean, most] = told.map(numbers::percent_summary);
                [mean, most, known]
            }
            None => ["unknown".to_owned(), "unknown".to_owned(), "-".to_owned()],
        };
        vec![one.name.to_owned(), mean, most, known]
    });
    let said = "By what the kernel counts of its container (of its cgroup) and of its network, at the end of each interval: of the periods of \
                the CPU limit those in which it was throttled, of the time that in which at least one thread waited for a CPU or for a disk, and \
                of TCP segments those that were sent again. What is unknown could not be read, and is not zero. Nothing of it need be why \
                something is slow.";
    let lines = RESOURCES.iter().filter_map(|resource| {
        let part = |one: &Interval| Some((resource.part)(one.contention.as_ref()?)? as f64);
        let values: Vec<Option<f64>> = columns
            .iter()
            .map(|one| part(one).map(|part| part / 1000.0))
            .collect();
        let is_known = values.iter().any(Option::is_some);
        is_known.then(|| (resource.name.to_owned(), values))
    });
    let lines: Vec<_> = lines.collect();
    let head = ["WAITED FOR", "MEAN", "MOST IN AN INTERVAL", "KNOWN FOR"];
    let mut blocks = vec![
        Block::Text(said.to_owned()),
        table(&head, rows.into_iter().collect()),
    ];
    if !lines.is_empty() {
        blocks.push(Block::Lines(Lines {
            title: "What its container waited for, in percent".to_owned(),
            across: Across::Time,
            scale: Scale::Percent,
            places: columns.iter().map(|one| one.began() as f64).collect(),
            lines,
        }));
    }
    Section {
        title: "What its container waited for".to_owned(),
        blocks,
    }
}

#[cfg(test)]
mod tests;
