//! What a change does, by pairs of measurements with and without it: the effect, how far off it may be, and whether it is more than noise.
//!
//! The one of a pair that comes first is chosen by a coin. So if the change did nothing, each difference could as well have had the other
//! sign, and how often coins make of the differences that there are a mean as great as the one that was found is known without any
//! assumption about how measurements scatter (Fisher's randomisation test). What drifts more slowly than a pair lasts is in both of it.

use serde::Serialize;

/// So many throws of coins, where there are more than can be gone through one after the other.
const THROWS: u32 = 4_000;

/// Of so many pairs each throw is gone through.
const ALL_THROWS: usize = 11;

/// Of fewer pairs no throw is so rare that it would be more than noise: nothing is said of them.
pub const FEWEST: usize = 6;

/// An effect is told from noise where noise makes as much of it in fewer cases than this.
const NOISE: f64 = 0.05;

/// The throws are the same each time: who is told the figures and runs the test again finds the same.
const SEED: u64 = 1;

/// What a change does, as a part of what there was without it: 0.01 is 1 % more.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Effect {
    /// The mean over all pairs.
    pub effect: f64,
    /// The least effect that the test does not reject, at 5 %: the true effect is between it and `high` in 95 of 100 cases.
    pub low: f64,
    /// The greatest effect that the test does not reject.
    pub high: f64,
    /// How often noise makes as much or more of it.
    pub p: f64,
    /// How many pairs were compared.
    pub pairs: usize,
}

impl Effect {
    /// Of pairs of what was measured without and with the change. None of fewer than six that are above zero.
    pub fn of(pairs: &[(f64, f64)]) -> Option<Self> {
        let ratio = |(without, with): &(f64, f64)| {
            let ratio = (with / without).ln();
            (*without > 0.0 && *with > 0.0 && ratio.is_finite()).then_some(ratio)
        };
        let differences: Vec<f64> = pairs.iter().filter_map(ratio).collect();
        if differences.len() < FEWEST {
            return None;
        }
        let mean = mean(&differences);
        let throws = Throws::of(&differences);
        let p = |effect: f64| throws.as_much(effect);
        // Beyond so far no mean of these differences can be.
        let widest = differences.iter().map(|one| (one - mean).abs());
        let reach = widest.fold(0.0, f64::max) * 2.0 + 1e-9;
        Some(Self {
            effect: mean.exp_m1(),
            low: boundary(mean, mean - reach, p).exp_m1(),
            high: boundary(mean, mean + reach, p).exp_m1(),
            p: p(0.0),
            pairs: differences.len(),
        })
    }

    /// Whether it is no more than chance makes of nothing.
    pub fn is_noise(&self) -> bool {
        self.p >= NOISE
    }
}

/// Which one of each pair comes first, by coins: true, that with the change. The same for the same seed, so that whoever reads the
/// measurements can tell that nobody chose.
#[derive(Clone, Debug)]
pub struct Turns(fastrand::Rng);

impl Turns {
    /// Those of this seed.
    pub fn of(seed: u32) -> Self {
        Self(fastrand::Rng::with_seed(seed.into()))
    }
}

impl Iterator for Turns {
    type Item = bool;

    fn next(&mut self) -> Option<bool> {
        Some(self.0.bool())
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// What coins make of the differences.
struct Throws {
    /// Of each throw: the sum of the differences by the signs that it gives them, and of the signs. The first is how it was.
    sums: Vec<(f64, f64)>,
}

impl Throws {
    fn of(differences: &[f64]) -> Self {
        let count = differences.len();
        let sums = |turned: &mut dyn FnMut(usize) -> bool| {
            let signs = (0..count).map(|coin| if turned(coin) { -1.0 } else { 1.0 });
            let add =
                |(sum, of_signs), (sign, one): (f64, &f64)| (sum + sign * one, of_signs + sign);
            signs.zip(differences).fold((0.0, 0.0), add)
        };
        let sums = if count <= ALL_THROWS {
            let all = (0_u32..1 << count).map(|throw| sums(&mut |coin| throw >> coin & 1 == 1));
            all.collect()
        } else {
            let mut random = fastrand::Rng::with_seed(SEED);
            let as_it_was = sums(&mut |_| false);
            let others = (1..THROWS).map(|_| sums(&mut |_| random.bool()));
            std::iter::once(as_it_was).chain(others).collect()
        };
        Self { sums }
    }

    /// How often they make as much of them as they are, were the effect this.
    fn as_much(&self, effect: f64) -> f64 {
        let rest = |(sum, signs): &(f64, f64)| (sum - effect * signs).abs();
        // Not by the last digit of a sum.
        let was = self.sums.first().map_or(0.0, rest) * (1.0 - 1e-9) - 1e-12;
        let as_much = self.sums.iter().filter(|throw| rest(throw) >= was);
        as_much.count() as f64 / self.sums.len() as f64
    }
}

/// Between an effect that is not rejected and one that is: where the one becomes the other.
fn boundary(mut kept: f64, mut rejected: f64, p: impl Fn(f64) -> f64) -> f64 {
    for _ in 0..30 {
        let between = kept.midpoint(rejected);
        if p(between) >= NOISE {
            kept = between;
        } else {
            rejected = between;
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pairs that scatter, the second of which is so many times the first.
    fn pairs(
        count: usize,
        times: f64,
        scatter: f64,
        random: &mut fastrand::Rng,
    ) -> Vec<(f64, f64)> {
        let mut drift = 1.0;
        let mut one = |times: f64| {
            // About as a bell has it, and as skewed as times are.
            let noise: f64 = (0..6).map(|_| random.f64() - 0.5).sum();
            times * (scatter * noise).exp()
        };
        (0..count)
            .map(|_| {
                drift *= one(1.0);
                (drift * one(1.0), drift * one(times))
            })
            .collect()
    }

    #[test]
    fn turns_are_fair_and_the_same_for_the_same_seed() {
        let of = |seed| Turns::of(seed).take(1_000).collect::<Vec<bool>>();
        assert_eq!(of(7), of(7));
        assert_ne!(of(7), of(8));
        let changed_first = of(7).iter().filter(|first| **first).count();
        // Four standard deviations are 63.
        assert!(changed_first.abs_diff(500) < 63, "{changed_first}");
    }

    #[test]
    fn of_few_pairs_nothing_is_said() {
        let mut random = fastrand::Rng::with_seed(1);
        assert_eq!(Effect::of(&pairs(5, 2.0, 0.1, &mut random)), None);
        assert_eq!(Effect::of(&[(0.0, 1.0); 20]), None);
        assert_eq!(Effect::of(&[(1.0, f64::NAN); 20]), None);
        assert!(Effect::of(&pairs(6, 2.0, 0.1, &mut random)).is_some());
    }

    #[test]
    fn an_effect_without_noise_is_what_it_is() {
        let effect = Effect::of(&[(2.0, 3.0); 8]).unwrap();
        for told in [effect.effect, effect.low, effect.high] {
            assert!((told - 0.5).abs() < 1e-6, "{effect:?}");
        }
        // Two of 256 throws: as it was, and all turned.
        assert_eq!((effect.p, effect.pairs), (2.0 / 256.0, 8));
        assert!(!effect.is_noise());
    }

    #[test]
    fn nothing_is_noise_as_often_as_is_said_and_the_interval_holds_the_truth() {
        let mut random = fastrand::Rng::with_seed(7);
        for (count, times) in [(6, 1.0), (10, 1.02), (30, 1.0), (30, 0.9)] {
            let runs = 300;
            let (mut found, mut held) = (0, 0);
            for _ in 0..runs {
                let effect = Effect::of(&pairs(count, times, 0.05, &mut random)).unwrap();
                assert!(effect.low <= effect.effect && effect.effect <= effect.high);
                found += u32::from(!effect.is_noise());
                held += u32::from((effect.low..=effect.high).contains(&(times - 1.0)));
            }
            let [found, held] = [found, held].map(|count| f64::from(count) / f64::from(runs));
            println!("{count} pairs, {times} times: {found:.3} found, {held:.3} held");
            // Three standard deviations of 300 runs are 0.038.
            assert!((0.91..=0.99).contains(&held), "{count}, {times}: {held}");
            if times == 1.0 {
                assert!(found <= 0.09, "{count}: {found}");
            }
        }
    }

    #[test]
    fn an_effect_of_a_tenth_is_found_among_noise_of_a_tenth() {
        let mut random = fastrand::Rng::with_seed(3);
        let effect = Effect::of(&pairs(40, 1.1, 0.1, &mut random)).unwrap();
        assert!(!effect.is_noise(), "{effect:?}");
        assert!((effect.low..effect.high).contains(&0.1), "{effect:?}");
    }

    #[test]
    fn the_same_figures_have_the_same_answer() {
        let pairs = pairs(40, 1.1, 0.1, &mut fastrand::Rng::with_seed(3));
        assert_eq!(Effect::of(&pairs), Effect::of(&pairs));
    }
}
