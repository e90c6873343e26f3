//! Which functions have another share of one profile than of another, and where that may be chance.
//!
//! A sampler that meets a function 30 times of 1,000 meets it 24 to 36 times of the next 1,000 though nothing has changed. So where the
//! samples were counted, a change is told with the bounds within which it may be chance
//! ([`Comparison::of_shares`](ckb_probe_figures::comparison::Comparison::of_shares)), and called noise within these.

use std::collections::BTreeMap;

use ckb_probe_figures::comparison::Comparison;

use crate::{Mismatch, SampleType, Stacks, functions::top};

/// How likely the bounds of all functions are to hold together.
pub const CONFIDENCE: f64 = 0.95;

/// The sample type that says how many samples there are: each counts once. Others are weights, of which one sample may have much.
const COUNTED: [&str; 2] = ["samples", "count"];

/// A function on both sides.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// What it is called.
    pub name: String,
    /// The file that it is in, or nothing.
    pub module: String,
    /// Its share of the first profile, with all that it called, from 0 to 1.
    pub before: f64,
    /// Its share of the second.
    pub after: f64,
    /// By how much the two may differ by chance alone; None where samples were not counted.
    pub within: Option<f64>,
}

/// Two profiles, function by function.
#[derive(Clone, Debug, PartialEq)]
pub struct Changes {
    /// What is compared.
    pub of: SampleType,
    /// How much of it there was and is.
    pub totals: [u64; 2],
    /// How many samples there were and are, where they were counted.
    pub samples: Option<[u64; 2]>,
    /// What changed by more than noise first, and of each the greatest change.
    pub functions: Vec<Change>,
}

/// How many samples a profile is of, where each was counted.
pub(crate) fn samples(stacks: &Stacks) -> Option<u64> {
    let [name, unit] = COUNTED;
    let mut types = stacks.types().iter();
    let place = types.position(|of| of.name == name && of.unit == unit)?;
    Some(stacks.total(place)).filter(|total| *total > 0)
}

/// The same of two.
pub(crate) fn samples_of_both(before: &Stacks, after: &Stacks) -> Option<[u64; 2]> {
    Some([samples(before)?, samples(after)?])
}

/// Within which bounds shares of so many samples differ by chance, where so many are compared at the same time (Bonferroni).
pub(crate) fn within(shares: [f64; 2], samples: [u64; 2], compared: usize) -> Option<f64> {
    let confidence = 1.0 - (1.0 - CONFIDENCE) / compared.max(1) as f64;
    let [before, after] = shares;
    let [many, more] = samples;
    let compared = Comparison::of_shares((before, many), (after, more), confidence)?;
    Some((compared.high - compared.low) / 2.0)
}

impl Change {
    /// After, less before.
    pub fn change(&self) -> f64 {
        self.after - self.before
    }

    /// Whether it may be chance.
    pub fn is_noise(&self) -> bool {
        let differs = self.before.to_bits() != self.after.to_bits();
        differs
            && self
                .within
                .is_some_and(|within| self.change().abs() <= within)
    }

    /// `new`, `gone`, `more`, `less`, `same`, or `noise`.
    pub fn word(&self) -> &'static str {
        let Self { before, after, .. } = *self;
        match () {
            () if before.to_bits() == after.to_bits() => "same",
            () if self.is_noise() => "noise",
            () if before <= 0.0 => "new",
            () if after <= 0.0 => "gone",
            () if after > before => "more",
            () => "less",
        }
    }
}

impl Changes {
    /// Compares the sample type at this place, as it has those of the second profile.
    ///
    /// # Errors
    ///
    /// When the profiles are of different things.
    pub fn of(before: &Stacks, after: &Stacks, place: usize) -> Result<Self, Mismatch> {
        // They are compared by the rule by which they would be merged.
        Stacks::new(before.types().to_vec(), 0).merge(&Stacks::new(after.types().to_vec(), 0))?;
        let samples = samples_of_both(before, after);
        let sides = [before, after].map(|stacks| top(stacks, place, usize::MAX));
        let totals = [sides[0].of, sides[1].of];
        let mut shares: BTreeMap<(String, String), [f64; 2]> = BTreeMap::new();
        for (side, found) in sides.into_iter().enumerate() {
            let of = found.of.max(1) as f64;
            for function in found.by_total {
                let name = (function.name, function.module);
                shares.entry(name).or_default()[side] = function.total as f64 / of;
            }
        }
        let compared = shares.len();
        let mut functions: Vec<Change> = shares
            .into_iter()
            .map(|((name, module), shares)| Change {
                name,
                module,
                before: shares[0],
                after: shares[1],
                within: samples.and_then(|samples| within(shares, samples, compared)),
            })
            .collect();
        // Stable: equals stay in the order of their names.
        functions.sort_by(|one, other| {
            let size = |one: &Change| one.change().abs();
            one.is_noise()
                .cmp(&other.is_noise())
                .then(size(other).total_cmp(&size(one)))
        });
        let nothing = SampleType::new("weight", "");
        Ok(Self {
            of: after.types().get(place).cloned().unwrap_or(nothing),
            totals,
            samples,
            functions,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ProfileMode, testing::stacks};

    fn words(changes: &Changes) -> Vec<(&str, &str)> {
        let functions = changes.functions.iter();
        functions
            .map(|one| (one.name.as_str(), one.word()))
            .collect()
    }

    #[test]
    fn what_changed_by_more_than_chance_is_first_and_the_rest_is_noise() {
        let before = stacks(
            ProfileMode::Cpu,
            &[
                "t;main;read 300 3000",
                "t;main;old 200 2000",
                "t;main;rare 3 30",
                "t;main;other 497 4970",
            ],
        );
        let after = stacks(
            ProfileMode::Cpu,
            &[
                "t;main;read 310 6200",
                "t;main;new 100 2000",
                "t;main;rare 1 20",
                "t;main;other 589 11780",
            ],
        );
        let changes = Changes::of(&before, &after, 1).unwrap();
        assert_eq!(
            words(&changes),
            [
                ("old", "gone"),
                ("new", "new"),
                ("other", "more"),
                ("main", "same"),
                ("read", "noise"),
                ("rare", "noise"),
            ]
        );
        assert_eq!(changes.samples, Some([1000, 1000]));
        assert_eq!(changes.totals, [10_000, 20_000]);
        let read = &changes.functions[4];
        assert!((read.change() - 0.01).abs() < 1e-9);
        // Six at a time, so each with 99.2 %: 2.638 times 0.0206.
        assert!((read.within.unwrap() - 0.0543).abs() < 2e-4, "{read:?}");
    }

    #[test]
    fn where_samples_are_not_counted_nothing_is_called_noise() {
        let before = stacks(ProfileMode::OffCpu, &["t;a 50", "t;b 50"]);
        let after = stacks(ProfileMode::OffCpu, &["t;a 51", "t;b 49"]);
        let changes = Changes::of(&before, &after, 0).unwrap();
        assert_eq!(words(&changes), [("a", "more"), ("b", "less")]);
        assert_eq!(changes.functions[0].within, None);
    }

    #[test]
    fn profiles_of_different_things_are_not_compared() {
        let one = Stacks::of(ProfileMode::Cpu);
        let other = Stacks::of(ProfileMode::OffCpu);
        assert!(Changes::of(&one, &other, 0).is_err());
        let none = Changes::of(&one, &one, 1).unwrap();
        assert_eq!((none.functions.len(), none.samples), (0, None));
    }
}
