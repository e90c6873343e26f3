//! Which ticks are samples, on CPUs whose tick stops while they are idle: as the kernel has it, in time that is made up.

use ckb_probe_common::stacks::{ANY, Order, Pace};

const MILLISECOND: f64 = 1e6;

/// As long as it takes for chance not to matter.
const LASTS: f64 = 600_000.0 * MILLISECOND;

/// A CPU that somebody runs on for so long, again and again, and that is idle between; in nanoseconds.
struct Bursts {
    burst: f64,
    idle: f64,
}

/// What was found of who runs there.
struct Found {
    pace: Pace,
    /// For how long it ran.
    ran: f64,
}

impl Found {
    /// The time that its samples stand for.
    fn told(&self) -> f64 {
        self.pace.ticking_ns as f64 / self.pace.taken as f64 * self.met()
    }

    /// On a CPU on which nothing else runs each sample is one of it.
    fn met(&self) -> f64 {
        self.pace.taken as f64
    }
}

fn order(hertz: u64, frequency: u64, tick: u64) -> Order {
    Order {
        tick,
        tick_ns: 1_000_000_000 / hertz,
        period_ns: 1_000_000_000 / frequency,
        ..Order::default()
    }
}

impl Bursts {
    fn run(&self, order: &Order, seed: u64) -> Found {
        let mut random = fastrand::Rng::with_seed(seed);
        let tick = order.tick_ns as f64;
        let phase = random.f64() * tick;
        let mut found = Found {
            pace: Pace::default(),
            ran: 0.0,
        };
        let mut now = 0.0;
        while now < LASTS {
            // Nothing keeps step with anything.
            let mut about = |time: f64| time * (0.7 + 0.6 * random.f64());
            now += about(self.idle);
            let burst = about(self.burst);
            // The kernel starts the tick again where the next one would have been.
            let mut at = phase + ((now - phase) / tick).ceil() * tick;
            while at < now + burst {
                found.pace.ticks(at as u64, order, || random.u32(..));
                at += tick;
            }
            now += burst;
            found.ran += burst;
        }
        found
    }
}

const BUSY: Bursts = Bursts {
    burst: 1_000.0 * MILLISECOND,
    idle: 0.0,
};

#[test]
fn what_runs_in_bursts_has_its_share_however_often_the_kernel_ticks() {
    for hertz in [100, 250, 1000] {
        let order = order(hertz, 99, 1);
        let busy = BUSY.run(&order, 1);
        for (burst, every) in [
            (0.2, 20.0),
            (0.5, 20.0),
            (1.0, 20.0),
            (5.0, 100.0),
            (50.0, 100.0),
        ] {
            let bursts = Bursts {
                burst: burst * MILLISECOND,
                idle: (every - burst) * MILLISECOND,
            };
            for seed in 0..4 {
                let found = bursts.run(&order, seed);
                let truth = 100.0 * found.ran / (found.ran + busy.ran);
                let told = 100.0 * found.met() / (found.met() + busy.met());
                let case = format!("{hertz} ticks a second, {burst} ms each {every} ms");
                assert!(
                    (told - truth).abs() < 1.0,
                    "{case}: {truth:.2} %, told {told:.2} %"
                );
                // Also by itself, with none beside that is there all the time.
                let ratio = found.told() / found.ran;
                assert!(
                    (0.85..1.15).contains(&ratio),
                    "{case}: told {ratio:.2} of its time"
                );
            }
        }
    }
}

#[test]
fn a_cpu_that_is_busy_is_looked_at_as_often_as_is_asked_or_at_each_tick() {
    for (hertz, frequency, told) in [
        (100, 99, 99.0),
        (250, 99, 99.0),
        (250, 999, 250.0),
        (1000, 10, 10.0),
    ] {
        let found = BUSY.run(&order(hertz, frequency, 1), 3);
        let rate = found.met() / (found.ran / 1e9);
        assert!(
            (rate / told - 1.0).abs() < 0.001,
            "{hertz}, {frequency}: {rate}"
        );
        assert!((found.told() / found.ran - 1.0).abs() < 0.001);
    }
}

#[test]
fn where_any_timer_serves_those_between_two_ticks_earn_the_time_between_them() {
    let order = order(250, 50, ANY);
    let mut pace = Pace::default();
    let mut random = fastrand::Rng::with_seed(5);
    let mut now = 1_000_000_000;
    let began = now;
    while now < began + 100_000_000_000 {
        now += random.u64(10_000..2_000_000);
        pace.ticks(now, &order, || 0);
    }
    assert!((4_990..=5_001).contains(&pace.taken), "{pace:?}");
    // And no more than a tick, however long nothing came.
    let before = pace.ticking_ns;
    pace.ticks(now + 5_000_000_000, &order, || 0);
    assert_eq!(pace.ticking_ns - before, order.tick_ns);
}

#[test]
fn where_a_cpu_begins_is_left_to_chance() {
    let order = order(250, 10, 1);
    // A period is 25 ticks.
    let first = |random| {
        let mut pace = Pace::default();
        (1..).find(|tick| pace.ticks(tick * order.tick_ns, &order, || random))
    };
    assert_eq!(first(0), Some(25));
    assert_eq!(first(u32::MAX / 2 + 1), Some(13));
    assert_eq!(first(u32::MAX), Some(1));
}
