use super::{simulator::Random, *};

const fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// Goes on until the cycle switches, and says when.
fn switch(cycle: &mut Cycle, plan: &Plan, random: f64) -> (Duration, Switch) {
    loop {
        let now = cycle.next(plan).unwrap();
        if let Some(switch) = cycle.step(plan, now, random) {
            return (now, switch);
        }
    }
}

/// Lets a slice that begins take these times for attaching and detaching; returns when it began and when it was over.
fn slice(
    cycle: &mut Cycle,
    plan: &Plan,
    random: f64,
    edges: [Duration; 2],
) -> (Duration, Duration) {
    let (begin, attach) = switch(cycle, plan, random);
    assert_eq!(attach, Switch::Attach);
    cycle.opened(begin + edges[0]);
    let (end, detach) = switch(cycle, plan, random);
    assert_eq!(detach, Switch::Detach);
    cycle.closed(plan, end + edges[1]);
    (begin, end + edges[1])
}

const EDGES: [Duration; 2] = [ms(8), ms(12)];

#[test]
fn the_first_look_is_paid_for_like_a_slice() {
    let plan = fresh(&IMPORT, 1.4);
    let slices = plan.slices.unwrap();
    let mut cycle = Cycle::looking(ms(700));
    assert_eq!(cycle.next(&plan), None, "it has not ended");
    cycle.closed(&plan, ms(700) + slices.attached * 2);
    assert_eq!(cycle.next(&plan), Some(ms(700) + slices.period * 2));
}

#[test]
fn the_first_slice_begins_at_once_and_later_ones_where_chance_puts_them() {
    let plan = fresh(&IMPORT, 1.4);
    let slices = plan.slices.unwrap();
    let mut cycle = Cycle::new(ms(700));
    let first = slice(&mut cycle, &plan, 0.5, EDGES);
    assert_eq!(first, (ms(700), ms(700) + slices.open + ms(20)));
    let second = slice(&mut cycle, &plan, 0.5, EDGES);
    assert_eq!(second.0, ms(700) + slices.period + slices.start(0.5));
}

#[test]
fn a_slice_that_took_twice_as_long_is_paid_for_twice_as_long() {
    let plan = fresh(&IMPORT, 1.4);
    let slices = plan.slices.unwrap();
    let mut cycle = Cycle::new(ms(0));
    slice(
        &mut cycle,
        &plan,
        0.0,
        [EDGES[0], EDGES[1] + slices.attached * 2],
    );
    let (next, _) = switch(&mut cycle, &plan, 0.0);
    assert!(next.abs_diff(slices.period * 2) < ms(1));
}

#[test]
fn a_longer_period_does_not_put_off_what_is_due_and_a_shorter_one_brings_it_forward() {
    let (short, long) = (fresh(&[30e3; 3], 1.4), fresh(&[300e3; 3], 1.4));
    let periods = [&short, &long].map(|plan| plan.slices.unwrap().period);
    assert!(periods[0] * 2 < periods[1]);
    let mut cycle = Cycle::new(ms(0));
    slice(&mut cycle, &short, 0.0, EDGES);
    assert_eq!(cycle.next(&long), Some(periods[0]));
    assert_eq!(cycle.step(&short, periods[0], 0.5), None);
    let due = periods[0] + short.slices.unwrap().start(0.5);
    assert_eq!(cycle.next(&long), Some(due));

    let mut cycle = Cycle::new(ms(0));
    slice(&mut cycle, &long, 0.0, EDGES);
    let forward = cycle.next(&short).unwrap();
    assert!(forward < periods[1] && forward >= periods[0]);
}

#[test]
fn of_the_plans_in_a_cell_the_shortest_slice_counts() {
    let (longer, shorter) = (fresh(&[30e3; 3], 1.4), fresh(&[300e3; 3], 1.4));
    let [most, least] = [&longer, &shorter].map(|plan| plan.slices.unwrap().open);
    assert!(least < most);
    for [at_first, later, at_last, open] in [
        [&longer, &longer, &longer, &longer],
        [&shorter, &longer, &longer, &shorter],
        [&longer, &shorter, &longer, &shorter],
        [&longer, &longer, &shorter, &shorter],
    ] {
        let mut cycle = Cycle::new(ms(0));
        slice(&mut cycle, &longer, 0.0, EDGES);
        assert_eq!(cycle.step(at_first, ms(100_000), 0.0), None);
        assert_eq!(cycle.step(later, ms(100_000), 0.0), Some(Switch::Attach));
        cycle.opened(ms(100_010));
        let open = open.slices.unwrap().open;
        assert_eq!(cycle.next(at_last), Some(ms(100_010) + open));
    }
}

#[test]
fn a_slice_ends_when_nothing_is_sliced_any_more_and_none_begins() {
    let (sliced, all) = (fresh(&IMPORT, 1.4), fresh(&[10.0; 6], 1.4));
    let mut cycle = Cycle::new(ms(0));
    assert_eq!(cycle.step(&sliced, ms(0), 0.0), Some(Switch::Attach));
    cycle.opened(ms(8));
    assert_eq!(cycle.step(&all, ms(9), 0.0), Some(Switch::Detach));
    cycle.closed(&all, ms(21));
    assert_eq!(cycle.next(&all), None);
    assert_eq!(cycle.step(&all, ms(10_000), 0.0), None);
    // Later again: in a cell of its own, at a place of its own.
    assert_eq!(cycle.step(&sliced, ms(20_000), 0.5), None);
    let start = sliced.slices.unwrap().start(0.5);
    assert_eq!(cycle.next(&sliced), Some(ms(20_000) + start));
    // And not at all, if the plan changes before.
    assert_eq!(cycle.step(&all, ms(20_100), 0.0), None);
    assert_eq!(cycle.next(&all), None);
}

/// Against a rhythm of the target that is just as long as the period, slices begin in each tenth of it equally often.
#[test]
fn slices_begin_anywhere_in_the_period_equally_often() {
    let plan = fresh(&IMPORT, 1.4);
    let slices = plan.slices.unwrap();
    let mut random = Random(7);
    let mut cycle = Cycle::new(ms(0));
    let mut tenths = [0; 10];
    for cell in 0..10_000 {
        let random = if cell == 0 { 0.0 } else { random.next() };
        let (begin, end) = slice(&mut cycle, &plan, random, EDGES);
        let place = begin - slices.period * cell;
        assert!(end <= slices.period * (cell + 1) + ms(1));
        let share = place.as_secs_f64() / slices.start(1.0).as_secs_f64();
        tenths[(share * 10.0) as usize] += 1;
    }
    // 1,000 each, with a standard deviation of 30.
    assert!(
        tenths.iter().all(|count| (870..1130).contains(count)),
        "{tenths:?}"
    );
}
