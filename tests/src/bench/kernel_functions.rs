//! The same as `functions` for a function of the kernel, where the kernel lets its functions be probed.

use std::{path::Path, time::Duration};

use tokio::time::sleep;

use super::{
    Bench,
    caller::Caller,
    functions::{Subject, compare},
    probes::{Probes, histogram_pair},
};
use crate::{
    failure::{Result, expect},
    wait,
};

/// There where the kernel has kprobes, which bpftrace needs.
const KPROBES: &str = "/sys/bus/event_source/devices/kprobe";

#[cfg(target_arch = "x86_64")]
const FUNCTION: &str = "__x64_sys_getppid";
#[cfg(target_arch = "aarch64")]
const FUNCTION: &str = "__arm64_sys_getppid";

/// Until it has tried out the ways to attach.
const ATTACH: Duration = Duration::from_secs(60);

/// Between two lines of `ckb-probe`.
const INTERVAL: Duration = Duration::from_millis(100);

struct KernelFunction;

impl Subject for KernelFunction {
    const FAMILY: &'static str = "kernel-functions";
    const CALL: &'static str = "getppid";
    const FUNCTION: &'static str = FUNCTION;

    async fn ours(bench: &Bench, caller: &mut Caller) -> Result<(Probes, u64)> {
        let options = [
            "--match",
            FUNCTION,
            "--json",
            "--interval",
            "100ms",
            "--on-breach",
            "report",
        ];
        let programs = &bench.settings.programs;
        let probes = Probes::begin(programs, "kernel-functions", caller.process, &options)?;
        // It attaches more than once, to find out how. What counts is that a call is counted.
        wait::until("a call to be counted", ATTACH, async || {
            probes.expect_alive()?;
            caller.call(Self::CALL, 1).await?;
            let counted = probes.so_far()?.counted(FUNCTION);
            expect(counted > 0, "a call", || "none".to_string())
        })
        .await?;
        sleep(INTERVAL * 5).await;
        let before = probes.so_far()?.counted(FUNCTION);
        Ok((probes, before))
    }

    async fn theirs(caller: &Caller) -> Result<Probes> {
        let pid = caller.process.pid;
        let script = histogram_pair(
            FUNCTION,
            &format!("kprobe:{FUNCTION} /pid == {pid}/ {{"),
            &format!("kretprobe:{FUNCTION} /@s[tid]/ {{"),
        );
        Probes::script(&script, 2).await
    }
}

pub async fn run(bench: &mut Bench) -> Result<()> {
    if !Path::new(KPROBES).exists() {
        let why = format!(
            "this kernel has no kprobes ({KPROBES} is not there), so that bpftrace, which it is held against, cannot \
             probe its functions; make test-kernels has kernels that do"
        );
        bench.report.absent(KernelFunction::FAMILY.to_string(), why);
        return Ok(());
    }
    compare::<KernelFunction>(bench).await
}
