//! How much less a target does while it is watched. No clock, no I/O.
//!
//! Probing takes CPU time: in a slice that watches busy operations, a fifth of it. A target that has as much work as it can
//! do then does less of it, and what a slice saw of it is too little to stand for the time that nobody watched. A target
//! that waits for its work does the same in a slice as it ever does, and uses more CPU time for it. So CPU time tells the
//! one from the other. Let a target use `u` CPU-seconds a second between slices, and `v` in slices, of which probing takes
//! `p`. Then it does in a slice the part `(v − p) / u` of its own work:
//!
//! ```text
//! v = u + p      1             it had time to spare
//! v = u          1 − p / u     it had none
//! v < u          less          its other threads wait for the one that is watched
//! ```
//!
//! A slice is too short to tell `u` and `v`. So how much work is lost for what probing takes ([`ObserverEffect::pressure`]) is
//! learned from many slices, and how much it takes, from the one in question. Before there are many, a target that keeps a
//! CPU busy is taken to have no time to spare: an import of blocks may be over after thirty slices.

use std::time::Duration;

/// Slices in which what was learned loses half of its weight.
const HALF_LIFE: f64 = 100.0;

/// Slices that it takes to believe what they say half, and half what is to be expected.
const FEW: f64 = 2.0;

/// What says that a target does less than this part of its work, or loses so many times what probing takes, is noise.
const LEAST: f64 = 0.5;
const MOST: f64 = 2.0;

/// A stretch of time, and the CPU time that the target used in it, probing included.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Use {
    /// How long it was.
    pub time: Duration,
    /// The target's CPU time.
    pub cpu: Duration,
}

/// What was learned of a target.
#[derive(Clone, Copy, Debug, Default)]
pub struct ObserverEffect {
    /// Between slices.
    apart: Sum,
    /// In slices.
    watched: Sum,
    /// CPU-seconds that probing took in them.
    cost: f64,
    /// How many there were.
    slices: f64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    time: f64,
    cpu: f64,
}

impl ObserverEffect {
    /// Learns from a slice, in which probing took `cost`, and from the time before it. Returns which part of what it would
    /// have done unwatched the target did in the slice: 1 for all of it.
    pub fn observe(&mut self, apart: Use, watched: Use, cost: Duration) -> f64 {
        let kept = (-1.0 / HALF_LIFE).exp2();
        self.apart.add(apart, kept);
        self.watched.add(watched, kept);
        let cost = cost.as_secs_f64();
        self.cost = self.cost * kept + cost;
        self.slices = self.slices * kept + 1.0;
        let share = ratio(cost, watched.cpu.as_secs_f64()).min(1.0);
        (1.0 - self.pressure() * share).max(LEAST)
    }

    /// The part of its work that the target loses, for the part of its CPU time that probing takes: 0 where it has time to
    /// spare, 1 where it has none.
    fn pressure(&self) -> f64 {
        let busy = ratio(self.apart.cpu, self.apart.time);
        let usual = busy * self.watched.time;
        if usual <= 0.0 {
            // Nothing is known of the time between slices.
            return 0.0;
        }
        let lost = 1.0 - (self.watched.cpu - self.cost) / usual;
        let taken = ratio(self.cost, self.watched.cpu);
        let seen = ratio(lost, taken).clamp(0.0, MOST);
        let expected = busy.min(1.0);
        (seen * self.slices + expected * FEW) / (self.slices + FEW)
    }
}

impl Sum {
    fn add(&mut self, more: Use, kept: f64) {
        self.time = self.time * kept + more.time.as_secs_f64();
        self.cpu = self.cpu * kept + more.cpu.as_secs_f64();
    }
}

/// 0 where there is nothing to divide by.
fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    fn used(time: u64, cpu: u64) -> Use {
        Use {
            time: ms(time),
            cpu: ms(cpu),
        }
    }

    /// What many slices like this one say.
    fn learned(apart: Use, watched: Use, cost: Duration) -> f64 {
        let mut disturbance = ObserverEffect::default();
        let parts = (0..1000).map(|_| disturbance.observe(apart, watched, cost));
        parts.last().unwrap_or_default()
    }

    #[test]
    fn a_target_without_time_to_spare_does_as_much_less_as_probing_takes() {
        // It uses all of one CPU, watched or not; in slices a quarter of that is for probing.
        let part = learned(used(1000, 1000), used(20, 20), ms(5));
        assert!((part - 0.75).abs() < 0.01, "{part}");
    }

    #[test]
    fn threads_that_wait_for_the_watched_one_do_less_as_well() {
        // 1.6 CPUs, of which the watched thread uses one: it does four fifths of its work, and the others with it.
        let part = learned(used(1000, 1600), used(100, 148), ms(20));
        assert!((part - 0.8).abs() < 0.01, "{part}");
    }

    #[test]
    fn a_target_that_waits_for_its_work_does_all_of_it() {
        // Half of a CPU, and what probing takes on top of that.
        let part = learned(used(1000, 500), used(20, 15), ms(5));
        assert!(part > 0.99, "{part}");
    }

    #[test]
    fn nothing_is_corrected_before_anything_is_known_of_the_time_between() {
        let nothing = Use::default();
        assert_eq!(learned(nothing, used(20, 20), ms(5)), 1.0);
        assert_eq!(learned(used(1000, 1000), nothing, ms(0)), 1.0);
    }

    #[test]
    fn a_target_that_keeps_a_cpu_busy_has_no_time_to_spare_from_the_first_slice_on() {
        let mut disturbance = ObserverEffect::default();
        let parts = [(); 4].map(|()| disturbance.observe(used(1000, 1000), used(20, 20), ms(5)));
        assert!(
            parts.iter().all(|part| (part - 0.75).abs() < 1e-9),
            "{parts:?}"
        );
    }

    #[test]
    fn one_that_has_is_believed_after_a_few() {
        let mut disturbance = ObserverEffect::default();
        let parts = [(); 20].map(|()| disturbance.observe(used(1000, 500), used(20, 15), ms(5)));
        assert!(parts.is_sorted_by(|before, after| before < after));
        assert!((parts[0] - (1.0 - 1.0 / 9.0)).abs() < 1e-9, "{parts:?}");
        assert!(parts[19] > 0.98, "{parts:?}");
    }

    #[test]
    fn one_slice_in_which_it_happened_to_idle_does_not_make_it_an_idle_one() {
        let mut disturbance = ObserverEffect::default();
        for _ in 0..200 {
            disturbance.observe(used(500, 500), used(20, 20), ms(5));
        }
        disturbance.observe(used(500, 500), used(20, 10), ms(2));
        let part = disturbance.observe(used(500, 500), used(20, 20), ms(5));
        assert!((part - 0.75).abs() < 0.02, "{part}");
    }

    #[test]
    fn what_it_did_long_ago_is_forgotten() {
        let mut disturbance = ObserverEffect::default();
        for _ in 0..100 {
            disturbance.observe(used(1000, 1000), used(20, 20), ms(5));
        }
        let parts = (0..1000).map(|_| disturbance.observe(used(1000, 500), used(20, 15), ms(5)));
        let part = parts.last().unwrap_or_default();
        assert!(part > 0.99, "{part}");
    }

    proptest! {
        #[test]
        fn a_part_is_a_part(
            slices in prop::collection::vec((0u64..3000, 0u64..6000, 0u64..500, 0u64..1000, 0u64..1000), 1..20),
        ) {
            let mut disturbance = ObserverEffect::default();
            for (time, cpu, open, watched, cost) in slices {
                let part = disturbance.observe(used(time, cpu), used(open, watched), ms(cost));
                prop_assert!((LEAST..=1.0).contains(&part), "{}", part);
            }
        }
    }
}
