//! How often what is sampled is looked at. No clock, no I/O.

use std::time::Duration;

/// The part of the budget that samplers may take, all of a process together: what is attached beside them needs the rest.
pub(super) const PART: f64 = 0.5;

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

/// What is owed is paid back in about so many looks: faster, and the samples of a burst would stand for little and those of what comes
/// after it for so much that a handful of them decide what is told.
const REPAID_IN: f64 = 10.0;

/// And by sampling no less than this part of what is allowed: or after a burst nothing would be seen.
const REPAYING: f64 = 0.1;

/// How much of what earlier looks found counts at the next: about five of them are remembered.
const KEPT: f64 = 0.8;

/// Of how many things that happen one is a sample, where there are as many as there are: how often they happen is nobody's to choose.
///
/// A sample stands for as many things as it was one of, so the estimate is unbiased however this number moves; its error is least where
/// it moves least. It thus follows what things have cost for a while, and not what the last look found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Thinned {
    /// Of so many.
    pub one_in: u32,
    /// What bursts have cost beyond what was allowed, in seconds.
    owed: f64,
    /// What it had cost lately to sample each thing, in seconds.
    all: f64,
    /// The CPU time that the process used meanwhile, in seconds.
    used: f64,
    /// And the looks that this is of.
    looks: f64,
}

impl Default for Thinned {
    fn default() -> Self {
        Self {
            one_in: ONE_IN,
            owed: 0.0,
            all: 0.0,
            used: 0.0,
            looks: 0.0,
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
        let ratio = ratio.max(0.0) * PART / samplers.max(1) as f64;
        let (spent, now) = (spent.as_secs_f64(), used.as_secs_f64());
        let all = self.all * KEPT + spent * f64::from(self.one_in);
        let used = self.used * KEPT + now;
        let looks = self.looks * KEPT + 1.0;
        let owed = (self.owed + spent - ratio * now).max(0.0);
        let allowed = (ratio * used).max(1e-9);
        let paid_back = owed * looks / (allowed * REPAID_IN);
        let next = all / (allowed * (1.0 - paid_back).max(REPAYING));
        // Down by halves: a burst that comes back is not met by all that the last one cost.
        let next = next.max(f64::from(self.one_in) * 0.5);
        Self {
            one_in: (next.ceil() as u32).clamp(ONE_IN, MOST_IN),
            owed,
            all,
            used,
            looks,
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
        let next = |before: Thinned, spent| before.next(spent, ms(1_000), Some(0.01), 1);
        let first = |spent| next(Thinned::default(), spent);
        let of = |one_in| Thinned {
            one_in,
            ..Thinned::default()
        };
        assert_eq!(first(ms(5)).one_in, 16);
        assert_eq!(first(Duration::ZERO).one_in, 16);
        assert_eq!(next(of(160), ms(5)).one_in, 160);
        assert_eq!(next(of(160), ms(1)).one_in, 80);
        // Six of five: 19.2 of them where nothing were owed, and a fiftieth of the next looks pays the millisecond that is.
        assert_eq!(first(ms(6)).one_in, 20);
        // Of what is owed for longer a tenth is left, and no less.
        let burst = first(ms(55));
        assert_eq!(burst.one_in, 1_760);
        assert!((burst.owed - 0.05).abs() < 1e-9);
        // It goes down again once what happens is what it was, and what is owed is paid.
        let calm = (0..60).fold(burst, |before, _| {
            next(before, ms(80).div_f64(f64::from(before.one_in)))
        });
        assert!(calm.one_in <= 17 && calm.owed == 0.0, "{calm:?}");
        let whatever = burst.next(ms(50), ms(1_000), None, 1);
        assert_eq!(whatever, Thinned::default());
        let shared = Thinned::default().next(ms(5), ms(1_000), Some(0.01), 2);
        assert_eq!(
            shared.one_in, 36,
            "2.5 of 5 ms are owed, of 25 in ten looks"
        );
        let idle = Thinned::default().next(ms(500), Duration::ZERO, Some(0.01), 1);
        assert_eq!(idle.one_in, MOST_IN);
    }

    /// What is sampled of so many things in each half of a second of one CPU costs, of what is allowed; and of how many samples that
    /// stand for the same each the error would be as large, of all that were taken.
    fn spent(things: impl Iterator<Item = u32>) -> (f64, f64) {
        let (mut thinned, mut all, mut allowed) = (Thinned::default(), 0.0, 0.0);
        let (mut samples, mut weights, mut squares) = (0.0, 0.0, 0.0);
        for things in things {
            let (things, one_in) = (f64::from(things), f64::from(thinned.one_in));
            let spent = SAMPLE.mul_f64(things / one_in);
            samples += things / one_in;
            weights += things;
            squares += things * one_in;
            all += spent.as_secs_f64();
            allowed += 0.01 * PART * 0.5;
            thinned = thinned.next(spent, Duration::from_millis(500), Some(0.01), 1);
        }
        (all / allowed, weights * weights / squares / samples)
    }

    /// How many things happen in each look.
    type Load = fn(u32) -> u32;

    #[test]
    fn what_bursts_cost_is_paid_back_and_few_samples_decide_nothing() {
        let loads: [(&str, Load); 4] = [
            ("steady", |_| 20_000),
            ("a burst each 2.5 s", |look| {
                [60_000, 500, 500, 500, 500][look as usize % 5]
            }),
            (
                "10 s of 20",
                |look| if look % 20 < 10 { 100_000 } else { 1_000 },
            ),
            ("ramp", |look| 500 * look),
        ];
        for (name, load) in loads {
            let (cost, effective) = spent((0..240).map(load));
            assert!(cost <= 1.05, "{name}: {cost} of what is allowed");
            assert!(effective >= 0.25, "{name}: samples are worth {effective}");
        }
        let (steady, _) = spent((0..240).map(|_| 20_000));
        assert!(steady >= 0.95, "{steady}");
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
