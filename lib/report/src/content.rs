//! What a report says, before it is a page or Markdown: sections of sentences, tables and drawings.

mod anomalies;
pub(crate) mod compared;
mod measured;
mod probe;
mod prometheus;
mod waits;

use ckb_probe_profiles::Profile;

use crate::history::History;

pub use anomalies::{Unusual, count as count_unusual, unusual};
pub use compared::{Change, compare, confidence, ordered, unit};
pub use measured::estimated;
pub use prometheus::{content_of_prometheus, counterpart};
pub use waits::{Waited, waited};

/// A report.
#[derive(Debug, Default)]
pub struct Content {
    /// What the report is of: its headline.
    pub title: String,
    /// What it says.
    pub sections: Vec<Section>,
}

/// A section.
#[derive(Debug, Default)]
pub struct Section {
    /// Its title.
    pub title: String,
    /// What it says.
    pub blocks: Vec<Block>,
}

/// A piece of a section.
#[derive(Debug)]
pub enum Block {
    /// A sentence, or several.
    Text(String),
    /// A table.
    Table(Table),
    /// Lines over time, or over heights.
    Lines(Lines),
    /// How durations are distributed over time.
    Heat(Heat),
    /// Where time went, by stacks.
    Flames(String, Box<Profile>),
}

/// A table. All but the first column are numbers where `numbers`.
#[derive(Debug, Default)]
pub struct Table {
    /// The heads of its columns.
    pub head: Vec<String>,
    /// Its rows.
    pub rows: Vec<Vec<String>>,
    /// Whether all columns but the first are numbers.
    pub numbers: bool,
}

/// What the horizontal axis is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Across {
    /// Milliseconds since 1970.
    Time,
    /// Heights of blocks.
    Height,
}

/// What numbers are, and so how they are written.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Scale {
    /// So many a second, or of something else.
    Number,
    /// Nanoseconds; ratios matter.
    Nanoseconds,
    /// Percent.
    Percent,
}

/// Lines of values; None where nothing is known.
#[derive(Debug)]
pub struct Lines {
    /// What is shown.
    pub title: String,
    /// The horizontal axis.
    pub across: Across,
    /// How values are written.
    pub scale: Scale,
    /// Where the values are, in ascending order.
    pub places: Vec<f64>,
    /// Names, and as many values as there are places.
    pub lines: Vec<(String, Vec<Option<f64>>)>,
}

/// How many values of each size there were in each column of time.
#[derive(Debug)]
pub struct Heat {
    /// What was so large: the headline of the picture.
    pub title: String,
    /// When each column begins and ends, in milliseconds since 1970.
    pub columns: Vec<(u64, u64)>,
    /// Each column's counts by size, in the histogram's buckets; None where nothing is known.
    pub counts: Vec<Option<Vec<(u32, u64)>>>,
    /// Whether the sizes are nanoseconds.
    pub time: bool,
}

/// Another record that this one is compared with, and what it is called.
pub type Baseline<'a> = (&'a str, &'a History);

/// What a report of a record says: its name, what was read, its stacks by name, and what it is compared with.
pub fn content(
    name: &str,
    history: &History,
    stacks: Vec<(String, Profile)>,
    baseline: Option<Baseline>,
) -> Content {
    let columns = history.columns();
    let probes = history.probes(&columns);
    let mut sections = vec![measured::section(history, &probes)];
    sections.extend(baseline.map(|(other, baseline)| {
        let title = "Compared with another record".to_owned();
        compared::section(title, history, other, baseline)
    }));
    sections.push(anomalies::section(
        "What was not as usual".to_owned(),
        history,
    ));
    sections.push(waits::section(history, &columns));
    sections.extend(probes.iter().map(|one| probe::section(one, &columns)));
    if !stacks.is_empty() {
        sections.push(Section {
            title: "Where the time went, by stack".to_owned(),
            blocks: stacks
                .into_iter()
                .map(|(name, profile)| Block::Flames(name, Box::new(profile)))
                .collect(),
        });
    }
    sections.push(measured::cost(history, &columns));
    Content {
        title: format!("ckb-probe: {name}"),
        sections,
    }
}

/// What has changed from another record to this one, and nothing else of them.
pub fn difference(name: &str, history: &History, (other, baseline): Baseline) -> Content {
    let title = "What has changed".to_owned();
    Content {
        title: format!("ckb-probe: {name}"),
        sections: vec![compared::section(title, history, other, baseline)],
    }
}

#[cfg(test)]
mod tests;
