//! Where the time and the memory go.

use std::{
    env,
    hint::black_box,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use ckb_probe_crds::{InstanceState, Lack, ProfileMode, Reason, kinds::profile::ProfileProbe};

use crate::way::{in_every_way, total};

const PAGE: usize = 4096;

/// On arm64 the kernel has no tracepoint for them.
const TELLS_OF_PAGE_FAULTS: bool = cfg!(target_arch = "x86_64");

/// Until a window of two seconds is over, on a machine that is busy or emulated.
const PATIENCE: Duration = Duration::from_secs(240);

/// Tells the process that it is the one that is busy.
const BUSY: &str = "CKB_PROBE_TEST_BUSY";

/// A process that runs, waits and grows, until it is dropped. Not this one: whoever takes the stacks is on the CPU there, too, with
/// stacks that are larger than what is copied.
struct Busy(Child);

impl Busy {
    fn start() -> Self {
        let mut command = Command::new(env::current_exe().unwrap());
        command
            .args(["--exact", "profile::busy", "--ignored"])
            .env(BUSY, "1");
        Self(command.stdout(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[test]
#[ignore = "it is the process of another test"]
fn busy() {
    if env::var_os(BUSY).is_none() {
        return;
    }
    thread::spawn(|| {
        let mut round = 0_u64;
        loop {
            round = black_box(round.wrapping_mul(31).wrapping_add(7));
        }
    });
    let mut held = Vec::new();
    loop {
        // For longer than anybody waits for a window of it, and no more than an emulated machine has.
        if held.len() < 8_000 {
            let mut pages = vec![0_u8; 8 * PAGE];
            pages.iter_mut().step_by(PAGE).for_each(|byte| *byte = 1);
            held.push(black_box(pages));
        }
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn time_on_and_off_the_cpu_and_memory_and_threads_are_told_of_a_window() {
    let mut modes = vec![ProfileMode::Cpu, ProfileMode::OffCpu, ProfileMode::Threads];
    if TELLS_OF_PAGE_FAULTS {
        modes.push(ProfileMode::Memory);
    }
    let asked = modes.len();
    let question = ProfileProbe {
        modes,
        window: Duration::from_secs(2).into(),
        ..ProfileProbe::default()
    };
    in_every_way(question, |way| {
        let busy = Busy::start();
        let mut session = way.attach(busy.0.id());
        let end = Instant::now() + PATIENCE;
        let known = |session: &ckb_probe_agent::host::Session| {
            let series = session.instance().probes[0].series.iter();
            series.map(|series| series.rows.len()).sum::<usize>()
        };
        while known(&session) < asked {
            let known = known(&session);
            assert!(Instant::now() < end, "{known} rows of {asked}");
            thread::sleep(Duration::from_millis(100));
            session.read().unwrap();
        }
        let sum = |row, name: &str| total(&session, row).sums[name];
        // It burnt all of the time that it was looked, and was not the only one to run.
        assert!(sum("Cpu", "time") > 200_000_000, "{}", sum("Cpu", "time"));
        assert!(sum("OffCpu", "time") > 1_000_000_000);
        if TELLS_OF_PAGE_FAULTS {
            assert!(sum("Memory", "memory") > 50 * PAGE as u64);
        }
        let threads = total(&session, "Threads").levels["threads"];
        assert!(threads >= 3, "{threads}");
        let sampled = ["Cpu", "OffCpu", "Memory"].into_iter();
        for row in sampled.filter(|row| *row != "Memory" || TELLS_OF_PAGE_FAULTS) {
            let (samples, complete) = (sum(row, "samples"), sum(row, "complete"));
            assert!(samples > 0, "{row}");
            assert!(
                complete * 100 >= samples * 90,
                "{row}: {complete} of {samples}"
            );
        }
    });
}

#[test]
#[cfg(target_arch = "aarch64")]
fn where_memory_comes_from_is_refused_since_the_kernel_does_not_tell() {
    let busy = Busy::start();
    let question = ProfileProbe {
        modes: vec![ProfileMode::Cpu, ProfileMode::Memory],
        window: Duration::from_secs(1).into(),
        ..ProfileProbe::default()
    };
    in_every_way(question, |way| {
        let mut session = way.attach(busy.0.id());
        let end = Instant::now() + PATIENCE;
        loop {
            session.read().unwrap();
            let probe = session.instance().report(session.now()).probes.remove(0);
            if probe.lacks.iter().any(|lack| lack.items == ["Memory"]) {
                let why = "this kernel has no tracepoint page_fault_user";
                assert!(probe.message.contains(why), "{}", probe.message);
                return;
            }
            assert!(Instant::now() < end, "{}", probe.message);
            thread::sleep(Duration::from_millis(100));
        }
    });
}

#[test]
fn a_mode_of_which_no_window_has_stacks_is_told_as_lacking_and_a_probe_of_no_other_as_failed() {
    let busy = Busy::start();
    let ask = |modes: &[ProfileMode]| ProfileProbe {
        modes: modes.to_vec(),
        window: Duration::from_secs(1).into(),
        ..ProfileProbe::default()
    };
    // Whoever waits for a window knows more than whoever attaches: who allocates is seen in functions, and here none is attached to.
    in_every_way(ask(&[ProfileMode::Allocations]), |way| {
        let told = |modes: &[ProfileMode]| {
            let mut session = way.ask(ask(modes).into(), busy.0.id()).unwrap();
            let end = Instant::now() + PATIENCE;
            loop {
                session.read().unwrap();
                let mut report = session.instance().report(session.now());
                let probe = report.probes.remove(0);
                // On a slow machine it is told meanwhile that what is read of a process's files takes its time.
                let is_known = |lack: &Lack| lack.reason == Reason::PreflightFailed;
                if probe.state == InstanceState::Failed || probe.lacks.iter().any(is_known) {
                    return probe;
                }
                assert!(Instant::now() < end, "{}", probe.message);
                thread::sleep(Duration::from_millis(100));
            }
        };
        let alone = told(&[ProfileMode::Allocations]);
        assert_eq!(
            (alone.state, alone.reason, alone.firing),
            (InstanceState::Failed, Some(Reason::PreflightFailed), false)
        );
        let why = "no stacks of Allocations in the last window: no function can be attached to on this node";
        assert!(alone.message.starts_with(why), "{}", alone.message);
        let beside = told(&[ProfileMode::Cpu, ProfileMode::Allocations]);
        assert_eq!(beside.state, InstanceState::Attached);
        let lacks = [Lack {
            reason: Reason::PreflightFailed,
            items: vec!["Allocations".to_string()],
        }];
        assert_eq!(beside.lacks, lacks);
        assert!(beside.message.contains(why), "{}", beside.message);
    });
}
