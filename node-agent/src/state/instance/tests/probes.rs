//! Several probes of one target.

use ckb_probe_crds::{Passed, ProbeReport, SliceShape};

use super::*;
use crate::{
    mechanism::{GroupId, GroupIds, Unseen},
    state::{
        Fact,
        fixtures::{paused, read, reading, resumed},
    },
};

/// What there is of one probe is refused.
fn refusal() -> Refusal {
    Refusal {
        reason: Reason::SymbolNotFound,
        message: "there is no such function".to_string(),
        lacks: vec![Lack {
            reason: Reason::SymbolNotFound,
            items: vec!["Write".to_string()],
        }],
    }
}

/// `reads` asks for Get, which is group 0, and `writes` for Write, which is group 1.
pub fn two_probes() -> Instance {
    let probes = vec![
        calls("reads", &[Operation::Get]),
        calls("writes", &[Operation::Write]),
    ];
    let terms = terms(Overhead::default());
    let mut instance = Instance::new(InstanceKey::default(), probes, terms, Duration::ZERO);
    attach(&mut instance, PROCESS, Duration::ZERO);
    instance
}

fn both(gets: u64, writes: u64) -> Reading {
    let [gets, writes] = [gets, writes].map(|count| whole(calls_of(count, 1_000)));
    reading([(0, gets), (1, writes)])
}

fn standing(report: &ProbeReport) -> (InstanceState, Reason, bool) {
    (report.state, report.reason.unwrap(), report.firing)
}

#[test]
fn a_busy_probe_does_not_hide_a_silent_one() {
    let mut instance = two_probes();
    observe(&mut instance, both(10, 0), seconds(1));
    let report = instance.report(seconds(1));
    assert_eq!(report.reason, Some(Reason::Attaching));
    assert_eq!(
        report.message,
        "attached to process 7, nothing counted yet for writes"
    );
    observe(&mut instance, both(20, 0), seconds(31));
    assert!(!instance.is_firing(seconds(31)));
    let report = instance.report(seconds(31));
    assert_eq!(
        (report.reason, report.firing),
        (Some(Reason::Silent), false)
    );
    assert_eq!(
        report.message,
        "attached to process 7, but nothing that is measured by writes happened for 3 report intervals"
    );
    let [reads, writes] = &report.probes[..] else {
        panic!("{report:?}");
    };
    assert_eq!(
        standing(reads),
        (InstanceState::Attached, Reason::Firing, true)
    );
    assert_eq!(
        standing(writes),
        (InstanceState::Attached, Reason::Silent, false)
    );
    observe(&mut instance, both(20, 1), seconds(32));
    let report = instance.report(seconds(32));
    assert_eq!((report.reason, report.firing), (Some(Reason::Firing), true));
}

/// A report says that its target is silent, and of its second probe why.
#[track_caller]
fn says_silent(report: &InstanceReport, whole: &str, second: &str) {
    let second_probe = &report.probes[1];
    for (reason, said, expected) in [
        (report.reason, &report.message, whole),
        (second_probe.reason, &second_probe.message, second),
    ] {
        assert_eq!((reason, said.as_str()), (Some(Reason::Silent), expected));
    }
}

/// Of slices too few to see anything, and of some that saw nothing: that nothing happened is said of neither.
#[test]
fn what_was_not_watched_is_not_said_not_to_have_happened() {
    let slice = SliceShape {
        open: 0.02,
        cell: 30.0,
        long: false,
    };
    let fact = |fact, at| TimedFact { at, time: at, fact };
    let cell = |instance: &mut Instance, from: u64, slices: bool| {
        let (groups, time) = (GroupIds::from([GroupId(1)]), seconds(from));
        instance.take(&fact(
            Fact::CellBegan {
                groups: groups.clone(),
                slice,
                time,
            },
            time,
        ));
        let slice = [time, time + Duration::from_millis(20)];
        if slices {
            let began = Fact::SliceBegan {
                groups: groups.clone(),
                time: slice[0],
                before: Passed::default(),
            };
            instance.take(&fact(began, slice[0]));
            let ended = Fact::SliceEnded {
                groups: groups.clone(),
                time: slice[1],
                probing: 0.0,
            };
            instance.take(&fact(ended, slice[1]));
        }
        let time = seconds(from + 10);
        instance.take(&fact(Fact::CellEnded { groups, time }, time));
    };
    let mut instance = two_probes();
    observe(&mut instance, both(10, 0), seconds(31));
    cell(&mut instance, 31, false);
    instance.close_interval(seconds(41), None);
    says_silent(
        &instance.report(seconds(41)),
        "attached to process 7 in slices, which are too few to see whether anything that is measured by writes happens",
        "attached in slices, which are too few to see whether anything that it measures happens",
    );
    for from in [41, 51, 61, 71, 81, 91] {
        cell(&mut instance, from, true);
    }
    observe(&mut instance, both(20, 0), seconds(101));
    instance.close_interval(seconds(101), None);
    says_silent(
        &instance.report(seconds(101)),
        "attached to process 7, but nothing that is measured by writes was seen for 3 report intervals",
        "attached, but nothing that it measures was seen for three report intervals, of the last of which 0.20 % was watched",
    );
}

#[test]
fn a_refused_probe_leaves_the_others_in_place() {
    let mut instance = two_probes();
    let reads = opened(&instance.probes[0].probe, 0);
    instance.process_gone(seconds(1));
    instance.answered(SUCCESSOR, 0, vec![Ok(reads), Err(refusal())], seconds(2));
    observe(&mut instance, both(10, 0), seconds(3));
    let report = instance.report(seconds(3));
    assert_eq!(
        (report.state, report.firing),
        (InstanceState::Attached, false)
    );
    assert_eq!(report.reason, Some(Reason::SymbolNotFound));
    assert_eq!(
        report.message,
        "measuring process 8, but for the probe writes: there is no such function"
    );
    let [reads, writes] = &report.probes[..] else {
        panic!("{report:?}");
    };
    assert_eq!(
        standing(reads),
        (InstanceState::Attached, Reason::Firing, true)
    );
    assert_eq!(count(&reads.rows[0].total), 10);
    assert_eq!(
        standing(writes),
        (InstanceState::Failed, Reason::SymbolNotFound, false)
    );
    assert_eq!(writes.message, "there is no such function");
    assert_eq!(writes.lacks, refusal().lacks);
}

#[test]
fn what_the_kernel_does_not_support_is_no_silence_of_its_target() {
    let unsupported = || Refusal::new(Reason::UnsupportedByKernel, "this kernel has no kprobes");
    let mut instance = two_probes();
    let reads = opened(&instance.probes[0].probe, 0);
    instance.process_gone(seconds(1));
    instance.answered(
        SUCCESSOR,
        0,
        vec![Ok(reads), Err(unsupported())],
        seconds(2),
    );
    let told = |instance: &Instance, now| {
        let report = instance.report(now);
        let standing = (report.reason.unwrap(), report.firing);
        assert_eq!(instance.is_firing(now), report.firing);
        (standing, report.message)
    };
    let (standing_of, message) = told(&instance, seconds(3));
    assert_eq!(standing_of, (Reason::Attaching, false));
    assert_eq!(
        message,
        "attached to process 8, nothing counted yet for reads"
    );
    observe(&mut instance, both(10, 0), seconds(4));
    let (standing_of, message) = told(&instance, seconds(4));
    assert_eq!(standing_of, (Reason::Firing, true));
    assert_eq!(
        message,
        "measuring process 8, but for the probe writes: this kernel has no kprobes"
    );
    let (standing_of, message) = told(&instance, seconds(40));
    assert_eq!(standing_of, (Reason::Silent, false));
    assert!(message.contains("measured by reads happened"), "{message}");
    let [_, writes] = &instance.report(seconds(40)).probes[..] else {
        panic!("two probes");
    };
    assert_eq!(
        standing(writes),
        (InstanceState::Failed, Reason::UnsupportedByKernel, false)
    );
}

#[test]
fn a_target_of_which_nothing_can_be_measured_says_why() {
    let mut instance = two_probes();
    instance.process_gone(seconds(1));
    instance.answered(
        SUCCESSOR,
        0,
        vec![Err(refusal()), Err(refusal())],
        seconds(2),
    );
    let report = instance.report(seconds(3));
    assert_eq!((report.state, report.pid), (InstanceState::Failed, None));
    assert_eq!(report.reason, Some(Reason::SymbolNotFound));
    assert_eq!(report.message, "there is no such function");
    // It is not measured: the gap goes on.
    assert_eq!((report.reattaches, report.gap_milliseconds), (0, 2_000));
}

#[test]
fn while_a_target_has_no_process_its_probes_say_so() {
    let mut instance = two_probes();
    instance.process_gone(seconds(1));
    for probe in instance.report(seconds(2)).probes {
        let waiting = (InstanceState::Waiting, Reason::ExecutableNotFound, false);
        assert_eq!(standing(&probe), waiting);
    }
}

#[test]
fn what_need_not_happen_is_well_without_it() {
    let mut instance = two_probes();
    instance.probes[1].quiet = true;
    observe(&mut instance, both(10, 0), seconds(31));
    let report = instance.report(seconds(31));
    assert_eq!((report.reason, report.firing), (Some(Reason::Firing), true));
    let quiet = (InstanceState::Attached, Reason::Firing, false);
    assert_eq!(standing(&report.probes[1]), quiet);
    instance.process_gone(seconds(32));
    assert!(!instance.is_firing(seconds(32)));
}

#[test]
fn what_sees_nothing_is_not_called_attached_however_quiet_it_may_be() {
    let mut instance = two_probes();
    instance.probes[1].quiet = true;
    let unseen = |all| Reading {
        unseen: [(
            GroupId(1),
            Unseen {
                reason: Reason::MemoryLimit,
                items: vec!["Cpu".to_string()],
                why: "no stacks of Cpu in the last window: no room".to_string(),
                all,
            },
        )]
        .into(),
        ..both(10, 0)
    };
    observe(&mut instance, unseen(true), seconds(10));
    let report = instance.report(seconds(10));
    assert_eq!(
        (report.state, report.reason, report.firing),
        (InstanceState::Attached, Some(Reason::MemoryLimit), false)
    );
    assert_eq!(
        report.message,
        "measuring process 7, but for the probe writes: no stacks of Cpu in the last window: no room"
    );
    assert_eq!(
        standing(&report.probes[1]),
        (InstanceState::Failed, Reason::MemoryLimit, false)
    );
    // The next window of one of its modes is well.
    observe(&mut instance, unseen(false), seconds(20));
    let report = instance.report(seconds(20));
    assert_eq!(report.reason, Some(Reason::Firing));
    let quiet = (InstanceState::Attached, Reason::Firing, false);
    assert_eq!(standing(&report.probes[1]), quiet);
    let lacks = &report.probes[1].lacks;
    assert_eq!(lacks.len(), 1);
    assert_eq!(
        (lacks[0].reason, &lacks[0].items[..]),
        (Reason::MemoryLimit, &["Cpu".to_string()][..])
    );
    // And that of the other.
    observe(&mut instance, both(10, 0), seconds(30));
    assert_eq!(instance.report(seconds(30)).probes[1].lacks, []);
}

#[test]
fn a_probe_that_was_just_asked_is_not_silent_yet() {
    let mut instance = two_probes();
    observe(&mut instance, both(10, 10), seconds(99));
    instance.close_interval(seconds(99), None);
    assert_eq!(instance.window_ends(), seconds(109));
    let mut probes: Vec<_> = instance
        .probes
        .iter()
        .map(|probe_state| probe_state.probe.clone())
        .collect();
    probes.push(calls("commits", &[Operation::TxnCommit]));
    instance.reconfigure(probes, terms(Overhead::default()));
    let unanswered = &instance.report(seconds(99)).probes[2];
    assert_eq!(
        standing(unanswered),
        (InstanceState::Waiting, Reason::Attaching, false)
    );
    instance.suspend(seconds(100));
    attach(&mut instance, PROCESS, seconds(100));
    let report = instance.report(seconds(101));
    assert_eq!(report.reason, Some(Reason::Attaching));
    assert_eq!(
        report.message,
        "attached to process 7, nothing counted yet for commits"
    );
    assert!(report.probes[0].firing, "the others go on");
    assert_eq!(
        instance.window_ends(),
        seconds(102),
        "its first figures are waited for"
    );
}

/// The series of a target once vanished from `/metrics` when its next process could not be attached to.
#[test]
fn what_was_counted_stays_while_a_later_process_cannot_be_measured() {
    let mut instance = two_probes();
    observe(&mut instance, both(10, 3), seconds(1));
    instance.close_interval(seconds(2), None);
    let totals = |instance: &Instance, now| -> Vec<(String, u64)> {
        let report = instance.report(now);
        let rows = report.probes.into_iter().flat_map(|probe| probe.rows);
        rows.map(|row| (row.key, count(&row.total))).collect()
    };
    let expected = vec![("Get".to_string(), 10), ("Write".to_string(), 3)];
    instance.process_gone(seconds(3));
    assert_eq!(totals(&instance, seconds(3)), expected);
    instance.answered(
        SUCCESSOR,
        0,
        vec![Err(refusal()), Err(refusal())],
        seconds(4),
    );
    instance.close_interval(seconds(13), None);
    assert_eq!(totals(&instance, seconds(13)), expected);
    instance.failed(Reason::AttachFailed, "broken".to_string(), seconds(14));
    assert_eq!(totals(&instance, seconds(14)), expected);
    attach(&mut instance, SUCCESSOR, seconds(15));
    observe(&mut instance, both(1, 1), seconds(16));
    let expected = vec![("Get".to_string(), 11), ("Write".to_string(), 4)];
    assert_eq!(totals(&instance, seconds(16)), expected);
}

#[test]
fn measured_anew_for_another_a_target_loses_but_the_moment_in_between() {
    let mut instance = two_probes();
    instance.close_interval(Duration::ZERO, None);
    observe(&mut instance, both(5_000, 50), seconds(5));
    instance.suspend(seconds(5));
    // The groups have other numbers now, and count from zero.
    let answers = vec![
        Ok(opened(&instance.probes[0].probe, 4)),
        Ok(opened(&instance.probes[1].probe, 9)),
    ];
    instance.answered(PROCESS, 0, answers, Duration::from_millis(5_010));
    assert!(instance.is_firing(seconds(5)));
    assert_eq!(instance.window_ends(), seconds(10));
    let [gets, writes] = [4_990, 50].map(|count| whole(calls_of(count, 1_000)));
    // What was group 0 is somebody else's.
    let noise = whole(calls_of(1_000_000, 1_000));
    let all = reading([(0, noise), (4, gets), (9, writes)]);
    observe(&mut instance, all, seconds(10));
    instance.close_interval(seconds(10), None);
    let report = instance.report(seconds(10));
    assert_eq!((report.reattaches, report.gap_milliseconds), (0, 10));
    let RowReport { total, window, .. } = get(&report);
    assert_eq!(window.samples, 9_990);
    assert_eq!(
        (window.milliseconds, window.recorded_milliseconds),
        (10_000, 9_990)
    );
    // What happened in the moment that nobody saw, nobody guesses.
    assert_eq!(count(total), 9_990);
    let RowReport { total, window, .. } = row(&report, "Write");
    assert_eq!((window.samples, count(total)), (100, 100));
}

#[test]
fn what_a_mechanism_lost_counts_once_however_many_probes_stand_on_it() {
    let mut instance = two_probes();
    let losing = |calls, events, others| Reading {
        lost: vec![
            lost([0, 1], calls, 0),
            lost([1], 0, events),
            lost([7], others, others),
        ],
        ..both(0, 0)
    };
    observe(&mut instance, losing(3, 2, 100), seconds(1));
    observe(&mut instance, losing(5, 2, 200), seconds(2));
    let all = |lost: &BTreeMap<Name, u64>| (lost["calls"], lost["events"]);
    assert_eq!(all(&instance.lost), (5, 2));
    assert_eq!(all(&instance.probes[0].lost), (5, 0));
    assert_eq!(all(&instance.probes[1].lost), (5, 2));
    // Measured anew, it counts from zero.
    instance.suspend(seconds(3));
    attach(&mut instance, PROCESS, seconds(3));
    observe(&mut instance, losing(1, 1, 0), seconds(4));
    assert_eq!(all(&instance.lost), (6, 3));
}

/// A history of both probes, one of them in slices from the second second on.
fn history(steps: &[(u64, u64)]) -> Vec<TimedFact> {
    let (mut gets, mut writes) = (0, 0);
    let mut entries = Vec::new();
    for (second, (more_gets, more_writes)) in (1..).zip(steps) {
        (gets, writes) = (gets + more_gets, writes + more_writes);
        let reading = Reading {
            lost: vec![lost([0, 1], gets / 7, writes / 5)],
            ..both(gets, writes)
        };
        entries.push(read(reading, seconds(second)));
        entries.push(paused([0], seconds(second)));
        entries.push(resumed([0], seconds(second) + Duration::from_millis(700)));
    }
    entries
}

proptest! {
    #[test]
    fn a_replay_tells_the_same_in_whatever_portions_it_comes(
        steps in prop::collection::vec((0u64..1000, 0u64..10), 1..20),
        portions in prop::collection::vec(1usize..9, 60),
    ) {
        let entries = history(&steps);
        let end = seconds(steps.len() as u64 + 1);
        let told = |mut instance: Instance| {
            instance.close_interval(end, Some(0.01));
            instance.report(end)
        };
        let mut one_by_one = two_probes();
        for entry in &entries {
            one_by_one.take(entry);
        }
        let mut left = &entries[..];
        let mut in_portions = two_probes();
        for portion in portions {
            let (now, later) = left.split_at(portion.min(left.len()));
            now.iter().for_each(|entry| in_portions.take(entry));
            // Whoever looks in between changes nothing.
            in_portions.report(end);
            left = later;
        }
        prop_assert!(left.is_empty());
        prop_assert_eq!(told(in_portions), told(one_by_one));
    }
}

#[test]
fn what_is_not_told_apart_for_want_of_room_is_said_and_how_many_it_is() {
    let mut instance = two_probes();
    let mut gets = whole(calls_of(10, 1_000));
    gets.folded = 12;
    observe(&mut instance, reading([(0, gets)]), seconds(1));
    let report = instance.report(seconds(1));
    let lack = Lack {
        reason: Reason::TooManyRows,
        items: vec!["column family of Get: 12".to_string()],
    };
    let [reads, writes] = &report.probes[..] else {
        panic!("two probes");
    };
    assert_eq!(reads.lacks, [lack]);
    assert_eq!(
        reads.message,
        "there is no room to tell more apart, so that these count in other: column family of Get: 12"
    );
    assert!(writes.lacks.is_empty());
}

#[test]
fn rows_that_the_mechanism_has_no_room_for_are_said_as_those_are_that_the_books_have_none_for() {
    let mut instance = two_probes();
    let mut seen = reading([(0, whole(calls_of(10, 1_000)))]);
    let said = |instance: &Instance| {
        let report = &instance.report(seconds(1)).probes[0];
        let items = report.lacks.iter().flat_map(|lack| lack.items.clone());
        (items.collect::<Vec<_>>(), report.message.clone())
    };
    seen.folded.insert(GroupId(0), 9_872);
    observe(&mut instance, seen.clone(), seconds(1));
    let message =
        "there is no room to tell more apart, so that these count in other: operation: 9872";
    let expected = vec!["operation: 9872".to_string()];
    assert_eq!(said(&instance), (expected, message.to_string()));
    // As much is said of the next process as there is to be said of it.
    instance.process_gone(seconds(2));
    attach(&mut instance, SUCCESSOR, seconds(2));
    assert_eq!(
        said(&instance),
        (Vec::new(), "nothing counted yet".to_string())
    );
}
