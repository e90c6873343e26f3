//! What worked before fails while the process goes on: no time is lost silently.

use super::*;

/// As the kernel refuses what it allowed before.
fn refused() -> Refusal {
    Refusal::new(Reason::AttachFailed, "the kernel refused")
}

/// The milliseconds of the last interval, and those of them that were recorded.
fn window(instance: &Instance, now: Duration) -> (u64, u64) {
    let report = instance.report(now);
    let window = &get(&report).window;
    (window.milliseconds, window.recorded_milliseconds)
}

#[test]
fn the_time_until_it_works_again_is_a_gap_and_a_hole_in_the_interval() {
    let mut instance = attached();
    instance.close_interval(seconds(2), None);
    observe(&mut instance, gets(100), seconds(4));
    instance.failed(Reason::AttachFailed, "no".to_string(), seconds(4));
    assert_eq!(instance.report(seconds(6)).gap_milliseconds, 2_000);
    attach(&mut instance, PROCESS, seconds(7));
    observe(&mut instance, gets(50), seconds(9));
    let report = instance.report(seconds(9));
    // It was never gone, but nobody looked for three seconds.
    assert_eq!((report.reattaches, report.gap_milliseconds), (0, 3_000));
    assert_eq!(count(&get(&report).total), 150);
    instance.close_interval(seconds(12), None);
    assert_eq!(window(&instance, seconds(12)), (10_000, 7_000));
    assert_eq!(
        count(&get(&instance.report(seconds(12))).window.figures),
        150
    );
    // And the next interval has no hole.
    instance.close_interval(seconds(22), None);
    assert_eq!(window(&instance, seconds(22)), (10_000, 10_000));
}

#[test]
fn an_interval_that_ends_in_the_hole_has_its_part_of_it() {
    let mut instance = attached();
    instance.close_interval(seconds(2), None);
    observe(&mut instance, gets(100), seconds(8));
    instance.failed(Reason::AttachFailed, "no".to_string(), seconds(8));
    instance.close_interval(seconds(12), None);
    assert_eq!(window(&instance, seconds(12)), (10_000, 6_000));
    instance.close_interval(seconds(22), None);
    assert_eq!(window(&instance, seconds(22)), (10_000, 0));
    attach(&mut instance, PROCESS, seconds(25));
    instance.close_interval(seconds(32), None);
    assert_eq!(window(&instance, seconds(32)), (10_000, 7_000));
    assert_eq!(instance.report(seconds(32)).gap_milliseconds, 17_000);
}

#[test]
fn what_is_to_be_measured_anew_and_is_refused_is_missed_from_when_it_was_stopped() {
    let mut instance = attached();
    instance.close_interval(seconds(2), None);
    observe(&mut instance, gets(100), seconds(5));
    instance.suspend(seconds(5));
    instance.answered(PROCESS, 0, vec![Err(refused())], seconds(6));
    assert_eq!(instance.report(seconds(8)).gap_milliseconds, 3_000);
    // Refused again, it is the same gap.
    instance.answered(PROCESS, 0, vec![Err(refused())], seconds(8));
    attach(&mut instance, PROCESS, seconds(9));
    instance.close_interval(seconds(12), None);
    assert_eq!(window(&instance, seconds(12)), (10_000, 6_000));
    assert_eq!(instance.report(seconds(12)).gap_milliseconds, 4_000);
}

#[test]
fn a_gap_that_ends_with_the_process_goes_on_until_the_next_one() {
    let mut instance = attached();
    instance.failed(Reason::AttachFailed, "no".to_string(), seconds(4));
    instance.process_gone(seconds(6));
    assert_eq!(instance.report(seconds(7)).gap_milliseconds, 3_000);
    attach(&mut instance, SUCCESSOR, seconds(8));
    let report = instance.report(seconds(8));
    assert_eq!((report.reattaches, report.gap_milliseconds), (1, 4_000));
}

#[test]
fn the_moment_in_which_it_is_measured_anew_is_a_gap_however_that_ends() {
    let mut instance = attached();
    let moment = Duration::from_micros(4_000_001);
    instance.suspend(seconds(4));
    // How long it is going to be is not known.
    assert_eq!(instance.report(seconds(5)).gap_milliseconds, 0);
    attach(&mut instance, PROCESS, moment);
    assert_eq!(instance.report(seconds(6)).gap_milliseconds, 1);
    instance.suspend(seconds(7));
    instance.process_gone(seconds(8));
    attach(&mut instance, SUCCESSOR, seconds(10));
    assert_eq!(instance.report(seconds(10)).gap_milliseconds, 3_001);
}

#[test]
fn what_was_never_measured_has_no_gap() {
    let mut instance = instance(Overhead::default());
    instance.answered(PROCESS, 0, vec![Err(refused())], seconds(1));
    // Another's probes are replaced, who asks the same process for something that is there.
    instance.suspend(seconds(2));
    instance.answered(PROCESS, 0, vec![Err(refused())], seconds(3));
    attach(&mut instance, PROCESS, seconds(5));
    assert_eq!(instance.report(seconds(5)).gap_milliseconds, 0);
}

#[test]
fn one_probe_of_several_that_fails_has_a_hole_and_the_others_have_none() {
    let other = calls("other", &[Operation::Write]);
    let mut instance = Instance::new(
        InstanceKey::default(),
        vec![two_operations(), other],
        terms(Overhead::default()),
        Duration::ZERO,
    );
    attach(&mut instance, PROCESS, Duration::ZERO);
    instance.close_interval(seconds(2), None);
    instance.suspend(seconds(4));
    let answers = |instance: &Instance, first: Result<Accepted, Refusal>| {
        vec![first, Ok(opened(&instance.probes[1].probe, 2))]
    };
    let without = answers(&instance, Err(refused()));
    instance.answered(PROCESS, 0, without, seconds(4));
    instance.suspend(seconds(7));
    let with = answers(&instance, Ok(opened(&two_operations(), 0)));
    instance.answered(PROCESS, 0, with, seconds(7));
    instance.close_interval(seconds(12), None);
    assert_eq!(window(&instance, seconds(12)), (10_000, 7_000));
    let report = instance.report(seconds(12));
    let write = &row(&report, "Write").window;
    assert_eq!(
        (write.milliseconds, write.recorded_milliseconds),
        (10_000, 10_000)
    );
    assert_eq!(report.gap_milliseconds, 0, "something was measured");
}
