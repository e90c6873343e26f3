use std::time::Duration;

use proptest::prelude::*;

use super::Attachment::*;
use super::*;

mod closed_loop;
mod cycle;
mod estimator;
mod simulator;
mod zoo;

const MICROSECOND: f64 = 1e-6;

/// Get, TxnGet, TxnPut, Commit, Write and IteratorNew of a CKB node that imports blocks, per second.
const IMPORT: [f64; 6] = [60e3, 50e3, 60e3, 300.0, 100.0, 200.0];

/// The same of one that mines 50 blocks a second.
const MINING: [f64; 6] = [1400.0, 1150.0, 1400.0, 50.0, 50.0, 50.0];

const PERCENT: Budget = Budget {
    ratio: 0.01,
    floor: 0.01 * IDLE,
    duty: 1.0,
    known: Duration::MAX,
    edge: Duration::from_millis(10),
    turnaround: Duration::from_millis(20),
};

/// As if the target used so much more.
const IDLE: f64 = 0.0002;

fn loads(rates: &[f64]) -> Vec<Load> {
    let load = |&rate: &f64| Load {
        hits_per_second: Some(rate),
        peak: rate,
        cost: Duration::from_secs_f64(1.1 * MICROSECOND),
    };
    rates.iter().map(load).collect()
}

/// The plan for loads that are known, after none.
fn fresh(rates: &[f64], cpu: f64) -> Plan {
    plan(&loads(rates), cpu, PERCENT, Spent::default(), None)
}

/// The plan that follows another after 100 ms that cost what they were to.
fn after(last: &Plan, rates: &[f64], cpu: f64) -> Plan {
    let spent = Spent {
        elapsed: Duration::from_millis(100),
        cost: last.estimate() * 0.1,
        own: cpu * 0.1,
        ..Spent::default()
    };
    plan(&loads(rates), cpu, PERCENT, spent, Some(last))
}

/// The plan that follows another in which probing cost so much too much.
fn overspent(last: &Plan, rates: &[f64], cpu: f64, cost: f64) -> Plan {
    let spent = Spent {
        cost,
        ..Spent::default()
    };
    plan(&loads(rates), cpu, PERCENT, spent, Some(last))
}

#[test]
fn nothing_to_measure_needs_no_plan() {
    let plan = fresh(&[], 1.4);
    assert_eq!((plan.attachments.len(), plan.slices), (0, None));
    assert_eq!(plan.estimate(), 0.0);
    assert_eq!(plan.share(0), 0.0);
}

#[test]
fn what_fits_is_always_attached() {
    let plan = fresh(&[2000.0, 300.0, 100.0], 1.4);
    assert_eq!(plan.attachments, [Always; 3]);
    assert_eq!(plan.slices, None);
    assert!((plan.estimate() - 2400.0 * 1.1 * MICROSECOND).abs() < 1e-12);
    assert_eq!(plan.share(0), 1.0);
}

/// 1 % of 1.4 is 14 ms of probing a second, of which 12.6 are planned for; the rare operations cost 0.66, and the busy
/// ones 187 while attached: 6.4 % of the time, which is 21 slices in 10 s, of which 20 may be planned.
#[test]
fn an_import_is_sliced_but_for_what_is_rare() {
    let plan = fresh(&IMPORT, 1.4);
    assert_eq!(
        plan.attachments,
        [Sliced, Sliced, Sliced, Always, Always, Always]
    );
    // Of those of the usual length; with the long ones, as many as half a second each.
    let slices = plan.slices.unwrap();
    assert!(
        (0.3..0.5).contains(&slices.period.as_secs_f64()),
        "{slices:?}"
    );
    assert!((plan.share(0) - 0.0408).abs() < 1e-3, "{}", plan.share(0));
    assert!((plan.estimate() / 0.014 - 0.86).abs() < 0.005);
}

/// Get, TxnGet and TxnPut as often as in a real import, which can be halved: each half costs 112 while attached, and has its
/// turn in every other of slices that last as long again.
#[test]
fn halves_take_turns_and_are_recorded_for_as_much_of_the_time() {
    let halved = fresh(&[32e3, 66e3, 102e3, 2e3], 1.4);
    assert_eq!(
        halved.turns,
        [Turn::Odd, Turn::Odd, Turn::Even, Turn::Every]
    );
    let slices = halved.slices.unwrap();
    assert!(
        (0.3..0.5).contains(&slices.period.as_secs_f64()),
        "{slices:?}"
    );
    let [least, most] = [0.9, 1.2].map(|times| times * fresh(&[200e3, 2e3], 1.4).share(0));
    assert!((least..most).contains(&halved.share(0)));
    assert_eq!(halved.share(0), slices.share() / 2.0);
}

/// The same of a target that uses little: even halves would have their slice once in half a minute.
#[test]
fn nobody_waits_for_a_turn_where_slices_are_rare() {
    let rare = fresh(&[32e3, 66e3, 102e3], 0.02);
    assert_eq!(rare.attachments, [Sliced; 3]);
    assert_eq!(rare.turns, [Turn::Every; 3]);
    assert!(rare.slices.unwrap().period > Duration::from_secs(10));
}

/// 4,100 calls a second at 1.1 µs cost 15 % of 0.03 CPUs. At 1 % each of six operations may cost 45 µs a second, and 50
/// commits cost 55; at 2 % they fit.
#[test]
fn mining_is_sliced_and_its_commits_are_not_when_there_is_room() {
    let plan = fresh(&MINING, 0.03);
    assert_eq!(plan.attachments, [Sliced; 6]);
    let period = plan.slices.unwrap().period.as_secs_f64();
    assert!((0.3..0.6).contains(&period), "{period}");
    let plan = fresh(&MINING, 0.06);
    assert_eq!(
        plan.attachments,
        [Sliced, Sliced, Sliced, Always, Always, Always]
    );
}

#[test]
fn unknown_loads_are_attached_until_they_are_known() {
    let unknown = Load {
        hits_per_second: None,
        peak: 0.0,
        cost: Duration::from_micros(1),
    };
    let first = plan(&[unknown; 6], 0.0, PERCENT, Spent::default(), None);
    assert_eq!(
        (&first.attachments[..], first.slices),
        (&[Always; 6][..], None)
    );
    // What it cost is owed, but keeps nothing from being attached that is rare.
    let known = overspent(&first, &IMPORT, 1.4, 0.1);
    assert!(known.debt > 0.09);
    assert_eq!(known.attachments[3..], [Always; 3]);
}

#[test]
fn what_is_far_too_busy_is_off_and_leaves_the_rest_its_slices() {
    let rates = [0.1 / MICROSECOND, 500.0, 400.0, 10.0];
    let plan = fresh(&rates, 0.005);
    assert_eq!(plan.attachments, [Off, Sliced, Sliced, Always]);
    assert_eq!(plan.share(0), 0.0);
}

#[test]
fn what_was_off_comes_back_well_below_where_it_left() {
    let off = fresh(&[0.1 / MICROSECOND], 0.005);
    assert_eq!(off.attachments, [Off]);
    // In 120 s may be two slices of 30 ms, at 94 ms a second.
    assert_eq!(fresh(&[0.06 / MICROSECOND], 0.005).attachments, [Sliced]);
    let off = after(&off, &[0.06 / MICROSECOND], 0.005);
    assert_eq!(off.attachments, [Off]);
    let back = after(&off, &[0.05 / MICROSECOND], 0.005);
    assert_eq!(back.attachments, [Sliced]);
}

#[test]
fn an_idle_target_keeps_a_few_hits_per_second() {
    assert_eq!(fresh(&[0.0; 6], 0.0).attachments, [Always; 6]);
    assert_eq!(fresh(&[1.0, 0.0], 0.0).attachments, [Always; 2]);
    assert_eq!(fresh(&[60e3, 0.0], 0.0).attachments, [Off, Always]);
}

#[test]
fn a_load_comes_back_well_below_where_it_left() {
    // What is planned for is 12.6 ms a second: 11,456 hits.
    let all = fresh(&[11e3], 1.4);
    assert_eq!(all.attachments, [Always]);
    let left = after(&all, &[12e3], 1.4);
    assert_eq!(left.attachments, [Sliced]);
    let stays = after(&left, &[7e3], 1.4);
    assert_eq!(stays.attachments, [Sliced]);
    let back = after(&stays, &[6.8e3], 1.4);
    assert_eq!(back.attachments, [Always]);
}

#[test]
fn debt_lowers_the_budget_and_keeps_what_is_sliced_from_coming_back() {
    let import = fresh(&IMPORT, 1.4);
    let second = 0.01 * (1.4 + IDLE);
    let indebted = overspent(&import, &IMPORT, 1.4, 3.0 * second);
    assert!((indebted.debt - 3.0 * second).abs() < 1e-12);
    assert!(indebted.estimate() < 0.5 * import.estimate());
    let quiet = after(&indebted, &[10.0; 6], 1.4);
    assert_eq!(quiet.attachments, indebted.attachments);
    assert!(quiet.share(0) < 1.5 * indebted.share(0));
    let repaid = Spent {
        elapsed: Duration::from_secs(3),
        own: 4.2,
        ..Spent::default()
    };
    let back = plan(&loads(&[10.0; 6]), 1.4, PERCENT, repaid, Some(&indebted));
    assert_eq!(back.attachments, [Always; 6]);
}

#[test]
fn debt_and_savings_are_bounded() {
    let few = [100.0];
    let second = 0.01 * (1.4 + IDLE);
    let deep = overspent(&fresh(&few, 1.4), &few, 1.4, 1e6);
    assert!((deep.debt - 60.0 * second).abs() < 1e-12);
    assert_eq!(deep.attachments, [Always]);
    let rich = overspent(&deep, &few, 1.4, -1e6);
    assert!((rich.debt + second).abs() < 1e-12);
}

#[test]
fn what_others_pay_is_bounded_however_much_the_target_uses() {
    let all = |budget: Budget, cpu| (budget.ratio * cpu + budget.floor) * budget.duty;
    let of = |ratio, floor, duty| Budget {
        ratio,
        floor,
        duty,
        ..PERCENT
    };
    // Sixteen busy cores buy 0.8 of a core, of which others are to pay 0.16 at most.
    let busy = of(0.05, 0.001, 1.0);
    assert!((all(busy.within(0.16, 16.0), 16.0) - 0.16).abs() < 1e-9);
    // What is less stays as it is, and so it does for who is idle most of the time.
    assert_eq!(busy.within(0.16, 1.0), busy);
    let rare = of(0.05, 0.1, 0.01);
    assert_eq!(rare.within(0.16, 16.0), rare);
    // Neither what is granted besides nor how seldom it is busy gets around it.
    for (ratio, floor, duty) in [(0.05, 1.0, 1.0), (0.0, 5.0, 0.5), (0.5, 1e9, 1e-6)] {
        let bounded = of(ratio, floor, duty).within(0.02, 64.0);
        assert!(all(bounded, 64.0) <= 0.02 * 1.000_001, "{bounded:?}");
    }
    let none = of(0.05, 0.1, 0.0).within(f64::NAN, f64::INFINITY);
    assert!(none.ratio >= 0.0 && none.floor >= 0.0, "{none:?}");
}

#[test]
fn a_slice_may_not_outlast_its_period_whatever_the_edge() {
    for edge in [0, 20, 1000, 1_000_000] {
        let budget = Budget {
            ratio: 0.5,
            edge: Duration::from_millis(edge),
            ..PERCENT
        };
        let plan = plan(&loads(&[0.2e6; 3]), 1.0, budget, Spent::default(), None);
        let slices = plan.slices.unwrap();
        assert!(slices.attached <= slices.period);
        let (open, cell) = slices.drawn(true, 1.0);
        assert!(open <= cell);
    }
}

prop_compose! {
    /// Anything between a hit in ten seconds and a million a second, or nothing.
    fn rate()(exponent in -1.0..6.0f64, zero in prop::bool::weighted(0.05)) -> f64 {
        if zero { 0.0 } else { 10f64.powf(exponent) }
    }
}

prop_compose! {
    fn target()(
        operations in prop::collection::vec((rate(), 0.5..20.0f64), 1..64),
        cpu in -3.0..1.5f64,
        ratio in -4.0..-0.3f64,
        edge in 0..100u64,
    ) -> (Vec<Load>, f64, Budget) {
        let load = |(rate, cost)| Load {
            hits_per_second: Some(rate),
            peak: rate,
            cost: Duration::from_secs_f64(cost * MICROSECOND),
        };
        let ratio = 10f64.powf(ratio);
        let budget = Budget { ratio, floor: ratio * IDLE, edge: Duration::from_millis(edge), ..PERCENT };
        (operations.into_iter().map(load).collect(), 10f64.powf(cpu), budget)
    }
}

fn full(load: &Load) -> f64 {
    load.hits_per_second.unwrap() * load.cost.as_secs_f64()
}

proptest! {
    /// Whatever came before, what is planned fits: on the average. How far a minute may be from that is the zoo's to say.
    #[test]
    fn no_plan_is_above_the_budget(
        (loads, cpu, budget) in target(),
        changes in prop::collection::vec(0.1..10.0f64, 1..5),
        cost in 0.0..0.1f64,
    ) {
        let granted = budget.ratio * (cpu + IDLE);
        let mut last = None;
        for change in changes {
            let mut loads = loads.clone();
            for (i, load) in loads.iter_mut().enumerate() {
                load.hits_per_second = load.hits_per_second.map(|rate| rate * change.powi(i as i32 % 3 - 1));
            }
            let spent = Spent { elapsed: Duration::from_millis(100), cost, own: cpu * 0.1, ..Spent::default() };
            let plan = plan(&loads, cpu, budget, spent, last.as_ref());
            prop_assert!(plan.estimate() <= granted * 0.9 * (1.0 + 1e-6));
            if let Some(slices) = plan.slices {
                prop_assert!(slices.attached < slices.period);
                let (open, cell) = slices.drawn(true, 1.0);
                prop_assert!(open < cell);
            }
            last = Some(plan);
        }
    }

    /// Something is always measured, and as much as fits: no plan leaves more than two thirds of the budget unused,
    /// unless all is attached, or one slice more is too much.
    #[test]
    fn a_fresh_plan_uses_its_budget((loads, cpu, budget) in target()) {
        let plan = plan(&loads, cpu, budget, Spent::default(), None);
        let granted = 0.9 * budget.ratio * (cpu + IDLE);
        if !plan.attachments.contains(&Off) && plan.attachments.contains(&Sliced) {
            prop_assert!(plan.estimate() >= 0.49 * granted);
        }
    }

    #[test]
    fn the_rarer_are_measured_no_less((loads, cpu, budget) in target()) {
        let plan = plan(&loads, cpu, budget, Spent::default(), None);
        for (i, rarer) in loads.iter().enumerate() {
            for (j, busier) in loads.iter().enumerate() {
                prop_assert!(full(rarer) > full(busier) || plan.share(i) >= plan.share(j));
            }
        }
    }

    /// After another plan too, except between neighbours: there, hysteresis may keep the busier one attached.
    #[test]
    fn the_much_rarer_are_measured_no_less_after_any_plan(
        (loads, cpu, budget) in target(),
        change in prop::collection::vec(0.01..100.0f64, 64),
    ) {
        let before: Vec<Load> = loads.iter().zip(change).map(|(load, change)| Load {
            hits_per_second: load.hits_per_second.map(|rate| rate * change),
            ..*load
        }).collect();
        let last = plan(&before, cpu, budget, Spent::default(), None);
        let plan = plan(&loads, cpu, budget, Spent::default(), Some(&last));
        for (i, rarer) in loads.iter().enumerate() {
            for (j, busier) in loads.iter().enumerate() {
                prop_assert!(full(rarer) > 0.599 * full(busier) || plan.share(i) >= plan.share(j));
            }
        }
    }

    #[test]
    fn the_order_of_operations_does_not_matter(
        (loads, cpu, budget) in target(),
        cost in 0.0..0.01f64,
        turn in 0..64usize,
    ) {
        let spent = Spent { elapsed: Duration::from_millis(100), cost, own: 0.1 * cpu, ..Spent::default() };
        let turn = turn % loads.len();
        let permuted = |mut loads: Vec<Load>| {
            loads.reverse();
            loads.rotate_left(turn);
            loads
        };
        let first = plan(&loads, cpu, budget, spent, None);
        let second = plan(&loads, cpu, budget, spent, Some(&first));
        let other = plan(&permuted(loads.clone()), cpu, budget, spent, None);
        let mut other = plan(&permuted(loads), cpu, budget, spent, Some(&other));
        other.attachments.rotate_right(turn);
        other.attachments.reverse();
        other.turns.rotate_right(turn);
        other.turns.reverse();
        prop_assert_eq!(second, other);
    }

    /// Nonsense in, a plan out.
    #[test]
    fn no_input_makes_it_panic_or_plan_nonsense(
        rates in prop::collection::vec(prop::option::of(any::<f64>()), 0..8),
        seconds in any::<u32>(),
        [cpu, ratio, cost, own] in any::<[f64; 4]>(),
        again in any::<[f64; 2]>(),
    ) {
        let load = |hits_per_second| Load { hits_per_second, peak: cost, cost: Duration::from_secs(seconds.into()) };
        let loads: Vec<Load> = rates.into_iter().map(load).collect();
        let budget = Budget { ratio, floor: cost, duty: own, known: Duration::from_secs(seconds.into()), edge: Duration::from_millis(seconds.into()), turnaround: Duration::from_secs(seconds.into()) };
        let spent = Spent { elapsed: Duration::from_secs(seconds.into()), cost, own, ..Spent::default() };
        let first = plan(&loads, cpu, budget, spent, None);
        let second = plan(&loads, again[0], budget, spent, Some(&first));
        let third = plan(&loads, again[1], PERCENT, spent, Some(&second));
        for plan in [first, second, third] {
            prop_assert!(plan.estimate().is_finite() && plan.debt.is_finite());
            for i in 0..loads.len() {
                prop_assert!((0.0..=1.0).contains(&plan.share(i)));
            }
        }
    }
}
