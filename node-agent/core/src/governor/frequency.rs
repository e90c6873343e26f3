//! How often what is sampled is looked at. No clock, no I/O.

use std::time::Duration;

/// The part of the budget that samplers may take, all of a process together: what is attached beside them needs the rest.
const PART: f64 = 0.5;

/// Times a second: what is looked at less often is not looked at.
const LEAST: f64 = 1.0;

/// How often a second each CPU is looked at, where it is asked to be `asked` times, and each time that the process is met costs it
/// `cost`. `ratio` is what probing may cost, per CPU time of the process; None: whatever it costs. `samplers` of them share it.
///
/// A process that is on `c` CPUs is met `c · f` times a second and has a budget of `ratio · c`: how busy it is does not matter.
pub fn frequency(asked: f64, cost: Duration, ratio: Option<f64>, samplers: usize) -> f64 {
    let cost = cost.as_secs_f64();
    let paid = match ratio {
        Some(ratio) if cost > 0.0 => ratio.max(0.0) * PART / (cost * samplers.max(1) as f64),
        _ => f64::INFINITY,
    };
    asked.min(paid).max(LEAST.min(asked))
}

/// Of how many page faults one is a sample, at the least, and at first.
pub const ONE_IN: u32 = 16;

/// And at the most.
const MOST_IN: u32 = 1 << 20;

/// What is owed is paid back by sampling as if there were less, but no less than this part: or after a burst nothing would be seen.
const REPAYING: f64 = 0.1;

/// Of how many things that happen one is a sample, where there are as many as there are: how often they happen is nobody's to choose.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Thinned {
    /// Of so many.
    pub one_in: u32,
    /// What bursts have cost beyond what was allowed, in seconds.
    owed: f64,
}

impl Default for Thinned {
    fn default() -> Self {
        Self {
            one_in: ONE_IN,
            owed: 0.0,
        }
    }
}

impl Thinned {
    /// What it is to be from now on, where it has cost `spent` while the process used `used` of CPU time. `ratio` is what probing may
    /// cost, per that; None: whatever it costs. `samplers` of them share it.
    #[must_use]
    pub fn next(
        self,
        spent: Duration,
        used: Duration,
        ratio: Option<f64>,
        samplers: usize,
    ) -> Self {
        let Some(ratio) = ratio else {
            return Self::default();
        };
        let allowed = ratio.max(0.0) * PART * used.as_secs_f64() / samplers.max(1) as f64;
        let spent = spent.as_secs_f64();
        let owed = (self.owed + spent - allowed).max(0.0);
        let left = (allowed - owed).max(allowed * REPAYING).max(1e-9);
        // Down by halves: a burst that comes back is not met by all that the last one cost.
        let next = f64::from(self.one_in) * (spent / left).max(0.5);
        Self {
            one_in: (next.ceil() as u32).clamp(ONE_IN, MOST_IN),
            owed,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SAMPLE: Duration = Duration::from_micros(10);

    #[test]
    fn it_is_what_is_asked_where_the_budget_pays_it() {
        // 99 samples of 10 us are a thousandth of a second of CPU time.
        assert_eq!(frequency(99.0, SAMPLE, Some(0.01), 1), 99.0);
        assert_eq!(frequency(999.0, SAMPLE, None, 3), 999.0);
        assert_eq!(frequency(999.0, Duration::ZERO, Some(0.01), 1), 999.0);
        assert_eq!(frequency(999.0, Duration::ZERO, Some(0.0), 1), 999.0);
    }

    #[test]
    fn it_is_what_half_of_the_budget_pays_where_that_is_less() {
        let near = |found: f64, known: f64| assert!((found - known).abs() < 1e-9, "{found}");
        near(frequency(999.0, SAMPLE, Some(0.01), 1), 500.0);
        near(frequency(99.0, SAMPLE, Some(0.001), 1), 50.0);
        near(frequency(99.0, SAMPLE, Some(0.001), 2), 25.0);
    }

    #[test]
    fn it_is_never_so_rare_that_nothing_is_seen() {
        assert_eq!(frequency(99.0, SAMPLE, Some(0.0), 1), 1.0);
        assert_eq!(frequency(0.5, SAMPLE, Some(0.0), 1), 0.5);
    }

    #[test]
    fn what_happens_too_often_is_sampled_more_rarely_and_then_less_so_again() {
        let ms = Duration::from_millis;
        // Half of a percent of a second is 5 ms.
        let next = |before, spent, owed| {
            let before = Thinned {
                one_in: before,
                owed,
            };
            before.next(spent, ms(1_000), Some(0.01), 1)
        };
        let one_in = |before, spent| next(before, spent, 0.0).one_in;
        assert_eq!(one_in(16, ms(5)), 16);
        assert_eq!(one_in(160, ms(5)), 160);
        assert_eq!(one_in(160, ms(1)), 80);
        assert_eq!(one_in(16, Duration::ZERO), 16);
        // A millisecond too much leaves four of the next five.
        assert_eq!(one_in(16, ms(6)), 24);
        // And of what is owed for longer a tenth is left.
        assert_eq!(one_in(16, ms(50)), 1_600);
        let repaying = next(1_600, ms(1), 0.045);
        assert_eq!(repaying.one_in, 3_200);
        assert!((repaying.owed - 0.041).abs() < 1e-9);
        assert_eq!(
            next(160, ms(50), 1.0).next(ms(50), ms(1_000), None, 1),
            Thinned::default()
        );
        let shared = Thinned::default().next(ms(5), ms(1_000), Some(0.01), 2);
        assert_eq!(shared.one_in, 16 * 20, "2.5 ms are owed");
        let idle = Thinned::default().next(ms(500), Duration::ZERO, Some(0.01), 1);
        assert_eq!(idle.one_in, MOST_IN);
    }

    /// What is sampled of so many things in each half of a second of one CPU costs, of what is allowed.
    fn spent(things: impl Iterator<Item = u32>) -> f64 {
        let (mut thinned, mut all, mut allowed) = (Thinned::default(), 0.0, 0.0);
        for things in things {
            let spent = SAMPLE.mul_f64(f64::from(things) / f64::from(thinned.one_in));
            all += spent.as_secs_f64();
            allowed += 0.01 * PART * 0.5;
            thinned = thinned.next(spent, Duration::from_millis(500), Some(0.01), 1);
        }
        all / allowed
    }

    #[test]
    fn what_bursts_cost_is_paid_back() {
        let steady = spent((0..240).map(|_| 20_000));
        assert!((0.95..=1.05).contains(&steady), "{steady}");
        let bursts = spent((0..240).map(|step| if step % 5 == 0 { 60_000 } else { 500 }));
        assert!((0.3..=1.2).contains(&bursts), "{bursts}");
        let long = spent((0..240).map(|step| if step % 20 < 10 { 100_000 } else { 1_000 }));
        assert!((0.3..=1.2).contains(&long), "{long}");
    }

    proptest! {
        #[test]
        fn what_it_costs_is_within_half_of_the_budget(
            asked in 1.0..999.0f64,
            nanos in 1..1_000_000u64,
            ratio in 0.0..0.5f64,
            samplers in 1..16usize,
        ) {
            let cost = Duration::from_nanos(nanos);
            let chosen = frequency(asked, cost, Some(ratio), samplers);
            prop_assert!(chosen <= asked);
            let spent = chosen * cost.as_secs_f64() * samplers as f64;
            prop_assert!(chosen <= 1.0 || spent <= ratio * 0.5 + 1e-12);
        }

        #[test]
        fn whatever_the_budget_there_is_a_frequency(asked in any::<f64>(), ratio in any::<f64>()) {
            let chosen = frequency(asked.abs().min(999.0), SAMPLE, Some(ratio), 1);
            prop_assert!(chosen.is_finite() && chosen >= 0.0);
        }
    }
}
