use proptest::prelude::*;

use super::*;

const SHORT: SliceShape = SliceShape {
    open: 0.02,
    cell: 0.5,
    long: false,
};

#[test]
fn a_slice_stands_for_its_cell() {
    assert!((SHORT.weight() - 25.0).abs() < 1e-9);
    let all = SliceShape { open: 1.0, ..SHORT };
    assert_eq!(all.weight(), 1.0);
    assert_eq!(Spread::default().observe(100.0, &all), 0.0);
}

#[test]
fn slices_that_were_cut_short_are_made_up_for() {
    let passed = |seconds| Passed {
        own: seconds,
        wall: seconds,
    };
    let lasted = |seconds| Lasted {
        slice: passed(seconds),
        before: passed(0.48),
        probing: 0.0,
    };
    let mut balance = Balance::default();
    let factors: Vec<f64> = (0..100)
        .map(|_| balance.observe(&SHORT, &lasted(0.016)))
        .collect();
    // That might be chance at first, and is not for long.
    assert_eq!(factors[0], 1.0);
    assert!(factors.is_sorted());
    assert!((1.24..1.25).contains(&factors[99]), "{}", factors[99]);
    // As those are that last too long.
    let mut balance = Balance::default();
    assert_eq!(balance.factor(), 1.0);
    let factors = (0..100).map(|_| balance.observe(&SHORT, &lasted(0.03)));
    let last = factors.last().unwrap();
    assert!((2.0 / 3.0..0.7).contains(&last), "{last}");
    // By turns too long and not at all: that is chance, and as it should be.
    let mut balance = Balance::default();
    let turns = [0.04, 0.0];
    let factors = (0..100).map(|slice| balance.observe(&SHORT, &lasted(turns[slice % 2])));
    assert_eq!(factors.last().unwrap(), 1.0);
    let mut balance = Balance::default();
    let factors = (0..1000).map(|_| balance.observe(&SHORT, &lasted(0.0)));
    assert!((3.9..MOST).contains(&factors.last().unwrap()));
}

#[test]
fn a_process_works_while_little_more_passes_on_the_wall_than_of_its_own_time() {
    let mut passed = Passed::default();
    for (own, wall, works) in [
        (0.0, 0.0, false),
        (0.25, 0.0, false),
        (0.0, 0.3125, true),
        (0.0, 0.03125, false),
        (0.0625, 0.03125, true),
    ] {
        passed.add(Passed { own, wall });
        assert_eq!(passed.is_work(), works, "{passed:?}");
    }
    assert_eq!((passed.own, passed.wall), (0.3125, 0.375));
}

fn lasted(slice: Passed, before: Passed, probing: f64) -> Lasted {
    Lasted {
        slice,
        before,
        probing,
    }
}

#[test]
fn what_probes_take_of_a_process_with_time_to_spare_is_not_its_own() {
    let factor = |slice: Passed, before: &dyn Fn(u32) -> Passed| {
        let mut balance = Balance::default();
        let factors = (0..200).map(|number| {
            let lasted = lasted(slice, before(number), 0.0);
            balance.observe(&SHORT, &lasted)
        });
        factors.last().unwrap()
    };
    let passed = |own: f64, wall: f64| Passed { own, wall };
    // A tenth of its time in slices is the probes': each is over as much sooner.
    let slice = passed(0.02, 0.018);
    let steady = factor(slice, &|_| passed(0.48, 0.48));
    assert!((1.10..1.112).contains(&steady), "{steady}");
    // Between bursts nothing passes: that says nothing of how fast it does in them.
    let bursts = factor(slice, &|number| match number % 2 {
        0 => passed(0.48, 7.0),
        _ => passed(0.48, 0.48),
    });
    assert!((1.09..1.112).contains(&bursts), "{bursts}");
    let idle = factor(slice, &|_| passed(0.01, 7.0));
    assert_eq!(idle, 1.0);
    // A process that is busy all the time does less of its own in as much of the wall.
    let busy = factor(passed(0.02, 0.025), &|_| passed(0.48, 0.48));
    assert_eq!(busy, 1.0);
    // And no more is believed than that.
    let most = factor(passed(0.02, 0.01), &|_| passed(0.48, 0.48));
    assert_eq!(most, MOST_HIDDEN);
}

#[test]
fn what_probes_may_take_more_than_is_believed_is_in_doubt_where_nothing_shows_it() {
    let passed = |own: f64, wall: f64| Passed { own, wall };
    let after = |slices: u32, slice: Passed, before: Passed| {
        let mut balance = Balance::default();
        for _ in 0..slices {
            let lasted = lasted(slice, before, 0.2 * slice.own);
            balance.observe(&SHORT, &lasted);
        }
        balance.doubt()
    };
    let is = |doubt: f64, wanted: f64| {
        assert!((doubt - wanted).abs() < 1e-9, "{doubt}, not {wanted}");
    };
    let (slice, work) = (passed(0.02, 0.02), passed(0.48, 0.48));
    is(Balance::default().doubt(), 0.0);
    // A quarter of a fifth, where the process was idle before every slice.
    is(after(100, slice, passed(0.01, 7.0)), 0.05);
    // It worked, and went on at the same speed: they take what they are believed to.
    is(after(100, slice, work), 0.0);
    // It has no time to spare: what is its own passes slower by what they are believed to take, whatever that really is.
    is(after(100, passed(0.016, 0.02), work), 0.05);
    // Another speed each time says no more than calibration.
    let mut balance = Balance::default();
    for number in 0..100 {
        let wall = if number % 2 == 0 { 0.01 } else { 0.02 };
        let slice = passed(0.02, wall);
        let probing = 0.004;
        balance.observe(
            &SHORT,
            &Lasted {
                slice,
                before: work,
                probing,
            },
        );
    }
    let doubt = balance.doubt();
    assert!(doubt > 0.0 && doubt <= 0.05, "{doubt}");
}

#[test]
fn what_few_slices_show_of_what_probes_take_is_in_doubt_until_it_is_believed() {
    let passed = |own: f64, wall: f64| Passed { own, wall };
    let mut balance = Balance::default();
    // A tenth of its time in slices is the probes', of which a fiftieth was believed to be.
    let slice = |balance: &mut Balance| {
        let lasted = lasted(passed(0.02, 0.018), passed(0.48, 0.48), 0.0004);
        balance.observe(&SHORT, &lasted);
        [balance.factor() - 1.0, balance.doubt()]
    };
    let [corrected, doubt] = slice(&mut balance);
    assert_eq!(corrected, 0.0);
    assert!((0.11..0.112).contains(&doubt), "{doubt}");
    let all: Vec<[f64; 2]> = (0..99).map(|_| slice(&mut balance)).collect();
    // What is not corrected is in doubt, and nothing more.
    for [corrected, doubt] in &all[..8] {
        assert!(
            (0.11..0.112).contains(&(corrected + doubt)),
            "{corrected} {doubt}"
        );
    }
    let [corrected, doubt] = all[98];
    assert!(corrected > 0.105 && doubt <= 0.006, "{corrected} {doubt}");
}

#[test]
fn what_slices_lasted_long_ago_is_forgotten() {
    let passed = |own, wall| Passed { own, wall };
    let lasted = |seconds| Lasted {
        slice: passed(seconds, seconds),
        before: passed(0.48, 0.48),
        probing: 0.0,
    };
    let mut balance = Balance::default();
    let mut after = |slices: u32, seconds: f64| {
        for _ in 0..slices {
            balance.observe(&SHORT, &lasted(seconds));
        }
        balance.factor()
    };
    let late = after(1_000, 0.01);
    assert!((1.9..=2.0).contains(&late), "{late}");
    let on_time = after(2_000, 0.02);
    assert!((0.999..1.001).contains(&on_time), "{on_time}");
}

#[test]
fn of_variances_what_was_added_since_is_their_difference() {
    let [nine, four, five] = [9.0, 4.0, 5.0].map(Variance::new);
    assert_eq!(nine.since(four), five);
    assert_eq!(four.since(nine), Variance::default());
    let mut sum = four;
    sum += five;
    assert_eq!(sum, nine);
    assert!(Variance::default().is_zero() && !five.is_zero() && !Variance::UNKNOWN.is_zero());
}

#[test]
fn what_is_the_same_in_each_slice_has_no_error() {
    let mut spread = Spread::default();
    let all: Vec<f64> = (0..10).map(|_| spread.observe(40.0, &SHORT)).collect();
    assert_eq!(all, [0.0; 10]);
}

#[test]
fn how_far_off_the_first_slices_are_is_said_once_it_is_known() {
    // 40 and 60 by turns: each pair says 200, and of four 1.9 times as much is believed.
    let mut spread = Spread::default();
    let seen = |slice: u32| if slice.is_multiple_of(2) { 40.0 } else { 60.0 };
    let all: Vec<f64> = (0..6)
        .map(|slice| spread.observe(seen(slice), &SHORT))
        .collect();
    assert_eq!(all[..4], [0.0; 4]);
    let of_a_cell = 25.0 * 25.0 * 0.96 * 200.0;
    let [five, one] = [5.0 * (1.0 + 3.6 / 4.0), 1.0 + 3.6 / 5.0].map(|times| times * of_a_cell);
    assert!((all[4] / five - 1.0).abs() < 1e-9, "{} {five}", all[4]);
    assert!((all[5] / one - 1.0).abs() < 1e-9, "{} {one}", all[5]);
}

#[test]
fn slices_of_a_random_count_tell_how_much_it_varies() {
    // 40 or 60, by turns at random: the variance of one is 100.
    let mut spread = Spread::default();
    let mut state = 1_u64;
    let mut last = 0.0;
    for _ in 0..200 {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let seen = if state >> 63 == 0 { 40.0 } else { 60.0 };
        last = spread.observe(seen, &SHORT);
    }
    let one = last / (SHORT.weight().powi(2) * (1.0 - 1.0 / SHORT.weight()));
    assert!((60.0..150.0).contains(&one), "{one}");
}

#[test]
fn where_few_slices_make_up_the_scatter_there_may_have_been_more_of_them() {
    // One of each twenty sees nothing, and the others all the same.
    let after = |slices: u32| {
        let mut spread = Spread::default();
        let seen = (1..=slices).map(|slice| {
            let seen = if slice % 20 == 0 { 0.0 } else { 40.0 };
            spread.observe(seen, &SHORT)
        });
        let last = seen.last().unwrap();
        let of_a_cell = SHORT.cell * SHORT.cell * (1.0 - 1.0 / SHORT.weight());
        last / of_a_cell / spread.scatter[0].value
    };
    let is = |times: f64, wanted: f64| assert!((times / wanted - 1.0).abs() < 5e-3, "{times}");
    // One is known, of 38 slices with a neighbour on either side: as if there had been 1.8 more.
    is(after(39), 1.0 + 3.6 / 32.0 + 1.8 * (1.0 - 5.0 / 37.0));
    is(after(99), 1.0 + 3.6 / 32.0 + 1.8 * (1.0 / 4.0 - 5.0 / 97.0));
    // Of many it is no more than it was, and in the long run nothing at all.
    is(
        after(2_000),
        1.0 + 3.6 / 32.0 + 1.8 * (1.0 / 100.0 - 5.0 / 2_000.0),
    );
}

#[test]
fn of_few_slices_it_is_known_from_those_of_the_other_length() {
    let long = SliceShape {
        open: 0.1,
        long: true,
        ..SHORT
    };
    let mut spread = Spread::default();
    for slice in 1..=40 {
        spread.observe(if slice == 20 { 0.0 } else { 40.0 }, &SHORT);
    }
    spread.observe(200.0, &long);
    let variance = spread.observe(200.0, &long);
    // A pair of long ones, and 32 of short ones; of those one was alone, of 38.
    let scatter = spread.scatter[0].value * 32.0 / 33.0;
    let times = variance / (0.25 * (1.0 - 1.0 / long.weight())) / scatter;
    let wanted = 1.0 + 3.6 / 33.0 + 1.8 * (1.0 - 5.0 / 38.0);
    assert!((times / wanted - 1.0).abs() < 1e-2, "{times}, not {wanted}");
}

#[test]
fn of_few_slices_long_ones_tell_how_much_short_ones_differ_and_the_other_way_round() {
    let long = SliceShape {
        open: 0.1,
        long: true,
        ..SHORT
    };
    // By the second: of short ones a pair of 1,000 and 3,000, of long ones three of 1,000 between them.
    let seen = [
        (20.0, SHORT),
        (60.0, SHORT),
        (100.0, long),
        (200.0, long),
        (300.0, long),
        (400.0, long),
    ];
    let mut spread = Spread::default();
    let all = seen.map(|(seen, slice)| spread.observe(seen, &slice));
    assert_eq!(all[..5], [0.0; 5]);
    let scatter = (2000.0_f64.powi(2) / 2.0 + 3.0 * 1000.0_f64.powi(2) / 2.0) / 4.0;
    let cells = 0.25 * (2.0 * 0.96 + 4.0 * 0.8);
    let expected = scatter * (1.0 + 3.6 / 4.0) * cells;
    assert!(
        (all[5] / expected - 1.0).abs() < 1e-9,
        "{} {expected}",
        all[5]
    );
}

#[test]
fn what_comes_up_after_a_while_was_not_there_before() {
    let mut spread = Spread::of_unseen();
    let variance = spread.observe(10.0, &SHORT);
    // As far off as it is large, and twice that: one pair says little.
    assert!((variance.sqrt() / (250.0 * (0.96_f64 * 4.6 / 2.0).sqrt()) - 1.0).abs() < 1e-9);
    assert_eq!(spread.scatter[0].values, 1.0);
    assert!((spread.scatter[0].value - 500.0 * 500.0 / 2.0).abs() < 1e-6);
}

#[test]
fn a_cell_that_is_cut_off_in_its_middle_is_the_least_certain() {
    let mut spread = Spread::default();
    spread.observe(40.0, &SHORT);
    assert_eq!(spread.cut(1.0, 0.5), 0.0);
    assert_eq!(spread.cut(0.0, 0.5), 0.0);
    assert!((spread.cut(0.5, 0.5).sqrt() - 500.0).abs() < 1e-6);
}

/// Of a load that rises there are few slices of what it is by now.
#[test]
fn a_cell_that_is_cut_off_may_be_as_busy_as_what_was_seen_last() {
    let mut spread = Spread::default();
    (0..9).for_each(|_| {
        spread.observe(40.0, &SHORT);
    });
    spread.observe(400.0, &SHORT);
    assert!((spread.cut(0.5, 0.5).sqrt() - 5_000.0).abs() < 1e-6);
    // And of one that falls, as what it was on the average.
    spread.observe(0.0, &SHORT);
    let mean = (9.0 * 40.0 + 400.0) / 11.0 / 40.0;
    assert!((spread.cut(0.5, 0.5).sqrt() - 500.0 * mean).abs() < 1e-6);
}

#[test]
fn what_was_cut_off_before_anything_was_known_is_as_uncertain_once_it_is() {
    let mut spread = Spread::default();
    assert_eq!(spread.cut(0.5, 0.5), 0.0);
    let mut known = Spread::default();
    let [first, without] = [&mut spread, &mut known].map(|one| one.observe(40.0, &SHORT));
    assert!(((first - without).sqrt() - 500.0).abs() < 1e-6);
    assert_eq!(spread.observe(40.0, &SHORT), known.observe(40.0, &SHORT));
    // From the first slice on it is known at once, and not told again.
    let mut spread = Spread::default();
    spread.observe(40.0, &SHORT);
    assert!((spread.cut(0.5, 0.5).sqrt() - 500.0).abs() < 1e-6);
    assert_eq!(spread.observe(40.0, &SHORT), 0.0);
    // It comes to what is known of how much slices differ.
    let [mut spread, mut known] = [Spread::of_unseen(), Spread::of_unseen()];
    spread.cut(0.5, 0.5);
    let [first, without] = [&mut spread, &mut known].map(|one| one.observe(40.0, &SHORT));
    assert!(without > 0.0 && ((first - without).sqrt() - 500.0).abs() < 1e-6);
}

proptest! {
    #[test]
    fn variances_add_in_any_order(values in prop::collection::vec(0.0..1e12f64, 0..20)) {
        let sum = |values: &mut dyn Iterator<Item = &f64>| {
            let mut sum = Variance::default();
            values.for_each(|value| sum += Variance::new(*value));
            sum
        };
        prop_assert_eq!(sum(&mut values.iter()), sum(&mut values.iter().rev()));
    }

    #[test]
    fn what_is_not_known_stays_so_whatever_is_added(more in 0.0..1e12f64) {
        let mut sum = Variance::new(more);
        sum += Variance::UNKNOWN;
        sum += Variance::new(more);
        prop_assert_eq!(sum.deviation(), f64::INFINITY);
        prop_assert!(sum.since(sum).is_zero());
    }

    #[test]
    fn nonsense_has_no_error_that_is_none(value in any::<f64>()) {
        let deviation = Variance::new(value).deviation();
        prop_assert!(deviation.is_finite() && deviation >= 0.0);
    }
}
