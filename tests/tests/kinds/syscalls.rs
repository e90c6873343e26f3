//! System calls.

use std::time::Duration;

use ckb_probe_crds::kinds::syscalls::SyscallsProbe;
use ckb_probe_tests::rows;

use crate::way::{caller, in_every_way, lost, row, rows_of, total};

fn named(names: &[&str], slow_threshold: Duration) -> SyscallsProbe {
    SyscallsProbe {
        names: names.iter().map(ToString::to_string).collect(),
        slow_threshold: slow_threshold.into(),
    }
}

#[test]
fn calls_and_errors_are_those_of_the_target_to_the_last() {
    let probe = named(
        &["getppid", "openat", "clock_nanosleep"],
        Duration::from_secs(60),
    );
    in_every_way(probe, |way| {
        let (mut caller, mut other) = (caller(), caller());
        let mut session = way.attach(caller.pid());
        caller.tell("getppid 5000 1");
        caller.tell("openat 300 2");
        caller.tell("nap 10 4");
        other.tell("getppid 777 1");
        other.tell("openat 77 1");
        session.read().unwrap();
        for (name, calls, errors) in [
            ("getppid", 5000, 0),
            ("openat", 600, 600),
            ("clock_nanosleep", 40, 0),
        ] {
            let total = total(&session, name);
            let timed = rows::durations(total).count();
            assert_eq!((rows::calls(total), timed), (calls, calls), "{name}");
            assert_eq!(total.sums["errors"], errors, "{name}");
        }
        assert_eq!(rows_of(&session), ["clock_nanosleep", "getppid", "openat"]);
        let parts = row(&session, "openat").parts.iter();
        let parts = parts.map(|(name, part)| (name.as_str(), part.total.sums["errors"]));
        assert_eq!(parts.collect::<Vec<_>>(), [("ENOENT", 600)]);
        let naps = rows::durations(total(&session, "clock_nanosleep"));
        let least = naps.quantile(0.0).unwrap() as f64 / 5_000_000.0;
        assert!(least > 0.968, "{least} of the least that it can be");
        assert_eq!(lost(&session), 0);
    });
}

#[test]
fn slow_calls_are_told_with_their_path_or_their_file() {
    let probe = named(
        &["openat", "read", "clock_nanosleep"],
        Duration::from_nanos(1),
    );
    in_every_way(probe, |way| {
        let mut caller = caller();
        let mut session = way.attach(caller.pid());
        caller.tell("openat 20 1");
        caller.tell("nap 10 1");
        // It waits for this order in a read that began after the attach.
        caller.tell("openat 20 1");
        session.read().unwrap();
        let events = session.events();
        let of = |name| events.iter().filter(move |event| event["syscall"] == name);
        assert_eq!(of("openat").count(), 40);
        for open in of("openat") {
            assert_eq!(open["path"], "/there/is/no/such/file");
            assert_eq!(open["errno"], "ENOENT");
        }
        let read = of("read").next_back().unwrap();
        let file = read["file"].as_str().unwrap();
        assert!(file.starts_with("pipe:["), "{read}");
        // It waits, which is never slow.
        assert_eq!(of("clock_nanosleep").count(), 0);
        let naps = total(&session, "clock_nanosleep");
        assert_eq!((rows::calls(naps), rows::slow(naps)), (10, 0));
        assert_eq!(lost(&session), 0);
    });
}
