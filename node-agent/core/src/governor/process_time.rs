//! Process time: the axis on which a target is sampled. No clock, no I/O.
//!
//! It goes as the target's own CPU time does, without what probing takes, in units in which it goes about as fast as the clock on
//! the wall while the target works: of four threads that work, a second of process time is four CPU-seconds. It goes on a little
//! while the target is idle, since something may be done on its behalf.

use std::time::Duration;

use libm::exp;

/// CPU-seconds over which it is learned how many CPUs the target keeps busy when it works.
const SPEED: f64 = 5.0;

/// Who all of a sudden uses more than so many times as much, for so many seconds on the wall at least, is another: less than one CPU is
/// forgotten by seconds of work then. A target that used next to nothing for an hour has used no five CPU-seconds, and would be taken for
/// one that works two thousand times as fast as the wall for as long.
const SUDDEN: (f64, f64) = (4.0, 0.02);

/// CPU-seconds that one CPU is believed in, before anything is known.
const PRIOR: f64 = 1e-6;

/// Seconds on the wall over which it is learned how much of the time the target works.
const DUTY: f64 = 30.0;

/// How much process time passes while a target is idle, per time on the wall.
const CREEP: f64 = 0.001;

/// The part of the time that is a target's at least, whatever probing is believed to have taken.
const LEAST_LEFT: f64 = 1e-3;

/// How the target's own time passes.
#[derive(Clone, Copy, Debug)]
pub struct ProcessTime {
    now: Duration,
    /// Time on the wall since it is known.
    age: Duration,
    /// CPU-seconds, each by how many CPUs were busy in it; and CPU-seconds: both are forgotten as they are used.
    busy: (f64, f64),
    /// CPU-seconds, and time on the wall; both are forgotten.
    used: (f64, f64),
}

impl Default for ProcessTime {
    fn default() -> Self {
        Self {
            now: Duration::ZERO,
            age: Duration::ZERO,
            busy: (PRIOR, PRIOR),
            used: (0.0, 0.0),
        }
    }
}

impl ProcessTime {
    /// In so many seconds on the wall the target used so many CPU-seconds itself, and probing took `probing` CPU-seconds besides. Returns
    /// how much process time that was.
    pub fn advance(&mut self, elapsed: f64, own: f64, probing: f64) -> f64 {
        let own = own.max(0.0);
        if elapsed > 0.0 {
            // All is attached in the first look, whatever it takes, and nothing else says how quick the target is. Later looks in which much
            // is attached are few, and what probing took in them is better left alone: of a target that waits, probing takes the time in which it would.
            let left = match self.age.is_zero() {
                true => elapsed * left_by(probing / elapsed, own / elapsed),
                false => elapsed,
            };
            let (times, least) = SUDDEN;
            let sudden = elapsed >= least && own > times * self.speed() * elapsed;
            let memory = match sudden {
                true => SPEED * self.speed().min(1.0),
                false => SPEED,
            };
            let kept = exp(-own / memory);
            self.busy.0 = self.busy.0 * kept + own * own / left;
            self.busy.1 = self.busy.1 * kept + own;
        }
        let more = own / self.speed() + elapsed * CREEP;
        let kept = exp(-elapsed / DUTY);
        self.used.0 = self.used.0 * kept + own;
        self.used.1 = self.used.1 * kept + elapsed;
        self.now += Duration::from_secs_f64(more.min(1e6));
        self.age += Duration::from_secs_f64(elapsed.clamp(0.0, 1e6));
        more
    }

    /// What it is.
    pub fn now(&self) -> Duration {
        self.now
    }

    /// How long it is known, on the wall: what is young may seem to work all the time.
    pub fn age(&self) -> Duration {
        self.age
    }

    /// How much of it passes as the target uses so much of a CPU, in so long on the wall.
    pub fn of(&self, elapsed: Duration, used: Duration) -> Duration {
        let passed = used.as_secs_f64() / self.speed() + elapsed.as_secs_f64() * CREEP;
        Duration::from_secs_f64(passed.min(1e6))
    }

    /// How many CPU-seconds a second of it is.
    pub fn speed(&self) -> f64 {
        (self.busy.0 / self.busy.1).max(1e-3)
    }

    /// How much of it passes in a second on the wall, of late.
    pub fn duty(&self) -> f64 {
        let (used, wall) = self.used;
        if wall > 0.0 {
            (used / self.speed() / wall + CREEP).min(1.0)
        } else {
            1.0
        }
    }
}

/// The part of the time on the wall that probing left to a target, of which both kept so many CPUs busy. What one CPU does for probes it
/// does not do for the target; of several that are busy, each is for as long.
fn left_by(probing: f64, own: f64) -> f64 {
    let probing = probing.max(0.0);
    let busy = (own + probing).max(1.0);
    (1.0 - probing / busy).max(LEAST_LEFT)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(looks: impl IntoIterator<Item = (f64, f64)>) -> ProcessTime {
        let mut time = ProcessTime::default();
        for (elapsed, own) in looks {
            time.advance(elapsed, own, 0.0);
        }
        time
    }

    #[test]
    fn it_goes_like_the_clock_while_a_target_works_however_many_its_threads() {
        for threads in [0.03, 1.0, 4.0, 16.0] {
            let time = after([(0.05, 0.05 * threads); 1000]);
            let passed = time.now().as_secs_f64();
            assert!((47.5..55.0).contains(&passed), "{threads}: {passed}");
            assert!((time.speed() / threads - 1.0).abs() < 0.02);
            assert!((time.duty() - 1.0).abs() < 0.05, "{}", time.duty());
        }
    }

    #[test]
    fn it_all_but_stands_still_while_a_target_is_idle() {
        // 0.2 s of work in each 10 s.
        let period = (0..200).map(|look| (0.05, if look < 4 { 0.05 } else { 0.0 }));
        let time = after(std::iter::repeat_n(period, 20).flatten());
        let passed = time.now().as_secs_f64();
        assert!((4.0..4.3).contains(&passed), "{passed}");
        assert!((time.speed() - 1.0).abs() < 0.01);
        assert!((0.01..0.04).contains(&time.duty()), "{}", time.duty());
    }

    #[test]
    fn who_works_after_an_hour_of_next_to_nothing_is_known_for_that_at_once() {
        let idle = std::iter::repeat_n((0.05, 0.05 * 0.0005), 72_000);
        let mut time = after(idle);
        assert!(time.speed() < 0.002, "{}", time.speed());
        let before = time.now();
        (0..20).for_each(|_| {
            time.advance(0.05, 0.05, 0.0);
        });
        let passed = (time.now() - before).as_secs_f64();
        assert!((0.99..1.05).contains(&passed), "{passed}");
        // A glance that meets a millisecond of work says nothing.
        let mut time = after([(0.05, 0.05 * 0.03); 10_000]);
        let speed = time.speed();
        time.advance(0.001, 0.001, 0.0);
        assert!((time.speed() / speed - 1.0).abs() < 0.01);
    }

    #[test]
    fn who_is_held_up_by_probes_is_as_quick_as_without_them() {
        // Four threads work all of the time; of that probes take nothing, four fifths, or 99 of 100. It is known by the first look.
        for part in [0.0, 0.8, 0.99] {
            let mut time = ProcessTime::default();
            time.advance(0.05, 0.2 * (1.0 - part), 0.2 * part);
            let speed = time.speed();
            assert!((speed / 4.0 - 1.0).abs() < 1e-3, "{part}: {speed}");
            // And it has had as much less of its own time.
            let passed = time.now().as_secs_f64() / 0.05 / (1.0 - part);
            assert!((passed - 1.0).abs() < 0.12, "{part}: {passed}");
        }
        // One that waits half of the time has as much less of it to work in.
        let mut time = ProcessTime::default();
        time.advance(0.05, 0.02, 0.01);
        assert!((time.speed() / 0.5 - 1.0).abs() < 1e-3, "{}", time.speed());
    }

    #[test]
    fn nonsense_moves_it_by_nothing() {
        let time = after([(0.0, 0.0), (0.0, -1.0), (0.0, 0.0)]);
        assert_eq!(time.now(), Duration::ZERO);
        assert_eq!(time.speed(), 1.0);
        assert_eq!(time.duty(), 1.0);
    }
}
