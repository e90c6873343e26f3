//! Functions of the kernel, as one process calls them. Where the kernel does not let them be probed, that is said.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    time::Duration,
};

use ckb_probe_agent::{
    host::{HostError, Session, find_process},
    kernel::Means,
    mechanism::Refusal,
};
use ckb_probe_crds::{
    Breach, Figures, Overhead, Reason, kinds::kernel_functions::KernelFunctionsProbe,
};
use ckb_probe_tests::{fixture::fixtures, rows};

use crate::harness::by_every_tier;

const NAP: Duration = Duration::from_millis(5);

/// A program that makes a known number of system calls.
struct Caller {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Caller {
    fn start() -> Self {
        let mut child = Command::new(fixtures().join("ground-truth-kernel"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        Self {
            input: child.stdin.take().unwrap(),
            output: BufReader::new(child.stdout.take().unwrap()),
            child,
        }
    }

    /// Makes so many calls in each of so many threads at a time.
    fn make(&mut self, call: &str, count: u32, threads: u32) {
        writeln!(self.input, "{call} {count} {threads}").unwrap();
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        assert_eq!(line, "done\n");
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

fn matching(pattern: &str, threshold: Option<Duration>) -> KernelFunctionsProbe {
    KernelFunctionsProbe {
        r#match: pattern.to_string(),
        limit: 20,
        threshold: threshold.map(Into::into),
    }
}

fn try_attach(
    caller: &Caller,
    means: Means,
    kind: KernelFunctionsProbe,
) -> Result<Session, Refusal> {
    let process = find_process(Some(caller.child.id()), "").unwrap();
    let overhead = Overhead {
        on_breach: Breach::Report,
        ..Overhead::default()
    };
    let hour = Duration::from_secs(3600);
    match Session::attach(Ok(means), process, kind.into(), overhead, hour) {
        Ok(session) => Ok(session),
        Err(HostError::Attach(refusal)) => Err(refusal),
        Err(error) => panic!("{error}"),
    }
}

/// Attaches for good. None where the kernel has nothing to attach by, and that was said.
fn attach(caller: &Caller, means: Means, kind: KernelFunctionsProbe) -> Option<Session> {
    match try_attach(caller, means, kind) {
        Ok(session) => Some(session),
        Err(refusal) => {
            let symbols = fs::read_to_string("/proc/kallsyms").unwrap();
            // An emulated kernel of 6.1 has kprobes by perf events alone, which take SYS_ADMIN: as the uprobes there.
            assert!(
                !symbols.contains(" register_fprobe") && !symbols.contains(" register_kprobe"),
                "this kernel has what it takes: {refusal}"
            );
            assert_eq!(refusal.reason, Reason::UnsupportedByKernel);
            let sentence = "functions of this node's kernel cannot be probed: that takes one built with CONFIG_FPROBE (Linux \
                            5.18 or later) or with CONFIG_KPROBE_EVENTS (";
            assert!(refusal.message.starts_with(sentence), "{refusal}");
            println!("no more than that is tested on this kernel: {refusal}");
            None
        }
    }
}

/// The books of a function.
fn figures<'a>(session: &'a Session, function: &str) -> &'a Figures {
    let series = session.instance.probes[0].series.iter();
    let mut rows = series.flat_map(|series| &series.rows);
    let (_, row) = rows.find(|(name, _)| *name == function).unwrap();
    &row.all.total
}

#[test]
fn a_functions_calls_are_those_of_the_target_alone() {
    by_every_tier(|means| {
        let (mut caller, mut other) = (Caller::start(), Caller::start());
        let Some(mut session) = attach(&caller, means, matching("__x64_sys_getp[gp]i?", None))
        else {
            return;
        };
        caller.make("getppid", 5000, 1);
        caller.make("openat", 300, 1);
        other.make("getppid", 777, 1);
        caller.make("getppid", 100, 2);
        session.read().unwrap();
        let getppid = figures(&session, "__x64_sys_getppid");
        assert_eq!(rows::calls(getppid), 5200);
        assert_eq!(rows::durations(getppid).count(), 5200, "all are timed");
        assert_eq!(rows::calls(figures(&session, "__x64_sys_getpgid")), 0);
        assert_eq!(session.instance.lost["calls"], 0);
    });
}

#[test]
fn calls_that_sleep_are_timed_and_told_when_they_are_slow() {
    by_every_tier(|means| {
        let mut caller = Caller::start();
        let kind = matching("__x64_sys_clock_nanosleep", Some(NAP));
        let Some(mut session) = attach(&caller, means, kind) else {
            return;
        };
        caller.make("nap", 50, 2);
        session.read().unwrap();
        let naps = figures(&session, "__x64_sys_clock_nanosleep");
        assert_eq!(rows::calls(naps), 100);
        let durations = rows::durations(naps);
        assert_eq!(durations.count(), 100);
        let least = durations.quantile(0.0).unwrap() as f64 / NAP.as_nanos() as f64;
        assert!(least > 0.968, "{least} of the least that it can be");
        assert_eq!(rows::slow(naps), 100);
        let events = session.events();
        assert_eq!(events.len(), 100);
        for event in &events {
            assert_eq!(event["function"], "__x64_sys_clock_nanosleep");
            assert_eq!(event["threadName"], "ground-truth-ke");
            assert!(event["durationNanoseconds"].as_u64().unwrap() >= 5_000_000);
        }
    });
}

/// More calls in flight than some kernels have room for: those that find none are counted and not timed, but for the last of each
/// thread, which nothing comes after.
#[test]
fn many_calls_in_flight_are_counted_though_some_may_not_be_timed() {
    by_every_tier(|means| {
        let mut caller = Caller::start();
        let kind = matching("__x64_sys_clock_nanosleep", None);
        let Some(mut session) = attach(&caller, means, kind) else {
            return;
        };
        caller.make("nap", 20, 16);
        session.read().unwrap();
        let naps = figures(&session, "__x64_sys_clock_nanosleep");
        let (calls, timed) = (rows::calls(naps), rows::durations(naps).count());
        println!("{calls} of 320 calls counted, {timed} timed");
        assert!((304..=320).contains(&calls), "{calls}");
        assert!((40..=calls).contains(&timed), "{timed}");
    });
}

#[test]
fn what_must_not_be_probed_and_what_is_too_much_is_refused() {
    by_every_tier(|means| {
        let caller = Caller::start();
        let refused = |pattern| {
            let refusal = try_attach(&caller, means, matching(pattern, None))
                .err()
                .unwrap();
            (refusal.reason, refusal.message)
        };
        let (reason, message) = refused("vfs_*");
        assert_eq!(reason, Reason::TooManyMatches);
        assert!(
            message.contains("more than the limit of 20: for example vfs_"),
            "{message}"
        );
        let (reason, message) = refused("ckb_probe_is_no_part_of_a_kernel");
        assert_eq!(reason, Reason::SymbolNotFound);
        assert!(
            message.starts_with("no function of this node's kernel matches "),
            "{message}"
        );
        if attach(&caller, means, matching("__x64_sys_getppid", None)).is_some() {
            let (reason, message) = refused("ktime_get");
            assert_eq!(reason, Reason::UnsupportedByKernel);
            assert_eq!(
                message,
                "nothing that matches ktime_get is measured; left out: ktime_get, since probes read their time by it"
            );
        }
    });
}
