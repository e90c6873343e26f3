//! What is made of samples of those who allocate and free: what was lost is made up for, and what came in step is told. Pure.

use std::{collections::HashMap, time::Duration};

use super::gathered::{Gathered, Key};

/// Threads of which it is remembered how their last sample was.
const THREAD_LIMIT: usize = 1 << 12;

/// A sample of one that allocates or frees.
pub(super) struct Sampled {
    pub(super) thread: u32,
    pub(super) key: Key,
    /// How many bytes it stands for.
    pub(super) bytes: u64,
    /// How far it went beyond where jemalloc was to stop; None: it is told with its own size, and stands for no other.
    pub(super) beyond: Option<u64>,
}

/// What is known between two times that samples are taken.
#[derive(Default)]
pub(super) struct Allocations {
    counted: [u64; 2],
    /// What was counted and no sample has stood for yet; less than nothing where samples were taken that came after it was counted.
    owed: [f64; 2],
    lost: u64,
    last: HashMap<(u32, bool), (Key, u64)>,
    /// CPU time that the process used in a pause, which what is seen next stands for.
    unseen: Duration,
    /// CPU time that it used in all pauses before that.
    paused: Duration,
    /// What was seen since that pause.
    held: Vec<(Key, f64)>,
    /// Samples that were to the byte as the one before on their thread was.
    in_step: u64,
}

impl Allocations {
    /// Gathers samples, by now that so many bytes were allocated and freed while it was looked, and so many samples lost. Where any
    /// were, those that came stand for those that came with them: losses are of moments, and not of all the time.
    pub(super) fn gather(
        &mut self,
        samples: Vec<Sampled>,
        counted: [u64; 2],
        lost: u64,
        gathered: &mut Gathered,
    ) {
        let is_lacking = lost > self.lost;
        let mut factors = [1.0_f64; 2];
        for (side, factor) in factors.iter_mut().enumerate() {
            let own = |sample: &&Sampled| usize::from(sample.key.frees) == side;
            let seen: u64 = samples.iter().filter(own).map(|one| one.bytes).sum();
            let passed = counted[side].saturating_sub(self.counted[side]);
            let owed = &mut self.owed[side];
            *owed += passed as f64;
            if is_lacking && seen > 0 {
                *factor = (*owed / seen as f64).max(1.0);
            }
            *owed -= seen as f64 * *factor;
            if !is_lacking {
                // Taking them takes time, in which others come: some of these may have been taken too, and are counted the next time.
                // What is more than that is no loss, but chance.
                *owed = owed.clamp(-(seen as f64), 0.0);
            }
        }
        (self.counted, self.lost) = (counted, lost);
        for Sampled {
            thread,
            key,
            bytes,
            beyond,
        } in samples
        {
            if let Some(beyond) = beyond {
                self.compare(thread, &key, beyond);
            }
            let bytes = bytes as f64 * factors[usize::from(key.frees)];
            if self.unseen.is_zero() {
                gathered.add(key, bytes as u64);
            } else {
                self.held.push((key, bytes));
            }
        }
    }

    /// It was not looked while the process used so much CPU time. How long that was was decided before it, so it says nothing of what is
    /// seen after it: that stands for it.
    pub(super) fn passed(&mut self, unseen: Duration) {
        self.unseen += unseen;
    }

    /// It was looked while the process used so much, which is all that stands for the pause before it.
    pub(super) fn looked(&mut self, seen: Duration, gathered: &mut Gathered) {
        let factor = match seen.is_zero() {
            true => 1.0,
            false => 1.0 + self.unseen.as_secs_f64() / seen.as_secs_f64(),
        };
        for (key, bytes) in self.held.drain(..) {
            gathered.add(key, (bytes * factor).round() as u64);
        }
        self.paused += self.unseen;
        self.unseen = Duration::ZERO;
    }

    /// By how much all that was seen is to be multiplied to stand for this time as well: that of a pause that nothing was seen after.
    /// None: there was no pause, and all was seen.
    pub(super) fn for_the_last_pause(&self, used: Duration) -> Option<f64> {
        if self.unseen.is_zero() && self.paused.is_zero() {
            return None;
        }
        let stands_for = used.saturating_sub(self.unseen).as_secs_f64();
        Some(used.as_secs_f64() / stands_for.max(1e-9)).filter(|factor| factor.is_finite())
    }

    fn compare(&mut self, thread: u32, key: &Key, beyond: u64) {
        let own = (thread, key.frees);
        if let Some((last, went)) = self.last.get_mut(&own) {
            self.in_step += u64::from(*went == beyond && last == key);
            if last != key {
                *last = key.clone();
            }
            *went = beyond;
        } else {
            // Those that ended take no room for long.
            if self.last.len() >= THREAD_LIMIT {
                self.last.clear();
            }
            self.last.insert(own, (key.clone(), beyond));
        }
    }

    /// How many samples came in step: to the byte as the one before on their thread did, with the same stack.
    pub(super) fn in_step(&self) -> u64 {
        self.in_step
    }
}

#[cfg(test)]
mod tests {
    use super::{super::room::StackRoom, *};

    fn sample(name: u8, frees: bool, bytes: u64, beyond: Option<u64>) -> Sampled {
        let mut key = Key::of_thread([name; 16]);
        key.frees = frees;
        Sampled {
            thread: 7,
            key,
            bytes,
            beyond,
        }
    }

    fn gathered() -> Gathered {
        Gathered::within(StackRoom::with(1 << 20))
    }

    #[test]
    fn samples_stand_for_those_that_were_lost_beside_them_and_for_no_others() {
        let (mut all, mut allocations) = (gathered(), Allocations::default());
        allocations.gather(vec![sample(1, false, 100, None)], [100, 0], 0, &mut all);
        assert_eq!(all.sums(), [100, 0]);
        // Three of four were lost, of those that allocate; of those that free none came.
        let came = vec![sample(2, false, 100, None)];
        allocations.gather(came, [500, 50], 4, &mut all);
        assert_eq!(all.sums(), [500, 0]);
        // What is counted a little later than it comes is no loss.
        allocations.gather(vec![sample(1, true, 70, None)], [500, 60], 4, &mut all);
        assert_eq!(all.sums(), [500, 70]);
    }

    #[test]
    fn what_came_before_it_was_counted_is_made_up_for_once() {
        let (mut all, mut allocations) = (gathered(), Allocations::default());
        // 300 of these came after it was counted.
        let came = vec![sample(1, false, 400, None)];
        allocations.gather(came, [100, 0], 0, &mut all);
        assert_eq!(all.sums(), [400, 0]);
        // They are now; and of 200 more, half were lost.
        let came = vec![sample(2, false, 100, None)];
        allocations.gather(came, [600, 0], 1, &mut all);
        assert_eq!(all.sums(), [600, 0]);
        // Also where some were lost both times.
        let came = vec![sample(1, false, 400, None)];
        allocations.gather(came, [800, 0], 2, &mut all);
        let came = vec![sample(2, false, 100, None)];
        allocations.gather(came, [1_200, 0], 3, &mut all);
        assert_eq!(all.sums(), [1_200, 0]);
    }

    #[test]
    fn what_chance_has_put_aside_is_no_loss_of_a_moment() {
        let (mut all, mut allocations) = (gathered(), Allocations::default());
        // A little more was counted each time than samples stand for.
        for step in 1..=100 {
            let came = vec![sample(1, false, 100, None)];
            allocations.gather(came, [step * 101, 0], 0, &mut all);
        }
        let came = vec![sample(2, false, 100, None)];
        allocations.gather(came, [10_300, 0], 1, &mut all);
        assert_eq!(all.sums(), [10_200, 0]);
    }

    #[test]
    fn what_is_seen_after_a_pause_stands_for_it_too() {
        let ms = Duration::from_millis;
        let (mut all, mut allocations) = (gathered(), Allocations::default());
        assert_eq!(allocations.for_the_last_pause(ms(100)), None);
        allocations.passed(ms(150));
        allocations.gather(vec![sample(1, false, 100, None)], [0, 0], 0, &mut all);
        assert_eq!(all.sums(), [0, 0], "how long it is looked is not known yet");
        allocations.looked(ms(50), &mut all);
        assert_eq!(all.sums(), [400, 0]);
        allocations.gather(vec![sample(1, false, 100, None)], [0, 0], 0, &mut all);
        assert_eq!(all.sums(), [500, 0]);
        // A pause that the window ends in: nothing was seen of a fifth of the time.
        allocations.passed(ms(100));
        assert_eq!(allocations.for_the_last_pause(ms(500)), Some(1.25));
    }

    #[test]
    fn what_comes_as_the_one_before_it_did_is_in_step() {
        let (mut all, mut allocations) = (gathered(), Allocations::default());
        let step = |samples: Vec<Sampled>, allocations: &mut Allocations, all: &mut Gathered| {
            allocations.gather(samples, [0, 0], 0, all);
            allocations.in_step()
        };
        let one = || sample(1, false, 64, Some(0));
        assert_eq!(step(vec![one(), one()], &mut allocations, &mut all), 1);
        // Another distance, another stack, the other side, and what stands for itself.
        let others = vec![
            sample(1, false, 64, Some(16)),
            sample(2, false, 64, Some(16)),
            sample(2, true, 64, Some(16)),
            sample(2, false, 64, None),
        ];
        assert_eq!(step(others, &mut allocations, &mut all), 1);
        assert_eq!(
            step(
                vec![sample(2, false, 64, Some(16))],
                &mut allocations,
                &mut all
            ),
            2
        );
    }
}
