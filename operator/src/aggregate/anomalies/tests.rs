use std::time::Duration;

use ckb_probe_crds::{Contention, Figures, IntervalFigures, Summary};

use super::*;
use crate::testing::at;

const LENGTH: Duration = Duration::from_secs(30);

fn descriptor() -> &'static Descriptor {
    let kind = ckb_probe_crds::Kind::Rocksdb;
    kind.descriptor()
}

/// So many calls in an interval, all of which take as long: the bucket is that of the agents' histograms.
fn calls(calls: u64, bucket: u32) -> Summary {
    let figures: Figures = serde_json::from_value(serde_json::json!({
        "distributions": { "duration": { "histogram": format!("{bucket}:{calls}"), "sum": calls * 1000 } },
    }))
    .unwrap();
    let window = IntervalFigures {
        milliseconds: 30_000,
        recorded_milliseconds: 30_000,
        samples: calls,
        figures: figures.clone(),
    };
    Summary::of(&figures, &window, true)
}

/// A CkbProbe over time, whose only row is `Get`.
struct Watched {
    past: Past,
    intervals: i64,
    targets: usize,
    /// Of how many periods of a hundred they are throttled.
    throttled: u64,
}

impl Watched {
    fn new(targets: usize) -> Self {
        Self {
            past: Past::default(),
            intervals: 0,
            targets,
            throttled: 0,
        }
    }

    fn interval(&mut self, row: &Summary) -> Vec<AnomalyStatus> {
        self.intervals += 1;
        let interval = Interval {
            reported: at(self.intervals * 30),
            length: LENGTH,
            targets: self.targets,
        };
        assert!(self.past.is_next(&interval));
        self.past.begin(&interval);
        let contention = Contention {
            throttled_millipercent: Some(self.throttled * 1000),
            ..Contention::default()
        };
        self.past
            .look_beside(&[("ckb-0", Some(contention))], &Work::new());
        self.past.see("storage", descriptor(), "Get", row);
        self.past.anomalies("storage", descriptor())
    }

    /// A day in which all is as usual.
    fn day(mut self) -> Self {
        let mut found = 0;
        for interval in 0..2880 {
            let row = calls(30_000 + interval % 7 * 300, 200);
            let some = self.interval(&row);
            if !some.is_empty() {
                println!("{interval}: {some:?}");
            }
            found += some.len();
        }
        assert_eq!(found, 0);
        self
    }
}

#[test]
fn what_takes_twice_as_long_is_told_in_the_third_interval_until_it_is_over_for_three() {
    let mut watched = Watched::new(1).day();
    // A bucket is a sixteenth of a power of two.
    let slow = calls(30_000, 216);
    assert_eq!(watched.interval(&slow), []);
    assert_eq!(watched.interval(&slow), []);
    let found = watched.interval(&slow);
    assert_eq!(found.len(), 1, "{found:?}");
    let said = |watched: &Watched| watched.past.sentences("storage", descriptor());
    let sentences = said(&watched);
    assert!(
        sentences[0].starts_with("probe storage: p99 of Get is not as usual since "),
        "{sentences:?}"
    );
    assert_eq!(
        (&*found[0].row, &*found[0].figure, found[0].intervals),
        ("Get", "p99", 3)
    );
    let times: f64 = found[0].times.parse().unwrap();
    assert!((1.9..2.1).contains(&times), "{times}");
    assert_eq!(watched.past.count(), 1);
    // It goes on, by more: the sentence is that of its beginning.
    let slower = calls(30_000, 232);
    let found = watched.interval(&slower);
    assert_eq!(found[0].intervals, 4);
    assert_eq!(said(&watched), sentences);
    let usual = calls(30_000, 200);
    assert_eq!(watched.interval(&usual).len(), 1);
    assert_eq!(watched.interval(&usual).len(), 1);
    assert_eq!(watched.interval(&usual), []);
    assert_eq!((said(&watched), watched.past.count()), (vec![], 0));
}

#[test]
fn what_was_beside_it_is_told_as_it_was_then_and_of_figures_that_began_together_once() {
    let mut watched = Watched::new(1).day();
    watched.throttled = 38;
    let slow_and_few = calls(15_000, 216);
    let mut found = Vec::new();
    for _ in 0..3 {
        found = watched.interval(&slow_and_few);
    }
    let beside = "38% of the CPU limit's periods throttled, usually 0% (pod ckb-0); \
                  unknown: waiting for a CPU, waiting for a disk, TCP segments sent again";
    let besides: Vec<_> = found.iter().map(|one| &*one.beside).collect();
    assert_eq!(besides, [beside; 2], "{found:?}");
    let said = |watched: &Watched| watched.past.sentences("storage", descriptor());
    let sentences = said(&watched);
    let evidence = format!(". In the same interval, which need not be why: {beside}");
    assert!(sentences[0].ends_with(&evidence), "{sentences:?}");
    assert!(!sentences[1].contains("throttled"), "{sentences:?}");
    let gravest = watched.past.gravest(|_| Some(descriptor())).unwrap();
    assert!(gravest.ends_with(&evidence), "{gravest}");
    // It is what was beside its beginning, however that goes on; and it is not what is usual, however long.
    watched.throttled = 0;
    assert_eq!(watched.interval(&slow_and_few)[0].beside, beside);
    assert_eq!(said(&watched), sentences);
    for throttled in [40; 100] {
        watched.throttled = throttled;
        watched.interval(&slow_and_few);
    }
    assert!(
        watched.past.beside.starts_with("40% of"),
        "{}",
        watched.past.beside
    );
}

#[test]
fn half_as_many_calls_are_told_and_so_is_that_there_are_none() {
    for (few, value) in [(15_400, "513"), (0, "0")] {
        let mut watched = Watched::new(1).day();
        let mut found = Vec::new();
        for _ in 0..3 {
            found = watched.interval(&calls(few, 200));
        }
        assert_eq!(found.len(), 1, "{few}: {found:?}");
        assert_eq!(found[0].figure, "perSecond");
        assert_eq!((&*found[0].value, &*found[0].usual), (value, "1030"));
    }
}

#[test]
fn targets_that_come_or_go_are_nothing_unusual() {
    let mut watched = Watched::new(1).day();
    watched.targets = 2;
    for _ in 0..5 {
        assert_eq!(watched.interval(&calls(90_000, 216)), []);
    }
    assert_eq!(watched.past.courses.len(), 2);
}

#[test]
fn what_is_not_asked_any_more_or_has_gone_is_nothing_unusual() {
    let unusual = || {
        let mut watched = Watched::new(1).day();
        for _ in 0..3 {
            watched.interval(&calls(30_000, 216));
        }
        assert_eq!((watched.past.count(), watched.past.courses.len()), (1, 2));
        watched.past
    };
    let mut past = unusual();
    past.keep(|probe| probe == "storage", |_, row| row == "Get");
    assert_eq!((past.count(), past.courses.len()), (1, 2), "all is there");
    past.keep(|probe| probe == "storage", |_, _| false);
    assert_eq!(
        (past.count(), past.courses.len()),
        (0, 1),
        "the row has gone"
    );
    let mut past = unusual();
    past.keep(|_| false, |_, _| false);
    assert_eq!((past.count(), past.courses.len()), (0, 0), "the probe has");
}

#[test]
fn an_interval_is_learned_once_however_often_it_is_looked_at() {
    let mut watched = Watched::new(1);
    watched.interval(&calls(1000, 200));
    let again = |seconds| Interval {
        reported: at(seconds),
        length: LENGTH,
        targets: 1,
    };
    assert!(!watched.past.is_next(&again(30)));
    assert!(!watched.past.is_next(&again(35)), "another agent's");
    assert!(
        !watched.past.is_next(&again(10)),
        "a clock that was set back"
    );
    assert!(watched.past.is_next(&again(58)));
}

#[test]
fn there_is_an_end_to_what_is_remembered() {
    let mut past = Past::default();
    past.begin(&Interval {
        reported: at(30),
        length: LENGTH,
        targets: 1,
    });
    for row in 0..1000 {
        past.see(
            "storage",
            descriptor(),
            &format!("row {row}"),
            &calls(2000, 200),
        );
    }
    assert_eq!(past.courses.len(), MAX_COURSES);
}
