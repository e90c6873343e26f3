//! What a target waited for, whatever is measured of it, by what the kernel counts anyway; and whether that is as it usually is.
//!
//! That is asked when a figure is not as usual, and of the same interval. It is another question than [`crate::anomaly`]'s: here nothing is raised, and
//! what is mostly nothing at all, as throttling is, has no logarithm. What is usual is the median of the last [`REMEMBERED`] intervals in
//! which all was as usual; unusual is what is more than that by a bound and by a half, and more than in nineteen of twenty of these.

mod waits;

use std::collections::VecDeque;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use waits::{RESOURCES, Resource, Told, Waits, Work};

/// What the container of a target waited for in the last report interval. What could not be read is unset: it is not known, and not zero.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Contention {
    /// The part of the interval in which a thread of the container waited for a CPU, in thousandths of a percent: `some` of
    /// `cpu.pressure`. Unset with cgroups of version 1, and where the kernel does not account for pressure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_wait_millipercent: Option<u64>,
    /// The part of the periods of its CPU limit in which the container had used that up, in thousandths of a percent: `nr_throttled`
    /// of `nr_periods`. 0 without a limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throttled_millipercent: Option<u64>,
    /// The part of the interval in which a thread of the container waited for a disk, in thousandths of a percent: `some` of
    /// `io.pressure`. Unset where `cpuWaitMillipercent` is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_wait_millipercent: Option<u64>,
    /// The part of the TCP segments of the pod's network that were sent again, in thousandths of a percent: of a pod with
    /// `hostNetwork`, of the node's. Unset where none was sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retransmitted_millipercent: Option<u64>,
}

/// Intervals by which it is known what is usual, and the fewest of them.
const REMEMBERED: usize = 64;
const FEWEST: usize = 20;

/// An interval is learned after so many others: as many as it takes until something is said not to be as usual.
const WAITS: usize = 10;

/// What is unusual is more than in all but this part of the intervals that are remembered.
const EXCEPTIONS: f64 = 0.05;

/// It is more than usual by this factor.
const TIMES: f64 = 1.5;

/// A part of an interval, beside what it usually is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Beside {
    /// It could not be read.
    Unknown,
    /// It is this, and of too few intervals it is known what is usual.
    New(f64),
    /// It is as usual.
    Usual(f64),
    /// It is more than usual.
    More {
        /// What it is.
        part: f64,
        /// The median of what it was.
        usual: f64,
    },
}

/// What parts of intervals were, while all was as usual.
#[derive(Clone, Debug, Default)]
pub struct Baseline {
    known: VecDeque<f64>,
    /// Those of the last intervals, in which something may have begun that is not told yet: the newest last.
    waiting: VecDeque<f64>,
}

impl Baseline {
    /// Holds the part of an interval against those before it; more by less than `least` is nothing.
    pub fn compare(&self, part: Option<f64>, least: f64) -> Beside {
        let Some(part) = part.filter(|part| part.is_finite()) else {
            return Beside::Unknown;
        };
        let mut sorted: Vec<f64> = self.known.iter().copied().collect();
        if sorted.len() < FEWEST {
            return Beside::New(part);
        }
        sorted.sort_by(f64::total_cmp);
        let Some(usual) = sorted.get(sorted.len() / 2).copied() else {
            return Beside::New(part);
        };
        let exceptions = (sorted.len() as f64 * EXCEPTIONS) as usize;
        let most = sorted.iter().rev().nth(exceptions).copied();
        let is_more =
            part >= usual + least && part > usual * TIMES && most.is_some_and(|most| part > most);
        match is_more {
            true => Beside::More { part, usual },
            false => Beside::Usual(part),
        }
    }

    /// All was as usual in this interval, as far as is known by now.
    pub fn learn(&mut self, part: Option<f64>) {
        let Some(part) = part.filter(|part| part.is_finite()) else {
            return;
        };
        self.waiting.push_back(part);
        if self.waiting.len() > WAITS
            && let Some(part) = self.waiting.pop_front()
        {
            self.known.push_back(part);
            if self.known.len() > REMEMBERED {
                self.known.pop_front();
            }
        }
    }

    /// Something is not as usual, and has not been for a while: nothing is learned of that.
    pub fn hold(&mut self) {
        self.waiting.clear();
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    /// A point, as of parts of time.
    const LEAST: f64 = 0.05;

    fn after(parts: &[f64]) -> Baseline {
        let mut baseline = Baseline::default();
        for part in parts.iter().chain(&[0.0; WAITS]) {
            baseline.learn(Some(*part));
        }
        baseline
    }

    #[test]
    fn what_is_not_known_is_not_zero_and_what_is_usual_takes_a_while() {
        let zero = after(&[0.0; FEWEST]);
        assert_eq!(zero.compare(None, LEAST), Beside::Unknown);
        assert_eq!(zero.compare(Some(f64::NAN), LEAST), Beside::Unknown);
        assert_eq!(zero.compare(Some(0.0), LEAST), Beside::Usual(0.0));
        let (part, usual) = (0.38, 0.0);
        let more = Beside::More { part, usual };
        assert_eq!(zero.compare(Some(part), LEAST), more);
        let young = after(&[0.0; FEWEST - 1]);
        assert_eq!(young.compare(Some(part), LEAST), Beside::New(part));
        // Intervals of which nothing is known teach nothing.
        let mut unknown = Baseline::default();
        for _ in 0..100 {
            unknown.learn(None);
        }
        assert_eq!(unknown.compare(Some(part), LEAST), Beside::New(part));
    }

    #[test]
    fn what_comes_now_and_then_is_usual_and_so_is_a_little_more() {
        let now_and_then: Vec<f64> = (0..64).map(|n| f64::from(n % 8 == 0) * 0.4).collect();
        let baseline = after(&now_and_then);
        assert_eq!(baseline.compare(Some(0.4), LEAST), Beside::Usual(0.4));
        let more = baseline.compare(Some(0.41), LEAST);
        assert!(matches!(more, Beside::More { .. }), "{more:?}");
        let busy = after(&[0.8; 64]);
        assert_eq!(busy.compare(Some(0.95), LEAST), Beside::Usual(0.95));
        let idle = after(&[0.0; 64]);
        assert_eq!(idle.compare(Some(0.04), LEAST), Beside::Usual(0.04));
    }

    #[test]
    fn what_begins_is_no_news_of_what_is_usual() {
        let mut baseline = after(&[0.0; 64]);
        for _ in 0..WAITS {
            baseline.learn(Some(0.9));
        }
        baseline.hold();
        // It is over: what is learned then goes on from before.
        for _ in 0..=WAITS {
            baseline.learn(Some(0.0));
        }
        let (part, usual) = (0.9, 0.0);
        assert_eq!(
            baseline.compare(Some(part), LEAST),
            Beside::More { part, usual }
        );
    }

    proptest! {
        #[test]
        fn what_is_more_exceeds_nearly_all_and_more_still_does_too(
            parts in vec(0.0_f64..1.0, 20..200), part in 0.0_f64..1.0, further in 0.0_f64..1.0
        ) {
            let baseline = after(&parts);
            prop_assert!(baseline.known.len() <= REMEMBERED && baseline.waiting.len() <= WAITS);
            let last = &parts[parts.len().saturating_sub(REMEMBERED)..];
            let exceeded = last.iter().filter(|one| **one >= part).count();
            match baseline.compare(Some(part), LEAST) {
                Beside::More { part: told, usual } => {
                    prop_assert_eq!(told, part);
                    prop_assert!(part >= usual + LEAST && part > usual * TIMES);
                    prop_assert!(exceeded as f64 <= EXCEPTIONS * last.len() as f64);
                    let more = baseline.compare(Some(part + further), LEAST);
                    let is_more = matches!(more, Beside::More { .. });
                    prop_assert!(is_more, "{:?}", more);
                }
                told => prop_assert_eq!(told, Beside::Usual(part)),
            }
        }

        #[test]
        fn it_does_not_matter_in_which_order_what_is_usual_came(
            mut parts in vec(0.0_f64..1.0, 20..=64), part in 0.0_f64..1.0
        ) {
            let told = after(&parts).compare(Some(part), LEAST);
            parts.reverse();
            prop_assert_eq!(after(&parts).compare(Some(part), LEAST), told);
        }

        #[test]
        fn what_is_as_it_always_was_is_usual(part in 0.0_f64..=1.0, count in 20_usize..100) {
            let told = after(&vec![part; count]).compare(Some(part), LEAST);
            prop_assert_eq!(told, Beside::Usual(part));
        }
    }
}
