//! What became of one profile in another.

use std::collections::BTreeMap;

use super::{View, lines};
use crate::{Mismatch, Stacks, changes::samples_of_both};

/// Behind a function that is on no stack of the other profile, at this place.
const NEW: &str = " [new]";
const GONE: &str = " [gone]";

/// Two profiles side by side, the first as if it had been as long as the second.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// What there was of each stack before, and what there is, of the same total.
    lines: BTreeMap<String, [u64; 2]>,
    /// What there was before in all, by its own measure.
    pub before: u64,
    /// What there is now in all.
    pub after: u64,
    /// How many samples each side is of, where they were counted.
    samples: Option<[u64; 2]>,
}

impl Difference {
    /// The difference of two profiles. Where one of them is empty, all is new or all is gone.
    ///
    /// # Errors
    ///
    /// When they are of different things.
    pub fn of(before: &Stacks, after: &Stacks, view: View) -> Result<Self, Mismatch> {
        // They are compared by the rule by which they would be merged.
        Stacks::new(before.types().to_vec(), 0).merge(&Stacks::new(after.types().to_vec(), 0))?;
        let (old, new) = (lines(before, view), lines(after, view));
        let total = |lines: &BTreeMap<String, u64>| {
            lines
                .values()
                .fold(0, |sum: u64, one| sum.saturating_add(*one))
        };
        let (was, is) = (total(&old), total(&new));
        let mut lines: BTreeMap<String, [u64; 2]> = BTreeMap::new();
        for (stack, weight) in scaled(old, was, is) {
            lines.entry(stack).or_default()[0] = weight;
        }
        for (stack, weight) in new {
            lines.entry(stack).or_default()[1] = weight;
        }
        let difference = Self {
            lines,
            before: was,
            after: is,
            samples: samples_of_both(before, after),
        };
        Ok(difference)
    }

    /// As text: each stack with what there was of it, and what there is. It is what inferno and flamegraph.pl read.
    pub fn folded(&self) -> String {
        let sums = self.sums();
        let mut text = String::new();
        for (stack, [before, after]) in &self.lines {
            text += &format!("{} {before} {after}\n", marked(stack, &sums).join(";"));
        }
        text
    }

    /// For a picture, in which a stack is as wide as there is of it now, and those that are gone as wide as they were.
    #[cfg(feature = "render")]
    pub(super) fn drawn(&self) -> Drawn {
        let sums = self.sums();
        let mut lines: Vec<(Vec<&str>, &String, u64)> = (self.lines.iter())
            .map(|(stack, [before, after])| {
                let is_gone = sums
                    .get(stack.as_str())
                    .is_some_and(|[_, after]| *after == 0);
                (
                    stack.split(';').collect(),
                    stack,
                    if is_gone { *before } else { *after },
                )
            })
            .collect();
        // Whatever letters names have: what has the same parents lies side by side.
        lines.sort_unstable();
        let all = self
            .lines
            .values()
            .fold([0; 2], |sum, weights| added(sum, *weights));
        let mut drawn = Drawn::default();
        let mut at = 0_u64;
        drawn.frames.insert((0, 0), all);
        drawn.samples = self.samples;
        drawn.places = sums.len();
        for (_, stack, width) in lines {
            for (above, prefix) in prefixes(stack).enumerate() {
                // What is drawn already began further left, and what has no width gives its place to the next.
                let is_begun = drawn.begun.get(above).is_some_and(|begun| begun == prefix);
                if !is_begun {
                    drawn.begun.truncate(above);
                    drawn.begun.push(prefix.to_owned());
                    drawn.frames.insert(
                        (at, above + 1),
                        sums.get(prefix).copied().unwrap_or_default(),
                    );
                }
            }
            if width > 0 {
                drawn
                    .lines
                    .push(format!("{} {width}", marked(stack, &sums).join(";")));
                at = at.saturating_add(width);
            }
        }
        drawn
    }

    /// What there was and is at each place of the tree, by the path to it.
    fn sums(&self) -> BTreeMap<&str, [u64; 2]> {
        let mut sums: BTreeMap<&str, [u64; 2]> = BTreeMap::new();
        for (stack, weights) in &self.lines {
            for prefix in prefixes(stack) {
                let sum = sums.entry(prefix).or_default();
                *sum = added(*sum, *weights);
            }
        }
        sums
    }
}

/// What a picture shows, and what there was and is of each function in it.
#[cfg(feature = "render")]
#[derive(Default)]
pub(super) struct Drawn {
    /// Stacks with their widths, in the order in which they are drawn.
    pub lines: Vec<String>,
    /// By where a function begins, in widths from the left, and how many are below it.
    pub frames: std::collections::HashMap<(u64, usize), [u64; 2]>,
    /// How many samples each side is of, where they were counted.
    samples: Option<[u64; 2]>,
    /// How many places of the tree are compared.
    places: usize,
    /// The paths to the functions of the last stack.
    begun: Vec<String>,
}

#[cfg(feature = "render")]
impl Drawn {
    /// Whether these shares may differ by chance alone.
    pub fn is_noise(&self, [before, after]: [f64; 2]) -> bool {
        let within = |samples| crate::changes::within([before, after], samples, self.places);
        let within = self.samples.and_then(within);
        before.to_bits() != after.to_bits()
            && within.is_some_and(|within| (after - before).abs() <= within)
    }
}

/// The functions of a stack, with marks behind those of which there was or is nothing at that place.
fn marked(stack: &str, sums: &BTreeMap<&str, [u64; 2]>) -> Vec<String> {
    let frames = stack
        .split(';')
        .zip(prefixes(stack))
        .map(|(frame, prefix)| {
            let mark = match sums.get(prefix) {
                Some([0, is]) if *is > 0 => NEW,
                Some([was, 0]) if *was > 0 => GONE,
                _ => "",
            };
            format!("{frame}{mark}")
        });
    frames.collect()
}

fn added(one: [u64; 2], other: [u64; 2]) -> [u64; 2] {
    [
        one[0].saturating_add(other[0]),
        one[1].saturating_add(other[1]),
    ]
}

/// `a`, `a;b`, `a;b;c`.
fn prefixes(stack: &str) -> impl Iterator<Item = &str> {
    let ends = stack.match_indices(';').map(|(at, _)| at);
    ends.chain([stack.len()]).map(|end| &stack[..end])
}

/// The weights in proportion, of another total, which they come to exactly: what rounding leaves goes to the next.
fn scaled(lines: BTreeMap<String, u64>, was: u64, is: u64) -> impl Iterator<Item = (String, u64)> {
    let to = if is == 0 || was == 0 { was } else { is };
    let (mut sum, mut given) = (0_u128, 0_u128);
    lines.into_iter().map(move |(stack, weight)| {
        sum += u128::from(weight);
        let due = (sum * u128::from(to) / u128::from(was.max(1))).min(u128::from(to));
        let share = u64::try_from(due - given).unwrap_or(u64::MAX);
        given = due;
        (stack, share)
    })
}
