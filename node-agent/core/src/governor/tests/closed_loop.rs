//! What the governor keeps to when its plans are carried out: see [`simulator`].

use proptest::test_runner::RngSeed;

use super::{simulator::*, *};

const BUSY: [f64; 3] = [60e3, 50e3, 300.0];

/// An import between two times, in seconds; else nearly nothing.
fn burst(seed: u64, quiet: f64, cpu: f64) -> Workload {
    let active = move |time| (30.0..60.0).contains(&time);
    Workload {
        noise: 0.2,
        seed,
        floor: 0.0,
        ..Workload::of(6, move |time| match active(time) {
            true => (1.4, IMPORT.to_vec()),
            false => (cpu, IMPORT.map(|rate| rate * quiet).to_vec()),
        })
    }
}

#[test]
fn an_import_stays_within_its_budget_and_uses_it() {
    let scene = Workload {
        noise: 0.2,
        ..Workload::steady(&[1.1 * MICROSECOND; 6], &IMPORT, 1.4)
    };
    let record = run(&scene, 120.0);
    assert_eq!(
        record.plans(0.1).next().unwrap().attachments,
        [Sliced, Sliced, Sliced, Always, Always, Always]
    );
    assert_eq!(record.changes(0.1), 0);
    assert!(record.worst(0.0..60.0, 60.0) < 1.0);
    assert!(record.mean(5.0) > 0.68, "{}", record.mean(5.0));
}

#[test]
fn mining_stays_within_its_budget_though_its_clock_is_coarse() {
    let scene = Workload {
        noise: 0.2,
        ..Workload::steady(&[1.1 * MICROSECOND; 6], &MINING, 0.03)
    };
    let record = run(&scene, 120.0);
    assert_eq!(record.changes(10.0), 0);
    assert!(record.worst(10.0..120.0, 10.0) < 1.05);
    assert!(record.mean(10.0) > 0.55);
}

/// Ten times what the budget is, from one moment to the next, in an idle target as in a busy one.
#[test]
fn an_import_that_begins_is_sliced_at_the_next_plan_and_its_first_moments_are_repaid() {
    for (seed, cpu) in [(1, 1.4), (2, 1.4), (3, 0.3), (4, 0.03), (5, 0.03)] {
        let record = run(&burst(seed, 0.001, cpu), 100.0);
        assert_eq!(record.plans(29.9).next().unwrap().attachments, [Always; 6]);
        assert_eq!(
            record.plans(30.1).next().unwrap().attachments,
            [Sliced, Sliced, Sliced, Always, Always, Always]
        );
        let worst = record.worst(0.0..40.0, 60.0);
        assert!(worst < 1.1, "{worst}");
    }
}

#[test]
fn when_all_fits_again_all_is_attached_within_minutes_and_stays() {
    for (seed, cpu) in [(1, 1.4), (2, 1.4), (3, 0.3), (4, 0.03), (5, 0.03)] {
        let record = run(&burst(seed, 0.0005, cpu), 300.0);
        assert!(
            record
                .plans(240.0)
                .all(|plan| plan.attachments == [Always; 6])
        );
        assert!(record.changes(40.0) <= 1);
    }
}

/// A block every ten seconds is a fifth of a second of work, and costs the budget of as long as it takes to the next; 100 ms
/// decide whether to be there. What was too much is repaid before the next attempt.
#[test]
fn a_follower_that_gets_a_block_now_and_then_stays_within_its_budget_in_the_long_run() {
    for seed in 1..=2 {
        let scene = Workload {
            seed,
            floor: 0.0,
            ..Workload::of(3, move |time| match time % 10.0 < 0.2 {
                true => (1.0, BUSY.to_vec()),
                false => (0.02, vec![0.0; 3]),
            })
        };
        let mean = run(&scene, 600.0).mean(0.0);
        // A minute of the budget may still be owed.
        assert!((0.5..1.1).contains(&mean), "{mean}");
    }
}

/// A slice that takes 60 ms to attach and detach when the governor was told 20 is paid for all the same.
#[test]
fn edges_longer_than_expected_are_paid_for() {
    let scene = Workload {
        attach: 20,
        detach: 40,
        ..Workload::steady(&[1.1 * MICROSECOND; 6], &IMPORT, 1.4)
    };
    let record = run(&scene, 60.0);
    let worst = record.worst(5.0..60.0, 10.0);
    assert!(worst < 1.1, "{worst}");
}

/// What is off is tried again, and costs no more for it than the budget grants in the long run.
#[test]
fn what_is_off_is_tried_again_now_and_then() {
    let scene = Workload {
        ratio: 0.001,
        ..Workload::steady(&[1.1 * MICROSECOND; 2], &[220e3, 10.0], 0.1)
    };
    let record = run(&scene, 2600.0);
    let off = record
        .plans(10.0)
        .filter(|plan| plan.attachments == [Off, Always]);
    let (off, all) = (off.count(), record.plans(10.0).count());
    assert!(off > all * 9 / 10, "{off} of {all}");
    let changes = record.changes(10.0);
    assert!((2..10).contains(&changes), "{changes}");
    assert!(record.mean(0.0) < 1.0, "{}", record.mean(0.0));
}

#[test]
fn what_is_sampled_for_a_while_gets_its_part_of_the_budget_from_what_is_attached() {
    // A node that mines, of which stacks are sampled for ten seconds of each minute, for half of the budget.
    let rates = IMPORT.map(|rate| rate / 10.0);
    for begin in [0.0, 3.0, 7.0] {
        let scene = Workload {
            besides: Box::new(move |time| match (time - begin).rem_euclid(60.0) < 10.0 {
                true => 0.005 * 0.05,
                false => 0.0,
            }),
            ..Workload::steady(&[1.1 * MICROSECOND; 6], &rates, 0.05)
        };
        let record = run(&scene, 200.0);
        let worst = record.worst(60.0..140.0, 60.0);
        assert!(worst < 1.1, "{worst}");
        assert!(record.mean(60.0) > 0.5, "{}", record.mean(60.0));
    }
}

prop_compose! {
    /// A target that does the same all the time; its probes would cost up to 40 times the budget, which is 100 hits a
    /// second at least.
    fn steady()(
        operations in prop::collection::vec((0.0..5.0f64, 0.5..1.5f64, prop::bool::weighted(0.1)), 1..12),
        cpu in -1.5..0.9f64,
        excess in -1.0..1.6f64,
        noise in prop::sample::select(vec![0.0, 0.2]),
        attach in 4..24u64,
        detach in 5..45u64,
        seed in any::<u64>(),
    ) -> Workload {
        let costs: Vec<f64> = operations.iter()
            .map(|(_, cost, stepped)| MICROSECOND * if *stepped { 19.0 } else { *cost })
            .collect();
        let rates: Vec<f64> = operations.iter().map(|(exponent, ..)| 10f64.powf(*exponent)).collect();
        let load: f64 = costs.iter().zip(&rates).map(|(cost, rate)| cost * rate).sum();
        let cpu = 10f64.powf(cpu);
        let hundred = costs.iter().copied().fold(0.0, f64::max) * 100.0;
        let ratio = (load / cpu / 10f64.powf(excess)).clamp(hundred / cpu, 0.5);
        Workload {
            noise, ratio, attach, detach, seed,
            ..Workload::steady(&costs, &rates, cpu)
        }
    }
}

prop_compose! {
    /// A target that works for a part of each period of its own, and else hardly.
    fn wave()(
        period in -1.3..1.8f64,
        duty in 0.01..0.99f64,
        quiet in -2.3..-0.3f64,
        activity in prop::sample::select(vec![0.0, 0.001, 0.01]),
        seed in any::<u64>(),
    ) -> Workload {
        let (quiet, period) = (10f64.powf(quiet), 10f64.powf(period));
        let works = move |time: f64| (time / period).fract() < duty;
        Workload {
            seed,
            floor: 0.0,
            ..Workload::of(3, move |time| match works(time) {
                true => (1.0, BUSY.to_vec()),
                false => (quiet, BUSY.map(|rate| rate * activity).to_vec()),
            })
        }
    }
}

impl std::fmt::Debug for Workload {
    fn fmt(&self, to: &mut std::fmt::Formatter) -> std::fmt::Result {
        let Self {
            costs,
            activity,
            noise,
            ratio,
            attach,
            detach,
            seed,
            ..
        } = self;
        write!(
            to,
            "{costs:?} {:?} {noise} {ratio} {attach} {detach} {seed}",
            activity(0.0)
        )
    }
}

/// The same scenes each time, since what they are held to is true of nearly all: of 1,152 steady ones few moved an operation twice, whose
/// slices cost more than a minute may. `PROPTEST_RNG_SEED` and `PROPTEST_CASES` look at others.
fn same_scenes() -> ProptestConfig {
    let asked = ProptestConfig::default();
    let elsewhere = std::env::var_os("PROPTEST_RNG_SEED").is_some();
    ProptestConfig {
        cases: if elsewhere { asked.cases } else { 24 },
        rng_seed: if elsewhere {
            asked.rng_seed
        } else {
            RngSeed::Fixed(1)
        },
        ..asked
    }
}

proptest! {
    #![proptest_config(same_scenes())]

    /// What was spent before anything was known is repaid meanwhile; a slice of a long period may be one more than its part.
    #[test]
    fn a_steady_target_stays_within_its_budget_and_keeps_its_plan(scene in steady()) {
        let record = run(&scene, 240.0);
        prop_assert!(record.mean(60.0) < 1.15, "{}", record.mean(60.0));
        // One that was misjudged at first, when slices are short, may move once then; none moves to and fro.
        prop_assert!(record.changes(40.0) <= 1);
        // Of slices that come once in a minute there are few in all.
        let often = |plan: &Plan| plan.slices.is_some_and(|slices| slices.period.as_secs() < 30);
        if record.plans(20.0).all(often) {
            prop_assert!(record.mean(20.0) > 0.25, "{}", record.mean(20.0));
        }
    }

    /// Whatever its rhythm: no reaction is fast enough for it, but debt is. Of 6,000 cases 19 passed the budget, the
    /// worst, with a few bursts in a nearly idle target, by 23 %.
    #[test]
    fn a_target_that_works_in_bursts_stays_within_its_budget_in_the_long_run(scene in wave()) {
        let record = run(&scene, 200.0);
        prop_assert!(record.mean(0.0) < 1.3, "{}", record.mean(0.0));
    }
}

/// Three functions of the kernel that others call all the time, and three that hardly anybody calls: of a node of which others may pay one
/// percent of a CPU.
fn called_by_others(foreseen: &[f64], quick: bool) -> Workload {
    const CALLED: [f64; 6] = [400e3, 400e3, 200e3, 3.0, 2.0, 0.0];
    let (attach, detach) = if quick { (8, 12) } else { (3_000, 4_000) };
    Workload {
        foreseen: foreseen.to_vec(),
        attach,
        detach,
        ..Workload::steady(&[MICROSECOND; 6], &CALLED, 1.0)
    }
}

#[test]
fn what_is_foreseen_to_be_busy_is_not_attached_to_find_that_out() {
    // A call of others costs less than one that is recorded; and what was seen for a moment is not what comes.
    for off in [0.5, 1.0, 3.0] {
        let foreseen = [400e3, 400e3, 200e3, 3.0, 2.0, 0.0].map(|rate| rate * off);
        let scene = called_by_others(&foreseen, true);
        let record = run(&scene, 120.0);
        let first = record.plans(0.0).next().unwrap();
        assert_eq!(first.attachments[3..], [Always; 3]);
        assert!(!first.attachments[..3].contains(&Always), "{first:?}");
        // Within the budget from its first moment on, but for a slice of what one cell is given.
        let slice = 0.03;
        let worst = record.worst_but_for(0.0..60.0, 10.0, slice);
        assert!(worst < 1.0, "{off}: {worst}");
        // And it is measured.
        assert!(record.told[0].slices > 3, "{off}: {:?}", record.told[0]);
        assert!(record.told[3].slices == 0 && record.told[3].missed == 0.0);
    }
    // Nobody knew: it is attached until the first look.
    let record = run(&called_by_others(&[], true), 120.0);
    let began: f64 = record.cost[..50].iter().sum();
    assert!(began > 0.04, "{began}");
}

#[test]
fn what_is_foreseen_to_cost_more_than_slices_may_is_left_alone_from_its_beginning_on() {
    let foreseen = [400e3, 400e3, 200e3, 3.0, 2.0, 0.0];
    let record = run(&called_by_others(&foreseen, false), 60.0);
    let cost: f64 = record.cost.iter().sum();
    // What hardly anybody calls is measured: five calls a second.
    assert!((2e-4..4e-4).contains(&cost), "{cost}");
    // Where nobody knew, others paid for as long as it takes to be detached.
    let record = run(&called_by_others(&[], false), 60.0);
    let cost: f64 = record.cost.iter().sum();
    assert!(cost > 3.0, "{cost}");
}
