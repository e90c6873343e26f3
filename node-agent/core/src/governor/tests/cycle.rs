use super::{simulator::Random, *};

const fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

const SLICES: Slices = Slices {
    open: ms(20),
    attached: ms(30),
    period: ms(500),
};

const LEAD: Duration = ms(10);

/// A cycle that began at a time, of which nothing of the first cell had passed, with short slices in the middle of their cells.
fn begun(at: Duration) -> Cycle {
    let mut draws = [0.5, 0.5, 0.0, 0.0, 0.5].into_iter();
    let mut cycle = Cycle::default();
    cycle.restart(Some(SLICES), LEAD, at, || draws.next().unwrap());
    cycle
}

/// Goes to where it switches next, and says when that is.
fn switch(cycle: &mut Cycle) -> (Duration, Switch) {
    let due = cycle.next().unwrap();
    assert_eq!(cycle.step(due - Duration::from_nanos(1)), None);
    (due, cycle.step(due).unwrap())
}

/// Lets the slice of this cell pass; returns when it counted.
fn slice(cycle: &mut Cycle) -> std::ops::Range<Duration> {
    slice_gone_at(cycle, Duration::ZERO)
}

/// The same, and then its probes are there for as long.
fn slice_gone_at(cycle: &mut Cycle, gone: Duration) -> std::ops::Range<Duration> {
    let (attach, switched) = switch(cycle);
    assert_eq!(switched, Switch::Attach);
    cycle.attached(attach + LEAD);
    let (begin, switched) = switch(cycle);
    assert_eq!(switched, Switch::Count);
    let (end, switched) = switch(cycle);
    assert_eq!(switched, Switch::Detach);
    cycle.detached(end.max(gone));
    begin..end
}

#[test]
fn where_nothing_is_sliced_nothing_is_due() {
    let mut cycle = begun(ms(700));
    assert!(!cycle.is_idle());
    cycle.restart(None, LEAD, ms(800), || {
        unreachable!("there is nothing to place")
    });
    assert!(cycle.is_idle());
    assert_eq!(
        (cycle.next(), cycle.step(ms(100_000)), cycle.slice()),
        (None, None, None)
    );
    assert_eq!(cycle.bounds(), None);
    cycle.next_cell(Some(SLICES), LEAD, ms(900), || 0.5);
    assert!(
        cycle.is_idle(),
        "what did not end is not followed by anything"
    );
}

/// The next one is drawn as soon as its slice may have to be attached.
#[test]
fn a_slice_is_attached_then_counts_then_is_detached_and_its_cell_ends() {
    let mut cycle = begun(ms(700));
    let drawn = Slice {
        open: ms(20),
        cell: ms(500),
        long: false,
    };
    assert_eq!(cycle.slice(), Some(drawn));
    assert_eq!(
        (drawn.shape().weight(), drawn.shape_of_two().weight()),
        (25.0, 50.0)
    );
    let attach = ms(700) + ms(250) - LEAD;
    assert_eq!(switch(&mut cycle), (attach, Switch::Attach));
    assert_eq!(cycle.next(), None, "attaching takes as long as it takes");
    cycle.attached(attach + ms(4));
    assert_eq!(
        switch(&mut cycle),
        (attach + LEAD, Switch::Count),
        "however soon it was attached"
    );
    assert_eq!(switch(&mut cycle), (attach + LEAD + ms(20), Switch::Detach));
    assert_eq!(cycle.next(), None);
    cycle.detached(attach + LEAD + ms(25));
    assert_eq!(switch(&mut cycle), (ms(1200) - LEAD, Switch::EndCell));
    assert_eq!(cycle.bounds(), Some(ms(700)..ms(1200)));
}

#[test]
fn what_takes_longer_to_attach_begins_later_and_counts_as_long() {
    let mut cycle = begun(ms(0));
    let (attach, _) = switch(&mut cycle);
    cycle.attached(attach + LEAD + ms(33));
    assert_eq!(switch(&mut cycle), (attach + LEAD + ms(33), Switch::Count));
    assert_eq!(switch(&mut cycle), (attach + LEAD + ms(53), Switch::Detach));
    cycle.detached(attach + LEAD + ms(60));
    assert_eq!(switch(&mut cycle), (ms(500) - LEAD, Switch::EndCell));
}

/// Bursts begin faster than anybody looks: the slice that would have begun as it was looked for is as long as any, not what is left of it.
#[test]
fn what_is_looked_for_late_and_attached_later_still_counts_as_long_as_from_that_look() {
    let mut cycle = begun(ms(0));
    let begin = cycle.next().unwrap() + LEAD;
    // At that look it would have counted, for 15 of its 20 ms.
    let since = begin + ms(5);
    assert_eq!(cycle.step(since), Some(Switch::Attach));
    cycle.attached(since + ms(8));
    assert_eq!(cycle.step(since + ms(8)), Some(Switch::Count));
    assert_eq!(switch(&mut cycle), (since + ms(8) + ms(15), Switch::Detach));
}

/// What counts has to be told from what was counted before, which takes a while, too.
#[test]
fn what_counts_later_than_it_was_to_counts_as_long() {
    let mut cycle = begun(ms(0));
    let (attach, _) = switch(&mut cycle);
    cycle.attached(attach);
    let (begin, _) = switch(&mut cycle);
    cycle.counting(ms(2));
    assert_eq!(switch(&mut cycle), (begin + ms(22), Switch::Detach));
}

#[test]
fn what_was_to_begin_before_the_last_slice_was_gone_begins_after_it_and_counts_as_long() {
    let mut cycle = begun(ms(0));
    slice_gone_at(&mut cycle, ms(492));
    assert_eq!(cycle.step(ms(492)), Some(Switch::EndCell));
    cycle.next_cell(Some(SLICES), LEAD, ms(492), || 0.0);
    assert_eq!(switch(&mut cycle), (ms(492), Switch::Attach));
    cycle.attached(ms(502));
    assert_eq!(switch(&mut cycle), (ms(502), Switch::Count));
    assert_eq!(switch(&mut cycle), (ms(522), Switch::Detach));
}

/// A beginning that is looked for late is no reason for a later end: whoever looks is late for that, too.
#[test]
fn a_slice_that_passed_between_two_looks_counts_nothing() {
    let mut cycle = begun(ms(0));
    let (attach, _) = switch(&mut cycle);
    cycle.attached(attach + ms(1));
    let late = attach + ms(100);
    assert_eq!(cycle.step(late), Some(Switch::Count));
    assert_eq!(cycle.step(late), Some(Switch::Detach));
}

#[test]
fn a_cell_begins_where_the_last_one_ended_however_late_it_is() {
    let mut cycle = begun(ms(0));
    slice(&mut cycle);
    assert_eq!(cycle.step(ms(650)), Some(Switch::EndCell));
    let longer = Slices {
        period: ms(800),
        ..SLICES
    };
    cycle.next_cell(Some(longer), LEAD, ms(650), || 0.5);
    assert_eq!(cycle.bounds(), Some(ms(500)..ms(1000)), "of the same pair");
    slice(&mut cycle);
    assert_eq!(cycle.step(ms(1000)), Some(Switch::EndCell));
    cycle.next_cell(Some(longer), LEAD, ms(1000), || 0.5);
    let drawn = "as the plan said when the cell before began";
    assert_eq!(cycle.bounds(), Some(ms(1000)..ms(1800)), "{drawn}");
    // Nobody could look into those of 1,800, 2,600 and 3,400 ms.
    slice(&mut cycle);
    assert_eq!(cycle.step(ms(4250)), Some(Switch::EndCell));
    cycle.next_cell(None, LEAD, ms(4250), || 0.5);
    assert_eq!(cycle.bounds(), Some(ms(4200)..ms(5000)), "of the same pair");
    slice(&mut cycle);
    assert_eq!(cycle.step(ms(5000)), Some(Switch::EndCell));
    cycle.next_cell(None, LEAD, ms(5000), || 0.5);
    assert!(cycle.is_idle());
}

#[test]
fn the_second_of_two_cells_is_as_long_and_has_its_slice_elsewhere() {
    let mut cycle = begun(ms(0));
    let first = (slice(&mut cycle), cycle.slice());
    assert_eq!(cycle.step(ms(500)), Some(Switch::EndCell));
    assert!(!cycle.is_second() && cycle.takes(Turn::Even) && !cycle.takes(Turn::Odd));
    cycle.next_cell(Some(SLICES), LEAD, ms(500), || 0.0);
    assert!(cycle.is_second() && cycle.takes(Turn::Odd) && !cycle.takes(Turn::Even));
    assert!(cycle.takes(Turn::Every));
    assert_eq!(cycle.slice(), first.1);
    assert_eq!(slice(&mut cycle), ms(500)..ms(520));
    assert_eq!(switch(&mut cycle), (ms(1000) - LEAD, Switch::EndCell));
}

#[test]
fn a_slice_that_would_last_beyond_its_cell_comes_in_two_pieces_and_well_before_the_next() {
    let mut cycle = begun(ms(0));
    slice(&mut cycle);
    assert_eq!(cycle.step(ms(490)), Some(Switch::EndCell));
    // What would last beyond the cell is at its beginning.
    cycle.next_cell(Some(SLICES), LEAD, ms(490), || 0.99);
    assert_eq!(slice(&mut cycle), ms(500)..ms(515));
    assert_eq!(slice(&mut cycle), ms(995)..ms(1000));
    assert_eq!(cycle.step(ms(1000)), Some(Switch::EndCell));
    // It would have begun at once; the one before is gone as it ends.
    let mut draws = [0.5, 0.5, 0.0, 0.0].into_iter();
    cycle.next_cell(Some(SLICES), LEAD, ms(1000), || draws.next().unwrap());
    assert_eq!(slice(&mut cycle), ms(1010)..ms(1030));
    assert_eq!(cycle.bounds(), Some(ms(1000)..ms(1500)));
}

#[test]
fn of_the_first_cell_some_is_over_and_perhaps_its_slice() {
    let begin = |phase: f64| {
        let mut cycle = Cycle::default();
        let mut draws = [0.5, 0.5, phase].into_iter().chain(std::iter::repeat(0.5));
        cycle.restart(Some(SLICES), LEAD, ms(700), || draws.next().unwrap());
        cycle
    };
    // A fifth of the first of two, and of the second.
    for (phase, second) in [(0.1, false), (0.6, true)] {
        let cycle = begin(phase);
        let due = cycle.next().unwrap();
        assert!(due.abs_diff(ms(700 + 240 - 100)) < Duration::from_micros(1));
        assert_eq!(cycle.is_second(), second);
    }
    let mut over = begin(0.25 + 0.05);
    let end = over.bounds().unwrap().end;
    assert!(end.abs_diff(ms(900)) < Duration::from_micros(1));
    assert_eq!(switch(&mut over).1, Switch::EndCell);
}

/// Against a rhythm of the target that is just as long as the period, slices begin in each tenth of it equally often.
#[test]
fn slices_begin_anywhere_in_the_period_equally_often() {
    let mut random = Random(7);
    let mut cycle = Cycle::default();
    cycle.restart(Some(SLICES), LEAD, ms(0), || random.next());
    let mut tenths = [0; 10];
    let mut long = 0;
    // Of the first cell, the slice may be over.
    if cycle.bounds().unwrap().end - cycle.next().unwrap() == LEAD {
        let due = cycle.next().unwrap();
        assert_eq!(cycle.step(due), Some(Switch::EndCell));
        cycle.next_cell(Some(SLICES), LEAD, ms(0), || random.next());
    }
    for _ in 0..10_000 {
        let drawn = cycle.slice().unwrap();
        let (mut counted, mut last) = (Duration::ZERO, Duration::ZERO);
        loop {
            let piece = slice(&mut cycle);
            counted += piece.end - piece.start;
            last = piece.end.max(last);
            // Where it begins, whether there is a piece before that or not.
            if cycle.next().unwrap() + LEAD >= cycle.bounds().unwrap().end {
                let place = piece.start.as_secs_f64() / SLICES.period.as_secs_f64();
                tenths[(place.fract() * 10.0) as usize] += 1;
                break;
            }
        }
        assert!(counted.abs_diff(drawn.open) < Duration::from_nanos(3));
        long += u32::from(drawn.long);
        let end = cycle.next().unwrap().max(last);
        assert_eq!(cycle.step(end), Some(Switch::EndCell));
        cycle.next_cell(Some(SLICES), LEAD, end, || random.next());
    }
    // 1,000 each, with a standard deviation of 30; a quarter of the pairs long, with one of 61.
    assert!(
        tenths.iter().all(|count| (870..1130).contains(count)),
        "{tenths:?}"
    );
    assert!((2250..2750).contains(&long), "{long}");
}

/// How long attaching takes.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Attaching {
    AtOnce,
    UntilTheNextLook,
}

/// By how much what happens after each of these looks counts, on the average of so many runs: as [`Cycle`] says, 1. Of somebody who has
/// such turns; slices are as they are said to be by then.
fn average_weights(
    looks: &[Duration],
    slices: impl Fn(Duration) -> Slices,
    turn: Turn,
    attaching: Attaching,
    runs: u64,
) -> Vec<f64> {
    let mut weights = vec![0.0; looks.len()];
    for seed in 0..runs {
        let mut random = Random(seed * 7919);
        let mut cycle = Cycle::default();
        cycle.restart(Some(slices(looks[0])), LEAD, looks[0], || random.next());
        let mut counting = false;
        for (now, weight) in looks.iter().zip(&mut weights) {
            // What was begun at one look is done by the next.
            cycle.attached(*now);
            while let Some(switch) = cycle.step(*now) {
                match switch {
                    Switch::Attach if attaching == Attaching::AtOnce => cycle.attached(*now),
                    Switch::Attach => {}
                    Switch::Count => counting = cycle.takes(turn),
                    Switch::Detach => {
                        counting = false;
                        cycle.detached(*now);
                    }
                    Switch::EndCell => {
                        cycle.next_cell(Some(slices(*now)), LEAD, *now, || random.next());
                    }
                }
            }
            if counting {
                let slice = cycle.slice().unwrap();
                let shape = match turn {
                    Turn::Every => slice.shape(),
                    Turn::Even | Turn::Odd => slice.shape_of_two(),
                };
                *weight += shape.weight() / runs as f64;
            }
        }
    }
    weights
}

/// Bursts of 3 s, in which slices are an eighth as long as between them, as they are where a load is much greater. Where what lasts into a cell does
/// so unchanged, or the first of two cells is always that of the same groups, what comes some time after a change is told too low or too high.
#[test]
fn what_comes_as_slices_become_longer_or_shorter_counts_once_on_the_average() {
    let [short, long] = [1, 8].map(|times| Slices {
        open: ms(40 * times),
        attached: ms(40 * times + 10),
        period: ms(200 * times + 50),
    });
    let slices = |now: Duration| if now.as_secs() % 6 < 3 { short } else { long };
    let looks: Vec<Duration> = (200..5600).map(|look| ms(look * 5)).collect();
    for turn in [Turn::Every, Turn::Even, Turn::Odd] {
        let weights = average_weights(&looks, slices, turn, Attaching::UntilTheNextLook, 6000);
        // By tenths of a second of the rhythm: each is the mean of eighty looks in 6,000 runs.
        let mut tenths = [(0.0, 0); 60];
        for (now, weight) in looks
            .iter()
            .zip(&weights)
            .filter(|(now, _)| **now >= ms(4000))
        {
            let tenth = &mut tenths[(now.as_millis() % 6000 / 100) as usize];
            *tenth = (tenth.0 + weight, tenth.1 + 1);
        }
        let means = tenths.map(|(sum, looks)| sum / f64::from(looks));
        let off: Vec<_> = means
            .iter()
            .enumerate()
            .filter(|(_, mean)| (*mean - 1.0).abs() > 0.1)
            .collect();
        assert!(off.is_empty(), "{turn:?}: {off:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 6, ..ProptestConfig::default() })]

    /// Whatever passes between two looks, much or little, after little or much: the target's time leaps as it works on more processors
    /// than it did, and stands still while it works on none.
    #[test]
    fn whatever_passes_between_two_looks_counts_once_on_the_average(
        gaps in prop::collection::vec(prop_oneof![0..500_000u64, 0..10_000_000u64], 250),
        open in 10..40u64,
        period in 4..8u32,
        turn in prop::sample::select(&[Turn::Every, Turn::Even, Turn::Odd]),
        attaching in prop::sample::select(&[Attaching::AtOnce, Attaching::UntilTheNextLook]),
    ) {
        let slices = Slices { open: ms(open), attached: ms(open + 10), period: ms(open + 10) * period };
        let mut now = ms(1000);
        let looks: Vec<Duration> = gaps.iter().map(|gap| {
            now += Duration::from_nanos(*gap);
            now
        }).collect();
        let weights = average_weights(&looks, |_| slices, turn, attaching, 6000);
        // A weight of 16 in one run of 16 scatters by 5 %. The first pair is not as likely to be a long one as it should be, and is forgotten after a few.
        let settled = looks[0] + slices.period * 3;
        // What takes until the next look begins after it, so there is less of one and more of the other.
        let borne = match attaching {
            Attaching::AtOnce => 0.7..1.3,
            Attaching::UntilTheNextLook => 0.3..2.0,
        };
        for (at, weight) in looks.iter().zip(&weights) {
            prop_assert!(*at < settled || borne.contains(weight), "{at:?} of {slices:?}: {weight}");
        }
        let settled: Vec<f64> = looks.iter().zip(&weights).filter(|(at, _)| **at >= settled).map(|(_, weight)| *weight).collect();
        let mean = settled.iter().sum::<f64>() / settled.len().max(1) as f64;
        prop_assert!(settled.len() < 50 || (0.85..1.15).contains(&mean), "{mean}");
    }
}
