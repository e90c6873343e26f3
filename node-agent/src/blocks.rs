//! What `ckb-probe chain --threshold 0s --events` told of each block: how it went with the height, and how two runs or two ranges
//! of heights differ. Pure.

use std::collections::BTreeMap;

use ckb_probe_figures::{
    comparison::{Comparison, Statistic, compare, compare_pairs},
    display_nanos,
};
use serde_json::{Value, json};

/// How likely all differences together are to be within their bounds.
const CONFIDENCE: f64 = 0.95;

/// Into so many stretches heights are divided, about, where nobody says how long they are to be.
const STRETCHES: u64 = 10;

/// What is told of a block, by the name in its line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Told {
    /// The name in the line.
    pub field: &'static str,
    /// What people read above its column.
    pub head: &'static str,
    /// Whether it is a time, in nanoseconds.
    is_time: bool,
}

const fn time(field: &'static str, head: &'static str) -> Told {
    Told {
        field,
        head,
        is_time: true,
    }
}

const fn count(field: &'static str, head: &'static str) -> Told {
    Told {
        field,
        head,
        is_time: false,
    }
}

/// All that is told of a block.
pub const TOLD: [Told; 13] = [
    time("durationNanoseconds", "DURATION"),
    time("rocksdbNanoseconds", "ROCKSDB"),
    time("verificationNanoseconds", "VERIFY"),
    time("verificationOffCpuNanoseconds", "VERIFY OFF"),
    time("commitNanoseconds", "COMMIT"),
    time("walWriteNanoseconds", "WAL"),
    time("syncNanoseconds", "SYNC"),
    time("cpuNanoseconds", "CPU"),
    time("offCpuNanoseconds", "OFF CPU"),
    time("queuedNanoseconds", "QUEUED"),
    count("majorFaults", "MAJOR FAULTS"),
    count("transactions", "TXS"),
    count("written", "WRITTEN"),
];

/// Where its duration is in [`TOLD`].
const DURATION: usize = 0;

/// The blocks of a run that became the end of the main chain, by their heights: what was told of each, 0 where it had none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Blocks(BTreeMap<u64, [f64; TOLD.len()]>);

/// Heights, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heights {
    /// The lowest height.
    pub first: u64,
    /// The highest height.
    pub last: u64,
}

impl std::str::FromStr for Heights {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let number = |text: &str| text.trim().parse().ok();
        let range = text.split_once('-');
        let range = range.and_then(|(first, last)| Some((number(first)?, number(last)?)));
        match range {
            Some((first, last)) if first <= last => Ok(Self { first, last }),
            _ => Err("heights are two numbers, the lower one first, such as 1000-1999".to_string()),
        }
    }
}

impl Blocks {
    /// Takes up a line; one of no such block is passed over. Of a block that is told twice the last line counts: it came off the
    /// chain in between.
    pub fn take(&mut self, line: &str) {
        let Ok(line) = serde_json::from_str::<Value>(line) else {
            return;
        };
        let (Some("accepted"), Some(height)) = (line["outcome"].as_str(), line["height"].as_u64())
        else {
            return;
        };
        let told = TOLD.map(|told| line[told.field].as_f64().unwrap_or_default());
        self.0.insert(height, told);
    }

    /// Those of these heights alone.
    #[must_use]
    pub fn within(mut self, heights: Option<Heights>) -> Self {
        if let Some(Heights { first, last }) = heights {
            self.0.retain(|height, _| (first..=last).contains(height));
        }
        self
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// The first height and the last; None where there is no block.
    pub fn heights(&self) -> Option<Heights> {
        let (first, _) = self.0.first_key_value()?;
        let (last, _) = self.0.last_key_value()?;
        Some(Heights {
            first: *first,
            last: *last,
        })
    }

    /// Heights of which no block was told, between the first and the last.
    pub fn missing(&self) -> u64 {
        let heights = self.heights();
        let all = heights.map_or(0, |heights| heights.last - heights.first + 1);
        all - self.0.len() as u64
    }

    /// How it went with the height, in stretches of so many blocks.
    pub fn trend(&self, every: Option<u64>) -> Vec<Stretch> {
        let Some(heights) = self.heights() else {
            return Vec::new();
        };
        let every = every.unwrap_or_else(|| round((heights.last - heights.first + 1) / STRETCHES));
        let every = every.max(1);
        let mut stretches: BTreeMap<u64, Vec<&[f64; TOLD.len()]>> = BTreeMap::new();
        for (height, told) in &self.0 {
            stretches.entry(height / every).or_default().push(told);
        }
        let stretches = stretches.into_iter();
        stretches
            .map(|(number, blocks)| Stretch::of(number * every, every, &blocks))
            .collect()
    }

    fn column(&self, place: usize) -> Vec<f64> {
        self.0.values().map(|told| told[place]).collect()
    }
}

/// Down to the next of 1, 2, 5, 10, 20, …
fn round(number: u64) -> u64 {
    let power = 10_u64.pow(number.max(1).ilog10());
    let steps = [5 * power, 2 * power];
    steps
        .into_iter()
        .find(|step| *step <= number)
        .unwrap_or(power)
}

/// What blocks of some heights cost.
#[derive(Clone, Debug, PartialEq)]
pub struct Stretch {
    /// The first height that is in it.
    pub first: u64,
    /// How many heights are.
    pub every: u64,
    /// Of how many blocks it was told.
    pub blocks: usize,
    /// The durations that so many percent of blocks did not exceed.
    pub quantiles: [f64; 2],
    /// Of each of [`TOLD`], the mean.
    pub means: [f64; TOLD.len()],
}

/// Of durations.
const QUANTILES: [(&str, f64); 2] = [("p50", 0.5), ("p99", 0.99)];

impl Stretch {
    fn of(first: u64, every: u64, blocks: &[&[f64; TOLD.len()]]) -> Self {
        let column = |place: usize| -> Vec<f64> { blocks.iter().map(|told| told[place]).collect() };
        let mut means = [0.0; TOLD.len()];
        for (place, mean) in means.iter_mut().enumerate() {
            *mean = Statistic::Mean.of(&column(place));
        }
        let mut durations = column(DURATION);
        durations.sort_by(f64::total_cmp);
        let quantile = |(_, quantile): (&str, f64)| {
            let rank = (quantile * durations.len() as f64).ceil() as usize;
            durations[rank.clamp(1, durations.len()) - 1]
        };
        Self {
            first,
            every,
            blocks: blocks.len(),
            quantiles: QUANTILES.map(quantile),
            means,
        }
    }

    /// As a line of JSON.
    pub fn line(&self) -> Value {
        let mut line = json!({
            "firstHeight": self.first,
            "lastHeight": self.first + self.every - 1,
            "blocks": self.blocks,
        });
        for ((name, _), quantile) in QUANTILES.iter().zip(self.quantiles) {
            line[format!("{name}DurationNanoseconds")] = json!(quantile);
        }
        for (told, mean) in TOLD.iter().zip(self.means) {
            line[told.field] = json!(mean);
        }
        line
    }
}

/// The table of a trend: what nobody has told of is no column.
pub fn trend_table(stretches: &[Stretch]) -> String {
    let known: Vec<usize> = (0..TOLD.len())
        .filter(|place| stretches.iter().any(|stretch| stretch.means[*place] > 0.0))
        .collect();
    let mut table = format!(
        "{:<23} {:>7} {:>9} {:>9}",
        "HEIGHTS", "BLOCKS", "P50", "P99"
    );
    for place in &known {
        table += &format!(" {:>12}", TOLD[*place].head);
    }
    for stretch in stretches {
        let heights = format!("{}-{}", stretch.first, stretch.first + stretch.every - 1);
        let [p50, p99] = stretch.quantiles.map(nanos);
        table += &format!("\n{heights:<23} {:>7} {p50:>9} {p99:>9}", stretch.blocks);
        for place in &known {
            let shown = TOLD[*place].shown(stretch.means[*place]);
            table += &format!(" {shown:>12}");
        }
    }
    table
}

impl Told {
    /// In what it is: `nanoseconds` or `count`.
    pub fn unit(self) -> &'static str {
        match self.is_time {
            true => "nanoseconds",
            false => "count",
        }
    }

    fn shown(self, value: f64) -> String {
        match self.is_time {
            true => nanos(value),
            // Not -0.0.
            false => format!("{:.1}", (10.0 * value).round() / 10.0 + 0.0),
        }
    }
}

/// A time that may be less than nothing.
fn nanos(value: f64) -> String {
    let sign = if value < 0.0 { "-" } else { "" };
    format!("{sign}{}", display_nanos(value.abs().round() as u64))
}

/// How two sets of blocks differ.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// How many blocks there are on each side; the same ones where they are compared in pairs.
    pub blocks: [usize; 2],
    /// Both sides are of the same heights, and each block is compared with itself.
    pub paired: bool,
    /// The confidence of each difference, so that all together have [`CONFIDENCE`].
    pub confidence: f64,
    /// Of each figure.
    pub rows: Vec<DifferenceRow>,
}

/// How a figure differs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DifferenceRow {
    /// What differs.
    pub told: Told,
    /// Its mean over blocks, or its median.
    pub statistic: Statistic,
    /// What it was, and is.
    pub comparison: Comparison,
}

impl Difference {
    /// Compares blocks. None where there are too few to be told from noise, which is less than
    /// [`LEAST`](ckb_probe_figures::comparison::LEAST) on a side. Where most heights of the smaller side are on the other too, these are
    /// compared in pairs: two releases that took up the same chain.
    pub fn of(before: &Blocks, after: &Blocks) -> Option<Self> {
        let common: Vec<u64> = before
            .0
            .keys()
            .filter(|height| after.0.contains_key(height))
            .copied()
            .collect();
        let paired = 2 * common.len() > before.count().min(after.count());
        let asked = (0..TOLD.len()).filter(|place| {
            let any = |blocks: &Blocks| blocks.0.values().any(|told| told[*place] > 0.0);
            any(before) || any(after)
        });
        let mut asked: Vec<(usize, Statistic)> =
            asked.map(|place| (place, Statistic::Mean)).collect();
        asked.insert(0, (DURATION, Statistic::Median));
        let confidence = 1.0 - (1.0 - CONFIDENCE) / asked.len() as f64;
        let compared = |(place, statistic): (usize, Statistic)| {
            let comparison = if paired {
                let pair = |height: &u64| (before.0[height][place], after.0[height][place]);
                let pairs: Vec<(f64, f64)> = common.iter().map(pair).collect();
                compare_pairs(&pairs, statistic, confidence)
            } else {
                compare(
                    &before.column(place),
                    &after.column(place),
                    statistic,
                    confidence,
                )
            };
            Some(DifferenceRow {
                told: TOLD[place],
                statistic,
                comparison: comparison?,
            })
        };
        let rows: Option<Vec<DifferenceRow>> = asked.into_iter().map(compared).collect();
        Some(Self {
            blocks: match paired {
                true => [common.len(); 2],
                false => [before.count(), after.count()],
            },
            paired,
            confidence,
            rows: rows?,
        })
    }

    /// The comparison as a table for people.
    pub fn table(&self) -> String {
        let mut table = format!(
            "{:<20} {:>11} {:>11} {:>11} {:>8}  {:<25} {}",
            "A BLOCK'S", "BEFORE", "AFTER", "CHANGE", "%", "BETWEEN", ""
        );
        for row in &self.rows {
            let Comparison {
                before,
                after,
                low,
                high,
            } = row.comparison;
            let change = row.comparison.change();
            let percent = row.comparison.of_before(change);
            let percent =
                percent.map_or_else(|| "-".to_string(), |share| format!("{:+.1}", 100.0 * share));
            let shown = |value| row.told.shown(value);
            let between = format!("{} and {}", shown(low), shown(high));
            table += &format!(
                "\n{:<20} {:>11} {:>11} {:>11} {percent:>8}  {between:<25} {}",
                row.name(),
                shown(before),
                shown(after),
                shown(change),
                row.verdict()
            );
        }
        let [before, after] = self.blocks;
        let sides = match self.paired {
            true => format!(
                "{before} blocks that are on both sides, each compared with itself: Student's test of the differences"
            ),
            false => format!("{before} blocks before and {after} after: Welch's test"),
        };
        table
            + &format!(
                "\n{sides}, on the means of {} stretches of blocks that followed each other. \
             The bounds of all rows hold together in {:.0} of 100 cases; where they include 0, the change is called noise.",
                ckb_probe_figures::comparison::BATCHES,
                100.0 * CONFIDENCE,
            )
    }

    /// As lines of JSON.
    pub fn lines(&self) -> Vec<Value> {
        let line = |row: &DifferenceRow| {
            json!({
                "figure": row.told.field,
                "statistic": row.statistic_name(),
                "before": row.comparison.before,
                "after": row.comparison.after,
                "change": row.comparison.change(),
                "low": row.comparison.low,
                "high": row.comparison.high,
                "confidence": self.confidence,
                "noise": row.comparison.is_noise(),
                "blocks": self.blocks,
                "paired": self.paired,
            })
        };
        self.rows.iter().map(line).collect()
    }
}

impl DifferenceRow {
    fn statistic_name(&self) -> &'static str {
        self.statistic.as_str()
    }

    fn name(&self) -> String {
        let head = self.told.head.to_lowercase();
        match self.statistic {
            Statistic::Mean => head,
            Statistic::Median => format!("{head}, median"),
        }
    }

    /// `noise`, `more` or `less`.
    pub fn verdict(&self) -> &'static str {
        match self.comparison.is_noise() {
            true => "noise",
            false if self.comparison.change() > 0.0 => "more",
            false => "less",
        }
    }
}

#[cfg(test)]
mod tests;
