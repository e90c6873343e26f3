//! What blocks cost, by their height: the newest, and the slowest.

use std::{cmp::Reverse, collections::BTreeMap, fmt::Write as _};

use ckb_probe_crds::{CkbProbe, EventStatus, Probe};

use crate::{
    document::Event,
    figures::cut,
    text::{WIDTH, one_line},
    top::nanos,
};

/// So many are kept while they are watched: the newest, but for so many of the slowest.
const KEPT: usize = 1_000;
const SLOWEST: usize = 100;

/// What is shown of a block, by the names of its event's details.
const COLUMNS: [(&str, &str); 6] = [
    ("duration", "DURATION"),
    ("rocksdb", "ROCKSDB"),
    ("verification", "VERIFY"),
    ("commit", "COMMIT"),
    ("cpu", "CPU"),
    ("transactions", "TXS"),
];

/// How wide they are, the last of which is followed by the pod.
const COLUMN: usize = 8;
const HEIGHT: usize = 10;

/// Those that were told of.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Blocks {
    /// By height, pod, and what identifies it else: of a height there may be several, on several nodes or after a reorganisation.
    blocks: BTreeMap<(u64, String, String), Event>,
}

impl Blocks {
    /// Takes those that the status of a CkbProbe lists; returns the ones that were not known yet, in the order of their heights.
    pub fn take(&mut self, probe: &CkbProbe) -> Vec<Event> {
        let meta = &probe.metadata;
        let subject = format!(
            "{}/{}",
            meta.namespace.as_deref().unwrap_or_default(),
            meta.name.as_deref().unwrap_or_default()
        );
        let probes = probe.status.iter().flat_map(|status| &status.probes);
        self.add(probes.flat_map(|of| {
            of.events.iter().map(|event| Event {
                subject: subject.clone(),
                probe: of.name.clone(),
                event: event.clone(),
            })
        }))
    }

    /// Takes those of these that are blocks; returns the ones that were not known yet, in the order of their heights.
    pub fn add(&mut self, told: impl IntoIterator<Item = Event>) -> Vec<Event> {
        let mut new = BTreeMap::new();
        for one in told {
            let event = &one.event;
            let Some(height) = height(event) else {
                continue;
            };
            let time = event.time.as_ref().map(|time| time.0.to_string());
            let key = (height, event.pod.clone(), time.unwrap_or_default());
            if !self.blocks.contains_key(&key) {
                new.insert(key, one);
            }
        }
        self.blocks.extend(new.clone());
        self.forget();
        new.into_values().collect()
    }

    /// The oldest, where there are too many.
    fn forget(&mut self) {
        let mut left = self.blocks.len().saturating_sub(KEPT);
        if left == 0 {
            return;
        }
        // No two are as slow as each other: of equals the newer one is slower.
        let durations = self.blocks.values().map(|one| duration(&one.event));
        let durations: Vec<(u64, usize)> = durations.zip(0..).collect();
        let mut slowest = durations.clone();
        let (_, least, _) = slowest.select_nth_unstable_by_key(SLOWEST - 1, |one| Reverse(*one));
        let mut durations = durations.iter();
        self.blocks.retain(|_, _| {
            let goes = left > 0 && durations.next().is_some_and(|one| one < least);
            left -= usize::from(goes);
            !goes
        });
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// The newest and the slowest, so many of each.
    pub fn text(&self, headline: &str, most: usize) -> String {
        self.text_of("POD", headline, most)
    }

    /// The same, of blocks that are elsewhere than in pods.
    pub fn text_of(&self, place: &str, headline: &str, most: usize) -> String {
        let mut text = cut(&one_line(headline), WIDTH) + "\n";
        let newest: Vec<&Event> = self.blocks.values().rev().take(most).collect();
        let mut slowest: Vec<&Event> = self.blocks.values().rev().collect();
        slowest.sort_by_key(|one| Reverse(duration(&one.event)));
        slowest.truncate(most);
        table(&mut text, ("newest", place), &newest);
        table(&mut text, ("slowest", place), &slowest);
        text
    }
}

fn table(text: &mut String, (title, place): (&str, &str), blocks: &[&Event]) {
    let _ = writeln!(text, "\n{title}\n{}", heads(place));
    for one in blocks {
        text.push_str(&line(&one.event));
        text.push('\n');
    }
}

/// What stands above the lines of blocks, of which each ends with where it was.
pub fn heads(place: &str) -> String {
    let mut text = format!("{:<HEIGHT$}", "HEIGHT");
    for (_, head) in COLUMNS {
        let _ = write!(text, "{head:>COLUMN$}");
    }
    text + "  " + place
}

/// A block in a line: what became of it beside its pod, where it is not a part of the main chain.
pub fn line(event: &EventStatus) -> String {
    let height = event.details.get("height").map_or("-", String::as_str);
    let mut line = format!("{:<HEIGHT$}", cut(&one_line(height), HEIGHT - 1));
    for (name, _) in COLUMNS {
        let detail = event.details.get(name).map_or("-", String::as_str);
        let _ = write!(line, "{:>COLUMN$}", cut(&one_line(detail), COLUMN - 1));
    }
    let outcome = match event.row.as_str() {
        "accepted" => String::new(),
        other => format!(" {other}"),
    };
    cut(
        &format!("{line}  {}", one_line(&format!("{}{outcome}", event.pod))),
        WIDTH,
    )
}

fn height(event: &EventStatus) -> Option<u64> {
    event.details.get("height")?.parse().ok()
}

fn duration(event: &EventStatus) -> u64 {
    let duration = event.details.get("duration");
    duration.and_then(|text| nanos(text)).unwrap_or_default()
}

/// Whether a probe is of a kind that tells of heights.
pub fn tells_of_heights(probe: &Probe) -> bool {
    let kind = probe.kind_spec().map(|spec| spec.kind().descriptor());
    kind.is_some_and(|kind| kind.columns.iter().any(|column| column.name == "height"))
}

/// The headline of a CkbProbe's blocks; None where it has no probe that tells of heights.
pub fn headline(probe: &CkbProbe) -> Option<String> {
    let mut asked = probe.spec.probes.iter();
    let name = asked.find(|one| tells_of_heights(one))?.name.as_str();
    let told = probe.status.iter().flat_map(|status| &status.probes);
    let mut told = told.filter(|one| one.name == name);
    let said = told
        .next()
        .map_or_else(String::new, |one| match one.headline.is_empty() {
            true => one.message.clone(),
            false => one.headline.clone(),
        });
    let meta = &probe.metadata;
    Some(format!(
        "{}/{} {name}: {said}",
        meta.namespace.as_deref().unwrap_or_default(),
        meta.name.as_deref().unwrap_or_default()
    ))
}

#[cfg(test)]
mod tests;
