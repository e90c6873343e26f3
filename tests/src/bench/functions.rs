//! What a call costs under the kinds `functions` and `kernel-functions`, against bpftrace's usual histogram pair on the same
//! function; of the kernel, where the kernel lets its functions be probed.
//!
//! As in call-cost the function does nothing, so that what it does itself does not dilute the ratio.

use super::{
    call_cost::{BATCHES, CALLS},
    caller,
    prelude::*,
    probes::histogram_pair,
};

const FUNCTION: &str = "rocksdb_transaction_commit";

#[cfg(target_arch = "x86_64")]
const OF_THE_KERNEL: &str = "__x64_sys_getppid";
#[cfg(target_arch = "aarch64")]
const OF_THE_KERNEL: &str = "__arm64_sys_getppid";

/// There where the kernel has kprobes, which bpftrace needs.
const KPROBES: &str = "/sys/bus/event_source/devices/kprobe";

/// Until it has tried out the ways to attach to functions of the kernel.
const ATTACH: Duration = Duration::from_secs(60);

/// Between two lines of `ckb-probe`.
const INTERVAL: Duration = Duration::from_millis(100);

/// Whose function it is.
#[derive(Clone, Copy, PartialEq)]
pub enum Of {
    Process,
    Kernel,
}

/// Who makes a histogram of it.
#[derive(Clone, Copy)]
enum By {
    Nothing,
    Ours,
    Theirs,
}

const ALL: [(&str, By); 3] = [
    ("nothing", By::Nothing),
    ("ours", By::Ours),
    ("theirs", By::Theirs),
];

const ROWS: [Row; 5] = table! {
    "a call, nothing attached" = "nothing" in "ns";
    "a call, ckb-probe" = "ours" in "ns";
    "a call, bpftrace's histogram pair" = "theirs" in "ns";
    "a call, ckb-probe against bpftrace's histogram pair" = "ours / theirs" in "x", AtMost(0.85);
    "calls that ckb-probe counted otherwise than bpftrace" = "worst ours.astray" in "calls", Exactly(0.0);
};

pub async fn run(bench: &mut Bench) -> Result<()> {
    compare(bench, "functions", Of::Process).await
}

pub async fn run_of_kernel(bench: &mut Bench) -> Result<()> {
    let family = "kernel-functions";
    if Path::new(KPROBES).exists() {
        return compare(bench, family, Of::Kernel).await;
    }
    let why = format!(
        "this kernel has no kprobes ({KPROBES} is not there), so that bpftrace, which it is held against, cannot \
         probe its functions; make test-kernels has kernels that do"
    );
    bench.report.absent(family, why);
    Ok(())
}

/// Measures both of them, in turns.
async fn compare(bench: &mut Bench, family: &str, of: Of) -> Result<()> {
    let mut caller = Caller::start()?;
    let (call, function) = match of {
        Of::Process => (FUNCTION, FUNCTION),
        Of::Kernel => ("getppid", OF_THE_KERNEL),
    };
    let made = CALLS * BATCHES as u64;
    let measure = async |by| {
        let (probes, before) = match by {
            By::Nothing => return Ok(vec![("", caller.cost(call, CALLS, BATCHES)?)]),
            By::Ours => ours(bench, &mut caller, of).await?,
            By::Theirs => (theirs(&caller, of).await?, 0),
        };
        let cost = caller.cost(call, CALLS, BATCHES)?;
        let printed = probes.stop().await?;
        if let By::Ours = by {
            let counted = printed.counted(function) - before;
            return Ok(vec![("", cost), ("astray", counted.abs_diff(made) as f64)]);
        }
        let counted = printed.bpftrace_calls();
        // Whoever missed calls was not in place all of the time.
        let expected = format!("{made} calls counted by bpftrace");
        expect(counted == made, expected, || {
            format!("{counted}; {}", printed.errors)
        })?;
        Ok(vec![("", cost)])
    };
    let series = bench.turns(Order::Rotated, &ALL, measure).await?;
    bench.tell(&format!("{family}: "), &series, &ROWS);
    Ok(())
}

/// Has `ckb-probe` measure it, and returns when it does, and how much it has counted by then.
async fn ours(bench: &Bench, caller: &mut Caller, of: Of) -> Result<(Probes, u64)> {
    let programs = &bench.settings.programs;
    if of == Of::Process {
        let options = ["--match", FUNCTION, "--interval", "1h", "--json"];
        let probes = Probes::ckb_probe(programs, "functions", caller.process, &options).await?;
        return Ok((probes, 0));
    }
    let function = OF_THE_KERNEL;
    let options = ["--match", function, "--json", "--interval", "100ms"];
    let options = [&options[..], &["--on-breach", "report"]].concat();
    let probes = Probes::begin(programs, "kernel-functions", caller.process, &options)?;
    // It attaches more than once, to find out how. What counts is that a call is counted.
    wait::until("a call to be counted", ATTACH, async || {
        probes.expect_alive()?;
        caller.call("getppid", 1)?;
        let counted = probes.so_far()?.counted(function);
        expect(counted > 0, "a call", || "none")
    })
    .await?;
    sleep(INTERVAL * 5).await;
    let before = probes.so_far()?.counted(function);
    Ok((probes, before))
}

/// The same for bpftrace.
async fn theirs(caller: &Caller, of: Of) -> Result<Probes> {
    if of == Of::Process {
        return Probes::bpftrace(&caller::file(), &[FUNCTION]).await;
    }
    let (function, pid) = (OF_THE_KERNEL, caller.process.pid);
    let script = histogram_pair(
        function,
        &format!("kprobe:{function} /pid == {pid}/ {{"),
        &format!("kretprobe:{function} /@s[tid]/ {{"),
    );
    Probes::script(&script, 2).await
}
