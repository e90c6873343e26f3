use super::*;

const SECOND: Duration = Duration::from_secs(1);

/// Writes a report whenever one is due while these things happen; the times of the reports, since the start.
fn reports(
    interval: Option<Duration>,
    length: Duration,
    mut happenings: Vec<(Duration, News)>,
) -> Vec<Duration> {
    let start = Instant::now();
    let mut pace = Pace::new(start, FLOOR);
    let mut clock = start;
    let mut written = Vec::new();
    happenings.sort();
    let mut happenings = happenings.into_iter().peekable();
    loop {
        let due = pace.due(interval, Duration::ZERO);
        let next = happenings.peek().map(|(at, _)| start + *at);
        let due_first = due.is_some_and(|due| next.is_none_or(|next| due <= next));
        if due_first && let Some(due) = due {
            clock = clock.max(due);
            if clock > start + length {
                return written;
            }
            pace.written(clock);
            written.push(clock - start);
        } else if let Some((at, news)) = happenings.next() {
            clock = start + at;
            pace.note(news);
        } else {
            return written;
        }
    }
}

/// So many targets end their intervals all of the time, each at a time of its own.
fn phases(targets: u32, interval: Duration, length: Duration) -> Vec<(Duration, News)> {
    let mut all = Vec::new();
    for target in 0..targets {
        let mut at = interval * target / targets;
        while at <= length {
            all.push((at, News::Figures));
            // A timer is late by a little each time.
            at += interval + Duration::from_micros(u64::from(target) * 7);
        }
    }
    all
}

fn closest(reports: &[Duration]) -> Duration {
    let pairs = reports.windows(2).map(|pair| pair[1] - pair[0]);
    pairs.min().unwrap_or_default()
}

#[test]
fn one_report_is_written_in_each_interval_whatever_the_number_of_targets_and_their_phases() {
    for targets in [1, 2, 51, 1_000] {
        let happenings = phases(targets, SECOND, 60 * SECOND);
        let written = reports(Some(SECOND), 60 * SECOND, happenings);
        assert!(
            (58..=61).contains(&written.len()),
            "{targets}: {}",
            written.len()
        );
        assert!(closest(&written) >= FLOOR);
    }
    let ten = 10 * SECOND;
    for targets in [1, 51] {
        let written = reports(Some(ten), 600 * SECOND, phases(targets, ten, 600 * SECOND));
        assert!(
            (59..=63).contains(&written.len()),
            "{targets}: {}",
            written.len()
        );
    }
}

#[test]
fn a_lone_target_s_figures_are_written_as_its_interval_ends() {
    let ten = 10 * SECOND;
    let happenings = phases(1, ten, 60 * SECOND);
    let ends: Vec<Duration> = happenings.iter().map(|(at, _)| *at).collect();
    assert_eq!(reports(Some(ten), 60 * SECOND, happenings), ends);
}

#[test]
fn figures_are_awaited_a_little_less_than_an_interval_and_nothing_a_little_more() {
    let start = Instant::now();
    let due = |news, interval| {
        let mut pace = Pace::new(start, FLOOR);
        pace.note(News::Figures);
        pace.written(start);
        pace.note(news);
        pace.due(Some(interval), Duration::ZERO).unwrap() - start
    };
    let ms = Duration::from_millis;
    for (interval, figures, nothing) in [
        (SECOND, SECOND, ms(1_050)),
        (2 * SECOND, ms(1_900), ms(2_100)),
        (10 * SECOND, ms(9_750), ms(10_250)),
    ] {
        assert_eq!(due(News::Figures, interval), figures);
        assert_eq!(due(News::None, interval), nothing);
    }
}

#[test]
fn what_is_said_in_between_does_not_put_figures_off() {
    let ten = 10 * SECOND;
    let written = reports(
        Some(ten),
        24 * SECOND,
        vec![
            (Duration::ZERO, News::Standing),
            (2 * SECOND, News::Figures),
            (5 * SECOND, News::Standing),
            (12 * SECOND, News::Figures),
            (22 * SECOND, News::Figures),
        ],
    );
    assert_eq!(written, [0, 2, 5, 12, 22].map(|at| at * SECOND));
}

#[test]
fn how_a_target_stands_is_told_at_once_but_not_more_than_once_a_second() {
    let ten = 10 * SECOND;
    let standing = |milliseconds| (Duration::from_millis(milliseconds), News::Standing);
    let written = reports(
        Some(ten),
        9 * SECOND,
        vec![
            standing(0),
            standing(2_000),
            standing(2_100),
            standing(2_200),
        ],
    );
    assert_eq!(written, [Duration::ZERO, 2 * SECOND, 3 * SECOND]);
}

#[test]
fn a_target_that_comes_and_goes_all_the_time_makes_no_more_reports_than_one_a_second() {
    let ten = 10 * SECOND;
    let happenings = (0..36_000).map(|n| (Duration::from_millis(n * 100), News::Standing));
    let written = reports(Some(ten), 3_600 * SECOND, happenings.collect());
    assert!(written.len() <= 3_601, "{}", written.len());
    assert!(closest(&written) >= FLOOR);
}

#[test]
fn an_agent_without_news_is_heard_of_all_the_same() {
    let ten = 10 * SECOND;
    let written = reports(
        Some(ten),
        60 * SECOND,
        vec![(Duration::ZERO, News::Standing), (61 * SECOND, News::None)],
    );
    assert_eq!(written.len(), 6);
}

#[test]
fn where_nobody_asks_anything_only_orders_are_answered() {
    let written = reports(
        None,
        60 * SECOND,
        vec![(5 * SECOND, News::Figures), (61 * SECOND, News::None)],
    );
    assert_eq!(
        written.len(),
        1,
        "the first, which says that the agent is there"
    );
    let standing = vec![
        (SECOND, News::Standing),
        (30 * SECOND, News::Standing),
        (61 * SECOND, News::None),
    ];
    assert_eq!(reports(None, 60 * SECOND, standing).len(), 2);
}

mod under_strain {
    use std::{collections::BTreeSet, time::Duration};

    use tokio::time::Instant;

    use super::super::{
        FLOOR, News, Pace,
        backpressure::{Backpressure, ENOUGH, MOST},
    };

    const INTERVAL: Duration = Duration::from_secs(10);

    fn after(writes: impl IntoIterator<Item = Duration>) -> Duration {
        let mut strain = Backpressure::default();
        for took in writes {
            strain.note(took, 0);
        }
        strain.stretch(INTERVAL)
    }

    #[test]
    fn reports_come_as_they_are_asked_for_where_writing_them_takes_a_tenth_of_the_time() {
        assert_eq!(after([INTERVAL / 10; 100]), INTERVAL);
        // One that took long among others that did not is no reason.
        assert_eq!(
            after([Duration::ZERO, INTERVAL / 3, Duration::ZERO]),
            INTERVAL
        );
        let odd = Duration::from_millis(1_500);
        assert_eq!(Backpressure::default().stretch(odd), odd);
    }

    #[test]
    fn slow_writes_put_them_farther_apart_and_quick_ones_bring_them_back() {
        let slow = Duration::from_secs(2);
        assert_eq!(after([slow; 100]), Duration::from_secs(20));
        assert_eq!(after([ENOUGH; 100]), INTERVAL * MOST);
        let back = |quick: usize| after([slow; 100].into_iter().chain(vec![Duration::ZERO; quick]));
        assert_eq!(back(1), Duration::from_secs(15));
        assert_eq!(back(3), INTERVAL);
        // An outage is forgotten as soon.
        let outage = Duration::from_secs(3_600);
        assert_eq!(after([outage]), Duration::from_secs(15));
        assert_eq!(after([outage, Duration::ZERO, Duration::ZERO]), INTERVAL);
    }

    #[test]
    fn large_reports_are_farther_apart_however_quickly_they_are_taken() {
        let second = Duration::from_secs(1);
        let of = |bytes, interval| {
            let mut strain = Backpressure::default();
            strain.note(Duration::ZERO, bytes);
            (strain.stretch(interval), strain.apart())
        };
        let quarter = Duration::from_millis(250);
        assert_eq!(of(16 << 10, second), (second, quarter));
        assert_eq!(of(128 << 10, second), (second * 2, second * 2));
        // The largest that there is, also beyond the most that a slow API server asks for.
        assert_eq!(of(1_000_000, second).0, second * 16);
        assert_eq!(of(1_000_000, second * 30).0, second * 30);
        // Small ones are as quick as they were.
        let mut strain = Backpressure::default();
        strain.note(Duration::ZERO, 1_000_000);
        strain.note(Duration::ZERO, 1_000);
        assert_eq!(strain.stretch(second), second);
    }

    #[test]
    fn a_large_report_is_not_written_again_at_once_for_how_a_target_stands() {
        let start = Instant::now();
        let mut pace = Pace::new(start, FLOOR);
        pace.note(News::Standing);
        pace.written(start);
        pace.note(News::Standing);
        let interval = Some(INTERVAL);
        let due = |apart| pace.due(interval, apart).unwrap() - start;
        assert_eq!(due(Duration::ZERO), FLOOR);
        assert_eq!(due(Duration::from_secs(4)), Duration::from_secs(4));
    }

    /// A thousand agents, each of which begins at another moment, and an API server that takes so many reports a second, one after
    /// the other. Returns how many it took, and the longest time between two of one agent, in the second half of twenty minutes.
    fn beside(capacity: u32) -> (f64, Duration) {
        const AGENTS: u32 = 1_000;
        let end = Duration::from_secs(1_200);
        let begin = |index: u32| (INTERVAL * index / AGENTS, index as usize);
        let mut due: BTreeSet<(Duration, usize)> = (0..AGENTS).map(begin).collect();
        let mut agents = vec![(Backpressure::default(), end); AGENTS as usize];
        let (mut free, mut taken, mut longest) = (Duration::ZERO, 0, Duration::ZERO);
        while let Some((at, index)) = due.pop_first().filter(|(at, _)| *at < end) {
            // None takes as long as another, whatever the API server is busy with.
            let cost = Duration::from_secs(1) / capacity;
            free = free.max(at)
                + cost * (50 + (index as u32 * 7_919 + at.subsec_millis()) % 101) / 100;
            let (strain, last) = &mut agents[index];
            strain.note(free - at, 0);
            if at > end / 2 {
                longest = longest.max(free.saturating_sub(*last));
                taken += 1;
            }
            *last = free;
            due.insert((free.max(at + strain.stretch(INTERVAL)), index));
        }
        (f64::from(taken) / (end / 2).as_secs_f64(), longest)
    }

    #[test]
    fn many_of_them_settle_at_what_an_api_server_takes_each_with_its_share() {
        let (taken, longest) = beside(200);
        assert!((99.0..=101.0).contains(&taken), "{taken} a second");
        assert!(
            longest <= INTERVAL + Duration::from_millis(100),
            "{longest:?}"
        );
        // A thousand at 75 a second: one in 13.3 s.
        let (taken, longest) = beside(75);
        assert!((70.0..=77.0).contains(&taken), "{taken} a second");
        assert!(longest <= Duration::from_secs(20), "{longest:?}");
    }
}
