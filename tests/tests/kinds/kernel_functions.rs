//! Functions of the kernel, as one process calls them.

use std::{process::Command, time::Duration};

use ckb_probe_agent::kernel::Probes;
use ckb_probe_crds::{
    Reason,
    kinds::{kernel_functions::KernelFunctionsProbe, syscalls::SyscallsProbe},
};
use ckb_probe_testkit::{
    assert_begins, assert_contains,
    number::{self, under},
};
use ckb_probe_tests::rows;

use crate::{
    harness::watching,
    kernel_tiers::{attach, kernel_tiers, system_call},
    way::{Way, caller, in_every_way, lost, total},
    witness::DiskstatsCheck,
};

const NAP: Duration = Duration::from_millis(5);

/// One that system calls are made by, and one that they are made of.
const FUNCTIONS: [&str; 2] = [system_call!("getppid"), "do_sys_openat2"];

fn matching(pattern: &str, threshold: Option<Duration>) -> KernelFunctionsProbe {
    KernelFunctionsProbe {
        r#match: pattern.to_string(),
        limit: 20,
        threshold: threshold.map(Into::into),
    }
}

#[test]
fn each_tier_counts_what_the_kernels_own_kprobes_count() {
    in_every_way(matching(FUNCTIONS[0], None), |_| {
        let (mut caller, mut other) = (caller(), caller());
        let witnesses = FUNCTIONS.map(DiskstatsCheck::of);
        let witnessed = |process| witnesses.each_ref().map(|one| one.calls(process));
        for tier in kernel_tiers() {
            let before = witnessed(caller.pid());
            let mut probes = attach(*tier, caller.pid(), &FUNCTIONS).unwrap();
            caller.tell("getppid 3000 1");
            other.tell("getppid 777 1");
            caller.tell("openat 300 1");
            other.tell("openat 77 1");
            let counted = counts(&mut probes);
            let after = witnessed(caller.pid());
            let witnessed = [after[0] - before[0], after[1] - before[1]];
            assert_eq!(witnessed, [3000, 300], "by {tier:?}");
            assert_eq!(counted, witnessed, "by {tier:?}");
            println!("{}: {counted:?}, by the witness too", tier.as_str());
        }
    });
}

#[test]
fn a_functions_calls_are_those_of_the_target_alone() {
    in_every_way(matching(system_call!("getp[gp]i?"), None), |way| {
        let (mut caller, mut other) = (caller(), caller());
        let mut session = way.attach(caller.pid());
        caller.tell("getppid 5000 1");
        caller.tell("openat 300 1");
        other.tell("getppid 777 1");
        caller.tell("getppid 100 2");
        session.read().unwrap();
        let getppid = total(&session, system_call!("getppid"));
        assert_eq!(rows::calls(getppid), 5200);
        assert_eq!(rows::durations(getppid).count(), 5200, "all are timed");
        assert_eq!(rows::calls(total(&session, system_call!("getpgid"))), 0);
        assert_eq!(lost(&session), 0);
    });
}

#[test]
fn where_they_cannot_be_probed_nothing_else_is_kept_from_being_measured() {
    let watching = watching();
    let _entered = watching.enter();
    let mut caller = caller();
    let questions = [
        SyscallsProbe::default().into(),
        matching(FUNCTIONS[0], None).into(),
    ];
    let way = Way::without_uprobes(matching(FUNCTIONS[0], None));
    let mut session = way.ask_all(questions, caller.pid()).unwrap();
    caller.tell("getppid 3000 1");
    session.read().unwrap();
    assert_eq!(rows::calls(total(&session, "getppid")), 3000);
    let lacks = session.lacks();
    let sentence = ", but not probe-1: functions of this node's kernel cannot be probed: ";
    assert_eq!(
        lacks.starts_with(sentence),
        kernel_tiers().is_empty(),
        "{lacks}"
    );
    let best = kernel_tiers().first();
    println!("passed by {}", best.map_or("refusal", |best| best.as_str()));
}

#[test]
fn a_later_process_of_the_targets_number_is_not_the_target() {
    if !number::may_be_chosen() {
        println!("left out: numbers of processes may not be chosen");
        return;
    }
    in_every_way(matching(FUNCTIONS[0], None), |_| {
        for tier in kernel_tiers() {
            let mut earlier = Command::new("sleep").arg("1000").spawn().unwrap();
            let number = earlier.id();
            let mut probes = attach(*tier, number, &FUNCTIONS).unwrap();
            earlier.kill().unwrap();
            earlier.wait().unwrap();
            let before: Vec<u64> = counts(&mut probes);
            // What tells the one from the other is a tick.
            std::thread::sleep(Duration::from_millis(20));
            let mut later = under(number, &mut Command::new("ls"));
            assert!(later.wait().unwrap().success());
            assert_eq!(counts(&mut probes), before, "by {tier:?}");
        }
    });
}

fn counts(probes: &mut Probes) -> Vec<u64> {
    let slots = probes.read().unwrap().slots.into_iter();
    slots.map(|slot| slot.histogram.count()).collect()
}

#[test]
fn calls_that_sleep_are_timed_and_told_when_they_are_slow() {
    in_every_way(
        matching(system_call!("clock_nanosleep"), Some(NAP)),
        |way| {
            let mut caller = caller();
            let mut session = way.attach(caller.pid());
            caller.tell("nap 50 2");
            session.read().unwrap();
            let naps = total(&session, system_call!("clock_nanosleep"));
            assert_eq!(rows::calls(naps), 100);
            let durations = rows::durations(naps);
            assert_eq!(durations.count(), 100);
            let least = durations.quantile(0.0).unwrap() as f64 / NAP.as_nanos() as f64;
            assert!(least > 0.968, "{least} of the least that it can be");
            assert_eq!(rows::slow(naps), 100);
            let events = session.events();
            assert_eq!(events.len(), 100);
            for event in &events {
                assert_eq!(event["function"], system_call!("clock_nanosleep"));
                assert_eq!(event["threadName"], "ground-truth-ke");
                assert!(event["durationNanoseconds"].as_u64().unwrap() >= 5_000_000);
            }
        },
    );
}

/// More calls in flight than some kernels have room for: those that find none are counted and not timed, but for the last of each
/// thread, which nothing comes after.
#[test]
fn many_calls_in_flight_are_counted_though_some_may_not_be_timed() {
    in_every_way(matching(system_call!("clock_nanosleep"), None), |way| {
        let mut caller = caller();
        let mut session = way.attach(caller.pid());
        caller.tell("nap 20 16");
        session.read().unwrap();
        let naps = total(&session, system_call!("clock_nanosleep"));
        let (calls, timed) = (rows::calls(naps), rows::durations(naps).count());
        println!("{calls} of 320 calls counted, {timed} timed");
        assert!((304..=320).contains(&calls), "{calls}");
        assert!((40..=calls).contains(&timed), "{timed}");
    });
}

#[test]
fn what_must_not_be_probed_and_what_is_too_much_is_refused() {
    let watching = watching();
    let _entered = watching.enter();
    let getppid = || matching(FUNCTIONS[0], None);
    let way = Way::without_uprobes(getppid());
    let refused = |pattern| {
        let question = matching(pattern, None).into();
        let refusal = way.ask(question, std::process::id()).err().unwrap();
        (refusal.reason, refusal.message)
    };
    let (reason, message) = refused("vfs_*");
    assert_eq!(reason, Reason::TooManyMatches);
    assert_contains(&message, "more than the limit of 20: for example vfs_");
    let (reason, message) = refused("ckb_probe_is_no_part_of_a_kernel");
    assert_eq!(reason, Reason::SymbolNotFound);
    assert_begins(&message, "no function of this node's kernel matches ");
    in_every_way(getppid(), |_| {
        let (reason, message) = refused("ktime_get");
        assert_eq!(reason, Reason::UnsupportedByKernel);
        assert_eq!(
            message,
            "nothing that matches ktime_get is measured; left out: ktime_get, since probes read their time by it"
        );
    });
}
